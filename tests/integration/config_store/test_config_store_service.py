"""The config store over real gRPC, on a real SQLite log."""

from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from structlog.testing import capture_logs

from drover.api.config_store.v1 import config_store_service_pb2 as pb
from drover.api.config_store.v1 import config_store_service_pb2_grpc as pb_grpc
from drover.client import ConfigStoreClient
from drover.errors import (
    AbortedError,
    DroverError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    OutOfRangeError,
    Reason,
)
from drover.log import sqlite
from drover.log.log import LogRecord
from drover.model.config import (
    ConfigSnapshot,
    TargetState,
)
from drover.model.ids import TaskId, Term
from drover.rpc.status import from_rpc_error
from drover.runtime import compaction
from drover_config_store.server import (
    FULL_NAME,
    wire,
)
from tests.support.config_store import lead, read_until, store
from tests.support.log_services import RunningService, running_service
from tests.support.waiting import wait_until_async

MEBIBYTE = 1024 * 1024


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "config.db"


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
    assert [log["offset"] for log in logs if "cannot be read" in log["event"]] == [1, 2, 3]
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
