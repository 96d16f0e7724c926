"""What a log's tail brings, collected in the background."""

import asyncio

from drover.log.log import FollowedLog, StoredRecord
from tests.support.waiting import wait_until_async


class Following:
    """Reads ``log.tail`` until the log is closed or cannot be followed any more.

    Attributes:
        stored: What it has brought so far.
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
        """The keys of what it has brought."""
        return [stored.record.key for stored in self.stored]

    async def brings(self, keys: list[bytes]) -> None:
        """Wait until it has brought exactly ``keys``."""
        await wait_until_async(
            lambda: self.keys == keys or self.task.done(), describe=lambda: self.keys
        )
        assert self.keys == keys

    async def brings_count(self, count: int) -> None:
        """Wait until it has brought at least ``count`` records."""
        await wait_until_async(
            lambda: len(self.stored) >= count or self.task.done(), describe=lambda: self.keys
        )
        assert len(self.stored) >= count, self.keys
