"""Metrics of the appends to a runtime's log."""

from collections.abc import Iterator

from drover.metrics import table
from drover.metrics.figures import Distribution
from drover.metrics.metric import Sample


class LogFigures:
    """Counts and durations of the appends to one log."""

    def __init__(self) -> None:
        self.append_count = 0
        self.failure_count = 0
        self.record_count = 0
        self.seconds = Distribution()

    def appended(self, record_count: int, duration_s: float) -> None:
        """Count an append of ``record_count`` records."""
        self.append_count += 1
        self.record_count += record_count
        self.seconds.add(duration_s)

    def failed(self, duration_s: float) -> None:
        """Count a failed append."""
        self.failure_count += 1
        self.seconds.add(duration_s)

    def samples(self, log: str) -> Iterator[Sample]:
        """The samples, labelled with the log's name."""
        yield table.LOG_APPENDS.at(self.append_count, log)
        yield table.LOG_FAILURES.at(self.failure_count, log)
        yield table.LOG_RECORDS.at(self.record_count, log)
        yield table.LOG_SECONDS.at(self.seconds, log)
