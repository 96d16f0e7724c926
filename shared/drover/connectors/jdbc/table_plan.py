"""Which rows of a table come next: by a growing number, by a time, by both, or all of them.

A plan is made on the driver and names rows by bounds, so that executors read the same rows however
often they try.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

import pyarrow as pa
import sqlalchemy as sa

from drover.connectors.jdbc.columns import Column, arrow_schema
from drover.connectors.jdbc.database import DatabaseAddress, now_at, telling

BULK, INCREMENTING, TIMESTAMP, BOTH = "bulk", "incrementing", "timestamp", "timestamp+incrementing"
MODES = (BULK, INCREMENTING, TIMESTAMP, BOTH)
_FETCH_ROWS = 10_000
#: Fewer rows than this are not worth another Spark partition.
_SPLIT_ROWS = 20_000

Offset = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TableSource:
    """A table, or a query in parentheses, and what its rows are found by."""

    name: str
    schema: str | None
    columns: tuple[Column, ...]
    incrementing: str | None = None
    timestamps: tuple[str, ...] = ()
    #: The zone of times without one.
    zone: tzinfo = UTC
    query: str | None = None

    @property
    def id(self) -> str:
        """How settings and offsets call it."""
        return f"{self.schema}.{self.name}" if self.schema else self.name

    def relation(self) -> "sa.FromClause":
        """What to select from."""
        columns: list[sa.ColumnClause[Any]] = [
            sa.column(each.name, each.sql_type) for each in self.columns
        ]
        if self.query is not None:
            return sa.text(self.query).columns(*columns).subquery("query")
        return sa.table(self.name, *columns, schema=self.schema)


@dataclass(frozen=True)
class RowsBetween:
    """Rows to read, in order; may be pickled.

    Attributes:
        address: The database.
        source: The table.
        statement: Selects its columns.
    """

    address: DatabaseAddress
    source: TableSource
    statement: "sa.Select[Any]"

    def read(self) -> Iterator[pa.RecordBatch]:
        """The rows, some thousands at a time.

        Raises:
            ColumnError: a value that its column's type cannot hold.
            Exception: as ``telling``.
        """
        columns = self.source.columns
        schema = arrow_schema(columns)
        reading = telling(self.address, f"reading {self.source.id}")
        with reading, self.address.connected() as connection:
            rows = connection.execution_options(stream_results=True, yield_per=_FETCH_ROWS)
            for part in rows.execute(self.statement).partitions(_FETCH_ROWS):
                values = list(zip(*part, strict=True))
                arrays = [each.array(v) for each, v in zip(columns, values, strict=True)]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)


@dataclass(frozen=True, slots=True)
class Plan:
    """The next rows: parts that may be read at the same time, and where they lead."""

    parts: tuple[RowsBetween, ...]
    offset: dict[str, Any]


class TablePlanner:
    """Plans the batches of one table.

    Args:
        address: The database.
        source: The table.
        mode: One of MODES.
        offset: How far it has come; empty at its beginning.
        delay_ms: Rows younger than this wait, as others with an earlier time may be committed yet.
        initial: The time before which rows are left out at the beginning; None for none.
    """

    def __init__(
        self,
        address: DatabaseAddress,
        source: TableSource,
        mode: str,
        offset: Offset,
        *,
        delay_ms: int = 0,
        initial: datetime | None = None,
    ) -> None:
        self.source = source
        self._address = address
        self._mode = mode
        self._delay = timedelta(milliseconds=delay_ms)
        self._relation = source.relation()
        self._number: int | None = offset.get("incrementing")
        moment = _moment_of(offset)
        self._moment = moment if moment is not None else initial
        #: Rows at the time where it stands were read, up to ``_number``.
        self._stands_within = moment is not None

    def plan(self, connection: "sa.Connection", rows_max: int, parallel: int) -> Plan | None:
        """The next rows, about ``rows_max`` of them; None when there are none now."""
        match self._mode:
            case mode if mode == BULK:
                return Plan((self._rows(sa.select(*self._relation.c)),), {})
            case mode if mode == INCREMENTING:
                return self._by_number(connection, rows_max, parallel)
            case _:
                return self._by_time(connection, rows_max)

    def advance(self, offset: Offset) -> None:
        """A plan's rows are on their way: the next plan begins behind them."""
        self._number = offset.get("incrementing", self._number)
        moment = _moment_of(offset)
        if moment is not None:
            self._moment, self._stands_within = moment, True

    def _by_number(self, connection: "sa.Connection", rows_max: int, parallel: int) -> Plan | None:
        number = self._column(self.source.incrementing)
        behind = sa.true() if self._number is None else number > self._number
        limited = sa.select(number).where(behind).order_by(number).limit(rows_max).subquery()
        found = limited.c[0]
        first, last, count = connection.execute(
            sa.select(sa.func.min(found), sa.func.max(found), sa.func.count(found))
        ).one()
        if last is None:
            return None
        part_count = min(parallel, max(1, count // _SPLIT_ROWS))
        parts = [
            self._rows(
                sa.select(*self._relation.c).where(number >= low, number <= high).order_by(number)
            )
            for low, high in even_ranges(int(first), int(last), part_count)
        ]
        return Plan(tuple(parts), {"incrementing": int(last)})

    def _by_time(self, connection: "sa.Connection", rows_max: int) -> Plan | None:
        source = self.source
        moment = self._moment_expression()
        order: list[sa.ColumnElement[Any]] = [moment]
        number = self._column(source.incrementing) if self._mode == BOTH else None
        if number is not None:
            order.append(number)
        until = self._as_stored(now_at(connection) - self._delay)
        due = sa.and_(moment < until, self._behind(moment, number))
        nth = sa.select(*order).where(due).order_by(*order).offset(rows_max - 1).limit(1)
        last = connection.execute(nth).one_or_none()
        if last is None:  # fewer rows than that: the last one of them
            backwards = [each.desc() for each in order]
            last = connection.execute(
                sa.select(*order).where(due).order_by(*backwards).limit(1)
            ).one_or_none()
        if last is None:
            return None
        upto = moment <= last[0]
        if number is not None:
            upto = sa.or_(moment < last[0], sa.and_(moment == last[0], number <= last[1]))
        rows = sa.select(*self._relation.c).where(due, upto).order_by(*order)
        offset = _offset_of(self._as_utc(last[0]))
        if number is not None:
            offset["incrementing"] = int(last[1])
        return Plan((self._rows(rows),), offset)

    def _behind(
        self, moment: "sa.ColumnElement[Any]", number: "sa.ColumnElement[Any] | None"
    ) -> "sa.ColumnElement[bool]":
        if self._moment is None:
            return moment.is_not(None)
        stands = self._as_stored(self._moment)
        if not self._stands_within:
            return moment >= stands
        if number is None or self._number is None:
            return moment > stands
        return sa.or_(moment > stands, sa.and_(moment == stands, number > self._number))

    def _rows(self, statement: "sa.Select[Any]") -> RowsBetween:
        return RowsBetween(self._address, self.source, statement)

    def _column(self, name: str | None) -> "sa.ColumnElement[Any]":
        assert name is not None
        return self._relation.c[name]

    def _moment_expression(self) -> "sa.ColumnElement[Any]":
        columns = [self._relation.c[each] for each in self.source.timestamps]
        return columns[0] if len(columns) == 1 else sa.func.coalesce(*columns)

    def _as_stored(self, moment: datetime) -> datetime:
        """A time as the table's column has it."""
        kind = self._relation.c[self.source.timestamps[0]].type
        if getattr(kind, "timezone", False):
            return moment
        return moment.astimezone(self.source.zone).replace(tzinfo=None)

    def _as_utc(self, stored: datetime) -> datetime:
        if stored.tzinfo is None:
            stored = stored.replace(tzinfo=self.source.zone)
        return stored.astimezone(UTC)


def even_ranges(first: int, last: int, count: int) -> list[tuple[int, int]]:
    """``first`` to ``last`` in about ``count`` ranges of numbers, ends included, in order."""
    step = max(1, -(-(last - first + 1) // count))
    return [(low, min(low + step - 1, last)) for low in range(first, last + 1, step)]


def _offset_of(moment: datetime) -> dict[str, Any]:
    """As Confluent's JDBC source writes a time: milliseconds, and the nanoseconds of the second."""
    seconds = int(moment.replace(microsecond=0).timestamp())
    return {
        "timestamp": seconds * 1_000 + moment.microsecond // 1_000,
        "timestamp_nanos": moment.microsecond * 1_000,
    }


def _moment_of(offset: Offset) -> datetime | None:
    if "timestamp" not in offset:
        return None
    seconds, milliseconds = divmod(int(offset["timestamp"]), 1_000)
    nanoseconds = int(offset.get("timestamp_nanos", milliseconds * 1_000_000))
    moment = datetime.fromtimestamp(seconds, UTC)
    return moment.replace(microsecond=nanoseconds // 1_000)


def reflected(
    connection: "sa.Connection", name: str, schema: str | None, numeric_mapping: str
) -> tuple[Column, ...]:
    """A table's columns.

    Raises:
        sa.exc.NoSuchTableError: there is no such table.
    """
    found: Sequence[Any] = sa.inspect(connection).get_columns(name, schema)
    # SQLite's integers have eight bytes, whatever they are called
    wide = connection.dialect.name == "sqlite"
    return tuple(
        Column.of(
            each["name"],
            sa.BigInteger() if wide and isinstance(each["type"], sa.Integer) else each["type"],
            numeric_mapping=numeric_mapping,
            nullable=bool(each.get("nullable", True)),
        )
        for each in found
    )
