"""Writes many rows into a PostgreSQL table: COPY into a staging table, then one statement.

The staging table has the types of the records; each column is cast to the table's type when it is
inserted, as PostgreSQL casts a parameter. A failed cast is an error of the statement.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO

import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import sqlalchemy as sa

from drover.connectors.jdbc.changes import ColumnChanges
from drover.connectors.jdbc.column_types import lossy
from drover.connectors.jdbc.database import DatabaseError, savepoint, sqlstate_of
from drover.connectors.jdbc.exact_values import LossError
from drover.connectors.jdbc.json_columns import DOCUMENT
from drover.connectors.jdbc.new_rows import NEW_ROWS
from drover.connectors.jdbc.staged_columns import StagedColumn, TargetColumn, staged_column
from drover.connectors.jdbc.tables import no_unique_key, require_columns
from drover.connectors.jdbc.write_settings import INSERT, UPDATE

_STAGING = "pg_temp.drover_staging"
_COPY_ROWS = 16_384
#: SQLSTATE of ON CONFLICT without a matching constraint, or with a DEFERRABLE one.
_NO_SUCH_KEY, _DEFERRABLE_KEY = "42P10", "55000"
#: SQLSTATE of a duplicate key.
_IS_THERE = "23505"
#: For fewer rows a plain INSERT is not tried: it would save little.
_TRIED_ROWS = 1_000
#: The last change to a key: written, written after a deletion, or deleted.
_WRITTEN, _WRITTEN_AFTER_DELETION, _DELETED = 0, 1, 2
_COLUMNS = """
WITH RECURSIVE below AS (
    SELECT attname, atttypid AS type, atttypmod AS modifier, attcollation AS collated
    FROM pg_attribute WHERE attrelid = CAST(:name AS regclass) AND attnum > 0 AND NOT attisdropped
    UNION ALL
    SELECT attname, typbasetype, CASE WHEN typtypmod >= 0 THEN typtypmod ELSE modifier END, collated
    FROM below JOIN pg_type t ON t.oid = type WHERE typtype = 'd')
SELECT attname, format_type(type, -1), format_type(type, modifier),
  coalesce((SELECT collisdeterministic FROM pg_collation c WHERE c.oid = collated), true)
