"""Guarantees of both the config store and the status store, over real gRPC and SQLite."""

import asyncio
from contextlib import aclosing
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from structlog.testing import capture_logs

from drover.errors import InvalidArgumentError, OutOfRangeError, Reason, UnavailableError
from drover.log import sqlite
from drover.log.log import LogRecord
from drover.rpc.status import from_rpc_error
from drover.runtime import compaction
from drover.testing import raises_reason
from tests.support.log_services import RunningService
from tests.support.store_kinds import STORES, StoreKind
from tests.support.waiting import wait_until_async

MEBIBYTE = 1024 * 1024


@pytest.fixture(params=STORES, ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> StoreKind:
    found: StoreKind = request.param
    return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.db"


async def told(
    kind: StoreKind, client: Any, start_offset: int, end_offset: int
) -> list[tuple[str, bool]]:
    """The changes that a watcher receives in a range of offsets."""
    found: list[tuple[str, bool]] = []
    async with asyncio.timeout(30), aclosing(client.watch(start_offset)) as reads:
        async for read in reads:
            found += map(kind.told, read.events)
            if read.end_offset >= end_offset:
                return found
    raise AssertionError("the watch ended early")


async def test_what_was_written_survives_a_restart_and_a_watch_resumes(
    kind: StoreKind, path: Path
) -> None:
    async with kind.running(path) as service:
        client = kind.client(service.channel)
        await kind.put(client, "a")
        seen = await kind.put(client, "b")
        await kind.put(client, "c")
        before = await client.get_snapshot()
    async with kind.running(path) as service:
        client = kind.client(service.channel)
        assert await client.get_snapshot() == before
        end_offset = await kind.remove(client, "a")
        assert await told(kind, client, seen, end_offset) == [("c", True), ("a", False)]
        assert kind.held(await client.get_snapshot()) == ["b", "c"]


async def test_a_watch_begins_with_its_position_and_follows_every_write(
    kind: StoreKind, path: Path
) -> None:
    async with kind.running(path) as service:
        client = kind.client(service.channel)
        async with asyncio.timeout(30), aclosing(client.watch(0)) as reads:
            first = await anext(reads)
            assert (first.events, first.end_offset) == ([], 0)
            for name in ("a", "b"):
                end_offset = await kind.put(client, name)
                read = await anext(reads)
                assert [*map(kind.told, read.events)] == [(name, True)]
                assert read.end_offset == end_offset


async def test_an_offset_that_is_none_of_the_logs_is_refused(kind: StoreKind, path: Path) -> None:
    async with kind.running(path) as service:
        client = kind.client(service.channel)
        snapshot = await client.get_snapshot()
        async with aclosing(client.watch(snapshot.end_offset, snapshot.log_id)) as reads:
            await anext(reads)
        with raises_reason(Reason.REVISION_COMPACTED):
            await anext(client.watch(snapshot.end_offset, "another log"))
        with raises_reason(Reason.REVISION_COMPACTED):
            await anext(client.watch(snapshot.end_offset + 7))
        with pytest.raises(InvalidArgumentError):
            await anext(client.watch(-1))


async def test_a_large_state_comes_in_chunks_and_its_changes_in_messages(
    kind: StoreKind, path: Path
) -> None:
    names = [f"c{number:02}" for number in range(60)]
    async with kind.running(path) as service:
        client = kind.client(service.channel)
        for name in reversed(names):
            await kind.put(client, name, filler="x" * 60_000)
        snapshot, watch = kind.messages(service.channel)
        chunks = [chunk async for chunk in snapshot]
        messages: list[Any] = []
        async with asyncio.timeout(30):
            async for message in watch:
                messages.append(message)
                if message.end_offset == len(names):
                    break
        watch.cancel()
        assert kind.held(await client.get_snapshot()) == names
        assert await told(kind, client, 0, len(names)) == [(n, True) for n in reversed(names)]
    assert all(part.ByteSize() <= MEBIBYTE for part in (*chunks, *messages))
    assert min(len(chunks), len(messages)) > 2
    assert [chunk.complete for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert {chunk.end_offset for chunk in chunks} == {len(names)}
    assert [message.created for message in messages] == [True] + [False] * (len(messages) - 1)
    for message in messages:
        assert message.end_offset == message.events[-1].offset + 1


async def test_while_loading_nothing_is_answered_and_health_says_so(
    kind: StoreKind, path: Path
) -> None:
    async with kind.running(path, load=False) as service:
        check: Any = vars(health_pb2_grpc.HealthStub(service.channel))["Check"]

        async def served() -> set[int]:
            return {
                (await check(health_pb2.HealthCheckRequest(service=name), timeout=10)).status
                for name in ("", kind.service)
            }

        assert await served() == {health_pb2.HealthCheckResponse.NOT_SERVING}
        for name, call in kind.calls(service.channel).items():
            with pytest.raises(grpc.RpcError) as caught:
                await call
            error = from_rpc_error(caught.value)
            assert isinstance(error, UnavailableError), name
            assert error.reason is Reason.LOADING, name
        await service.runtime.load()
        await service.server.set_serving(True)
        assert await served() == {health_pb2.HealthCheckResponse.SERVING}
        assert (await kind.client(service.channel).get_snapshot()).end_offset == 0


async def test_watches_end_promptly_when_the_server_drains(kind: StoreKind, path: Path) -> None:
    async with kind.running(path) as service:
        reads = kind.client(service.channel).watch(0)
        await anext(reads)
        following = asyncio.ensure_future(anext(reads))
        await service.server.drain(30)
        with raises_reason(Reason.DRAINING):
            await asyncio.wait_for(following, 30)


async def test_records_that_cannot_be_read_are_told_once_and_skipped(
    kind: StoreKind, path: Path
) -> None:
    async with kind.running(path, load=False) as service:
        await service.log.append([LogRecord(key, value) for key, value in kind.foreign])
        with capture_logs() as logs:
            await service.runtime.load()
        snapshot = await kind.client(service.channel).get_snapshot()
    assert [log["offset"] for log in logs if "cannot be read" in log["event"]] == [*kind.unreadable]
    assert kind.held(snapshot) == ["a"]
    assert snapshot.end_offset == len(kind.foreign)


async def test_the_log_is_compacted_while_serving_and_nothing_is_lost_or_comes_back(
    kind: StoreKind, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "COMPACT_AFTER_RECORDS", 50)
    monkeypatch.setattr(sqlite, "KEPT_RECORD_COUNT", 50)
    async with kind.running(path) as service:
        client = kind.client(service.channel)
        await kind.put_whole(client, "stays")
        await kind.put_whole(client, "gone")
        await kind.remove(client, "gone")
        for version in range(150):
            await kind.put(client, "changes", version)
        await wait_until_async(lambda: _count_below(service, 120))
        before = await client.get_snapshot()
    assert kind.held(before) == ["changes", "stays"]
    async with kind.running(path) as service:
        client = kind.client(service.channel)
        assert await client.get_snapshot() == before
        with pytest.raises(OutOfRangeError):
            await anext(client.watch(0))
        recent = before.end_offset - 50
        assert len(await told(kind, client, recent, before.end_offset)) == 50


async def _count_below(service: RunningService, limit: int) -> bool:
    count = 0
    async for batch in service.log.read(0):
        count += len(batch)
    return count < limit
