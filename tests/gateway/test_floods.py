"""Floods against a gateway process: the others are served, and its memory stays bounded."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from drover.python_process import python_command, python_environment
from drover.rpc.settings import split_address
from tests.support.addresses import free_address
from tests.support.raw_http import RawClient, ask, connected
from tests.support.waiting import pause, wait_until_async
from tests.support.worker_cluster import WorkerCluster

pytestmark = [pytest.mark.faults("gateway"), pytest.mark.timeout(600)]

GET = b"GET /connectors HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
CONNECTION_COUNT, PER_HOST = 10_000, 64
RSS_MAX_BYTES = 150 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class GatewayProcess:
    """A gateway that runs as a separate process."""

    address: str
    process: psutil.Process

    @property
    def rss_bytes(self) -> int:
        return int(self.process.memory_info().rss)


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[GatewayProcess]:
    async with WorkerCluster(tmp_path) as cluster:
        (worker,) = await cluster.settled_workers(1)
        address = free_address()
        environment = python_environment({**os.environ})
        environment |= {
            "DROVER_GATEWAY_LISTEN": address,
            "DROVER_GATEWAY_WORKERS": worker.address,
        }
        process = await asyncio.create_subprocess_exec(
            *python_command("drover_gateway"), env=environment
        )
        running = GatewayProcess(address, psutil.Process(process.pid))

        async def serves() -> bool:
            try:
                return (await ask(address, GET)).status == 200
            except OSError:
                return False

        try:
            await wait_until_async(serves)
            yield running
        finally:
            process.terminate()
            assert await process.wait() == 0


@asynccontextmanager
async def silent_connections(address: str, count: int) -> AsyncIterator[list[RawClient]]:
    """Connections from many loopback addresses, as many from each as one may have."""
    host, port = split_address(address)
    clients = []
    async with AsyncExitStack() as stack:
        for number in range(count):
            source = f"127.0.{1 + number // PER_HOST // 250}.{1 + number // PER_HOST % 250}"
            reader, writer = await asyncio.open_connection(host, port, local_addr=(source, 0))
            stack.callback(writer.close)
            clients.append(RawClient(reader, writer))
        yield clients


async def test_ten_thousand_silent_connections_leave_the_others_served(
    gateway: GatewayProcess,
) -> None:
    async with silent_connections(gateway.address, CONNECTION_COUNT) as clients:
        for _ in range(10):
            assert (await ask(gateway.address, GET)).status == 200
        assert gateway.rss_bytes < RSS_MAX_BYTES
        # none of them stays for long
        for client in clients:
            assert await client.is_closed()
    assert (await ask(gateway.address, GET)).status == 200


async def test_a_thousand_large_bodies_leave_the_others_served(gateway: GatewayProcess) -> None:
    head = b"PUT /connectors/a/config HTTP/1.1\r\nHost: localhost\r\n"
    head += b"Content-Type: application/json\r\nContent-Length: 100000000\r\n\r\n"

    async def send_large() -> int:
        async with connected(gateway.address) as client:
            await client.send(head + b"{" + b" " * 500_000)
            return (await client.response()).status

    for _ in range(50):
        statuses = await asyncio.gather(*(send_large() for _ in range(20)))
        assert set(statuses) == {413}
        assert (await ask(gateway.address, GET)).status == 200
    assert gateway.rss_bytes < RSS_MAX_BYTES


async def test_a_thousand_endless_heads_leave_the_others_served(gateway: GatewayProcess) -> None:
    head = b"GET / HTTP/1.1\r\nHost: localhost\r\n"
    head += b"".join(b"X-%d: y\r\n" % number for number in range(50_000))

    async def send_head() -> int:
        async with connected(gateway.address) as client:
            await client.send(head)
            return (await client.response()).status

    for _ in range(50):
        assert set(await asyncio.gather(*(send_head() for _ in range(20)))) == {431}
        assert (await ask(gateway.address, GET)).status == 200
    assert gateway.rss_bytes < RSS_MAX_BYTES


async def test_requests_at_a_time_beyond_the_limit_are_503_at_once(
    gateway: GatewayProcess,
) -> None:
    """One caller has 32 places, and another one is served while they are taken."""
    slow = b"PUT /connectors/a/config HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer one\r\n"
    slow += b"Content-Type: application/json\r\nContent-Length: 10\r\n\r\n{"
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(connected(gateway.address)) for _ in range(40)]
        for client in clients:
            await client.send(slow)
        waiting = [asyncio.create_task(client.response()) for client in clients]
        await wait_until_async(lambda: sum(each.done() for each in waiting) == 8)
        refused = [each.result() for each in waiting if each.done()]
        assert {(each.status, each.headers["retry-after"]) for each in refused} == {(503, "1")}
        assert (await ask(gateway.address, GET)).status == 200
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def test_slow_heads_and_slow_bodies_leave_the_others_served(gateway: GatewayProcess) -> None:
    """Two thousand clients send a byte at a time, and none of them for longer than the limits."""
    body = b"PUT /connectors/a/config HTTP/1.1\r\nHost: localhost\r\n"
    body += b"Content-Type: application/json\r\nContent-Length: 10000\r\n\r\n"
    async with silent_connections(gateway.address, 2_000) as clients:
        for number, client in enumerate(clients):
            # a body takes a place of the requests in progress, so only some have one
            await client.send(body if number < 20 else b"GET /connectors HTTP/1.1\r\n")
        closed = [asyncio.create_task(client.is_closed()) for client in clients]
        while not all(each.done() for each in closed):
            for client, task in zip(clients, closed, strict=True):
                if not task.done():
                    await client.send(b"X")
            assert (await ask(gateway.address, GET)).status == 200
            await pause(0.5)
        assert gateway.rss_bytes < RSS_MAX_BYTES


async def test_thousands_of_requests_on_each_connection_are_not_kept(
    gateway: GatewayProcess,
) -> None:
    one = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
    for _ in range(5):
        async with silent_connections(gateway.address, 200) as clients:
            await asyncio.gather(*(each.send(one * 9_000) for each in clients))
            assert (await ask(gateway.address, GET)).status == 200
            assert gateway.rss_bytes < RSS_MAX_BYTES


@pytest.mark.parametrize("sent", [b"0\r\nX: ", b"5;"])
async def test_trailers_and_chunk_extensions_without_end_are_not_kept(
    gateway: GatewayProcess, sent: bytes
) -> None:
    head = b"PUT /connectors/a/config HTTP/1.1\r\nHost: localhost\r\n"
    head += b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"

    async def send_trailer() -> None:
        async with connected(gateway.address) as client:
            await client.send(head + sent)
            for _ in range(50):
                await client.send(b"a" * 1_000_000)

    for _ in range(5):
        await asyncio.gather(*(send_trailer() for _ in range(20)))
        assert (await ask(gateway.address, GET)).status == 200
        assert gateway.rss_bytes < RSS_MAX_BYTES
