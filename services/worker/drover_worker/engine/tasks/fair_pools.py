"""Names of Spark scheduler pools: concurrent batches use different pools and share the cores.

Spark never removes a pool and sorts all pools whenever a core is free. Names are therefore reused:
there are only as many pools as batches have run concurrently.
"""

import heapq
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class FairPools:
    """Lends pool names; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free: list[int] = []
        self._count = 0

    @contextmanager
    def lent(self) -> Iterator[str]:
        """A pool name that no other batch uses within the block."""
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
