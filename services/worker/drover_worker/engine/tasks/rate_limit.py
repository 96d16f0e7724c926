"""At most so many records and bytes a second."""

import math

#: What a record takes, before one was seen.
_RECORD_BYTES = 1024


class RateLimit:
    """Says how long to wait before the next batch, so that both rates hold on average.

    A batch that took its time is not made up for by a faster one later.
    """

    def __init__(self, records_per_s: int, bytes_per_s: int) -> None:
        """0 is for no limit."""
        self._records_per_s = records_per_s or math.inf
        self._bytes_per_s = bytes_per_s or math.inf
        self._record_bytes = float(_RECORD_BYTES)
        self._free_at_s = 0.0

    @property
    def is_set(self) -> bool:
        """Whether there is a limit: then each batch waits for the one before, whose size says when
        it may begin.
        """
        return min(self._records_per_s, self._bytes_per_s) < math.inf

    def batch_max_records(self, limit: int) -> int:
        """How many records a batch may have: those of a second at most."""
        return int(min(limit, self._records_per_s))

    def batch_max_bytes(self, limit: int) -> int:
        """How large a batch may be: what may go through in a second at most."""
        return int(min(limit, self._bytes_per_s))

    def next_max_records(self, limit: int) -> int:
        """How many records the next batch may have, if they are as large as those of the last: for
        sources that do not go by bytes.
        """
        return max(1, int(min(limit, self._bytes_per_s / self._record_bytes)))

    def pause_s(self, now_s: float) -> float:
        """How long to wait before the next batch; 0 for not at all."""
        return max(0.0, self._free_at_s - now_s)

    def moved(self, record_count: int, size_bytes: int, started_s: float) -> None:
        """A batch that began at ``started_s`` had so many records and bytes."""
        if record_count:
            self._record_bytes = max(1.0, size_bytes / record_count)
        wait_s = max(record_count / self._records_per_s, size_bytes / self._bytes_per_s)
        self._free_at_s = started_s + wait_s
