"""How large the next batch of a source should be.

A job for each batch costs about as much as a hundred thousand short lines, so batches are large.
But one that takes long arrives late, holds its readers up, and may outlive its transaction. The
first ones are small: until one is published, who publishes has nothing to do, and readers neither.
"""

_MIB = 1024 * 1024
FIRST_BYTES = 8 * _MIB
LEAST_BYTES = 4 * _MIB
#: How long a batch may take to be made, or to be published.
TARGET_S = 2.0


class BatchSize:
    """The bytes of a batch, by how long the one before took; ``most_bytes`` is the limit."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._least_bytes = min(LEAST_BYTES, most_bytes)
        self.bytes = min(FIRST_BYTES, most_bytes)

    def took(self, seconds: float, *, follows: bool) -> None:
        """A batch took so long to be made or to be published, whichever is longer.

        ``follows`` says that there was one right before it, so it may have been as large as it
        could: only then the next one is larger.
        """
        growth = min(TARGET_S / max(seconds, 1e-3), 2.0)
        if growth < 1 or follows:
            wanted = int(self.bytes * growth)
            self.bytes = min(max(wanted, self._least_bytes), self._most_bytes)
