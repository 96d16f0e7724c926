"""The status store over real gRPC, on a real SQLite log."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest

from drover.api.status_store.v1 import status_store_service_pb2 as pb
from drover.api.status_store.v1 import status_store_service_pb2_grpc as pb_grpc
from drover.client import StatusStoreClient
from drover.errors import InvalidArgumentError
from drover.model.ids import TaskId
from drover.model.status import RunState, Status, StatusKey, StatusWrite
from drover.rpc.status import from_rpc_error
from drover_status_store.server import wire
from tests.support.log_services import running_service

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
