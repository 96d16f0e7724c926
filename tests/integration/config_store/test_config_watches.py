"""Watches of the config store over real gRPC: resume, fragments, slow and vanished clients."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path

import grpc
import pytest

from drover.api.config_store.v1 import config_store_service_pb2 as pb
from drover.api.config_store.v1 import config_store_service_pb2_grpc as pb_grpc
from drover.client import ConfigStoreClient, EventsRead
from drover.clock import Clock
from drover.codec.config_store import encode_watch_responses
from drover.errors import Reason, ResourceExhaustedError
from drover.log.log import Log
from drover.model.config import ConnectorConfigUpdated, TargetState, TaskConfigsUpdated
from drover.rpc import interceptors
from drover.rpc.change_feed import ChangeFeed
from drover.rpc.multipart import PartsInProgress
from drover.rpc.server import RpcServer
from drover.rpc.status import from_rpc_error
from drover.runtime.change_buffer import ChangeBuffer
from drover.runtime.runtime import Runtime
from drover_config_store.core.machine import ConfigMachine
from drover_config_store.core.records import ConfigRecord
from drover_config_store.server import (
    FULL_NAME,
    ConfigStoreServicer,
    decode_record,
    encode_record,
    wire,
)
from tests.support.config_store import Wire, lead, read_until, store
from tests.support.log_services import running_service
from tests.support.waiting import wait_until_async

MEBIBYTE = 1024 * 1024


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "config.db"


def wire_with(*, max_appends_behind: int = 1_000, progress_interval_s: float = 10.0) -> Wire:
    """Like ``wire``, with other limits for watch streams."""

    def wired(log: Log, clock: Clock, server: RpcServer) -> Runtime[ConfigRecord]:
        machine = ConfigMachine(ChangeBuffer())
        runtime = Runtime(
            machine, log, encode=encode_record, decode=decode_record, clock=clock, name="test"
        )
        feed = ChangeFeed(
            runtime=runtime,
            history=machine.history,
            encode=lambda events, end_offset, created: encode_watch_responses(
                events, end_offset, created=created
            ),
            max_appends_behind=max_appends_behind,
            progress_interval_s=progress_interval_s,
        )
        servicer = ConfigStoreServicer(machine, runtime, log, PartsInProgress(clock), feed)
        server.add(pb_grpc.add_ConfigStoreServiceServicer_to_server, servicer, FULL_NAME)
        return runtime

    return wired


async def test_a_write_that_changes_nothing_still_moves_the_watchers_end(path: Path) -> None:
    """A client that reads to the end waits for the new end offset."""
    async with store(path) as client:
        epoch = await lead(client)
        await client.put_connector_config(name="a", config={}, writer_epoch=epoch)
        async with asyncio.timeout(30), aclosing(client.watch(1)) as batches:
            await anext(batches)
            end_offset = await client.put_target_state(name="a", target_state=TargetState.STARTED)
            assert await anext(batches) == EventsRead([], end_offset)


async def test_a_quiet_watch_gives_signs_of_life(path: Path) -> None:
    wiring = wire_with(progress_interval_s=0.02)
    async with store(path, wiring) as client, aclosing(client.watch(0)) as batches:
        for _ in range(3):
            assert await asyncio.wait_for(anext(batches), 30) == EventsRead([], 0)


async def test_a_large_set_of_tasks_comes_in_fragments(path: Path) -> None:
    count, filler = 1_500, "x" * 2_000
    async with running_service(path, wire) as service:
        client = ConfigStoreClient(service.channel)
        epoch = await lead(client)
        await client.put_connector_config(name="a", config={}, writer_epoch=epoch)
        end_offset = await client.put_task_configs(
            connector="a",
            task_configs=[{"t": str(index), "filler": filler} for index in range(count)],
            writer_epoch=epoch,
        )
        stub = pb_grpc.ConfigStoreServiceStub(service.channel)
        messages: list[pb.WatchConfigsResponse] = []
        stream = stub.WatchConfigs(pb.WatchConfigsRequest(start_offset=1))
        async with asyncio.timeout(30):
            async for message in stream:
                messages.append(message)
                if message.end_offset == end_offset:
                    break
        stream.cancel()
        (event,) = await read_until(client, 1, end_offset)
    assert all(message.ByteSize() <= MEBIBYTE for message in messages)
    assert len(messages) > 2
    assert [message.fragment for message in messages] == [True] * (len(messages) - 1) + [False]
    assert [message.created for message in messages] == [True] + [False] * (len(messages) - 1)
    # a client that loses the stream between fragments reads the whole set again
    assert {message.end_offset for message in messages[:-1]} == {end_offset - 1}
    assert isinstance(event.change, TaskConfigsUpdated)
    assert [int(config["t"]) for config in event.change.task_configs.values()] == list(range(count))


async def test_a_slow_watcher_is_dropped_and_resumes(path: Path) -> None:
    writes, size = 40, 900_000
    async with running_service(path, wire_with(max_appends_behind=5)) as service:
        client = ConfigStoreClient(service.channel)
        epoch = await lead(client)
        stub = pb_grpc.ConfigStoreServiceStub(service.channel)
        stream = aiter(stub.WatchConfigs(pb.WatchConfigsRequest(start_offset=0)))
        assert (await anext(stream)).created
        for index in range(writes):
            await client.put_connector_config(
                name="a", config={"n": str(index), "x": "x" * size}, writer_epoch=epoch
            )
        messages: list[pb.WatchConfigsResponse] = []
        with pytest.raises(grpc.RpcError) as caught:
            await asyncio.wait_for(_read_all(stream, messages), 30)
        position = messages[-1].end_offset
        seen = sum(len(message.events) for message in messages)
        error = from_rpc_error(caught.value)
        assert isinstance(error, ResourceExhaustedError)
        assert error.reason is Reason.QUEUE_FULL
        assert 0 < position < writes
        rest = await read_until(client, position, writes)
        assert seen + len(rest) == writes


class RecordedLog:
    """Replaces a module's logger: its level does not depend on other tests."""

    def __init__(self) -> None:
        self.methods: list[tuple[str, str]] = []

    def __getattr__(self, method: str) -> Callable[..., None]:
        return lambda event, **_: self.methods.append((method, event))


