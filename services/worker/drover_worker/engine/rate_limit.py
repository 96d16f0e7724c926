"""At most so many records a second."""


class RateLimit:
    """Says how long to wait before the next batch, so that the rate holds on average.

    A batch that took its time is not made up for by a faster one later.
    """

    def __init__(self, records_per_s: int) -> None:
        """0 is for no limit."""
        self._records_per_s = records_per_s
        self._free_at_s = 0.0

    def batch_max(self, limit: int) -> int:
        """How many records a batch may have: those of a second at most."""
        return min(limit, self._records_per_s) if self._records_per_s else limit

    def pause_s(self, now_s: float) -> float:
        """How long to wait before the next batch; 0 for not at all."""
        return max(0.0, self._free_at_s - now_s)

    def moved(self, record_count: int, started_s: float) -> None:
        """A batch that began at ``started_s`` had so many records."""
        if self._records_per_s:
            self._free_at_s = started_s + record_count / self._records_per_s
