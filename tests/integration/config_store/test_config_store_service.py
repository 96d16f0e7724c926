"""The config store over real gRPC, on a real SQLite log."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from structlog.testing import capture_logs

from drover.api.config_store.v1 import config_store_service_pb2 as pb
from drover.api.config_store.v1 import config_store_service_pb2_grpc as pb_grpc
from drover.client import ConfigStoreClient, EventsRead, SnapshotRead, follow
from drover.clock import Clock
from drover.errors import (
    AbortedError,
    DroverError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    NotImplementedYetError,
    OutOfRangeError,
    Reason,
    ResourceExhaustedError,
    UnavailableError,
)
from drover.log import sqlite
from drover.log.log import Log, LogRecord
from drover.model.config import (
    ConfigEvent,
    ConfigSnapshot,
    ConnectorConfigRemoved,
    ConnectorConfigUpdated,
    TargetState,
    TargetStateChanged,
    TaskConfigsUpdated,
)
from drover.model.ids import TaskId, Term
from drover.rpc.change_feed import ChangeFeed
from drover.rpc.server import RpcServer
from drover.rpc.status import from_rpc_error
from drover.runtime import compaction
from drover.runtime.history import EventHistory
from drover.runtime.runtime import Runtime
from services.config_store.core.machine import CHANGES_CHANNEL, ConfigMachine
from services.config_store.core.records import ConfigRecord
from services.config_store.server import (
    FULL_NAME,
    ConfigStoreServicer,
    decode_record,
    encode_changes,
    encode_record,
    wire,
)
from tests.support.log_services import RunningService, running_service
from tests.support.waiting import wait_until_async

MEBIBYTE = 1024 * 1024
Wire = Callable[[Log, Clock, RpcServer], Runtime[ConfigRecord]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "config.db"


@asynccontextmanager
async def store(path: Path, wiring: Wire = wire) -> AsyncIterator[ConfigStoreClient]:
    async with running_service(path, wiring) as service:
        yield ConfigStoreClient(service.channel)


def wire_with(*, max_appends_behind: int = 1_000, progress_interval_s: float = 10.0) -> Wire:
    """As ``wire``, with other limits of watch streams."""

    def wired(log: Log, clock: Clock, server: RpcServer) -> Runtime[ConfigRecord]:
        machine = ConfigMachine(EventHistory())
        runtime = Runtime(
            machine, log, encode=encode_record, decode=decode_record, clock=clock, name="test"
        )
        feed = ChangeFeed(
            runtime=runtime,
            channel=CHANGES_CHANNEL,
            history=machine.history,
            encode=encode_changes,
            max_appends_behind=max_appends_behind,
            progress_interval_s=progress_interval_s,
        )
        servicer = ConfigStoreServicer(machine, runtime, log, feed)
        server.add(pb_grpc.add_ConfigStoreServiceServicer_to_server, servicer, FULL_NAME)
        return runtime

    return wired


async def lead(client: ConfigStoreClient, generation: int = 1) -> int:
    claim = await client.claim_writer(owner=f"w:{generation}", term=Term(generation, 1))
    return claim.writer_epoch


async def read_until(
    client: ConfigStoreClient, start_offset: int, end_offset: int
) -> list[ConfigEvent]:
    """The changes in a range, as a watcher gets them."""
    events: list[ConfigEvent] = []
    async with asyncio.timeout(30), aclosing(client.watch(start_offset)) as batches:
        async for batch in batches:
            events += batch.events
            if batch.end_offset >= end_offset:
                return events
    raise AssertionError("the watch ended early")


# writes and snapshots


async def test_writes_are_in_the_snapshot_and_survive_a_restart(path: Path) -> None:
    async with store(path) as client:
        epoch = await lead(client)
        written = await client.put_connector_config(
            name="a-1",
            config={"x": "1"},
            writer_epoch=epoch,
            initial_state=TargetState.PAUSED,
            expected_revision=0,
        )
        await client.put_connector_config(name="gone", config={}, writer_epoch=epoch)
        await client.put_task_configs(
            connector="a-1", task_configs=[{"t": "0"}, {}], writer_epoch=epoch
        )
        await client.put_target_state(name="a-1", target_state=TargetState.STOPPED)
        await client.put_restart_request(
            name="a-1", only_failed=True, include_tasks=True, writer_epoch=epoch
        )
        end_offset = await client.delete_connector(name="gone", writer_epoch=epoch)
        before = await client.get_snapshot()
        assert before.end_offset == end_offset == await client.get_end_offset()
    entry = before.connectors["a-1"]
    assert set(before.connectors) == {"a-1"}
    assert (entry.config, entry.target_state) == ({"x": "1"}, TargetState.STOPPED)
    assert entry.config_revision == written.revision
    assert before.task_configs == {TaskId("a-1", 0): {"t": "0"}, TaskId("a-1", 1): {}}
    async with store(path) as client:
        assert await client.get_snapshot() == before
        with pytest.raises(FailedPreconditionError) as error:
            await client.delete_connector(name="a-1", writer_epoch=epoch + 1)
        assert error.value.reason is Reason.STALE_WRITER_EPOCH
        await client.delete_connector(name="a-1", writer_epoch=epoch)


async def test_an_empty_store(path: Path) -> None:
    async with store(path) as client:
        assert await client.get_snapshot() == ConfigSnapshot(0, {}, {})
        assert await client.get_end_offset() == 0


async def test_ten_thousand_connectors_come_in_chunks(path: Path) -> None:
    count = 10_000
    filler = "x" * 300
    async with running_service(path, wire, load=False) as service:
        for start in range(0, count, 1_000):
            numbers = range(start, start + 1_000)
            records = [
                LogRecord(f"connector-c{i:05}".encode(), _properties(filler)) for i in numbers
            ]
            for i in numbers:
                records.append(LogRecord(f"task-c{i:05}-0".encode(), _properties(filler)))
                records.append(LogRecord(f"commit-c{i:05}".encode(), b'{"tasks":1}'))
            await service.log.append(records)
    async with running_service(path, wire) as service:
        stub = pb_grpc.ConfigStoreServiceStub(service.channel)
        chunks = [chunk async for chunk in stub.GetSnapshot(pb.GetSnapshotRequest(), timeout=60)]
        snapshot = await ConfigStoreClient(service.channel).get_snapshot(timeout_s=60)
    assert all(chunk.ByteSize() <= MEBIBYTE for chunk in chunks)
    assert len(chunks) > 5
    assert [chunk.complete for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert {chunk.end_offset for chunk in chunks} == {3 * count}
    names = [connector.name for chunk in chunks for connector in chunk.connectors]
    assert names == sorted(names)
    assert len(names) == len(snapshot.connectors) == count
    assert len(snapshot.task_configs) == count


def _properties(filler: str) -> bytes:
    return f'{{"properties":{{"filler":"{filler}"}}}}'.encode()


# the writer


async def test_a_new_leader_fences_the_old_one(path: Path) -> None:
    async with store(path) as client:
        old = await lead(client, 1)
        await client.put_connector_config(name="a", config={}, writer_epoch=old)
        claim = await client.claim_writer(owner="w:2", term=Term(2, 1))
        assert claim.end_offset == 1
        with pytest.raises(FailedPreconditionError) as error:
            await client.put_connector_config(name="a", config={"x": "1"}, writer_epoch=old)
        assert error.value.reason is Reason.STALE_WRITER_EPOCH
        with pytest.raises(FailedPreconditionError) as error:
            await lead(client, 1)
        assert error.value.reason is Reason.STALE_TERM
        await client.put_connector_config(
            name="a", config={"x": "2"}, writer_epoch=claim.writer_epoch
        )
        again = await client.claim_writer(owner="w:2", term=Term(2, 1))
        assert again.writer_epoch == claim.writer_epoch
        assert (await client.get_snapshot()).connectors["a"].config == {"x": "2"}


async def test_privileged_writes_need_a_claim_and_target_states_do_not(path: Path) -> None:
    async with store(path) as client:
        with pytest.raises(FailedPreconditionError) as error:
            await client.put_connector_config(name="a", config={}, writer_epoch=0)
        assert error.value.reason is Reason.STALE_WRITER_EPOCH
        epoch = await lead(client)
        await client.put_connector_config(name="a", config={}, writer_epoch=epoch)
        calls = [
            client.delete_connector(name="a", writer_epoch=0),
            client.put_task_configs(connector="a", task_configs=[], writer_epoch=0),
            client.put_restart_request(
                name="a", only_failed=False, include_tasks=False, writer_epoch=0
            ),
        ]
        for call in calls:
            with pytest.raises(FailedPreconditionError):
                await call
        await client.put_target_state(name="a", target_state=TargetState.PAUSED)


async def test_a_claim_needs_an_owner_and_a_term(path: Path) -> None:
    async with running_service(path, wire) as service:
        stub = pb_grpc.ConfigStoreServiceStub(service.channel)
        with pytest.raises(grpc.RpcError) as caught:
            await stub.ClaimWriter(pb.ClaimWriterRequest(), timeout=10)
        error = from_rpc_error(caught.value)
    assert isinstance(error, InvalidArgumentError)
    assert [violation.field for violation in error.violations] == ["owner", "term"]


# repeated requests


async def test_a_request_repeated_after_a_restart_gets_the_same_answer(path: Path) -> None:
    async with store(path) as client:
        epoch = await lead(client)
        create = await client.put_connector_config(
            name="a", config={}, writer_epoch=epoch, expected_revision=0, request_id="create"
        )
        tasks = await client.put_task_configs(
            connector="a", task_configs=[{}], writer_epoch=epoch, request_id="tasks"
        )
        delete = await client.delete_connector(name="a", writer_epoch=epoch, request_id="delete")
    async with store(path) as client:
        assert create == await client.put_connector_config(
            name="a", config={}, writer_epoch=epoch, expected_revision=0, request_id="create"
        )
        assert tasks == await client.put_task_configs(
            connector="a", task_configs=[{}], writer_epoch=epoch, request_id="tasks"
        )
        assert delete == await client.delete_connector(
            name="a", writer_epoch=epoch, request_id="delete"
        )
        assert (await client.get_snapshot()) == ConfigSnapshot(delete, {}, {})


# bad input


async def test_bad_input_is_told_with_its_reason(path: Path) -> None:
    async with store(path) as client:
        epoch = await lead(client)
        with pytest.raises(InvalidArgumentError) as invalid:
            await client.put_connector_config(name="a/\x01", config={"": "1"}, writer_epoch=epoch)
        assert [violation.field for violation in invalid.value.violations] == [
            "name",
            "name",
            "config",
        ]
        with pytest.raises(InvalidArgumentError) as invalid:
            await client.put_connector_config(
                name="a", config={"x": "y" * MEBIBYTE}, writer_epoch=epoch
            )
        assert invalid.value.reason is Reason.TOO_LARGE
        with pytest.raises(NotFoundError) as missing:
            await client.put_target_state(name="a", target_state=TargetState.PAUSED)
        assert missing.value.reason is Reason.CONNECTOR_NOT_FOUND
        with pytest.raises(AbortedError) as aborted:
            await client.put_connector_config(
                name="a", config={}, writer_epoch=epoch, expected_revision=3
            )
        assert aborted.value.reason is Reason.REVISION_MISMATCH
        assert await client.get_end_offset() == 0


async def test_unspecified_states_are_refused(path: Path) -> None:
    async with running_service(path, wire) as service:
        stub = pb_grpc.ConfigStoreServiceStub(service.channel)
        with pytest.raises(grpc.RpcError) as caught:
            await stub.PutTargetState(
                pb.PutTargetStateRequest(name="a", request_id="r"), timeout=10
            )
    error = from_rpc_error(caught.value)
    assert isinstance(error, InvalidArgumentError)
    assert error.violations[0].field == "target_state"


async def test_calls_that_come_later_say_so(path: Path) -> None:
    async with running_service(path, wire) as service:
        stub = pb_grpc.ConfigStoreServiceStub(service.channel)
        for call in (
            stub.PutTaskCount(pb.PutTaskCountRequest(), timeout=10),
            stub.PutSessionKey(pb.PutSessionKeyRequest(), timeout=10),
            stub.PutLoggerLevel(pb.PutLoggerLevelRequest(), timeout=10),
        ):
            with pytest.raises(grpc.RpcError) as caught:
                await call
            assert isinstance(from_rpc_error(caught.value), NotImplementedYetError)


# watches


async def test_a_watch_begins_with_its_position_and_follows_every_write(path: Path) -> None:
    async with store(path) as client:
        epoch = await lead(client)
        async with asyncio.timeout(30), aclosing(client.watch(0)) as batches:
            assert await anext(batches) == EventsRead([], 0)
            await client.put_connector_config(name="a", config={"x": "1"}, writer_epoch=epoch)
            batch = await anext(batches)
            assert batch.end_offset == 1
            (event,) = batch.events
            assert isinstance(event.change, ConnectorConfigUpdated)
            assert event.change.connector.config == {"x": "1"}
            end_offset = await client.put_task_configs(
                connector="a", task_configs=[{"t": "0"}, {"t": "1"}], writer_epoch=epoch
            )
            batch = await anext(batches)
            assert batch.end_offset == end_offset
            assert isinstance(batch.events[0].change, TaskConfigsUpdated)
            assert len(batch.events[0].change.task_configs) == 2


async def test_a_write_that_changes_nothing_still_moves_the_watchers_end(path: Path) -> None:
    """Readers to the end wait for it."""
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


async def test_a_watch_resumes_where_it_was_after_a_restart(path: Path) -> None:
    async with store(path) as client:
        epoch = await lead(client)
        seen = (
            await client.put_connector_config(name="a", config={}, writer_epoch=epoch)
        ).end_offset
        await client.put_target_state(name="a", target_state=TargetState.PAUSED)
    async with store(path) as client:
        end_offset = await client.delete_connector(name="a", writer_epoch=epoch)
        events = await read_until(client, seen, end_offset)
    assert events == [
        ConfigEvent(1, TargetStateChanged("a", TargetState.PAUSED)),
        ConfigEvent(2, ConnectorConfigRemoved("a")),
    ]


async def test_a_watch_ahead_of_the_log_is_told_to_read_again(path: Path) -> None:
    async with store(path) as client:
        with pytest.raises(OutOfRangeError) as error:
            await anext(client.watch(7))
        assert error.value.reason is Reason.REVISION_COMPACTED
        with pytest.raises(InvalidArgumentError):
            await anext(client.watch(-1))


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
    # who loses the stream in between begins the set again
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


async def test_a_watcher_that_goes_away_in_the_middle_of_a_message_is_no_defect(
    path: Path,
) -> None:
    async with running_service(path, wire) as service:
        client = ConfigStoreClient(service.channel)
        epoch = await lead(client)
        stub = pb_grpc.ConfigStoreServiceStub(service.channel)
        stream = stub.WatchConfigs(pb.WatchConfigsRequest(start_offset=0))
        await anext(aiter(stream))
        for index in range(10):
            config = {"n": str(index), "x": "x" * 900_000}
            await client.put_connector_config(name="a", config=config, writer_epoch=epoch)
        with capture_logs() as logs:
            stream.cancel()
            await wait_until_async(lambda: [log for log in logs if log["event"] == "call"])
    assert [log for log in logs if log["log_level"] in ("error", "critical")] == []


async def _read_all(
    stream: AsyncIterator[pb.WatchConfigsResponse], messages: list[pb.WatchConfigsResponse]
) -> None:
    """``messages`` keeps what came before an error."""
    while True:
        messages.append(await anext(stream))


async def test_follow_sees_everything_across_a_restart(path: Path) -> None:
    async with store(path) as client:
        epoch = await lead(client)
        await client.put_connector_config(name="a", config={}, writer_epoch=epoch)
        async with asyncio.timeout(30):
            async for read in follow(client, name="test"):
                assert isinstance(read, SnapshotRead)
                assert set(read.snapshot.connectors) == {"a"}
                break


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


async def test_watches_end_promptly_when_the_server_drains(path: Path) -> None:
    async with running_service(path, wire) as service:
        batches = ConfigStoreClient(service.channel).watch(0)
        await anext(batches)
        next_batch = asyncio.ensure_future(anext(batches))
        await service.server.drain(30)
        with pytest.raises(UnavailableError) as error:
            await asyncio.wait_for(next_batch, 30)
    assert error.value.reason is Reason.DRAINING


# loading


async def test_while_loading_nothing_is_answered_and_health_says_so(path: Path) -> None:
    async with running_service(path, wire, load=False) as service:
        stub = pb_grpc.ConfigStoreServiceStub(service.channel)
        check: Any = vars(health_pb2_grpc.HealthStub(service.channel))["Check"]

        async def served() -> set[int]:
            return {
                (await check(health_pb2.HealthCheckRequest(service=name), timeout=10)).status
                for name in ("", FULL_NAME)
            }

        assert await served() == {health_pb2.HealthCheckResponse.NOT_SERVING}
        assert await _refusals(service, stub) == {Reason.LOADING}
        await service.runtime.load()
        await service.server.set_serving(True)
        assert await served() == {health_pb2.HealthCheckResponse.SERVING}
        assert (await stub.GetEndOffset(pb.GetEndOffsetRequest(), timeout=10)).end_offset == 0


async def _refusals(
    service: RunningService, stub: "pb_grpc.ConfigStoreServiceAsyncStub"
) -> set[Reason]:
    reasons: set[Reason] = set()
    calls = (
        stub.GetEndOffset(pb.GetEndOffsetRequest(), timeout=10),
        stub.ClaimWriter(pb.ClaimWriterRequest(owner="w"), timeout=10),
        stub.DeleteConnector(pb.DeleteConnectorRequest(name="a", request_id="r"), timeout=10),
        stub.GetSnapshot(pb.GetSnapshotRequest(), timeout=10).read(),
        stub.WatchConfigs(pb.WatchConfigsRequest(), timeout=10).read(),
    )
    for call in calls:
        with pytest.raises(grpc.RpcError) as caught:
            await call
        error = from_rpc_error(caught.value)
        assert isinstance(error, DroverError)
        reasons.add(error.reason)
    return reasons


async def test_records_that_cannot_be_read_are_told_once_and_skipped(path: Path) -> None:
    async with running_service(path, wire, load=False) as service:
        await service.log.append(
            [
                LogRecord(b"connector-a", b'{"properties":{"x":"1"}}'),
                LogRecord(b"connector-b", b"\xff\x00"),
                LogRecord(b"session-key", b"whatever"),
                LogRecord(b"\xfe\xff", b"{}"),
                LogRecord(b"task-a-0", b'{"properties":{"t":"0"}}'),
                LogRecord(b"commit-a", b'{"tasks":1}'),
            ]
        )
        with capture_logs() as logs:
            await service.runtime.load()
        snapshot = await ConfigStoreClient(service.channel).get_snapshot()
    assert [log["offset"] for log in logs if "cannot be read" in log["event"]] == [1, 3]
    assert set(snapshot.connectors) == {"a"}
    assert snapshot.task_configs == {TaskId("a", 0): {"t": "0"}}
    assert snapshot.end_offset == 6


# compaction


async def test_the_log_is_compacted_while_serving_and_nothing_is_lost(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "COMPACT_AFTER_RECORDS", 100)
    monkeypatch.setattr(sqlite, "KEPT_RECORD_COUNT", 100)
    async with running_service(path, wire) as service:
        client = ConfigStoreClient(service.channel)
        epoch = await lead(client)
        await client.put_connector_config(name="a", config={"v": "old"}, writer_epoch=epoch)
        await client.put_task_configs(connector="a", task_configs=[{"t": "0"}], writer_epoch=epoch)
        # the tasks stay those of the old config, whose record is superseded by this
        await client.put_connector_config(name="a", config={"v": "new"}, writer_epoch=epoch)
        await client.put_connector_config(name="gone", config={}, writer_epoch=epoch)
        await client.delete_connector(name="gone", writer_epoch=epoch)
        states = [TargetState.PAUSED, TargetState.STARTED]
        for index in range(400):
            await client.put_target_state(name="a", target_state=states[index % 2])
        await wait_until_async(lambda: _count_below(service, 300))
        before = await client.get_snapshot()
    async with store(path) as client:
        after = await client.get_snapshot()
        assert after == before
        assert after.connectors["a"].applied_config == {"v": "old"}
        assert after.task_configs == {TaskId("a", 0): {"t": "0"}}
        with pytest.raises(OutOfRangeError):
            await anext(client.watch(0))
        recent = after.end_offset - 100
        assert len(await read_until(client, recent, after.end_offset)) == 100


async def _count_below(service: RunningService, limit: int) -> bool:
    count = 0
    async for batch in service.log.read(0):
        count += len(batch)
    return count < limit
