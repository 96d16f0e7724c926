"""Figures of connectors over the last hour, in this worker's memory: a row for 10 s."""

from array import array
from collections.abc import Collection, Iterator
from dataclasses import dataclass

INTERVAL_MS = 10_000
#: An hour.
ROWS_MAX = 360
_UNKNOWN_LAG = -1
#: The interval, three counts, the lag, and count and total of four kinds of operations.
_COLUMNS = 13


@dataclass(frozen=True, slots=True)
class Amounts:
    """What a task has done, as sums that only grow.

    Attributes:
        counts: Records read, written and dead-lettered.
        times: For batches, polls, writes and commits: their number and total duration in us.
    """

    counts: tuple[int, int, int]
    times: tuple[int, int, int, int, int, int, int, int]


@dataclass(frozen=True, slots=True)
class Row:
    """What a connector's tasks on this worker did in one interval.

    Attributes:
        begin_ms: When the interval began, since the epoch.
        amounts: What was done within it.
        lag: The lag at its end, of the tasks on this worker; None if unknown.
    """

    begin_ms: int
    amounts: Amounts
    lag: int | None


_NOTHING = Amounts((0, 0, 0), (0, 0, 0, 0, 0, 0, 0, 0))


class _Rows:
    """The rows of one connector; intervals without a report have none. At most 37 KiB."""

    def __init__(self) -> None:
        self._values = array("q")
        self._lags: dict[int, int] = {}

    @property
    def last_interval(self) -> int:
        """The interval of the last row."""
        return self._values[-_COLUMNS]

    def add(self, interval: int, task: int, before: Amounts, now: Amounts, lag: int | None) -> None:
        """Add what a task has done since its last report."""
        values = self._values
        if not values or values[-_COLUMNS] < interval:
            values.extend((interval, 0, 0, 0, _UNKNOWN_LAG, *(0,) * 8))
            del values[: max(0, len(values) - ROWS_MAX * _COLUMNS)]
        at = len(values) - _COLUMNS
        pairs = zip((*before.counts, *before.times), (*now.counts, *now.times), strict=True)
        for index, (old, new) in enumerate(pairs):
            column = index + (1 if index < 3 else 2)
            # the counts of a new lifecycle start at 0
            values[at + column] += new - old if new >= old else new
        if lag is None:
            self._lags.pop(task, None)
        else:
            self._lags[task] = lag
        values[at + 4] = sum(self._lags.values()) if self._lags else _UNKNOWN_LAG

    def forget_lags(self, tasks: Collection[int]) -> None:
        """Keep only the lags of tasks that are on this worker."""
        for task in self._lags.keys() - set(tasks):
            del self._lags[task]

    def rows(self, first: int, end: int, *, fill: bool) -> Iterator[Row]:
        """The rows from interval ``first`` to before ``end``; with ``fill`` to its end, also where
        nothing was reported: nothing was done then, and the lag stayed.
        """
        lag: int | None = None
        expected: int | None = None
        for at in range(0, len(self._values), _COLUMNS):
            interval, *values = self._values[at : at + _COLUMNS]
            if interval >= end:
                break
            if expected is not None:
                yield from _empty(max(expected, first), interval, lag)
            lag = None if values[3] == _UNKNOWN_LAG else values[3]
            if interval >= first:
                read, written, dead = values[:3]
                batches, batch_us, polls, poll_us, writes, write_us, commits, commit_us = values[4:]
                times = (batches, batch_us, polls, poll_us, writes, write_us, commits, commit_us)
                yield Row(interval * INTERVAL_MS, Amounts((read, written, dead), times), lag)
            expected = interval + 1
        if fill and expected is not None:
            yield from _empty(max(expected, first), end, lag)


def _empty(first: int, end: int, lag: int | None) -> Iterator[Row]:
    for interval in range(first, end):
        yield Row(interval * INTERVAL_MS, _NOTHING, lag)


class ConnectorFigures:
    """The figures of the connectors whose tasks ran on this worker in the last hour."""

    def __init__(self) -> None:
        self._rows: dict[str, _Rows] = {}
        self._checked = 0

    def add(
        self,
        now_ms: int,
        connector: str,
        task: int,
        before: Amounts,
        now: Amounts,
        lag: int | None,
    ) -> None:
        """Add what a task has done since its last report."""
        rows = self._rows.setdefault(connector, _Rows())
        rows.add(now_ms // INTERVAL_MS, task, before, now, lag)

    def forget(self, now_ms: int, connectors: Collection[str], at_work: Collection[str]) -> None:
        """Once an interval: forget deleted connectors, and connectors that left an hour ago.

        Args:
            now_ms: The present time, since the epoch.
            connectors: All connectors.
            at_work: The connectors with tasks on this worker.
        """
        interval = now_ms // INTERVAL_MS
        if interval == self._checked:
            return
        self._checked = interval
        for name, rows in list(self._rows.items()):
            has_left = name not in at_work and rows.last_interval <= interval - ROWS_MAX
            if has_left or name not in connectors:
                del self._rows[name]

    def rows(self, now_ms: int, connector: str, tasks: Collection[int]) -> list[Row]:
        """The rows of the last hour, up to the last interval that is complete.

        Args:
            now_ms: The present time, since the epoch.
            connector: The connector.
            tasks: Its tasks that run on this worker.
        """
        found = self._rows.get(connector)
        if found is None:
            return []
        found.forget_lags(tasks)
        end = now_ms // INTERVAL_MS
        return list(found.rows(end - ROWS_MAX, end, fill=bool(tasks)))
