"""A status store in this process, real gRPC, on any kind of log; scripted faults."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from drover.client import StatusStoreClient, channel
from drover.clock import SystemClock
from drover.log.kafka.log import KafkaLogSpec
from drover.log.kafka.topics import status_topic
from drover.log.log import FollowedLog, Log, LogRecord
from drover.log.memory import MemoryLog
from drover.log.sqlite import SqliteLog
from drover.rpc.server import RpcServer
from drover.runtime.runtime import Runtime
from drover_status_store.core.records import AnyRecord
from drover_status_store.server import wire
from tests.support.faulty_log import FaultyLog
from tests.support.kafka.logs import LogOnKafka, storage_on

Reopen = Callable[[], Awaitable[Log]]


@dataclass
class StatusPlace:
    """The parts of the store that tests use; ``restart`` replaces all except the log's records."""

    log: FaultyLog
    runtime: Runtime[AnyRecord]
    client: StatusStoreClient
    address: str
    _reopen: Reopen
    _stack: AsyncExitStack

    @classmethod
    @asynccontextmanager
    async def on(cls, log: Log, reopen: Reopen) -> AsyncIterator["StatusPlace"]:
        """Serve ``log``; ``reopen`` opens the log for the next process."""
        place = await cls._start(log, reopen)
        try:
            yield place
        finally:
            await place._stack.aclose()

    async def restart(self) -> None:
        """Restart as a new process."""
        await self._stack.aclose()
        fresh = await self._start(await self._reopen(), self._reopen)
        self.log, self.runtime, self.client = fresh.log, fresh.runtime, fresh.client
        self.address, self._stack = fresh.address, fresh._stack

    async def stop(self) -> None:
        """Stop as at the end of a process; idempotent."""
        await self._stack.aclose()

    async def write_raw(self, *records: tuple[bytes, bytes | None]) -> None:
        """Append another program's records, and wait until the store has read them."""
        await self.log.log.append([LogRecord(key, value) for key, value in records])
        if not isinstance(self.log, FollowedLog):
            await self.restart()
            return
        end_offset = await self.log.end_offset()
        await self.runtime.wait_until_applied(end_offset)

    @classmethod
    async def _start(cls, log: Log, reopen: Reopen) -> "StatusPlace":
        async with AsyncExitStack() as stack:
            faulty = FaultyLog(log)
            server = RpcServer(listen="127.0.0.1:0", internal=True)
            runtime = wire(cast("Log", faulty), SystemClock(), server)
            stack.push_async_callback(runtime.close)
            stack.push_async_callback(server.drain, 0)
            address = await server.start()
            await runtime.load()
            connection = await stack.enter_async_context(channel(address))
            client = StatusStoreClient(connection)
            return cls(faulty, runtime, client, address, reopen, stack.pop_all())


@asynccontextmanager
async def in_memory() -> AsyncIterator[StatusPlace]:
    """On an in-memory log."""
    log = MemoryLog(SystemClock())

    async def reopen() -> Log:
        return log.crash()

    async with StatusPlace.on(log, reopen) as place:
        yield place


@asynccontextmanager
async def in_shared_memory() -> AsyncIterator[StatusPlace]:
    """On an in-memory log that other processes also append to."""
    log = MemoryLog(SystemClock())

    async def reopen() -> Log:
        return log.shared()

    async with StatusPlace.on(log.shared(), reopen) as place:
        yield place


@asynccontextmanager
async def on_sqlite(path: Path) -> AsyncIterator[StatusPlace]:
    """On a SQLite file."""
    opened = [await SqliteLog.open(path, SystemClock())]

    async def reopen() -> Log:
        await opened[-1].close()
        opened.append(await SqliteLog.open(path, SystemClock()))
        return opened[-1]

    async with StatusPlace.on(opened[0], reopen) as place:
        yield place
    await opened[-1].close()


@asynccontextmanager
async def on_kafka(bootstrap: str, prefix: str) -> AsyncIterator[StatusPlace]:
    """On a topic of several partitions."""
    async with status_log(bootstrap, prefix) as kafka:

        async def reopen() -> Log:
            await kafka.log.close()
            return await kafka.open()

        async with StatusPlace.on(kafka.log, reopen) as place:
            yield place


@asynccontextmanager
async def two_in_shared_memory() -> AsyncIterator[tuple[StatusPlace, StatusPlace]]:
    """Two stores on one in-memory log."""
    log = MemoryLog(SystemClock())

    async def reopen() -> Log:
        return log.shared()

    async with (
        StatusPlace.on(await reopen(), reopen) as one,
        StatusPlace.on(await reopen(), reopen) as two,
    ):
        yield one, two


@asynccontextmanager
async def two_on_kafka(
    bootstrap: str, prefix: str
) -> AsyncIterator[tuple[StatusPlace, StatusPlace]]:
    """Two stores on one topic of several partitions."""
    async with (
        status_log(bootstrap, prefix) as first,
        status_log(bootstrap, prefix) as second,
        StatusPlace.on(first.log, first.open) as one,
        StatusPlace.on(second.log, second.open) as two,
    ):
        yield one, two


@asynccontextmanager
async def status_log(bootstrap: str, prefix: str) -> AsyncIterator[LogOnKafka]:
    """A process's access to a cluster's status topic."""
    storage = storage_on(bootstrap, prefix)
    spec = KafkaLogSpec(topic=storage.topics.status)
    topics = [status_topic(storage)]
    async with LogOnKafka.opened(bootstrap, prefix, spec=spec, topics=topics) as kafka:
        yield kafka