async def test_a_watcher_that_goes_away_in_the_middle_of_a_message_is_no_defect(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interceptors, "WRITE_MAX_S", 300.0)  # the client, not this limit, ends it
    async with running_service(path, wire) as service:
        client = ConfigStoreClient(service.channel)
        epoch = await lead(client)
        stub = pb_grpc.ConfigStoreServiceStub(service.channel)
        stream = stub.WatchConfigs(pb.WatchConfigsRequest(start_offset=0))
        await anext(aiter(stream))
        for index in range(10):
            config = {"n": str(index), "x": "x" * 900_000}
            await client.put_connector_config(name="a", config=config, writer_epoch=epoch)
        log = RecordedLog()
        monkeypatch.setattr(interceptors, "_log", log)
        stream.cancel()
        await wait_until_async(lambda: log.methods)
        monkeypatch.undo()
    assert log.methods == [("debug", "call")]


async def _read_all(
    stream: AsyncIterator[pb.WatchConfigsResponse], messages: list[pb.WatchConfigsResponse]
) -> None:
    """Read until an error; ``messages`` receives the messages before it."""
    while True:
        messages.append(await anext(stream))


async def test_two_hundred_watchers_see_a_write(path: Path) -> None:
    async with store(path) as client:
        epoch = await lead(client)
        watchers = [
            asyncio.create_task(read_until(client, 0, 1), name=f"watcher {index}")
            for index in range(200)
        ]
        await client.put_connector_config(name="a", config={}, writer_epoch=epoch)
        seen = await asyncio.gather(*watchers)
    assert len(seen) == 200
    assert all(events == seen[0] for events in seen)
    assert isinstance(seen[0][0].change, ConnectorConfigUpdated)
