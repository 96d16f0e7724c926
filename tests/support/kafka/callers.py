"""Who appends to a log on and on."""

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
    """Appends one record after the other, privileged or not, whatever happens to the brokers.

    Attributes:
        acknowledged: The keys of the records that are durable, in order.
        failures: Why others are not.
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
        """Returns once nothing of it is under way."""
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
        """Wait until the brokers are missed once more."""
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
                await asyncio.sleep(0)  # a log that is closed refuses at once
            else:
                self.acknowledged.append(key)


@asynccontextmanager
async def calling(*callers: Caller) -> AsyncIterator[None]:
    """All of them append, until they are stopped."""
    try:
        await asyncio.gather(*(caller.goes_on() for caller in callers))
        yield
        await asyncio.gather(*(caller.goes_on() for caller in callers))
    finally:
        await asyncio.gather(*(caller.stop() for caller in callers))


async def assert_all_kept(log: KafkaLog, *callers: Caller) -> None:
    """What was acknowledged is there once, in the order in which each caller appended it."""
    keys = [one.record.key for one in await read_all(log)]
    assert len(keys) == len(set(keys))
    for caller in callers:
        assert caller.acknowledged
        acknowledged = set(caller.acknowledged)
        assert [key for key in keys if key in acknowledged] == caller.acknowledged
