"""How large the next batch of a source should be.

Large batches cost less for a record; small ones arrive sooner, and let the next batch be made, the
last one be published and the one before be read by sinks all at the same time.
"""

_MIB = 1024 * 1024
#: The first batch, and the smallest that one is made to be.
LEAST_BYTES = 4 * _MIB
#: How long a batch may take whatever it costs.
TARGET_S = 0.4
#: Or so many times the time of the quickest, most of which no smaller batch would save.
OF_QUICKEST = 4


class BatchSize:
    """The bytes of a batch, by how long the batches before took; ``most_bytes`` is the limit."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._least_bytes = min(LEAST_BYTES, most_bytes)
        self._quickest_s = float("inf")
        self.bytes = self._least_bytes

    def took(self, seconds: float, *, follows: bool) -> None:
        """A batch took so long to be made or to be published, whichever is longer.

        ``follows`` says that there was one right before it, so it may have been as large as it
        could: only then the next one is larger.
        """
        self._quickest_s = min(self._quickest_s, seconds)
        target_s = max(TARGET_S, OF_QUICKEST * self._quickest_s)
        growth = min(target_s / max(seconds, 1e-3), 2.0)
        if growth < 1 or follows:
            wanted = int(self.bytes * growth)
            self.bytes = min(max(wanted, self._least_bytes), self._most_bytes)