FROM below WHERE NOT EXISTS (SELECT FROM pg_type t WHERE t.oid = type AND typtype = 'd')
"""


@dataclass(frozen=True, slots=True)
class BulkPlan:
    """The plan for writing staged rows to a table.

    ``has_states`` means that the staging table has the last change to each key, because there are
    deletions; ``all_gone`` that all are deletions. ``texts`` are the rows in COPY's format.
    """

    record_count: int
    insert_mode: str
    columns: Mapping[str, StagedColumn]
    keys: tuple[str, ...]
    has_states: bool
    all_gone: bool
    texts: Sequence[memoryview]


class BulkTable:
    """A table that is written in bulk, in the transaction of a connection."""

    def __init__(self, connection: "sa.Connection", table: "sa.Table") -> None:
        self._connection = connection
        self._table = table
        preparer = connection.dialect.identifier_preparer
        self._quote = preparer.quote
        self._name = preparer.format_table(table)  # with percent signs doubled
        rows = connection.execute(sa.text(_COLUMNS), {"name": self._name.replace("%%", "%")})
        self._targets = {row[0]: TargetColumn(*row[1:]) for row in rows}
        #: Rows were matched by key, which fails without a unique constraint.
        self._finds_by_key = False
        self._known_as = (str(connection.engine.url), self._name)

    def plan(self, changes: ColumnChanges, insert_mode: str) -> BulkPlan | None:
        """Plan the write; None if the changes must be applied one by one.

        Does not use the connection, so another thread may use it.

        Raises:
            DatabaseError: The table lacks a column.
        """
        rows, gone = changes.rows, changes.gone
        all_gone = gone is not None and bool(pc.all(gone).as_py())
        if any(pa.types.is_nested(rows.schema.field(name).type) for name in changes.keys):
            return None
        if insert_mode == INSERT and gone is not None and not all_gone:
            return None
        if all_gone:
            rows, gone = rows.select(list(changes.keys)), None
        require_columns(self._table, rows.schema.names)
        states = None
        if insert_mode != INSERT and not all_gone:
            kept, states = _last_of_keys(rows.select(list(changes.keys)), gone)
            rows = rows.take(kept)
        columns = {
            field.name: self._staged(f"c{index}", rows.column(index), field)
            for index, field in enumerate(rows.schema)
        }
        arrays = [each.values for each in columns.values()]
        return BulkPlan(
            changes.rows.num_rows,
            insert_mode,
            columns,
            changes.keys,
            states is not None,
            all_gone,
            _texts(arrays if states is None else [*arrays, states]),
        )

    def _staged(self, staged_name: str, values: pa.Array, field: pa.Field) -> StagedColumn:
        target = self._targets[field.name]
        is_document = DOCUMENT in (field.metadata or {})
        try:
            return staged_column(staged_name, values, target, is_document=is_document)
        except LossError:
            raise lossy(self._table.name, field.name, target.full) from None

    def write(self, plan: BulkPlan) -> bool:
        """Write; False if the changes must be applied one by one.

        Raises:
            UnwritableRecordError: A column would round or cut a value.
        """
        with self._staging(plan):
            self._refuse_losses(plan)
            if plan.insert_mode != INSERT and self._has_equal_keys(plan):
                return False
            if plan.all_gone or plan.has_states:
                self._delete(plan)
            if not plan.all_gone and plan.insert_mode == UPDATE:
                self._update(plan)
            elif not plan.all_gone:
                self._insert(plan)
        return True

    @contextmanager
    def _staging(self, plan: BulkPlan) -> Iterator[None]:
        described = [f"c{index} {each.kind}" for index, each in enumerate(plan.columns.values())]
        if plan.has_states:
            described.append("state smallint")
        listed = ", ".join(described)
        self._run(f"CREATE TEMPORARY TABLE drover_staging ({listed}) ON COMMIT DROP")
        self._copy(plan.texts)
        yield
        self._run(f"DROP TABLE {_STAGING}")

    def _copy(self, texts: Sequence[memoryview]) -> None:
        raw = self._connection.connection.driver_connection
        assert raw is not None
        try:
            with (
                raw.cursor() as cursor,
                cursor.copy(f"COPY {_STAGING} FROM STDIN (FORMAT csv)") as to,
            ):
                for text in texts:
                    to.write(text)
        except psycopg.Error as error:
            dialect = self._connection.dialect
            raise sa.exc.DBAPIError.instance(
                None, None, error, psycopg.Error, hide_parameters=True, dialect=dialect
            ) from error

    def _refuse_losses(self, plan: BulkPlan) -> None:
        losses = {name: each.loss for name, each in plan.columns.items() if each.loss}
        if not losses:
            return
        cases = " ".join(f"WHEN {loss} THEN {n}" for n, loss in enumerate(losses.values()))
        found = self._connection.exec_driver_sql(
            f"SELECT n FROM (SELECT CASE {cases} END AS n FROM {_STAGING}) AS s"
            " WHERE n IS NOT NULL LIMIT 1"
        ).scalar_one_or_none()
        if found is not None:
            name = list(losses)[found]
            raise lossy(self._table.name, name, self._targets[name].full)

    def _has_equal_keys(self, plan: BulkPlan) -> bool:
        """Whether different keys are equal in the table: ``1.01`` with one digit of scale, or ``A``
        and ``a`` without case sensitivity.
        """
        if all(plan.columns[name].exact for name in plan.keys):
            return False
        keys = ", ".join(plan.columns[name].key_cast for name in plan.keys)
        found = self._connection.exec_driver_sql(
            f"SELECT 1 FROM {_STAGING} GROUP BY {keys} HAVING count(*) > 1 LIMIT 1"
        )
        return found.first() is not None

    def _delete(self, plan: BulkPlan) -> None:
        keys = ", ".join(
            f"{plan.columns[name].key_cast} AS k{index}" for index, name in enumerate(plan.keys)
        )
        where = f" WHERE state >= {_WRITTEN_AFTER_DELETION}" if plan.has_states else ""
        self._run(
            f"DELETE FROM {self._name} AS t USING (SELECT {keys} FROM {_STAGING}{where}) AS s"
            f" WHERE {self._same_keys(plan)}"
        )

    def _update(self, plan: BulkPlan) -> None:
        others = [name for name in plan.columns if name not in plan.keys]
        if others:
            changed = ", ".join(f"{self._quote(each)} = s.{self._quote(each)}" for each in others)
            self._run(
                f"UPDATE {self._name} AS t SET {changed} FROM ({self._source(plan)}) AS s"
                f" WHERE {self._same_keys(plan)}"
            )

    def _insert(self, plan: BulkPlan) -> None:
        names = ", ".join(self._quote(each) for each in plan.columns)
        statement = (
            f"INSERT INTO {self._name} ({names}) SELECT {names} FROM ({self._source(plan)}) AS s"
        )
        if plan.insert_mode == INSERT:
            self._run(statement)
            return
        others = [self._quote(name) for name in plan.columns if name not in plan.keys]
        changed = ", ".join(f"{each} = EXCLUDED.{each}" for each in others)
        keys = ", ".join(self._quote(each) for each in plan.keys)
        act = f"UPDATE SET {changed}" if others else "NOTHING"
        upsert = f"{statement} ON CONFLICT ({keys}) DO {act}"
        try:
            if (
                self._finds_by_key
                and plan.record_count >= _TRIED_ROWS
                and NEW_ROWS.may_be(self._known_as)
                and self._inserted(statement)
            ):
                return
            written = self._connection.exec_driver_sql(upsert)
            self._finds_by_key = self._finds_by_key or written.rowcount > 0
        except sa.exc.DBAPIError as error:
            code = sqlstate_of(error)
            if code == _NO_SUCH_KEY:
                raise no_unique_key(self._table.name, plan.keys) from None
            if code == _DEFERRABLE_KEY:
                raise _deferrable_key(self._table.name, plan.keys) from None
            raise

    def _inserted(self, statement: str) -> bool:
        """Whether all rows were new and have been inserted; otherwise none is."""
        try:
            with savepoint(self._connection):
                self._run(statement)
        except sa.exc.DBAPIError as error:
            if sqlstate_of(error) != _IS_THERE:
                raise
            NEW_ROWS.were_there(self._known_as)
            return False
        return True

    def _source(self, plan: BulkPlan) -> str:
        """The query for the rows to write, with the table's types."""
        values = [f"{each.cast} AS {self._quote(name)}" for name, each in plan.columns.items()]
        keys = [
            f"{plan.columns[name].key_cast} AS k{index}" for index, name in enumerate(plan.keys)
        ]
        where = f" WHERE state < {_DELETED}" if plan.has_states else ""
        return f"SELECT {', '.join([*values, *keys])} FROM {_STAGING}{where}"

    def _same_keys(self, plan: BulkPlan) -> str:
        return " AND ".join(
            f"t.{self._quote(name)} = s.k{index}" for index, name in enumerate(plan.keys)
        )

    def _run(self, statement: str) -> None:
        self._connection.exec_driver_sql(statement)


