"""Workers serve every call that they forward, and refuse unsigned calls."""

import ast
import importlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from google.protobuf.message_factory import GetMessageClass

from drover.api.connect.v1 import connect_service_pb2
from drover.api.worker.v1 import worker_service_pb2 as pb
from drover.api.worker.v1.worker_service_pb2_grpc import WorkerServiceStub
from drover.client.calls import channel
from drover.errors import InvalidArgumentError, Reason, UnauthenticatedError
from drover.rpc.status import from_rpc_error
from drover_worker.admin.forwarding import ForwardedMethod
from tests.support.repository import python_files, text_of
from tests.support.waiting import wait_until_async
from tests.support.worker_cluster import RunningWorker, WorkerCluster

CONNECT = connect_service_pb2.DESCRIPTOR.services_by_name["ConnectService"]
WORKER = pb.DESCRIPTOR.services_by_name["WorkerService"]


def constants(program: str) -> Iterator[str]:
    """The names of a module's ``ForwardedMethod`` constants."""
    for node in ast.parse(program).body:
        if isinstance(node, ast.Assign) and _makes_one(node.value):
            (target,) = node.targets
            assert isinstance(target, ast.Name)
            yield target.id


def _makes_one(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    return ast.unparse(node.func).partition("[")[0].endswith(ForwardedMethod.__name__)


def forwarded_methods() -> list[ForwardedMethod[Any, Any]]:
    """The forwarded methods of all services."""
    found = []
    for path in python_files("services"):
        module = ".".join(path.with_suffix("").parts[2:])
        names = list(constants(text_of(path) or ""))
        found += [getattr(importlib.import_module(module), name) for name in names]
    return found


METHODS = forwarded_methods()


def test_forwarded_methods_are_constants_of_modules() -> None:
    calls = [
        node
        for path in python_files("services")
        for node in ast.walk(ast.parse(text_of(path) or ""))
        if _makes_one(node)
    ]
    assert len(calls) == len(METHODS) == len({each.name for each in METHODS})


@pytest.mark.parametrize("method", METHODS, ids=lambda each: each.name)
def test_a_forwarded_method_has_the_types_of_its_rpc(method: ForwardedMethod[Any, Any]) -> None:
    rpc = CONNECT.methods_by_name.get(method.name)
    if rpc is None:  # only workers send it to each other
        of_workers = pb.DESCRIPTOR.message_types_by_name
        request, response = (of_workers[f"{method.name}{end}"] for end in ("Request", "Response"))
    else:
        request, response = rpc.input_type, rpc.output_type
    assert method.request_type is GetMessageClass(request)
    assert method.response_type is GetMessageClass(response)


@pytest.fixture
async def worker(tmp_path: Path) -> AsyncIterator[RunningWorker]:
    async with WorkerCluster(tmp_path) as cluster:
        worker = await cluster.add_worker()
        await cluster.settled(worker)
        yield worker


async def test_every_forwarded_method_is_served(worker: RunningWorker) -> None:
    """Each method refuses an unreadable request with an error that names the method."""
    async with await worker.internal_channel() as connection:
        stub: Any = WorkerServiceStub(connection)
        for method in METHODS:
            request = pb.ForwardRequest(method=method.name, hop_count=1, request=b"\xff")
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stub.Forward(request, timeout=20)
            error = from_rpc_error(caught.value)
            assert isinstance(error, InvalidArgumentError)
            assert error.message.startswith(f"not a request of {method.name}:"), method.name


@pytest.mark.parametrize("rpc", WORKER.methods_by_name)
async def test_a_call_of_another_worker_has_to_be_signed(worker: RunningWorker, rpc: str) -> None:
    loop = worker.worker.loop
    assert loop is not None
    await wait_until_async(lambda: loop.herder.session_keys.current)
    request = GetMessageClass(WORKER.methods_by_name[rpc].input_type)()
    async with channel(worker.internal_address) as connection:
        stub: Any = WorkerServiceStub(connection)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await getattr(stub, rpc)(request, timeout=20)
    error = from_rpc_error(caught.value)
    assert isinstance(error, UnauthenticatedError)
    assert error.reason is Reason.MISSING_CREDENTIALS
