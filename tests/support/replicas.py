"""Two servers of one store in this process: real gRPC, one log that both follow."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from drover.client import FailoverChannel
from drover.clock import Clock, SystemClock
from drover.errors import FailedPreconditionError, Reason
from drover.log.log import Log, LogRecord
from drover.log.memory import MemoryLog, SharedMemoryLog
from drover.model.ids import Term
from drover.rpc.server import RpcServer
from drover.runtime.runtime import Runtime

Wire = Callable[[Log, Clock, RpcServer], Runtime[Any]]


class TopicLikeLog(SharedMemoryLog):
    """A log like a topic: it has a name, and only the handle that claimed it writes with the
    epoch.
    """

    _claimed_epoch = -1

    @property
    def log_id(self) -> str:
        """The same id for all handles of the log."""
        return "a topic"

    async def claim(self, owner: str, term: Term) -> int:
        """As any log's."""
        self._claimed_epoch = await super().claim(owner, term)
        return self._claimed_epoch

    async def append(self, records: Sequence[LogRecord], epoch: int | None = None) -> int:
        """Rejects the epoch of a claim made through another handle."""
        if epoch not in (None, self._claimed_epoch):
            raise FailedPreconditionError(Reason.STALE_WRITER_EPOCH, "it was not claimed here")
        return await super().append(records, epoch)


@dataclass
class Replica:
    """A server, and its handle of the log."""

    log: TopicLikeLog
    server: RpcServer
    runtime: Runtime[Any]
    address: str

    async def stop(self) -> None:
        """Stop it as at the end of its process; idempotent."""
        await self.server.drain(0)
        await self.runtime.close()


@dataclass(frozen=True, slots=True)
class Replicas:
    """The servers, and a failover channel to them."""

    one: Replica
    two: Replica
    channel: FailoverChannel


@asynccontextmanager
async def two_replicas(wire: Wire) -> AsyncIterator[Replicas]:
    """Two running servers that have read the whole log."""
    log = MemoryLog(SystemClock())
    handles = log._handle(TopicLikeLog), log._handle(TopicLikeLog)
    running: list[Replica] = []
    try:
        for handle in handles:
            server = RpcServer(listen="127.0.0.1:0", internal=True)
            runtime = wire(handle, SystemClock(), server)
            running.append(Replica(handle, server, runtime, await server.start()))
            await runtime.load()
            await server.set_serving(True)
        async with FailoverChannel([each.address for each in running]) as channel:
            one, two = running
            yield Replicas(one, two, channel)
    finally:
        for each in running:
            each.log.release_appends()
            each.log.release_tail()
            await each.stop()
