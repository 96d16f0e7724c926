"""Reads tables as of one snapshot, in parallel by ranges of pages."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from drover.connector import RetriableError
from drover.connectors.postgres.change_rows import RecordShape, TableRecords
from drover.connectors.postgres.copied import copied
from drover.connectors.postgres.pgoutput import Relation
from drover.connectors.postgres.server import (
    ServerAddress,
    Table,
    key_of,
    log_end,
    name_of,
    relation_of,
    translated_errors,
    without_time_limit,
)
from drover.connectors.postgres.snapshot_point import SnapshotPoint

#: How long a part waits for its table, which the session of the snapshot has locked.
_LOCK_WAIT_S = 3


@dataclass(frozen=True, slots=True)
class Pages:
    """Pages of a table or of a partition; ``end`` None means the end of the table."""

    schema: str
    table: str
    first: int
    end: int | None


@dataclass(frozen=True)
class PagesReader:
    """Reads pages on executors; for ArrowRows.

    Attributes:
        address: The server.
        snapshot: The snapshot from ``pg_export_snapshot()``.
        relation: The table.
        key: The columns of the records' keys.
        shape: The form of records.
        point: What the snapshot has seen.
        parts: The pages of each Spark partition.
    """

    address: ServerAddress
    snapshot: str
    relation: Relation
    key: tuple[str, ...]
    shape: RecordShape
    point: SnapshotPoint
    parts: tuple[Pages, ...]

    def __call__(self, number: int) -> Iterator[pa.RecordBatch]:
        """The rows of one part."""
        from psycopg import sql

        pages = self.parts[number]
        names = [each.name for each in self.relation.columns]
        below = sql.SQL("") if pages.end is None else sql.SQL(" AND ctid < {}::tid")
        query = (
            sql.SQL("COPY (SELECT {} FROM ONLY {} WHERE ctid >= {}::tid").format(
                sql.SQL(", ").join(map(sql.Identifier, names)),
                sql.Identifier(pages.schema, pages.table),
                sql.Literal(f"({pages.first},0)"),
            )
            + below.format(sql.Literal(f"({pages.end},0)"))
            + sql.SQL(") TO STDOUT (FORMAT csv)")
        )
        records = TableRecords(self.relation, self.key, self.shape)
        with (
            translated_errors(self.address, f"reading {self.relation.name}"),
            self.address.connected("drover snapshot") as connection,
        ):
            without_time_limit(connection)
            # an ALTER TABLE that waits for the snapshot is before this session
            connection.execute(f"SET lock_timeout TO '{_LOCK_WAIT_S}s'")
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            connection.execute(
                sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(self.snapshot))
            )
            for columns in copied(connection, query, len(names)):
                yield records.of_rows(columns, self.point)


class Snapshot:
    """A snapshot of some tables, valid while it is open.

    The tables have ACCESS SHARE locks, as a SELECT takes: their rows can change, their definition
    cannot.

    Args:
        address: The server.
        tables: The tables to read.
        name: The session's application name.
        key_columns: Returns the configured key columns of a table; None for its primary key.
        part_bytes: The approximate limit for a part, including values stored out of line.
        generated: See ``published_generated``.

    Raises:
        RetriableError: The server is unavailable, a table is locked, or it was replaced.
        ServerError: A table cannot be read.
    """

    def __init__(
        self,
        address: ServerAddress,
        tables: Sequence[Table],
        name: str,
        key_columns: Callable[[str], Sequence[str] | None],
        *,
        part_bytes: int,
        generated: str = "",
    ) -> None:
        import psycopg
        from psycopg import sql

        self._address = address
        self._key_columns = key_columns
        self._part_bytes = part_bytes
        self._generated = generated
        with translated_errors(address, "beginning a snapshot"):
            self._connection = psycopg.connect(**address.parameters(name), autocommit=True)
            try:
                gone = (
                    psycopg.errors.UndefinedTable,
                    psycopg.errors.InvalidSchemaName,
                    psycopg.errors.InsufficientPrivilege,
                )
                execute = self._connection.execute
                without_time_limit(self._connection)
                execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
                # before the first query, which fixes the snapshot
                for each in tables:
                    try:
                        execute(
                            sql.SQL("LOCK TABLE {} IN ACCESS SHARE MODE").format(
                                sql.Identifier(each.schema, each.name)
                            )
                        )
                    except gone:
                        raise _was_replaced(each) from None
                row = execute("SELECT pg_current_snapshot()::text, pg_export_snapshot()").fetchone()
                assert row is not None
                self._snapshot = str(row[1])
                self.point = SnapshotPoint.parse(str(row[0]), log_end(self._connection))
                for each in tables:  # a lock finds a table by its name
                    if name_of(self._connection, each.oid) != each.id:
                        raise _was_replaced(each)
                self._plans = [(each, self._plan(each)) for each in tables]
            except BaseException:
                self._connection.close()
                raise

    def batches(
        self, shape: RecordShape, parallel: int
    ) -> "Iterator[tuple[Table, PagesReader | None]]":
        """The rows of one table after another, with (table, None) after the last of each."""
        for table, (relation, key, ranges) in self._plans:
            for start in range(0, len(ranges), max(1, parallel)):
                yield (
                    table,
                    PagesReader(
                        self._address,
                        self._snapshot,
                        relation,
                        tuple(key),
                        shape,
                        self.point,
                        tuple(ranges[start : start + max(1, parallel)]),
                    ),
                )
            yield table, None

    def estimated_rows(self) -> dict[str, int | None]:
        """Estimated numbers of rows by the tables' ids; None if the server has no estimate."""
        rows = self._connection.execute(
            "SELECT t.oid, (SELECT CASE WHEN min(c.reltuples) >= 0 THEN sum(c.reltuples)::bigint"
            " END FROM pg_class c WHERE c.relkind = 'r' AND (c.oid = t.oid OR c.oid IN"
            " (SELECT relid FROM pg_partition_tree(t.oid) WHERE isleaf)))"
            " FROM unnest(%s::oid[]) AS t(oid)",
            ([table.oid for table, _ in self._plans],),
        ).fetchall()
        counts = {int(oid): count if count is None else int(count) for oid, count in rows}
        return {table.id: counts.get(table.oid) for table, _ in self._plans}

    def close(self) -> None:
        """Release the snapshot and the locks."""
        self._connection.close()

    def _plan(self, table: Table) -> tuple[Relation, list[str], list[Pages]]:
        relation = relation_of(self._connection, table, self._generated)
        key = key_of(self._connection, relation, self._key_columns(relation.name))
        ranges = []
        if relation.columns:
            for schema, name, pages, size in self._pieces(table):
                step = max(1, min(pages, self._part_bytes * pages // max(size, 1)))
                starts = list(range(0, pages, step)) or [0]
                ends: list[int | None] = [*starts[1:], None]
                ranges += [Pages(schema, name, *each) for each in zip(starts, ends, strict=True)]
        return relation, key, ranges

    def _pieces(self, table: Table) -> list[Any]:
        """The (schema, name, pages, bytes) of the relations that store the rows."""
        return self._connection.execute(
            "SELECT n.nspname, c.relname,"
            " (pg_relation_size(c.oid) / current_setting('block_size')::int)::bigint,"
            " pg_table_size(c.oid) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
            " WHERE c.oid = %(oid)s AND c.relkind = 'r' OR c.oid IN"
            " (SELECT relid FROM pg_partition_tree(%(oid)s) WHERE isleaf) AND c.relkind = 'r'",
            {"oid": table.oid},
        ).fetchall()


def _was_replaced(table: Table) -> RetriableError:
    return RetriableError(f"table {table.id} was renamed, dropped, or may not be read any more")
