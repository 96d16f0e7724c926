"""Limits how many calls run at the same time: of each caller, and in total."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class CallSlots:
    """A call waits until its caller has a free slot, then for one of the total.

    A caller whose calls take long delays only further calls of the same caller, if the total is
    larger than a caller's share.
    """

    def __init__(self, *, per_caller: int, total: int) -> None:
        self._per_caller = per_caller
        self._total = asyncio.Semaphore(total)
        self._of_callers: dict[str, asyncio.Semaphore] = {}
        self._call_counts: dict[str, int] = {}

    @asynccontextmanager
    async def slot(self, caller: str) -> AsyncIterator[None]:
        """Run the block in a slot of the caller."""
        slots = self._of_callers.setdefault(caller, asyncio.Semaphore(self._per_caller))
        self._call_counts[caller] = self._call_counts.get(caller, 0) + 1
        try:
            async with slots, self._total:
                yield
        finally:
            self._call_counts[caller] -= 1
            if not self._call_counts[caller]:
                del self._call_counts[caller], self._of_callers[caller]