def _deferrable_key(name: str, columns: Collection[str]) -> DatabaseError:
    return DatabaseError(
        f"table {name!r} has a deferrable constraint on its key {', '.join(columns)}: "
        "make it NOT DEFERRABLE, or set insert.mode=insert"
    )


def _texts(arrays: Sequence[pa.Array]) -> list[memoryview]:
    """Rows in COPY's format, some thousand per text."""
    rows = pa.RecordBatch.from_arrays(arrays, [f"c{index}" for index in range(len(arrays))])
    options = pyarrow.csv.WriteOptions(include_header=False)
    found = []
    for start in range(0, rows.num_rows, _COPY_ROWS):
        text = BytesIO()
        pyarrow.csv.write_csv(rows.slice(start, _COPY_ROWS), text, options)
        found.append(text.getbuffer())
    return found


def _last_of_keys(keys: pa.RecordBatch, gone: pa.Array | None) -> tuple[pa.Array, pa.Array | None]:
    """The last record of each key, and the last change to the key; None if all are writes.

    Sorted by key: neighbours in the table's index are then written together, which saves the server
    a third of the time, and two tasks with the same keys cannot deadlock.
    """
    names = [f"k{index}" for index in range(keys.num_columns)]
    columns = [*keys.columns, pa.array(np.arange(keys.num_rows))]
    aggregates = [("row", "max")]
    if gone is not None:
        columns.append(gone)
        aggregates.append(("gone", "any"))
    table = pa.table(columns, [*names, "row", *(["gone"] if gone is not None else [])])
    last = table.group_by(names, use_threads=False).aggregate(aggregates).combine_chunks()
    try:
        last = last.sort_by([(name, "ascending") for name in names])
    except pa.ArrowNotImplementedError:  # a type without an order
        last = last.sort_by("row_max")
    rows = last.column("row_max").combine_chunks()
    if gone is None:
        return rows, None
    states = pc.if_else(
        gone.take(rows),
        pa.scalar(_DELETED, pa.int16()),
        pc.if_else(
            last.column("gone_any").combine_chunks(),
            pa.scalar(_WRITTEN_AFTER_DELETION, pa.int16()),
            pa.scalar(_WRITTEN, pa.int16()),
        ),
    )
    return rows, states
