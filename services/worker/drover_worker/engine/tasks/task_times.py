"""Durations of a task's calls since its start, for progress reports."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from drover.api.engine.v1 import engine_pb2
from drover.metrics.figures import Tally


class TaskTimes:
    """One thread measures at a time; another may read slightly stale values."""

    def __init__(self) -> None:
        self.batches = Tally()
        self.polls = Tally()
        self.writes = Tally()
        self.commits = Tally()
        self.retry_count = 0
        self.size_bytes = 0

    def fill(self, entry: engine_pb2.TaskProgress.Entry) -> None:
        """Write the values into a progress report."""
        for message, tally in (
            (entry.batch_times, self.batches),
            (entry.poll_times, self.polls),
            (entry.write_times, self.writes),
            (entry.commit_times, self.commits),
        ):
            message.count, message.total_us = tally.count, round(tally.total * 1_000_000)
        entry.retry_count, entry.size_bytes = self.retry_count, self.size_bytes


@contextmanager
def timed(tally: Tally) -> Iterator[None]:
    """Measure the block; not counted if it raises."""
    began_s = time.monotonic()
    yield
    tally.add(time.monotonic() - began_s)


def since(began_ms: int) -> float:
    """Seconds since a time of the monotonic clock in milliseconds."""
    return time.monotonic() - began_ms / 1000
