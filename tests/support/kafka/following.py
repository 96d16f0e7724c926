"""Collects the records of a log's tail in the background."""

import asyncio

from drover.log.log import FollowedLog, StoredRecord
from tests.support.waiting import wait_until_async


class Following:
    """Reads ``log.tail`` until the log is closed or the tail fails.

    Attributes:
        stored: The records received so far.
        task: Ends with the tail; has its error.
    """

    def __init__(self, log: object, start_offset: int = 0) -> None:
        assert isinstance(log, FollowedLog)
        self.stored: list[StoredRecord] = []
        self.task = asyncio.create_task(self._follow(log, start_offset))

    async def _follow(self, log: FollowedLog, start_offset: int) -> None:
        async for batch in log.tail(start_offset):
            self.stored.extend(batch)

    @property
    def keys(self) -> list[bytes]:
        """The keys of the received records."""
        return [stored.record.key for stored in self.stored]

    async def brings(self, keys: list[bytes]) -> None:
        """Wait until exactly ``keys`` are received."""
        await wait_until_async(
            lambda: self.keys == keys or self.task.done(), describe=lambda: self.keys
        )
        assert self.keys == keys

    async def brings_count(self, count: int) -> None:
        """Wait until at least ``count`` records are received."""
        await wait_until_async(
            lambda: len(self.stored) >= count or self.task.done(), describe=lambda: self.keys
        )
        assert len(self.stored) >= count, self.keys
