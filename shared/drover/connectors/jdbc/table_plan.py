"""Plans the next rows of a table: by number, by time, by both, or all of them.

Plans are made on the driver and select rows by bounds, so that executors read the same rows in
every attempt.
"""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from drover.connectors.jdbc.database import DatabaseAddress, DatabaseError, now_at
from drover.connectors.jdbc.local_times import LocalTimes
from drover.connectors.jdbc.reading import RowsBetween, TableSource, server_of
from drover.connectors.jdbc.settled_numbers import (
    PostgresWriters,
    SettledNumbers,
    no_visible_writers,
    writers_are_seen,
)
from drover.connectors.jdbc.source_settings import BOTH, BULK, INCREMENTING
from drover.connectors.jdbc.whole_table import WholeTable, is_postgres_view

#: An additional Spark partition does not pay off for fewer rows.
_SPLIT_ROWS = 20_000
#: The share of numbers between two bounds that rows have, in a table with few gaps.
_FEW_GAPS = 0.5
#: How many batches of such a table are planned without counting their rows, then one is counted.
_UNCOUNTED_MAX = 8
_HIGHEST_NUMBER = 2**63 - 1
#: How long to wait for rows in a gap of the numbers if writers are not visible.
_UNSEEN_WRITERS_MS = 5_000
#: Before all times, in any zone.
_LOWEST = datetime(1, 1, 2, tzinfo=UTC)
_DATE_CHARS = len("2026-01-02")
_SQLITE_TIME = f"{'[0-9]' * 4}-{'[0-9]' * 2}-{'[0-9]' * 2}*"
#: The search for values of SQLite that are no times is a full scan: it pauses for so many times as
#: long as it took.
_SQLITE_PAUSES = 20
_SQLITE_TIME_CHARS = len("2026-01-02 03:04:05.000000")
#: The most rows of a repeated hour that are not read again when it is repeated.
_REMEMBERED_MAX = 10_000
#: The most servers behind one name whose writers are tracked.
_SERVERS_MAX = 8

Offset = Mapping[str, Any]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Plan:
    """The next rows, in parts that can be read in parallel, and the offset after them.

    ``more`` means that further rows are available now.
    """

    parts: tuple[RowsBetween, ...]
    offset: dict[str, Any]
    more: bool = True


