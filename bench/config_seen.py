"""How long it takes until a config write is durable and 200 watchers have seen it."""

import asyncio
import contextlib
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Iterator

import grpc.aio

from bench.figure import Figure
from bench.processes import READY_TIMEOUT_S, running
from drover.api.config_store.v1 import config_store_service_pb2 as pb
from drover.api.config_store.v1 import config_store_service_pb2_grpc as pb_grpc
from drover.client import ConfigStoreClient
from drover.local.ports import free_ports
from drover.model.ids import Term

WATCHER_COUNT = 200
WRITES = 20
ROUNDS = 10
_CALL_TIMEOUT_S = 60.0


class _Watchers:
    """Streams of one server, and the number of messages that each received."""

    def __init__(self, channel: grpc.aio.Channel, count: int) -> None:
        self._stub = pb_grpc.ConfigStoreServiceStub(channel)
        self._count = count
        self._seen = 0
        self._all_seen = asyncio.Event()
        self._wanted = count  # the first message of each
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> "_Watchers":
        self._tasks = [asyncio.create_task(self._watch()) for _ in range(self._count)]
        await self.all_have_seen()
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)

    def expect_one_more(self) -> None:
        """Expect one more message on each stream."""
        self._wanted += self._count
        self._all_seen.clear()

    async def all_have_seen(self) -> None:
        """Wait until each stream has its expected messages."""
        async with asyncio.timeout(_CALL_TIMEOUT_S):
            await self._all_seen.wait()

    async def _watch(self) -> None:
        stream = self._stub.WatchConfigs(pb.WatchConfigsRequest())
        async for message in stream:
            if message.created or message.events or not message.end_offset:
                self._seen += 1
                if self._seen == self._wanted:
                    self._all_seen.set()


@contextlib.asynccontextmanager
async def _connected(address: str) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(address) as channel:
        await asyncio.wait_for(channel.channel_ready(), READY_TIMEOUT_S)
        yield channel


@contextlib.asynccontextmanager
async def _servers() -> AsyncIterator[tuple[grpc.aio.Channel, grpc.aio.Channel]]:
    """The config store and its peer, fresh."""
    (port,) = free_ports("127.0.0.1", 1)
    address = f"127.0.0.1:{port}"
    async with contextlib.AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="drover-bench-"))
        env = {"DROVER_STORAGE_URL": f"sqlite://{folder}", "DROVER_CONFIG_STORE_LISTEN": address}
        await stack.enter_async_context(running("drover_config_store", env))
        peer = await stack.enter_async_context(running("bench.config_seen_peer"))
        assert peer.stdout is not None
        peer_address = (await asyncio.to_thread(peer.stdout.readline)).strip()
        yield (
            await stack.enter_async_context(_connected(address)),
            await stack.enter_async_context(_connected(peer_address)),
        )


async def measure(
    *, watcher_count: int = WATCHER_COUNT, writes: int = WRITES, rounds: int = ROUNDS
) -> Figure:
    """Alternate rounds of both, one write after the other; the ratio is of medians."""
    ours: list[float] = []
    theirs: list[float] = []
    async with _servers() as (store, peer):
        client = ConfigStoreClient(store)
        epoch = (await client.claim_writer(owner="bench", term=Term(1, 1))).writer_epoch
        empty = pb_grpc.ConfigStoreServiceStub(peer)
        async with _Watchers(store, watcher_count) as seen, _Watchers(peer, watcher_count) as told:
            for number in range(writes * (rounds + 1)):  # the first round does not count
                started_s = time.perf_counter()
                seen.expect_one_more()
                await client.put_connector_config(
                    name="bench", config={"number": str(number)}, writer_epoch=epoch
                )
                await seen.all_have_seen()
                ours.append(time.perf_counter() - started_s)
                started_s = time.perf_counter()
                told.expect_one_more()
                await empty.PutTargetState(
                    pb.PutTargetStateRequest(name=str(number)), timeout=_CALL_TIMEOUT_S
                )
                await told.all_have_seen()
                theirs.append(time.perf_counter() - started_s)
    return Figure(
        "config_write_seen",
        statistics.median(ours[writes:]) * 1_000,
        f"ms (until {watcher_count} watchers have seen a config)",
        peer="one durable SQLite commit, then an empty message on as many streams",
        peer_value=statistics.median(theirs[writes:]) * 1_000,
        limit="ratio <= 5",
    )


def figures() -> Iterator[Figure]:
    """A config write, durable and seen by 200 watchers, against a commit and empty messages."""
    yield asyncio.run(measure())
