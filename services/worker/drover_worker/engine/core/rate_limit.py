"""Limits on records and bytes per second."""

import math

#: Assumed size of a record before the first batch.
_RECORD_BYTES = 1024


class RateLimit:
    """Computes the pause before the next batch so that both rates hold on average.

    A slow batch earns no credit for a later, faster one.
    """

    def __init__(self, records_per_s: int, bytes_per_s: int) -> None:
        """0 means no limit."""
        self._records_per_s = records_per_s or math.inf
        self._bytes_per_s = bytes_per_s or math.inf
        self._record_bytes = float(_RECORD_BYTES)
        self._free_at_s = 0.0

    @property
    def is_set(self) -> bool:
        """Whether there is a limit: then a batch starts only after the one before, as its size
        determines the pause.
        """
        return min(self._records_per_s, self._bytes_per_s) < math.inf

    def batch_max_records(self, limit: int) -> int:
        """The record limit of a batch: at most the records of one second."""
        return int(min(limit, self._records_per_s))

    def batch_max_bytes(self, limit: int) -> int:
        """The byte limit of a batch: at most the bytes of one second."""
        return int(min(limit, self._bytes_per_s))

    def next_max_records(self, limit: int) -> int:
        """The record limit of the next batch, assuming the record size of the last one; for sources
        that ignore byte limits.
        """
        return max(1, int(min(limit, self._bytes_per_s / self._record_bytes)))

    def pause_s(self, now_s: float) -> float:
        """How long to wait before the next batch; 0 for no wait."""
        return max(0.0, self._free_at_s - now_s)

    def moved(self, record_count: int, size_bytes: int, started_s: float) -> None:
        """Account for a batch that started at ``started_s``."""
        if record_count:
            self._record_bytes = max(1.0, size_bytes / record_count)
        wait_s = max(record_count / self._records_per_s, size_bytes / self._bytes_per_s)
        self._free_at_s = started_s + wait_s
