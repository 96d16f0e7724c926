"""Names of Spark's pools: what runs at the same time is in different ones, and shares the cores.

Spark keeps a pool for ever, and sorts all of them whenever a core is free. So a pool is not a
task's: a name is used again by whoever comes next, and there are no more of them than batches that
ran at once.
"""

import heapq
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class FairPools:
    """Lends out names; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free: list[int] = []
        self._count = 0

    @contextmanager
    def lent(self) -> Iterator[str]:
        """A name that nobody else has in here."""
        with self._lock:
            if not self._free:
                heapq.heappush(self._free, self._count)
                self._count += 1
            number = heapq.heappop(self._free)
        try:
            yield f"batch {number}"
        finally:
            with self._lock:
                heapq.heappush(self._free, number)
