"""All rows of a PostgreSQL table, in batches, as they are at one moment: by ranges of its pages."""

from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from drover.connectors.jdbc.database import DatabaseAddress
from drover.connectors.jdbc.reading import RowsBetween, TableSource, run_verbatim, session

#: Fewer pages are not worth a Spark partition of their own.
_PART_PAGES = 128
#: What rows of a table are stored in: itself, its partitions, its heirs.
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
# rows are counted in the order in which they are stored
_IN_ORDER = "SET LOCAL synchronize_seqscans TO off; SET LOCAL max_parallel_workers_per_gather TO 0"
_SECURED = "SELECT relrowsecurity FROM pg_class WHERE oid = to_regclass(%(table)s)"

#: Where a row is: its page, and its place there.
Place = tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Piece:
    """A table that has pages, without its heirs."""

    schema: str
    name: str
    page_count: int


class WholeTable:
    """A table at one moment, from the first batch to the last.

    The moment is kept by a session, which also keeps the table from being made anew (ACCESS SHARE,
    as a SELECT takes it); changes of rows go on. ``close`` lets both go.

    Raises:
        sa.exc.SQLAlchemyError: it cannot be read.
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
            # before the first query, with which the moment is chosen
            run_verbatim(self._connection, f"LOCK TABLE {table} IN ACCESS SHARE MODE")
            execute(_IN_ORDER)
            self._snapshot = str(execute("SELECT pg_export_snapshot()").scalar_one())
            pieces = execute(_PIECES, {"table": table}).all()
            secured = execute(_SECURED, {"table": table}).scalar_one()
        except BaseException:
            self._held.close()
            raise
        splits = not secured and all(readable for *_, readable in pieces)
        #: What is not read yet; None in it stands for the table as a whole.
        self._left: list[_Piece | None] = (
            [_Piece(*each) for *each, _ in pieces] if splits and pieces else [None]
        )
        self._at: Place = (0, 0)

    @classmethod
    def is_one(cls, connection: "sa.Connection", source: TableSource) -> bool:
        """Whether a source is a table of PostgreSQL."""
        if connection.dialect.name != "postgresql" or source.query is not None:
            return False
        table = {"table": source.sql_name(connection)}
        return connection.exec_driver_sql(_KIND, table).scalar_one_or_none() in ("r", "p")

    @property
    def done(self) -> bool:
        """Whether every row was handed out."""
        return not self._left

    def parts(self, rows_max: int, parallel: int) -> tuple[RowsBetween, ...]:
        """The next rows, at most so many, in parts that may be read at the same time.

        A table that cannot be split comes as one.

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
        """Let the moment and the table go."""
        with suppress(sa.exc.SQLAlchemyError):  # of a session that is lost
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
        return RowsBetween(self._address, self._source, rows, self._snapshot)


def _tid(place: Place) -> "sa.ColumnElement[Any]":
    return sa.literal_column(f"'({place[0]},{place[1]})'::tid")


def _cuts(at: Place, last_page: int, parallel: int) -> Iterator[Place]:
    """Where parts begin that have about as many pages each."""
    pages = last_page - at[0]
    count = max(1, min(parallel, pages // _PART_PAGES))
    yield at
    for number in range(1, count):
        yield at[0] + pages * number // count, 0
