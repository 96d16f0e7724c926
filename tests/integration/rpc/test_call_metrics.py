"""The call metrics of a server."""

import asyncio
from typing import Any

import grpc
import pytest

from drover.api.status_store.v1 import status_store_service_pb2 as pb
from drover.errors import NotFoundError, Reason
from drover.metrics.figures import Distribution
from tests.support.waiting import wait_until_async

SERVICE = "StatusStoreService"


def told(running: Any) -> dict[tuple[str, ...], Any]:
    samples = running.server.metrics.samples()
    return {(each.metric.name, *each.labels): each.value for each in samples}


async def test_calls_count_by_the_code_they_end_with(internal: Any) -> None:
    await internal.stub.PutStatuses(pb.PutStatusesRequest(), timeout=10)

    async def refuse(_request: Any, _context: Any) -> Any:
        raise NotFoundError(Reason.CONNECTOR_NOT_FOUND, "no such connector")

    async def fail(_request: Any, _context: Any) -> Any:
        raise KeyError

    for behavior in (refuse, refuse, fail):
        internal.store.behaviors["PutStatuses"] = behavior
        with pytest.raises(grpc.RpcError):
            await internal.stub.PutStatuses(pb.PutStatusesRequest(), timeout=10)
    method = SERVICE, "PutStatuses"

    def counts() -> dict[Any, Any]:
        total = ("drover_rpc_calls_total", *method)
        return {key[-1]: value for key, value in told(internal).items() if key[:-1] == total}

    # a call is counted after its answer was sent
    wanted = {"OK": 1, "NOT_FOUND": 2, "INTERNAL": 1}
    await wait_until_async(lambda: counts() == wanted, describe=counts)
    found = told(internal)
    seconds = found["drover_rpc_seconds", *method]
    assert isinstance(seconds, Distribution)
    assert seconds.count == 4
    assert found["drover_rpc_in_flight", *method] == 0


async def test_what_is_under_way_counts_while_it_is(internal: Any) -> None:
    go_on = asyncio.Event()

    async def wait(_request: Any, _context: Any) -> Any:
        await go_on.wait()
        return pb.PutStatusesResponse()

    internal.store.behaviors["PutStatuses"] = wait
    call = internal.stub.PutStatuses(pb.PutStatusesRequest(), timeout=60)
    watch = internal.stub.WatchStatuses(pb.WatchStatusesRequest())
    await watch.read()

    def in_flight(method: str) -> Any:
        return told(internal).get(("drover_rpc_in_flight", SERVICE, method))

    await wait_until_async(lambda: in_flight("PutStatuses") == in_flight("WatchStatuses") == 1)
    go_on.set()
    watch.cancel()
    await call
    await wait_until_async(lambda: in_flight("PutStatuses") == in_flight("WatchStatuses") == 0)
    # a stream has no duration metric: its client decides when it ends
    assert ("drover_rpc_seconds", SERVICE, "WatchStatuses") not in told(internal)


async def test_a_method_that_is_not_there_makes_no_series(internal: Any) -> None:
    unknown = internal.channel.unary_unary("/drover.api.status_store.v1.StatusStoreService/Guess")
    with pytest.raises(grpc.RpcError):
        await unknown(b"", timeout=10)
    assert not any("Guess" in key for key in told(internal))


async def test_a_draining_server_does_not_serve_whatever_its_storage_does(internal: Any) -> None:
    samples = internal.server.health_samples
    assert {each.value for each in samples()} == {True}
    await internal.server.set_storage_serving(False)
    assert [each.value for each in samples()] == [True, False]
    await internal.server.set_storage_serving(True)
    await internal.server.drain(0)
    assert [each.value for each in samples()] == [False, True]
