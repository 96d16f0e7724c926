"""The table of leases that all coordinators of a cluster write; backends store it."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from drover.clock import Clock
from drover.errors import DroverError
from drover_coordinator.core.ownership.machine import TableSeen, Write


class LeaseStore(Protocol):
    """The storage of the table; one exchange at a time."""

    async def exchange(self, writes: Sequence[Write], started_ms: int) -> TableSeen:
        """Apply every write whose condition holds, in one transaction, and read the table.

        Claims and releases are durable when this returns. ``started_ms`` is for the result.

        Raises:
            UnavailableError: STORAGE_UNAVAILABLE; the writes may have been applied, and a retry
                of them is harmless.
            DroverError: The coordinator cannot continue.
        """

    async def close(self) -> None:
        """Finish the exchange in progress and close the table."""


class LeaseClient:
    """One coordinator's exchanges with the table; retries the writes of a failed one."""

    def __init__(self, store: LeaseStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._failed: list[Write] = []
        self._started_ms = 0

    async def exchange(self, writes: Iterable[Write]) -> TableSeen:
        """Apply the writes of failed exchanges and then ``writes``, and read the table.

        A failed exchange may have been applied, so ``started_ms`` stays that of the first attempt.

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
        """Close the table."""
        await self._store.close()
