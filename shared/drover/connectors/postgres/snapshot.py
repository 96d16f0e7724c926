"""The rows of tables as they are at one moment, read in parallel by ranges of pages."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from drover.connectors.postgres.change_rows import RecordShape, TableRecords
from drover.connectors.postgres.copied import copied
from drover.connectors.postgres.pgoutput import Relation
from drover.connectors.postgres.server import (
    ServerAddress,
    Table,
    key_of,
    log_end,
    relation_of,
    telling,
)
from drover.connectors.postgres.snapshot_point import SnapshotPoint


@dataclass(frozen=True, slots=True)
class Pages:
    """Pages of a table, or of a partition of one; ``end`` None is its end."""

    schema: str
    table: str
    first: int
    end: int | None


@dataclass(frozen=True)
class PagesReader:
    """Reads pages on executors; for ArrowRows.

    Attributes:
        address: The server.
        snapshot: What ``pg_export_snapshot()`` gave.
        relation: The table.
        key: The columns of the records' keys.
        shape: What records look like.
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
            telling(self.address, f"reading {self.relation.name}"),
            self.address.connected("drover snapshot") as connection,
        ):
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            connection.execute(
                sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(self.snapshot))
            )
            for columns in copied(connection, query, len(names)):
                yield records.of_rows(columns, self.point)


class Snapshot:
    """A moment of some tables, kept as long as it is open.

    The tables are locked against changes of their form, not against changes of rows: ACCESS SHARE,
    as a SELECT takes it.

    Args:
        address: The server.
        tables: What to read.
        name: How the server lists the session.
        key_columns: The columns that are asked for as a table's key; None for its primary key.
        part_bytes: What a part reads at most, about: values that are stored out of line included.

    Raises:
        RetriableError: the server is away, or a table is locked.
        ServerError: a table cannot be read.
    """

    def __init__(
        self,
        address: ServerAddress,
        tables: Sequence[Table],
        name: str,
        key_columns: Callable[[str], Sequence[str] | None],
        *,
        part_bytes: int,
    ) -> None:
        import psycopg
        from psycopg import sql

        self._address = address
        self._key_columns = key_columns
        self._part_bytes = part_bytes
        with telling(address, "beginning a snapshot"):
            self._connection = psycopg.connect(**address.parameters(name), autocommit=True)
            try:
                execute = self._connection.execute
                execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
                # before the first query, with which the moment is chosen
                for each in tables:
                    execute(
                        sql.SQL("LOCK TABLE {} IN ACCESS SHARE MODE").format(
                            sql.Identifier(each.schema, each.name)
                        )
                    )
                row = execute("SELECT pg_current_snapshot()::text, pg_export_snapshot()").fetchone()
                assert row is not None
                self._snapshot = str(row[1])
                self.point = SnapshotPoint.parse(str(row[0]), log_end(self._connection))
                self._plans = [(each, self._plan(each)) for each in tables]
            except BaseException:
                self._connection.close()
                raise

    def batches(
        self, shape: RecordShape, parallel: int
    ) -> "Iterator[tuple[Table, PagesReader | None]]":
        """The rows of each table in turn, and (table, None) behind the last of each."""
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

    def close(self) -> None:
        """Let the tables go."""
        self._connection.close()

    def _plan(self, table: Table) -> tuple[Relation, list[str], list[Pages]]:
        relation = relation_of(self._connection, table)
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
        """The (schema, name, pages, bytes) of what rows are stored in."""
        return self._connection.execute(
            "SELECT n.nspname, c.relname,"
            " (pg_relation_size(c.oid) / current_setting('block_size')::int)::bigint,"
            " pg_table_size(c.oid) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
            " WHERE c.oid = %(oid)s AND c.relkind = 'r' OR c.oid IN"
            " (SELECT relid FROM pg_partition_tree(%(oid)s) WHERE isleaf) AND c.relkind = 'r'",
            {"oid": table.oid},
        ).fetchall()
