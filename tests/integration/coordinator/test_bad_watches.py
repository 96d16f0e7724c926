"""Watches of clients that do not read, vanish, reconnect, or open too many watches."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import grpc
import grpc.aio
import pytest

from drover.api.coordinator.v1 import coordinator_service_pb2 as pb
from drover.api.coordinator.v1 import coordinator_service_pb2_grpc as pb_grpc
from drover.client import channel
from drover.errors import DroverError, Reason, ResourceExhaustedError
from drover.model.group import GroupState, WatchedGroup
from drover.rpc import interceptors
from drover.rpc.status import from_rpc_error
from drover_coordinator import server as coordinator_server
from drover_coordinator.core.groups.settings import WATCHES_PER_MEMBER_MAX
from tests.support.group_members import GROUP, GroupMember, RunningCoordinator, form_group
from tests.support.inside_coordinator import Inside
from tests.support.waiting import wait_until_async

#: With these options about forty watch messages fill the window of a client that does not read.
STALLING = (("grpc.http2.lookahead_bytes", 1024), ("grpc.http2.bdp_probe", 0))
GENERATIONS_MAX = 300


@pytest.fixture(autouse=True)
def inside(monkeypatch: pytest.MonkeyPatch) -> Inside:
    return Inside(monkeypatch)


@pytest.fixture
async def member(inside: Inside, coordinator: RunningCoordinator) -> AsyncIterator[GroupMember]:
    async with GroupMember(coordinator.address, "a") as member:
        await form_group(member)
        yield member


async def rebalance_until(member: GroupMember, condition: Callable[[], bool]) -> int:
    """Let the group's only member rebalance until ``condition`` holds; returns the change count.

    The changes exceed the window of a client that does not read. Each rebalance waits for the
    member's own watch to show the previous generation, because this watch must not fall behind.
    """
    changes = 0
    for _ in range(GENERATIONS_MAX):
        joined = await member.join()
        await member.sync()
        await member.wait_until(
            partial(_is_stable, member.seen, generation=joined.generation),
        )
        changes += 3
        if condition():
            break
    await wait_until_async(condition)
    return changes


def _is_stable(seen: Sequence[WatchedGroup], *, generation: int) -> bool:
    return seen[-1].state is GroupState.STABLE and seen[-1].generation == generation


async def read_to_the_end(call: Any) -> tuple[int, DroverError]:
    count = 0
    try:
        while await call.read() is not grpc.aio.EOF:
            count += 1
    except grpc.aio.AioRpcError as error:
        return count, from_rpc_error(error)
    raise AssertionError(f"ended in good order after {count} messages")


def watch_request(member: GroupMember) -> pb.WatchGroupRequest:
    return pb.WatchGroupRequest(group_id=GROUP, member_id=member.member_id)


@pytest.mark.parametrize("by", ["time", "queue"])
async def test_a_watcher_that_does_not_read_is_dropped_and_nobody_else_notices(
    coordinator: RunningCoordinator,
    member: GroupMember,
    inside: Inside,
    monkeypatch: pytest.MonkeyPatch,
    by: str,
) -> None:
    monkeypatch.setattr(interceptors, "STATUS_MAX_S", 0.1)
    if by == "time":
        monkeypatch.setattr(interceptors, "WRITE_MAX_S", 6)
        monkeypatch.setattr(coordinator_server, "WATCH_QUEUE_MAX", 100_000)
    else:
        monkeypatch.setattr(coordinator_server, "WATCH_QUEUE_MAX", 5)
    async with grpc.aio.insecure_channel(coordinator.address, options=STALLING) as connection:
        stub: Any = pb_grpc.CoordinatorServiceStub(connection)
        stalled = stub.WatchGroup(watch_request(member))
        await stalled.read()
        assert inside.watch_count(member.member_id) == 2
        # the server drops a full queue at once, and ends its stream at the next possible write
        changes = await rebalance_until(member, lambda: inside.watcher_count() == 1)
        await member.wait_until(lambda: member.seen[-1].state is GroupState.STABLE)
        if by == "time":
            await wait_until_async(lambda: inside.watch_count(member.member_id) == 1)
        count, error = await read_to_the_end(stalled)
        assert count < changes
        assert isinstance(error, ResourceExhaustedError)
        assert error.reason is Reason.QUEUE_FULL
    await wait_until_async(lambda: inside.watch_count(member.member_id) == 1)
    assert member.watch_error is None
    watched = inside.member(member.member_id)
    assert watched is not None
    assert not watched.watch_broken  # the server ended the watch
    assert await member.heartbeat() is False


async def test_a_member_gets_eight_watches_and_another_one_when_one_ends(
    coordinator: RunningCoordinator, member: GroupMember, inside: Inside
) -> None:
    async with channel(coordinator.address) as connection:
        stub: Any = pb_grpc.CoordinatorServiceStub(connection)
        calls = [stub.WatchGroup(watch_request(member)) for _ in range(WATCHES_PER_MEMBER_MAX - 1)]
        for call in calls:
            assert (await call.read()).created
        for _ in range(3):
            count, error = await read_to_the_end(stub.WatchGroup(watch_request(member)))
            assert count == 0
            assert isinstance(error, ResourceExhaustedError)
            assert error.reason is Reason.QUEUE_FULL
            assert "8 watches" in error.message
        assert inside.watch_count(member.member_id) == WATCHES_PER_MEMBER_MAX
        assert inside.watcher_count() == WATCHES_PER_MEMBER_MAX
        calls[0].cancel()
        await wait_until_async(
            lambda: inside.watch_count(member.member_id) < WATCHES_PER_MEMBER_MAX
        )
        again = stub.WatchGroup(watch_request(member))
        assert (await again.read()).created
        assert await member.heartbeat() is False


async def cancel_at_once(call: Any) -> bool:
    await asyncio.sleep(0)
    call.cancel()
    return False


async def cancel_when_it_began(call: Any) -> bool:
    began = bool((await call.read()).created)
    call.cancel()
    return began


@pytest.mark.parametrize("leave", [cancel_at_once, cancel_when_it_began])
async def test_watches_that_come_and_go_leave_nothing_behind(
    coordinator: RunningCoordinator,
    member: GroupMember,
    inside: Inside,
    leave: Callable[[Any], Awaitable[bool]],
) -> None:
    async with channel(coordinator.address) as connection:
        stub: Any = pb_grpc.CoordinatorServiceStub(connection)
        began_count = 0
        for _ in range(10):
            calls = [stub.WatchGroup(watch_request(member)) for _ in range(20)]
            for call in calls:
                # a member may have eight watches at a time
                with suppress(grpc.aio.AioRpcError, asyncio.CancelledError):
                    began_count += await leave(call)
    assert (began_count >= WATCHES_PER_MEMBER_MAX - 1) == (leave is cancel_when_it_began)
    await wait_until_async(lambda: inside.watcher_count() == 1)
    await wait_until_async(lambda: inside.watch_count(member.member_id) == 1)
    assert await member.heartbeat() is False


async def test_the_end_of_a_watch_is_heard_though_the_queue_is_full(
    coordinator: RunningCoordinator,
    member: GroupMember,
    inside: Inside,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runtime = inside.runtime_of()
    append, go_on = runtime._log.append, asyncio.Event()

    async def slow(*arguments: Any) -> int:
        await go_on.wait()
        return await append(*arguments)

    monkeypatch.setattr(runtime._log, "append", slow)
    monkeypatch.setattr(runtime, "_max_queue", 1)
    async with GroupMember(coordinator.address, "a") as again:
        again.member_id = member.member_id
        joining = asyncio.create_task(again.join())
        await wait_until_async(lambda: runtime._in_flight)
        beating = asyncio.create_task(member.heartbeat())
        await wait_until_async(lambda: len(runtime._queue) == 1)
        with pytest.raises(ResourceExhaustedError) as caught:
            await again.client.describe(GROUP)
        assert caught.value.reason is Reason.QUEUE_FULL
        beating.cancel()
        await member.vanish()
        await wait_until_async(lambda: len(runtime._queue) == 2)
        go_on.set()
        await joining
        await wait_until_async(lambda: inside.watch_count(member.member_id) == 0)


async def test_a_drain_starts_no_grace(
    coordinator: RunningCoordinator, member: GroupMember, inside: Inside
) -> None:
    await coordinator.stop()
    await member.wait_until_watch_ended()
    inside.runtimes.clear()
    await coordinator.start()
    kept = inside.member(member.member_id)
    assert kept is not None
    assert not kept.watch_broken
    assert await member.heartbeat() is False
    await member.watch()
    assert inside.watch_count(member.member_id) == 1
