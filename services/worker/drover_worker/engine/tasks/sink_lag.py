"""How many records of its topic partitions a sink has not delivered."""

import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import Protocol

import structlog

from drover.dataplane.plane import PartitionKey
from drover.model.status import LAG_FIGURE
from drover_worker.engine.core.steps import Step

#: The shortest time between two measurements while batches follow each other.
_EVERY_S = 1.0
#: How often the lag is measured while a task is in one batch, retries, or is paused.
_WATCH_EVERY_S = 2.0
_PAUSED_EVERY_S = 5.0

log = structlog.get_logger(__name__)

EndOffsets = Callable[[Collection[PartitionKey]], Mapping[PartitionKey, int]]


class SinkLag:
    """Measures the lag of one task: from its committed offsets to the ends of its partitions.

    Offsets without records, such as transaction markers, do not count once the task has read past
    them. The task's thread and one other thread call it.
    """

    def __init__(self, report: Callable[[str, int], None]) -> None:
        self._report = report
        #: For each partition a committed offset, and an offset up to which no records follow it.
        self._empty: dict[PartitionKey, tuple[int, int]] = {}
        self._measured_s = 0.0

    def is_due(self, step: Step, now_s: float) -> bool:
        """Whether the lag has to be measured beside the task's own measurements."""
        if step is Step.WAITING_FOR_RECORDS:  # new records wake the task
            return False
        every_s = _PAUSED_EVERY_S if step is Step.PAUSED else _WATCH_EVERY_S
        return now_s - self._measured_s >= every_s

    def is_due_before_batch(self) -> bool:
        """Whether the task measures it before its next batch."""
        return time.monotonic() - self._measured_s >= _EVERY_S

    def passed(
        self,
        positions: Mapping[PartitionKey, int],
        next_offsets: Mapping[PartitionKey, int],
        committed: Mapping[PartitionKey, int],
    ) -> None:
        """The task found no records from ``positions`` up to ``next_offsets``."""
        for key, end in next_offsets.items():
            done = committed.get(key)
            if done is not None and self._start(key, done) == positions.get(key):
                self._empty[key] = (done, end)
        if next_offsets.keys() >= positions.keys():
            self.measured(next_offsets, {**positions, **next_offsets}, committed)

    def measured(
        self,
        ends: Mapping[PartitionKey, int],
        positions: Mapping[PartitionKey, int],
        committed: Mapping[PartitionKey, int],
    ) -> None:
        """Report the lag. Of a partition without a committed offset, the records from its position
        on count.
        """
        self._measured_s = time.monotonic()
        starts = {
            key: self._start(key, committed[key]) if key in committed else at
            for key, at in positions.items()
        }
        lag = sum(max(0, ends.get(key, at) - at) for key, at in starts.items())
        self._report(LAG_FIGURE, lag)

    def _start(self, key: PartitionKey, committed: int) -> int:
        """The first offset after a committed one that may have a record."""
        done, end = self._empty.get(key, (None, 0))
        return end if done == committed else committed


class LaggingTask(Protocol):
    """A sink task as ``watch_lags`` sees it."""

    def lag_is_due(self, now_s: float) -> bool:
        """Whether its lag has to be measured now."""

    def partitions(self) -> Collection[PartitionKey]:
        """Its topic partitions."""

    def report_lag(self, ends: Mapping[PartitionKey, int]) -> None:
        """Report its lag."""


def watch_lags(
    tasks: Callable[[], Collection[LaggingTask]], end_offsets: EndOffsets, closed: threading.Event
) -> None:
    """Measure the lag of tasks that do not measure it themselves, until ``closed`` is set.

    One request finds the end offsets of all of them.
    """
    while not closed.wait(_EVERY_S):
        now_s = time.monotonic()
        due = [each for each in tasks() if each.lag_is_due(now_s)]
        wanted = {key for each in due for key in each.partitions()}
        if not wanted:
            continue
        try:
            ends = end_offsets(wanted)
        except Exception as error:  # noqa: BLE001 - brokers or the store are unavailable: later
            log.debug("the lags of tasks cannot be measured", error=repr(error)[:200])
            continue
        for each in due:
            each.report_lag(ends)
