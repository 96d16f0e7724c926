"""The status store over real gRPC, on a real SQLite log."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import grpc
import pytest
from structlog.testing import capture_logs

from drover.api.status_store.v1 import status_store_service_pb2 as pb
from drover.api.status_store.v1 import status_store_service_pb2_grpc as pb_grpc
from drover.client import EventsRead, StatusStoreClient
from drover.errors import (
    InvalidArgumentError,
    OutOfRangeError,
    Reason,
    UnavailableError,
)
from drover.log import sqlite
from drover.log.log import LogRecord
from drover.model.ids import TaskId
from drover.model.status import RunState, Status, StatusChange, StatusEvent, StatusKey, StatusWrite
from drover.rpc.status import from_rpc_error
from drover.runtime import compaction
from drover_status_store.server import wire
from tests.support.log_services import running_service
from tests.support.waiting import wait_until_async

MEBIBYTE = 1024 * 1024
TASK = TaskId("a-1", 0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "status.db"


@asynccontextmanager
async def store(path: Path) -> AsyncIterator[StatusStoreClient]:
    async with running_service(path, wire) as service:
        yield StatusStoreClient(service.channel)


def status(
    state: RunState, key: StatusKey = TASK, generation: int = 1, worker: str = "w:1"
) -> Status:
    return Status(key, state, worker, generation)


async def put(client: StatusStoreClient, *statuses: Status, safe: bool = False) -> int:
    written = await client.put_statuses([StatusWrite(status, safe) for status in statuses])
    return written.end_offset


async def read_until(
    client: StatusStoreClient, start_offset: int, end_offset: int
) -> list[StatusChange]:
    events: list[StatusChange] = []
    async with asyncio.timeout(30), aclosing(client.watch(start_offset)) as batches:
        async for batch in batches:
            events += batch.events
            if batch.end_offset >= end_offset:
                return events
    raise AssertionError("the watch ended early")


async def test_a_batch_has_an_outcome_for_each_write(path: Path) -> None:
    async with store(path) as client:
        answer = await client.put_statuses(
            [
                StatusWrite(status(RunState.RUNNING, generation=5, worker="w:2")),
                StatusWrite(status(RunState.FAILED, generation=4), safe=True),
                StatusWrite(status(RunState.RUNNING, "a-1")),
            ]
        )
        assert answer.written == (True, False, True)
        snapshot = await client.get_snapshot()
    assert answer.end_offset == snapshot.end_offset == 2
    assert snapshot.statuses == {
        "a-1": status(RunState.RUNNING, "a-1"),
        TASK: status(RunState.RUNNING, generation=5, worker="w:2"),
    }


async def test_statuses_survive_a_restart_and_watches_resume(path: Path) -> None:
    async with store(path) as client:
        seen = await put(client, status(RunState.RUNNING, "a-1"), status(RunState.RUNNING))
        await put(client, status(RunState.PAUSED))
        before = await client.get_snapshot()
    async with store(path) as client:
        assert await client.get_snapshot() == before
        end_offset = await put(client, status(RunState.DESTROYED, "a-1"))
        events = await read_until(client, seen, end_offset)
        assert (await client.get_snapshot()).statuses == {}
    assert events == [
        StatusEvent(2, TASK, status(RunState.PAUSED)),
        StatusEvent(3, TASK, None),
        StatusEvent(4, "a-1", None),
    ]


async def test_a_watch_follows_every_write(path: Path) -> None:
    async with store(path) as client, asyncio.timeout(30), aclosing(client.watch(0)) as batches:
        assert await anext(batches) == EventsRead([], 0)
        for offset, state in enumerate((RunState.RUNNING, RunState.FAILED)):
            await put(client, status(state))
            event = StatusEvent(offset, TASK, status(state))
            assert await anext(batches) == EventsRead([event], offset + 1)


async def test_repeating_a_batch_changes_nothing(path: Path) -> None:
    async with store(path) as client:
        end_offset = await put(client, status(RunState.RUNNING))
        assert await put(client, status(RunState.RUNNING)) == end_offset


async def test_bad_input_lists_every_fault(path: Path) -> None:
    async with running_service(path, wire) as service:
        stub = pb_grpc.StatusStoreServiceStub(service.channel)
        good = pb.StatusEntry(
            key=pb.StatusKey(connector="a"), state=pb.RUN_STATE_RUNNING, worker_id="w:1"
        )
        keyless = pb.StatusEntry(state=pb.RUN_STATE_RUNNING, worker_id="w:1")
        stateless = pb.StatusEntry(key=pb.StatusKey(connector="a"), worker_id="w:1")
        with pytest.raises(grpc.RpcError) as caught:
            await stub.PutStatuses(
                pb.PutStatusesRequest(
                    writes=[pb.StatusWrite(status=each) for each in (keyless, good, stateless)]
                ),
                timeout=10,
            )
        error = from_rpc_error(caught.value)
        assert isinstance(error, InvalidArgumentError)
        assert [violation.field for violation in error.violations] == [
            "writes[0].status.key",
            "writes[2].status.state",
        ]
        with pytest.raises(grpc.RpcError) as caught:
            await stub.PutStatuses(pb.PutStatusesRequest(), timeout=10)
        assert isinstance(from_rpc_error(caught.value), InvalidArgumentError)


async def test_many_statuses_come_in_chunks_and_large_batches_in_messages(path: Path) -> None:
    count, trace = 60, "x" * 60_000
    async with running_service(path, wire) as service:
        client = StatusStoreClient(service.channel)
        for start in range(0, count, 20):
            await client.put_statuses(
                [
                    StatusWrite(Status(TaskId("c", n), RunState.FAILED, "w:1", 1, trace))
                    for n in range(start, start + 20)
                ]
            )
        stub = pb_grpc.StatusStoreServiceStub(service.channel)
        chunks = [chunk async for chunk in stub.GetSnapshot(pb.GetSnapshotRequest(), timeout=30)]
        messages: list[pb.WatchStatusesResponse] = []
        stream = stub.WatchStatuses(pb.WatchStatusesRequest(start_offset=0))
        async with asyncio.timeout(30):
            async for message in stream:
                messages.append(message)
                if message.end_offset == count:
                    break
        stream.cancel()
    assert all(part.ByteSize() <= MEBIBYTE for part in (*chunks, *messages))
    assert [chunk.complete for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    tasks = [entry.key.task.task for chunk in chunks for entry in chunk.statuses]
    assert tasks == list(range(count))
    assert len(messages) > 2
    assert [event.offset for message in messages for event in message.events] == list(range(count))
    for message in messages:
        assert message.end_offset == message.events[-1].offset + 1


async def test_while_loading_nothing_is_answered(path: Path) -> None:
    async with running_service(path, wire, load=False) as service:
        stub = pb_grpc.StatusStoreServiceStub(service.channel)
        write = pb.StatusWrite(
            status=pb.StatusEntry(
                key=pb.StatusKey(connector="a"), state=pb.RUN_STATE_RUNNING, worker_id="w:1"
            )
        )
        for call in (
            stub.PutStatuses(pb.PutStatusesRequest(writes=[write]), timeout=10),
            stub.GetSnapshot(pb.GetSnapshotRequest(), timeout=10).read(),
            stub.WatchStatuses(pb.WatchStatusesRequest(), timeout=10).read(),
        ):
            with pytest.raises(grpc.RpcError) as caught:
                await call
            error = from_rpc_error(caught.value)
            assert isinstance(error, UnavailableError)
            assert error.reason is Reason.LOADING


async def test_records_that_cannot_be_read_are_told_once_and_skipped(path: Path) -> None:
    good = b'{"state":"RUNNING","trace":null,"worker_id":"w:1","generation":1}'
    async with running_service(path, wire, load=False) as service:
        await service.log.append(
            [
                LogRecord(b"status-connector-a-1", good),
                LogRecord(b"status-connector-b", b"\xff"),
                LogRecord(b"status-topic-t:connector-a-1", b'{"topic":{}}'),
                LogRecord(b"status-topic-t", None),
                LogRecord(b"status-task-a-1-0", good),
            ]
        )
        with capture_logs() as logs:
            await service.runtime.load()
        snapshot = await StatusStoreClient(service.channel).get_snapshot()
    assert [log["offset"] for log in logs if "cannot be read" in log["event"]] == [1, 2, 3]
    assert set(snapshot.statuses) == {"a-1", TASK}


async def test_watches_end_promptly_when_the_server_drains(path: Path) -> None:
    async with running_service(path, wire) as service:
        batches = StatusStoreClient(service.channel).watch(0)
        await anext(batches)
        next_batch = asyncio.ensure_future(anext(batches))
        await service.server.drain(30)
        with pytest.raises(UnavailableError) as error:
            await asyncio.wait_for(next_batch, 30)
    assert error.value.reason is Reason.DRAINING


async def test_compaction_keeps_removed_statuses_away(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "COMPACT_AFTER_RECORDS", 100)
    monkeypatch.setattr(sqlite, "KEPT_RECORD_COUNT", 50)
    async with running_service(path, wire) as service:
        client = StatusStoreClient(service.channel)
        await put(client, status(RunState.RUNNING, "gone"))
        await put(client, status(RunState.RUNNING, TaskId("gone", 0)))
        await put(client, status(RunState.DESTROYED, "gone"))
        for generation in range(300):
            await put(client, status(RunState.RUNNING, generation=generation))

        async def compacted() -> bool:
            async for batch in service.log.read(0):
                return batch[0].offset > 3
            return False

        await wait_until_async(compacted)
        before = await client.get_snapshot()
    assert before.statuses == {TASK: status(RunState.RUNNING, generation=299)}
    async with store(path) as client:
        assert await client.get_snapshot() == before
        with pytest.raises(OutOfRangeError):
            await anext(client.watch(0))
