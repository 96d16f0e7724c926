"""How far a reader is, and waiting until it is further."""

import asyncio
from collections.abc import Mapping

from drover.errors import DroverError, Reason, UnavailableError
from drover.log.kafka.records import ReadBatch


class Progress:
    """The positions of a reader.

    Attributes:
        positions: The next offset of each partition.
        ends: The offset after the last record that was read of each partition; partitions of which
            nothing was read are not there.
        record_count: How many records were read.
    """

    def __init__(self, starts: Mapping[int, int]) -> None:
        self.positions = dict(starts)
        self.ends: dict[int, int] = {}
        self.record_count = 0
        self._failed: DroverError | None = None
        self._waiting: dict[asyncio.Future[None], Mapping[int, int]] = {}

    def advance(self, batch: ReadBatch) -> None:
        """Count a batch, and wake who has waited for it."""
        self.positions.update(batch.positions)
        self.ends.update((record.partition, record.offset + 1) for record in batch.records)
        self.record_count += len(batch.records)
        for reached, targets in self._waiting.items():
            if not reached.done() and self._is_at(targets):
                reached.set_result(None)

    def fail(self, error: DroverError) -> None:
        """It goes no further; whoever waits hears ``error``. Only the first one counts."""
        self._failed = self._failed or error
        for reached in self._waiting:
            if not reached.done():
                reached.set_exception(self._failed)

    async def reach(self, targets: Mapping[int, int], timeout_s: float) -> None:
        """Wait until the position of each partition is at its target or beyond.

        Raises:
            UnavailableError: STORAGE_UNAVAILABLE, it took longer than ``timeout_s``.
            DroverError: What ``fail`` was told.
        """
        if self._is_at(targets):
            return
        if self._failed is not None:
            raise self._failed
        reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[reached] = targets
        try:
            await asyncio.wait_for(reached, timeout_s)
        except TimeoutError as error:
            raise UnavailableError(
                Reason.STORAGE_UNAVAILABLE,
                f"Kafka could not be read up to the offsets {dict(targets)} (by partition) within"
                f" {timeout_s:g} s; try again",
            ) from error
        finally:
            del self._waiting[reached]

    def _is_at(self, targets: Mapping[int, int]) -> bool:
        return all(self.positions[partition] >= at for partition, at in targets.items())
