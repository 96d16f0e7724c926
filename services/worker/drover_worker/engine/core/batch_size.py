"""Chooses the size of a source's next batch.

A Spark job costs about the time of a hundred thousand short lines, so batches are large. A batch
that takes long adds latency and may exceed its transaction timeout. The first batches are small,
because publishing and readers have nothing to do until the first one is published.
"""

_MIB = 1024 * 1024
FIRST_BYTES = 8 * _MIB
LEAST_BYTES = 4 * _MIB
#: The target for staging a batch, and for publishing it.
TARGET_S = 2.0


class BatchSize:
    """The byte limit of the next batch, from the duration of the last; at most ``most_bytes``."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._least_bytes = min(LEAST_BYTES, most_bytes)
        self.bytes = min(FIRST_BYTES, most_bytes)

    def took(self, seconds: float, *, follows: bool) -> None:
        """Adjust to a batch that took ``seconds`` to stage or to publish, whichever was longer.

        The limit grows only if ``follows``: the batch came right after another one, so it was
        probably full.
        """
        growth = min(TARGET_S / max(seconds, 1e-3), 2.0)
        if growth < 1 or follows:
            wanted = int(self.bytes * growth)
            self.bytes = min(max(wanted, self._least_bytes), self._most_bytes)
