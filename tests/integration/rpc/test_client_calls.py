import asyncio
from contextlib import aclosing
from typing import Any

import grpc
import pytest

from drover.api.status_store.v1 import status_store_service_pb2 as pb
from drover.client import CoordinatorClient, StatusStoreClient, calls, channel
from drover.errors import (
    DeadlineExceededError,
    InvalidArgumentError,
    Reason,
    UnavailableError,
)
from drover.model.status import RunState, Status, StatusWrite
from drover.rpc.logs import log_context
from tests.support.refusals import refusal
from tests.support.scripted_store import start, stop
from tests.support.waiting import wait_until_async

WRITE = StatusWrite(Status("flights", RunState.RUNNING, "w:1", 1))
#: No process listens on port 1, so connections are refused at once.
NOBODY = "127.0.0.1:1"


async def test_nobody_there_is_unavailable_when_the_deadline_comes() -> None:
    async with channel(NOBODY) as own:
        client = StatusStoreClient(own)
        error = await refusal(
            Reason.SERVICE_UNREACHABLE, lambda: client.put_statuses([WRITE], timeout_s=0.5)
        )
    assert isinstance(error, UnavailableError)


async def test_a_call_that_is_not_repeated_tells_at_once_that_nobody_is_there() -> None:
    async with channel(NOBODY) as own:
        with pytest.raises(UnavailableError):
            await CoordinatorClient(own).join(
                group_id="g",
                member_id="",
                client_id="c",
                session_timeout_ms=1,
                rebalance_timeout_ms=1,
                protocol_type="connect",
                protocols=(),
                timeout_s=600,
            )


async def test_a_server_that_comes_back_is_found_again(internal: Any) -> None:
    client = StatusStoreClient(internal.channel)
    await client.put_statuses([WRITE])
    await internal.server.drain(0)
    call = asyncio.create_task(client.put_statuses([WRITE], timeout_s=60))
    await wait_until_async(
        lambda: internal.channel.get_state() is grpc.ChannelConnectivity.TRANSIENT_FAILURE
    )
    assert not call.done()
    again = await start(listen=internal.address)
    await call
    assert again.store.calls == ["PutStatuses"]
    await stop(again)


async def test_no_answer_in_time_is_deadline_exceeded(internal: Any) -> None:
    async def wait(_request: Any, _context: Any) -> Any:
        await asyncio.Event().wait()

    internal.store.behaviors["PutStatuses"] = wait
    client = StatusStoreClient(internal.channel)
    for _ in range(5):  # on a busy machine a call may end before it reaches the server
        with pytest.raises(DeadlineExceededError) as caught:
            await client.put_statuses([WRITE], timeout_s=0.3)
        assert caught.value.reason is Reason.DEADLINE_EXCEEDED
        if internal.store.calls:
            break
    assert internal.store.calls == ["PutStatuses"]


async def test_what_the_server_said_before_it_fell_silent_is_told(internal: Any) -> None:
    async def refuse_then_wait(_request: Any, _context: Any) -> Any:
        if len(internal.store.calls) == 1:
            raise UnavailableError(Reason.STORAGE_UNAVAILABLE, "the file is locked")
        await asyncio.Event().wait()

    internal.store.behaviors["PutStatuses"] = refuse_then_wait
    client = StatusStoreClient(internal.channel)
    with pytest.raises(
        DeadlineExceededError, match=r"no response before the deadline.*the file is locked"
    ):
        await client.put_statuses([WRITE], timeout_s=5)


async def test_the_deadline_holds_over_all_attempts(
    internal: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[float] = []

    async def refuse(_request: Any, context: Any) -> Any:
        left.append(context.time_remaining())
        raise UnavailableError(Reason.LOADING, "loading")

    monkeypatch.setattr(calls, "RETRY_FIRST_S", 0.02)
    internal.store.behaviors["PutStatuses"] = refuse
    client = StatusStoreClient(internal.channel)
    for _ in range(5):  # on a busy machine one round may have too few attempts
        left.clear()
        await refusal(Reason.LOADING, lambda: client.put_statuses([WRITE], timeout_s=1))
        if len(left) > 2:
            break
    assert len(left) > 2
    assert left[-1] < left[0]
    assert max(left) < 2  # gRPC rounds deadlines up


async def test_other_errors_are_not_retried(internal: Any) -> None:
    async def refuse(_request: Any, _context: Any) -> Any:
        raise InvalidArgumentError(Reason.INVALID_REQUEST, "no")

    internal.store.behaviors["PutStatuses"] = refuse
    with pytest.raises(InvalidArgumentError):
        await StatusStoreClient(internal.channel).put_statuses([WRITE])
    assert internal.store.calls == ["PutStatuses"]


async def test_the_request_id_of_the_caller_goes_on(internal: Any) -> None:
    seen: list[str] = []

    async def look(_request: Any, context: Any) -> Any:
        seen.append(dict(context.invocation_metadata())["x-request-id"])
        return pb.PutStatusesResponse()

    internal.store.behaviors["PutStatuses"] = look
    client = StatusStoreClient(internal.channel)
    with log_context(request_id="from-above"):
        await client.put_statuses([WRITE])
    with log_context(request_id="not fit for a header\n"):
        await client.put_statuses([WRITE])
    await client.put_statuses([WRITE])
    assert seen[0] == "from-above"
    assert len({*seen}) == 3
    assert all(len(request_id) == 32 for request_id in seen[1:])


async def test_statuses_that_came_too_late_are_told(internal: Any) -> None:
    async def answer(request: Any, _context: Any) -> Any:
        assert [write.safe for write in request.writes] == [False, True]
        return pb.PutStatusesResponse(
            outcomes=[pb.STATUS_WRITE_OUTCOME_WRITTEN, pb.STATUS_WRITE_OUTCOME_SUPERSEDED],
            end_offset=9,
        )

    internal.store.behaviors["PutStatuses"] = answer
    late = StatusWrite(WRITE.status, safe=True)
    result = await StatusStoreClient(internal.channel).put_statuses([WRITE, late])
    assert (result.written, result.end_offset) == ((True, False), 9)


async def test_a_snapshot_that_breaks_off_is_read_again(
    internal: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = 0

    async def chunks(_request: Any, _context: Any) -> Any:
        nonlocal rounds
        rounds += 1
        for index in range(3):
            if rounds == 1 and index == 2:
                return  # without the complete mark, a stream that ends with OK is incomplete
            if rounds == 2 and index == 1:
                raise UnavailableError(Reason.LOADING, "loading")
            entry = pb.StatusEntry(
                key=pb.StatusKey(connector=f"c{index}"), state=pb.RUN_STATE_RUNNING
            )
            yield pb.GetSnapshotResponse(end_offset=4, statuses=[entry], complete=index == 2)

    monkeypatch.setattr(calls, "RETRY_FIRST_S", 0.001)
    internal.store.behaviors["GetSnapshot"] = chunks
    snapshot = await StatusStoreClient(internal.channel).get_snapshot()
    assert rounds == 3
    assert snapshot.end_offset == 4
    assert set(snapshot.statuses) == {"c0", "c1", "c2"}


async def test_closing_a_watch_ends_the_call(internal: Any) -> None:
    async with aclosing(StatusStoreClient(internal.channel).watch(5)) as batches:
        first = await anext(batches)
        assert first.end_offset == 5
        assert internal.store.watching == 1
    await wait_until_async(lambda: internal.store.watching == 0)
