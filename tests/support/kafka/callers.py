"""Callers that append to a log continuously."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from drover.errors import DroverError, Reason
from drover.log.kafka.log import KafkaLog
from drover.log.log import LogRecord
from drover.model.ids import Term
from drover.testing import read_all
from tests.support.waiting import wait_until_async


class Caller:
    """Appends one record after another, privileged or not, through all broker faults.

    Attributes:
        acknowledged: The keys of the durable records, in order.
        failures: The errors of the other appends.
    """

    def __init__(self, log: KafkaLog, name: str, term: Term | None) -> None:
        self.acknowledged: list[bytes] = []
        self.failures: set[Reason] = set()
        self._log = log
        self._name = name
        self._term = term
        self._stopping = False
        self.task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Stop; returns once no append is pending."""
        self._stopping = True
        await self.task

    async def goes_on(self) -> None:
        """Wait until five more records are acknowledged."""
        wanted = len(self.acknowledged) + 5
        await wait_until_async(
            lambda: len(self.acknowledged) >= wanted,
            timeout_s=90,
            describe=lambda: (self._name, self.failures),
        )

    async def fails(self) -> None:
        """Wait until an append fails because the brokers are unavailable."""
        self.failures.clear()
        await wait_until_async(lambda: Reason.STORAGE_UNAVAILABLE in self.failures, timeout_s=90)

    async def _run(self) -> None:
        epoch: int | None = None
        number = 0
        while not self._stopping:
            number += 1
            key = f"{self._name}-{number}".encode()
            try:
                if self._term is not None and epoch is None:
                    epoch = await self._log.claim("leader", self._term)
                await self._log.append([LogRecord(key, b"v")], epoch)
            except DroverError as error:
                self.failures.add(error.reason)
                if error.reason is Reason.STALE_WRITER_EPOCH:
                    epoch = None
                await asyncio.sleep(0)  # a closed log fails immediately
            else:
                self.acknowledged.append(key)


@asynccontextmanager
async def calling(*callers: Caller) -> AsyncIterator[None]:
    """Run the callers for the block."""
    try:
        await asyncio.gather(*(caller.goes_on() for caller in callers))
        yield
        await asyncio.gather(*(caller.goes_on() for caller in callers))
    finally:
        await asyncio.gather(*(caller.stop() for caller in callers))


async def assert_all_kept(log: KafkaLog, *callers: Caller) -> None:
    """Each acknowledged record is in the log once, in its caller's order."""
    keys = [one.record.key for one in await read_all(log)]
    assert len(keys) == len(set(keys))
    for caller in callers:
        assert caller.acknowledged
        acknowledged = set(caller.acknowledged)
        assert [key for key in keys if key in acknowledged] == caller.acknowledged
