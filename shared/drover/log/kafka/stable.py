"""Waits until written records are stable: a commit returns before its marker is in the log."""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence

from drover.errors import DroverError
from drover.log.kafka.client import KafkaClient
from drover.log.kafka.progress import Progress
from drover.log.kafka.records import ReadBatch

POLL_S = 0.003


class StableOffsets:
    """Polls the last stable offsets while callers wait for them."""

    def __init__(self, client: KafkaClient, topic: str, partitions: Sequence[int]) -> None:
        self._client = client
        self._topic = topic
        self._partitions = partitions
        self._progress = Progress(dict.fromkeys(partitions, 0))
        self._waiting_count = 0
        self._polling: asyncio.Task[None] | None = None

    async def reach(self, ends: Mapping[int, int], timeout_s: float) -> None:
        """Wait until no transaction below ``ends`` is open.

        Raises:
            UnavailableError: STORAGE_UNAVAILABLE, it took longer than ``timeout_s``.
        """
        self._waiting_count += 1
        try:
            if self._polling is None:
                self._polling = asyncio.create_task(self._poll(), name=f"{self._topic} stable")
            await self._progress.reach(ends, timeout_s)
        finally:
            self._waiting_count -= 1

    async def _poll(self) -> None:
        try:
            while self._waiting_count > 0:
                with contextlib.suppress(DroverError):
                    stable = await self._client.stable_offsets(self._topic, self._partitions)
                    self._progress.advance(ReadBatch((), stable))
                await asyncio.sleep(POLL_S)
        finally:
            self._polling = None
