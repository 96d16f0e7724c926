"""The table of leases that all coordinators of a cluster write, wherever it is kept."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from drover.clock import Clock
from drover.errors import DroverError
from drover_coordinator.core.ownership.machine import TableSeen, Write


class LeaseStore(Protocol):
    """Where the table is kept; one exchange at a time."""

    async def exchange(self, writes: Sequence[Write], started_ms: int) -> TableSeen:
        """Carry out every write whose condition holds, all at once, and read the table after it.

        A claim and a release are durable when this returns. ``started_ms`` is for the answer.

        Raises:
            UnavailableError: STORAGE_UNAVAILABLE; the writes may have been carried out all the
                same, and are harmless when they are tried again.
            DroverError: It makes no sense to go on.
        """

    async def close(self) -> None:
        """Finish what is under way and let the table go."""


class SharedLeases:
    """One coordinator's exchanges with the table."""

    def __init__(self, store: LeaseStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._failed: list[Write] = []
        self._started_ms = 0

    async def exchange(self, writes: Iterable[Write]) -> TableSeen:
        """Carry out writes, those included that failed before, and see the table after them.

        Whoever fails may have written all the same: so the time at which its writes began stays.

        Raises:
            DroverError: As ``LeaseStore.exchange``.
        """
        if not self._failed:
            self._started_ms = self._clock.now_ms()
        batch = [*self._failed, *writes]
        try:
            seen = await self._store.exchange(batch, self._started_ms)
        except DroverError:
            self._failed = batch
            raise
        self._failed = []
        return seen

    async def close(self) -> None:
        """Let the table go."""
        await self._store.close()
