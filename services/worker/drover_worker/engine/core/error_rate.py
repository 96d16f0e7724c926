"""The share of a task's records that failed recently."""

from collections import deque

from drover.connector.error_settings import MAX_RATE, ErrorSettings
from drover.pipeline import PassReport

#: The rate is not computed for fewer records.
RECORDS_MIN = 100


class TooManyErrorsError(Exception):
    """More records failed than ``errors.max.rate`` allows."""


class ErrorRate:
    """Counts over a window that slides with the batches."""

    def __init__(self, settings: ErrorSettings) -> None:
        self._max_rate = settings.max_rate
        self._window_s = settings.max_rate_window_ms / 1000
        #: (seconds, records read, records failed) of each batch in the window, oldest first.
        self._batches: deque[tuple[float, int, int]] = deque()

    def add(self, report: PassReport, now_s: float) -> None:
        """Count a batch.

        Raises:
            TooManyErrorsError: The rate is above the limit now.
        """
        if self._max_rate >= 1:
            return
        self._batches.append((now_s, report.read_count, report.failed_count))
        while self._batches[0][0] < now_s - self._window_s:
            self._batches.popleft()
        read = sum(each[1] for each in self._batches)
        failed = sum(each[2] for each in self._batches)
        if read >= RECORDS_MIN and failed > self._max_rate * read:
            raise TooManyErrorsError(
                f"{failed} of the last {read} records could not be handled, and {MAX_RATE} allows "
                f"{self._max_rate:g}: inspect the dead letters, then restart the task"
            )
