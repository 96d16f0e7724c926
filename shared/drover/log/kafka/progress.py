"""The positions of a reader, and waits until it reaches an offset."""

import asyncio
from collections.abc import Mapping

from drover.errors import DroverError, Reason, UnavailableError
from drover.log.kafka.records import ReadBatch


class Progress:
    """The positions of a reader.

    Attributes:
        positions: The next offset of each partition.
        ends: The offset after the last record of each partition; without partitions of which no
            record was read.
        record_count: How many records were read.
    """

    def __init__(self, starts: Mapping[int, int]) -> None:
        self.positions = dict(starts)
        self.ends: dict[int, int] = {}
        self.record_count = 0
        self._failed: DroverError | None = None
        self._waiting: dict[asyncio.Future[None], Mapping[int, int]] = {}

    def advance(self, batch: ReadBatch) -> None:
        """Advance behind a batch and complete the waits that it satisfies."""
        self.positions.update(batch.positions)
        self.ends.update((record.partition, record.offset + 1) for record in batch.records)
        self.record_count += len(batch.records)
        for reached, targets in self._waiting.items():
            if not reached.done() and self._is_at(targets):
                reached.set_result(None)

    def fail(self, error: DroverError) -> None:
        """End all waits, present and future, with the first ``error``: reading has stopped."""
        self._failed = self._failed or error
        for reached in self._waiting:
            if not reached.done():
                reached.set_exception(self._failed)

    async def reach(self, targets: Mapping[int, int], timeout_s: float) -> None:
        """Wait until the position of each partition is at its target or beyond.

        Raises:
            UnavailableError: STORAGE_UNAVAILABLE, it took longer than ``timeout_s``.
            DroverError: The error that ``fail`` got.
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
                f" {timeout_s:g} s: retry",
            ) from error
        finally:
            del self._waiting[reached]

    def _is_at(self, targets: Mapping[int, int]) -> bool:
        return all(self.positions[partition] >= at for partition, at in targets.items())
