"""Reads all rows of a PostgreSQL table as of one snapshot, in batches, by ranges of its pages."""

from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from drover.connectors.jdbc.database import DatabaseAddress, run_verbatim
from drover.connectors.jdbc.reading import RowsBetween, TableSource, server_of, session

#: An additional Spark partition does not pay off for fewer pages.
_PART_PAGES = 128
#: The storage of a table's rows: the table, its partitions, its inheriting tables.
_PIECES = """
WITH RECURSIVE tree AS (
    SELECT to_regclass(%(table)s)::oid AS oid
    UNION SELECT inhrelid FROM pg_inherits JOIN tree ON inhparent = tree.oid)
SELECT n.nspname, c.relname,
    (pg_relation_size(c.oid) / current_setting('block_size')::int)::bigint,
    c.relkind IN ('r', 'm') AND a.amname = 'heap' AND NOT c.relrowsecurity
        AND has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT')
FROM tree JOIN pg_class c USING (oid) JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_am a ON a.oid = c.relam
WHERE c.relkind <> 'p' ORDER BY 1, 2
"""
_KIND = "SELECT relkind::text FROM pg_class WHERE oid = to_regclass(%(table)s)"
# sequential scans must return rows in storage order
_IN_ORDER = "SET LOCAL synchronize_seqscans TO off; SET LOCAL max_parallel_workers_per_gather TO 0"
_SECURED = "SELECT relrowsecurity FROM pg_class WHERE oid = to_regclass(%(table)s)"

#: The position of a row: its page, and its number in the page.
Place = tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Piece:
    """A table with pages, without inheriting tables."""

    schema: str
    name: str
    page_count: int


class WholeTable:
    """A table as of one snapshot, from the first batch to the last.

    A session holds the snapshot and an ACCESS SHARE lock, as a SELECT does; rows can be changed
    meanwhile. ``close`` releases both.


    Raises:
        sa.exc.SQLAlchemyError: The table cannot be read.
    """

    def __init__(self, address: DatabaseAddress, source: TableSource) -> None:
        self._address = address
        self._source = source
        self._held = ExitStack()
        options = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
        try:
            self._connection = self._held.enter_context(session(address, options=options))
            table = source.sql_name(self._connection)
            execute = self._connection.exec_driver_sql
            # before the first query, which fixes the snapshot
            run_verbatim(self._connection, f"LOCK TABLE {table} IN ACCESS SHARE MODE")
            execute(_IN_ORDER)
            self._server = server_of(self._connection)
            self._snapshot = str(execute("SELECT pg_export_snapshot()").scalar_one())
            pieces = execute(_PIECES, {"table": table}).all()
            secured = execute(_SECURED, {"table": table}).scalar_one()
        except BaseException:
            self._held.close()
            raise
        splits = not secured and all(readable for *_, readable in pieces)
        #: Unread pieces; a None entry means the whole table.
        self._left: list[_Piece | None] = (
            [_Piece(*each) for *each, _ in pieces] if splits and pieces else [None]
        )
        self._at: Place = (0, 0)

    @classmethod
    def is_one(cls, connection: "sa.Connection", source: TableSource) -> bool:
        """Whether a source is a PostgreSQL table."""
        if connection.dialect.name != "postgresql" or source.query is not None:
            return False
        return _kind_of(connection, source) in ("r", "p")

    @property
    def done(self) -> bool:
        """Whether all rows were returned."""
        return not self._left

    def parts(self, rows_max: int, parallel: int) -> tuple[RowsBetween, ...]:
        """The next rows, at most ``rows_max``, in parts that can be read in parallel.

        A table that cannot be split is returned as one part.

        Raises:
            sa.exc.SQLAlchemyError: the session is lost.
        """
        piece = self._left[0]
        if piece is None:
            self._left.pop(0)
            return (self._part(self._source.relation("postgresql")),)
        table = self._source.piece(piece.schema, piece.name)
        behind: sa.Select[Any] = (
            sa.select(sa.literal_column("ctid::text"))
            .select_from(table)
            .with_hint(table, "ONLY", "postgresql")
            .where(sa.literal_column("ctid") >= _tid(self._at))
            .offset(rows_max)
            .limit(1)
        )
        found = self._connection.execute(behind).scalar_one_or_none()
        if found is None:
            self._left.pop(0)
            end, last_page, following = None, piece.page_count, (0, 0)
        else:
            page, place = map(int, found.strip("()").split(","))
            end = following = (page, place)
            last_page = page
        bounds = list(_cuts(self._at, last_page, parallel))
        ends: list[Place | None] = [*bounds[1:], end]
        parts = [self._part(table, *each) for each in zip(bounds, ends, strict=True)]
        self._at = following
        return tuple(parts)

    def close(self) -> None:
        """Release the snapshot and the lock."""
        with suppress(sa.exc.SQLAlchemyError):  # the session may be lost
            self._held.close()

    def _part(
        self, table: "sa.FromClause", first: Place | None = None, end: Place | None = None
    ) -> RowsBetween:
        rows = self._source.rows(table)
        if first is not None:
            rows = rows.with_hint(table, "ONLY", "postgresql")
            rows = rows.where(sa.literal_column("ctid") >= _tid(first))
        if end is not None:
            rows = rows.where(sa.literal_column("ctid") < _tid(end))
        return RowsBetween(self._address, self._source, rows, self._snapshot, self._server)


def is_postgres_view(connection: "sa.Connection", source: TableSource) -> bool:
    """Whether a source is a view of PostgreSQL, which may be materialized."""
    return _kind_of(connection, source) in ("v", "m")


def _kind_of(connection: "sa.Connection", source: TableSource) -> str | None:
    table = {"table": source.sql_name(connection)}
    found: str | None = connection.exec_driver_sql(_KIND, table).scalar_one_or_none()
    return found


def _tid(place: Place) -> "sa.ColumnElement[Any]":
    return sa.literal_column(f"'({place[0]},{place[1]})'::tid")


def _cuts(at: Place, last_page: int, parallel: int) -> Iterator[Place]:
    """Start positions of parts with about the same number of pages."""
    pages = last_page - at[0]
    count = max(1, min(parallel, pages // _PART_PAGES))
    yield at
    for number in range(1, count):
        yield at[0] + pages * number // count, 0
