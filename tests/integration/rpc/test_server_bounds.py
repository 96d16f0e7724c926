"""A server's limits: the wait for a stream's reader, and the bytes of requests in progress."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import grpc
import grpc.aio
import pytest

from drover.api.status_store.v1 import status_store_service_pb2 as pb
from drover.errors import DroverError, Reason, ResourceExhaustedError
from drover.rpc import interceptors
from drover.rpc.interceptors import ended_by_server
from drover.rpc.status import from_rpc_error
from tests.support.waiting import wait_until_async

MESSAGE = pb.WatchStatusesResponse(
    events=[pb.StatusEvent(updated=pb.StatusEntry(trace="x" * 60_000))]
)


async def error_of(call: Any) -> DroverError:
    with pytest.raises(grpc.RpcError) as caught:
        await call
    return from_rpc_error(caught.value)


async def read_to_the_end(call: Any) -> None:
    while await call.read() is not grpc.aio.EOF:
        pass


@pytest.mark.parametrize("method", ["WatchStatuses", "GetSnapshot"])
async def test_a_stream_that_is_not_read_is_ended_and_the_client_can_learn_why(
    internal: Any, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    monkeypatch.setattr(interceptors, "WRITE_MAX_S", 0.3)
    monkeypatch.setattr(interceptors, "STATUS_MAX_S", 0.1)
    ends: list[bool] = []

    async def flood(_request: Any, _context: Any) -> AsyncIterator[Any]:
        try:
            while True:
                yield (
                    MESSAGE
                    if method == "WatchStatuses"
                    else pb.GetSnapshotResponse(statuses=[MESSAGE.events[0].updated])
                )
        finally:
            ends.append(ended_by_server())

    internal.store.behaviors[method] = flood
    request = getattr(pb, f"{method}Request")()
    stalled = getattr(internal.stub, method)(request)
    await stalled.read()
    await wait_until_async(lambda: ends)
    assert ends == [method == "WatchStatuses"]  # only watches are marked as ended by the server
    await internal.stub.Flush(pb.FlushRequest(), timeout=10)
    error = await error_of(read_to_the_end(stalled))
    assert isinstance(error, ResourceExhaustedError)
    assert error.reason is Reason.QUEUE_FULL
    assert "not read" in error.message


async def test_a_stream_that_is_read_in_time_is_left_alone(
    internal: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interceptors, "WRITE_MAX_S", 60.0)

    async def some(_request: Any, _context: Any) -> AsyncIterator[Any]:
        for _ in range(20):
            yield MESSAGE

    internal.store.behaviors["WatchStatuses"] = some
    call = internal.stub.WatchStatuses(pb.WatchStatusesRequest())
    assert len([message async for message in call]) == 20


async def test_large_requests_under_way_are_bounded_and_small_ones_are_let_in(
    internal: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interceptors, "REQUESTS_MAX_BYTES", 250_000)
    go_on = asyncio.Event()

    async def wait(_request: Any, _context: Any) -> Any:
        await go_on.wait()
        return pb.PutStatusesResponse()

    internal.store.behaviors["PutStatuses"] = wait
    large = pb.PutStatusesRequest(
        writes=[pb.StatusWrite(status=pb.StatusEntry(trace="x" * 100_000))]
    )
    put = internal.stub.PutStatuses
    async with AsyncExitStack() as stack:
        stack.callback(go_on.set)
        waiting = [asyncio.ensure_future(put(large, timeout=30)) for _ in range(2)]
        await wait_until_async(lambda: len(internal.store.calls) == 2)
        error = await error_of(put(large, timeout=30))
        assert isinstance(error, ResourceExhaustedError)
        assert error.reason is Reason.QUEUE_FULL
        assert "Retry later" in error.message
        waiting.append(asyncio.ensure_future(put(pb.PutStatusesRequest(), timeout=30)))
        await wait_until_async(lambda: len(internal.store.calls) == 3)
        waiting[0].cancel()  # a cancelled call releases its bytes
        await wait_until_async(waiting[0].done)

        async def let_in() -> bool:
            waiting.append(asyncio.ensure_future(put(large, timeout=30)))
            await asyncio.wait([waiting[-1]], timeout=0.1)
            return len(internal.store.calls) == 4

        await wait_until_async(let_in)
    answers = await asyncio.gather(*waiting, return_exceptions=True)
    assert isinstance(answers[1], pb.PutStatusesResponse)
    # the server admitted one of the calls sent after the cancellation
    assert any(isinstance(each, pb.PutStatusesResponse) for each in answers[3:])
