"""The forwarder: one address for several workers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from drover.local import fleet_address
from drover.local.fleet_address import Forwarder
from tests.support.addresses import HOST, free_address


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1000):
        writer.write(data.upper())
    writer.close()


async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()
    writer.close()


@asynccontextmanager
async def running(*workers: object, worker_s: float = 20.0) -> AsyncIterator[tuple[str, int]]:
    """Runs a forwarder and returns its address; a worker is a handler or an unused address."""
    async with AsyncExitStack() as stack:
        addresses = []
        for each in workers:
            if isinstance(each, str):
                addresses.append(each)
                continue
            server = await asyncio.start_server(each, HOST, 0)  # type: ignore[arg-type]
            stack.push_async_callback(closed, server)
            addresses.append(f"{HOST}:{server.sockets[0].getsockname()[1]}")
        front = await Forwarder(addresses, worker_s=worker_s).serve(HOST, 0)
        stack.push_async_callback(closed, front)
        yield front.sockets[0].getsockname()


async def closed(server: asyncio.Server) -> None:
    server.close()


async def test_what_is_said_goes_through_both_ways() -> None:
    async with running(echo, free_address(), free_address()) as address:
        for _ in range(5):
            reader, writer = await asyncio.open_connection(*address)
            for said in (b"hello", b"again", b"x" * 300_000):
                writer.write(said)
                assert await reader.readexactly(len(said)) == said.upper()
            writer.close()


async def test_a_worker_that_says_nothing_is_passed_over() -> None:
    async with running(echo, *[say_nothing] * 5, worker_s=0.2) as address:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(b"hello")
        assert await reader.readexactly(5) == b"HELLO"
        writer.close()


@pytest.mark.parametrize("workers", [[say_nothing], [free_address()], ["nowhere.invalid:7411"]])
async def test_a_client_is_let_go_when_nobody_answers(workers: list[object]) -> None:
    async with running(*workers, worker_s=0.1) as address:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(b"hello")
        assert await reader.read() == b""
        writer.close()


async def test_a_worker_that_goes_takes_its_connections_along() -> None:
    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.read(1000))
        writer.close()

    async with running(once) as address:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(b"hello")
        assert await reader.read() == b"hello"
        writer.close()


async def test_there_are_only_so_many_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_address, "CONNECTIONS_MAX", 1)
    async with running(echo) as address:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(b"hello")
        assert await reader.readexactly(5) == b"HELLO"
        second, its_writer = await asyncio.open_connection(*address)
        assert await second.read() == b""
        its_writer.close()
        writer.write(b"still")
        assert await reader.readexactly(5) == b"STILL"
        writer.close()


@pytest.mark.parametrize("words", [[], ["0.0.0.0:7411"], ["7411", "worker:7411"], ["h:1", "w"]])
def test_misuse_is_told_in_a_line(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert fleet_address.main(words) == 2
    err = capsys.readouterr().err
    assert err.startswith("usage: ")
    assert len(err.splitlines()) == 1
