"""The config store over real gRPC, on a real SQLite log."""

from pathlib import Path

import grpc
import pytest

from drover.api.config_store.v1 import config_store_service_pb2 as pb
from drover.api.config_store.v1 import config_store_service_pb2_grpc as pb_grpc
from drover.errors import (
    AbortedError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    Reason,
)
from drover.model.config import TargetState
from drover.model.ids import TaskId, Term
from drover.rpc.status import from_rpc_error
from drover_config_store.server import wire
from tests.support.config_store import lead, store
from tests.support.log_services import running_service

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


async def test_a_claim_needs_an_owner_and_a_term(path: Path) -> None:
    async with running_service(path, wire) as service:
        stub = pb_grpc.ConfigStoreServiceStub(service.channel)
        with pytest.raises(grpc.RpcError) as caught:
            await stub.ClaimWriter(pb.ClaimWriterRequest(), timeout=10)
        error = from_rpc_error(caught.value)
    assert isinstance(error, InvalidArgumentError)
    assert [violation.field for violation in error.violations] == ["owner", "term"]


# repeated requests


# bad input


async def test_bad_input_is_told_with_its_reason(path: Path) -> None:
    async with store(path) as client:
        epoch = await lead(client)
        with pytest.raises(InvalidArgumentError) as invalid:
            await client.put_connector_config(name=" a\x01", config={"": "1"}, writer_epoch=epoch)
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