class TablePlanner:
    """Plans the batches of one table.

    Args:
        address: The database.
        source: The table.
        mode: One of MODES.
        offset: The committed position; empty at the start.
        delay_ms: Younger rows wait, because rows with an earlier time may still be committed.
        initial: Skip rows before this time at the start; None for none.
        gap_delay_ms: How long to wait for rows in a gap of the numbers, in addition to visible
            writers; None for the database's default.
        now_s: A monotonic clock.
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
        gap_delay_ms: int | None = None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.source = source
        self._address = address
        self._mode = mode
        self._delay = timedelta(milliseconds=delay_ms)
        self._relation = source.relation(address.kind)
        self._number: int | None = None if mode == BULK else offset.get("incrementing")
        moment = _moment_of(offset)
        self._moment = moment if moment is not None else initial
        #: Whether rows at the time ``_moment`` were read up to ``_number``.
        self._stands_within = moment is not None
        #: Rows of a repeated hour that were read before it is repeated: times and numbers.
        self._read_before: set[tuple[datetime, int]] = set()
        self._gap_delay_ms = gap_delay_ms
        self._now_s = now_s
        self._sqlite_check_due_s = now_s()
        #: The tracker of each server.
        self._numbers: dict[str | None, SettledNumbers] = {}
        #: All rows up to this number are visible.
        self._settled = self._number
        #: The server of the last plan.
        self._server: str | None = None
        self._whole: WholeTable | None = None
        #: How many batches may be planned without counting rows.
        self._uncounted_left = 0

    def plan(self, connection: "sa.Connection", rows_max: int, parallel: int) -> Plan | None:
        """The next rows, about ``rows_max``; None if there are none now.

        Args:
            connection: A ``session``.
            rows_max: The most rows, with few exceptions.
            parallel: How many parts can be read at once.

        Raises:
            sa.exc.SQLAlchemyError: The database refused a statement.
        """
        self._follow_server(server_of(connection))
        match self._mode:
            case mode if mode == BULK:
                return self._all(connection, rows_max, parallel)
            case mode if mode == INCREMENTING:
                return self._by_number(connection, rows_max, parallel)
            case _:
                return self._by_time(connection, rows_max, parallel)

    def advance(self, offset: Offset) -> None:
        """Move past a plan's rows."""
        self._number = offset.get("incrementing", self._number)
        moment = _moment_of(offset)
        if moment is not None:
            self._moment, self._stands_within = moment, True

    def batch_done(self) -> None:
        """The rows of the last plan were read."""
        if self._whole is not None and self._whole.done:
            self.close()

    def close(self) -> None:
        """Release the session and lock on the table."""
        if self._whole is not None:
            self._whole.close()
            self._whole = None

    def _follow_server(self, server: str | None) -> None:
        """Start again with what another server shows, which may lag."""
        if server == self._server:
            return
        self._server = server
        self._settled, self._uncounted_left = self._number, 0
        if len(self._numbers) >= _SERVERS_MAX:
            self._numbers.clear()

    def _all(self, connection: "sa.Connection", rows_max: int, parallel: int) -> Plan | None:
        source = self.source
        if self._whole is None and source.query is None and WholeTable.is_one(connection, source):
            self._whole = WholeTable(self._address, source)
        if self._whole is not None:
            try:
                parts = self._whole.parts(rows_max, parallel)
            except sa.exc.SQLAlchemyError:
                self.close()  # the next plan starts from the beginning
                raise
            return Plan(parts, {}, more=not self._whole.done)
        if source.primary_number is None:
            # any server has all of its rows
            rows = RowsBetween(self._address, source, source.rows(self._relation))
            return Plan((rows,), {}, False)
        number = self._relation.c[source.primary_number]
        bounds = self._bounds(connection, number, rows_max)
        self._number = None if bounds is None else bounds[1]
        return None if bounds is None else Plan(self._between(number, *bounds, parallel), {})

    def _by_number(self, connection: "sa.Connection", rows_max: int, parallel: int) -> Plan | None:
        number = self._column(self.source.incrementing)
        uncounted = self._uncounted(connection, number, rows_max)
        if uncounted is not None:
            first, last = uncounted
            parts = self._between(number, first, last, last - first + 1, parallel)
            return Plan(parts, {"incrementing": last})
        bounds = self._bounds(connection, number, rows_max)
        if bounds is None:
            return None
        first, last, count = bounds
        if self.source.incrementing == self.source.primary_number:
            few_gaps = count == rows_max and count >= (last - first + 1) * _FEW_GAPS
            self._uncounted_left = _UNCOUNTED_MAX if few_gaps else 0
        upto = self._settled_upto(connection, number, first, last, count)
        if upto is None or upto < first:
            return None
        parts = self._between(number, first, upto, count, parallel)
        return Plan(parts, {"incrementing": upto})

    def _bounds(
        self, connection: "sa.Connection", number: "sa.ColumnElement[Any]", rows_max: int
    ) -> tuple[int, int, int] | None:
        """The first and last number of the next rows, and their count."""
        behind = number.is_not(None) if self._number is None else number > self._number
        limited = sa.select(number).where(behind).order_by(number).limit(rows_max).subquery()
        found = limited.c[0]
        first, last, count = connection.execute(
            sa.select(sa.func.min(found), sa.func.max(found), sa.func.count(found.distinct()))
        ).one()
        if last is None:
            return None
        return self._whole_number(number, first), self._whole_number(number, last), int(count)

    def _uncounted(
        self, connection: "sa.Connection", number: "sa.ColumnElement[Any]", rows_max: int
    ) -> tuple[int, int] | None:
        """The first and last number of the next rows if the last batch had few gaps, otherwise
        None.

        Two lookups in the index of the primary key, where ``_bounds`` reads an entry for each row.
        """
        if self._number is None or self._uncounted_left == 0:
            return None
        self._uncounted_left -= 1
        # a BIGINT, because the column's type may end before it
        last_possible = sa.literal(min(self._number + rows_max, _HIGHEST_NUMBER), sa.BigInteger())
        found = sa.select(sa.func.min(number), sa.func.max(number)).where(
            number > self._number, number <= last_possible
        )
        first, last = connection.execute(found).one()
        if last is None:
            return None
        first, last = self._whole_number(number, first), self._whole_number(number, last)
        if last - first < rows_max * _FEW_GAPS:
            return None
        numbers = self._settling(connection)
        if numbers is not None and not self._is_settled(last):
            self._look(connection, number, numbers)
            if not self._is_settled(last):
                return None
        return first, last

    def _whole_number(self, number: "sa.ColumnElement[Any]", value: Any) -> int:
        """The value as a number.

        Raises:
            DatabaseError: It is no whole number; SQLite stores any value in columns of any type.
        """
        if isinstance(value, str | bytes) or int(value) != value:
            raise DatabaseError(
                f"table {self.source.id!r} has {value!r} in {number.name}, which is no whole "
                "number: correct it, or leave such rows out by a query"
            )
        return int(value)

    def _between(
        self, number: "sa.ColumnElement[Any]", first: int, last: int, count: int, parallel: int
    ) -> tuple[RowsBetween, ...]:
        part_count = min(parallel, max(1, count // _SPLIT_ROWS))
        rows = self.source.rows(self._relation)
        return tuple(
            self._rows(rows.where(number >= low, number <= high).order_by(number))
            for low, high in even_ranges(first, last, part_count)
        )

    def _settled_upto(
        self,
        connection: "sa.Connection",
        number: "sa.ColumnElement[Any]",
        first: int,
        last: int,
        count: int,
    ) -> int | None:
        """The last of these numbers that is settled; None if none is."""
        numbers = self._settling(connection)
        if numbers is None:
            return last
        if self._settled is None and first == 1:  # numbers start there
            self._settled = 0
        stands = self._settled = _highest(self._settled, self._number)
        if stands is not None and (
            last <= stands or (first == stands + 1 and count == last - stands)
        ):
            return last
        stands = self._look(connection, number, numbers)
        if stands is None or last <= stands:
            return None if stands is None else last
        # consecutive numbers after settled ones are settled as well
        behind = sa.select(number, sa.func.row_number().over(order_by=number)).where(
            number > stands, number <= last
        )
        found = behind.subquery()
        unbroken = sa.select(sa.func.max(found.c[0])).where(found.c[0] == found.c[1] + stands)
        upto = connection.execute(unbroken).scalar_one()
        return stands if upto is None else int(upto)

    def _is_settled(self, number: int) -> bool:
        return self._settled is not None and number <= self._settled

    def _look(
        self,
        connection: "sa.Connection",
        number: "sa.ColumnElement[Any]",
        numbers: SettledNumbers,
    ) -> int | None:
        """Update the highest settled number, and return it."""
        highest = connection.execute(sa.select(sa.func.max(number))).scalar_one()
        self._settled = _highest(self._settled, numbers.look(connection, int(highest)))
        return self._settled

    def _settling(self, connection: "sa.Connection") -> SettledNumbers | None:
        """The tracker of settled numbers; None if no wait is needed."""
        if self._server not in self._numbers:
            delay_ms = self._gap_delay_ms
            if writers_are_seen(connection):
                of_tables = self.source.query or is_postgres_view(connection, self.source)
                table = None if of_tables else self.source.sql_name(connection)
                found = SettledNumbers(PostgresWriters(table), delay_ms or 0, self._now_s)
                self._numbers[self._server] = found
                return found
            if delay_ms is None:  # SQLite has one writer at a time
                delay_ms = 0 if self._address.kind == "sqlite" else _UNSEEN_WRITERS_MS
            if delay_ms:
                found = SettledNumbers(no_visible_writers, delay_ms, self._now_s)
                self._numbers[self._server] = found
        return self._numbers.get(self._server)

    def _by_time(self, connection: "sa.Connection", rows_max: int, parallel: int) -> Plan | None:
        source = self.source
        moment = self._moment_expression()
        order: list[sa.ColumnElement[Any]] = [moment]
        number = self._column(source.incrementing) if self._mode == BOTH else None
        if number is not None:
            order.append(number)
        now = now_at(connection)
        self._follow_clock_back(now)
        self._follow_zone_back(now - self._delay)
        until = self._as_stored(now - self._delay)
        due = sa.and_(moment < until, self._behind(moment, number))
        if number is not None and self._read_before:
            due = sa.and_(due, sa.tuple_(moment, number).not_in(sorted(self._read_before)))
        limited = sa.select(*order).where(due).order_by(*order).limit(rows_max).subquery()
        first, last, count = self._span(connection, limited)
        if last is None:
            self._check_sqlite_times(connection)
            return None
        if last == self._as_stored(_LOWEST):
            self._check_partly_zero(connection, moment, due, count)
        upto = moment <= last
        offset = _offset_of(self._as_utc(last, now - self._delay))
        if number is not None:
            self._remember(connection, limited, last, now - self._delay)
        if number is not None:
            backwards = [limited.c[0].desc(), limited.c[1].desc()]
            last_number = connection.execute(
                sa.select(limited.c[1]).order_by(*backwards).limit(1)
            ).scalar_one()
            upto = sa.or_(moment < last, sa.and_(moment == last, number <= last_number))
            offset["incrementing"] = int(last_number)
        rows = source.rows(self._relation).order_by(*order)
        cuts = even_moments(first, last, min(parallel, max(1, count // _SPLIT_ROWS)))
        froms = [due, *(moment >= each for each in cuts)]
        tos = [*(moment < each for each in cuts), upto]
        parts = [self._rows(rows.where(due, *each)) for each in zip(froms, tos, strict=True)]
        return Plan(tuple(parts), offset)

    def _span(self, connection: "sa.Connection", rows: "sa.Subquery") -> tuple[Any, Any, int]:
        """The first and last time of these rows, and their count.

        Raises:
            DatabaseError: One of the times is none.
        """
        found: sa.ColumnElement[Any] = rows.c[0]
        lowest = self._as_stored(_LOWEST)
        if self._address.kind == "postgresql":  # infinity and years before Christ are first
            found = sa.case((found < lowest, lowest), else_=found)
        query = sa.select(sa.func.min(found), sa.func.max(found), sa.func.count())
        try:
            first, last, count = connection.execute(query).one()
        except ValueError as error:
            raise self._no_time(str(error)) from None
        bounds = []
        for each in (first, last):
            zero = isinstance(each, str) and each.startswith("0000-")  # of MySQL
            bounds.append(lowest if zero else each)
            if each is not None and not zero and not isinstance(each, datetime):
                raise self._no_time(repr(each))
        return bounds[0], bounds[1], count

    def _check_partly_zero(
        self,
        connection: "sa.Connection",
        moment: "sa.ColumnElement[Any]",
        due: "sa.ColumnElement[bool]",
        count: int,
    ) -> None:
        """Reject times such as 2021-00-00, which MySQL returns as 0000-00-00 from a subquery: they
        are behind the end of these ``count`` rows, and would never be read.
        """
        if self._address.kind != "mysql":
            return
        lowest = self._as_stored(_LOWEST)
        zeros = sa.select(sa.func.count()).where(due, moment <= lowest)
        if int(connection.execute(zeros).scalar_one()) >= count:
            return
        text = sa.select(sa.cast(moment, sa.String(32))).where(due, moment > lowest)
        told = connection.execute(text.order_by(moment).limit(1)).scalar()
        raise self._no_time(repr(told))

    def _check_sqlite_times(self, connection: "sa.Connection") -> None:
        """Reject values that are no times: compared as texts, they are before the rows that were
        read or after all times, and would never be read.
        """
        columns = [self._relation.c[each] for each in self.source.timestamps]
        if self._address.kind != "sqlite" or not isinstance(columns[0].type, sa.DateTime):
            return
        began_s = self._now_s()
        if began_s < self._sqlite_check_due_s:
            return
        found = columns[0] if len(columns) == 1 else sa.func.coalesce(*columns)
        value = sa.type_coerce(found, sa.String())
        is_other = sa.or_(sa.func.typeof(value) != "text", sa.not_(value.op("GLOB")(_SQLITE_TIME)))
        query = sa.select(value).where(value.is_not(None), is_other).limit(1)
        told = connection.execute(query).scalar()
        ended_s = self._now_s()
        self._sqlite_check_due_s = ended_s + _SQLITE_PAUSES * (ended_s - began_s)
        if told is not None:
            raise self._no_time(repr(told))

    def _no_time(self, told: str) -> DatabaseError:
        return DatabaseError(
            f"table {self.source.id!r} has {told} in {', '.join(self.source.timestamps)}, which is "
            "no time: rows are read in the order of their times, so correct it, or leave such "
            "rows out by a query"
        )

    def _follow_clock_back(self, now: datetime) -> None:
        """Handle a database clock that went back: new rows may get times that were already read."""
        if self._moment is None or not self._stands_within or now >= self._moment:
            return
        _log.warning(
            "the clock of %s went back by %d ms: rows of %s changed in that time are read again",
            self._address,
            (self._moment - now) / timedelta(milliseconds=1),
            self.source.id,
        )
        self._moment, self._number, self._stands_within = now, None, False

    def _follow_zone_back(self, now: datetime) -> None:
        """Handle a zone whose local times go back, such as at the end of summer time: rows may get
        local times that were already read.
        """
        local = self._local_times
        if local is None or self._moment is None:
            return
        if self._read_before and not local.is_repeated(local.stored(self._moment)):
            self._read_before.clear()
        begun = local.repetition(self._moment, now)
        if begun is not None:
            self._moment, self._number, self._stands_within = begun, None, False

    def _remember(
        self, connection: "sa.Connection", rows: "sa.Subquery", last: datetime, now: datetime
    ) -> None:
        """Note rows whose local times are repeated later, so that they are not read twice."""
        local = self._local_times
        if local is None or not local.comes_again(last, now):
            return
        found = connection.execute(sa.select(rows.c[0], rows.c[1])).all()
        self._read_before |= {(at, int(n)) for at, n in found if local.comes_again(at, now)}
        if len(self._read_before) > _REMEMBERED_MAX:
            self._read_before.clear()

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
        return RowsBetween(self._address, self.source, statement, server=self._server)

    def _column(self, name: str | None) -> "sa.ColumnElement[Any]":
        assert name is not None
        return self._relation.c[name]

    def _moment_expression(self) -> "sa.ColumnElement[Any]":
        columns = [self._relation.c[each] for each in self.source.timestamps]
        found = columns[0] if len(columns) == 1 else sa.func.coalesce(*columns)
        if self._address.kind != "sqlite" or not isinstance(columns[0].type, sa.DateTime):
            return found
        # SQLite compares times as texts: all of them with six digits of a second
        text = sa.func.replace(sa.type_coerce(found, sa.String()), "T", " ")
        padded = sa.case(
            (sa.func.instr(text, ".") > 0, text + "000000"),
            (sa.func.length(text) == _DATE_CHARS, text + " 00:00:00.000000"),
            else_=text + ".000000",
        )
        return sa.type_coerce(sa.func.substr(padded, 1, _SQLITE_TIME_CHARS), columns[0].type)

    @property
    def _local_times(self) -> LocalTimes | None:
        """The zone of the times, if the column has none."""
        kind = self._relation.c[self.source.timestamps[0]].type
        if getattr(kind, "timezone", False):
            return None
        return LocalTimes(UTC if isinstance(kind, mysql.TIMESTAMP) else self.source.zone)

    def _as_stored(self, moment: datetime) -> datetime:
        """A time in the form of the table's column."""
        local = self._local_times
        return moment if local is None else local.stored(moment)

    def _as_utc(self, stored: datetime, now: datetime) -> datetime:
        local = self._local_times
        if local is None or stored.tzinfo is not None:
            return stored.astimezone(UTC)
        return local.instant(stored, now)


def even_ranges(first: int, last: int, count: int) -> list[tuple[int, int]]:
    """Split ``first`` to ``last`` into about ``count`` inclusive ranges, in order."""
    step = max(1, -(-(last - first + 1) // count))
    return [(low, min(low + step - 1, last)) for low in range(first, last + 1, step)]


def even_moments(first: datetime, last: datetime, count: int) -> list[datetime]:
    """Cut points that split the time from ``first`` to ``last`` into about ``count`` ranges."""
    step = (last - first) / count
    return sorted({first + step * number for number in range(1, count)} - {first, last})


def _highest(*numbers: int | None) -> int | None:
    return max((each for each in numbers if each is not None), default=None)


def _offset_of(moment: datetime) -> dict[str, Any]:
    """The offset for a time, as in Confluent's JDBC source: milliseconds and nanoseconds."""
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
