"""Reads values from a table that a change of its log does not contain."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from drover.connectors.postgres.pgoutput import Relation
from drover.connectors.postgres.row_columns import RowChanges, TextColumn
from drover.connectors.postgres.server import ServerAddress, translated_errors


@dataclass(frozen=True)
class RowLookup:
    """Reads large values of rows whose key changed: the deletion of the old key removes the only
    copy that a target has. They are the current values: a later change of one is in the log.
    """

    address: ServerAddress

    def completed(
        self, changes: RowChanges, moved: Any, relation: Relation, keys: Sequence[int]
    ) -> RowChanges:
        """The changes, with the values that the new rows of ``moved`` ones lack, if they exist.

        Args:
            changes: Changes of the table.
            moved: Marks the changes of a key.
            relation: The table.
            keys: The columns of the key.

        Raises:
            RetriableError: The server is unavailable.
        """
        rows = changes.new[moved]
        lacking = [
            number
            for number, column in enumerate(changes.columns)
            if column.unchanged is not None and column.unchanged[rows].any()
        ]
        if not lacking or not {*lacking}.isdisjoint(keys):
            return changes
        found = self._read(changes.columns, rows, lacking, relation, keys)
        columns = list(changes.columns)
        for place, number in enumerate(lacking):
            texts = columns[number].texts.to_pylist()
            unchanged = columns[number].unchanged.copy()
            for row, values in found.items():
                if unchanged[row]:
                    texts[row], unchanged[row] = values[place], False
            kind = columns[number].texts.type
            columns[number] = TextColumn(pa.array(texts, kind), unchanged)
        return replace(changes, columns=columns)

    def _read(
        self,
        columns: Sequence[TextColumn],
        rows: Any,
        wanted: Sequence[int],
        relation: Relation,
        keys: Sequence[int],
    ) -> dict[int, list[str | None]]:
        """The texts of the wanted columns, by row."""
        import psycopg
        from psycopg import sql

        names = [each.name for each in relation.columns]
        found: dict[int, list[str | None]] = {}
        with (
            translated_errors(self.address, f"reading {relation.name}"),
            self.address.connected("drover lookup") as connection,
        ):
            current = connection.execute(
                "SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n"
                " ON n.oid = c.relnamespace WHERE c.oid = %s",
                (relation.oid,),
            ).fetchone()
            if current is None:
                return {}
            query = sql.SQL("SELECT {} FROM {} WHERE {}").format(
                sql.SQL(", ").join(sql.Identifier(names[each]) for each in wanted),
                sql.Identifier(*map(str, current)),
                sql.SQL(" AND ").join(
                    sql.SQL("{} = %s").format(sql.Identifier(names[each])) for each in keys
                ),
            )
            for row in rows.tolist():
                key = [columns[each].texts[row].as_py() for each in keys]
                try:
                    cursor = connection.execute(query, key)
                except psycopg.ProgrammingError:  # the table has another form since
                    return found
                result = cursor.pgresult
                if result is not None and result.ntuples == 1:
                    values = [result.get_value(0, each) for each in range(len(wanted))]
                    found[row] = [None if each is None else each.decode() for each in values]
        return found
