"""Members over real gRPC: join, sync, watch and vanish; the coordinator restarts."""

import asyncio
import os
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from drover.errors import DeadlineExceededError, NotFoundError, Reason
from drover.model.group import (
    GroupState,
    LeaveOutcome,
    LeavingMember,
    OfferedProtocol,
    RetryJoin,
)
from drover.rpc.server import RpcServer
from drover.runtime.runtime import Runtime
from drover_coordinator.core.groups.events import WatchEnded
from tests.support.coordinator_process import CoordinatorProcess, coordinator_process
from tests.support.forked import ForkedProcess
from tests.support.group_members import GROUP, GroupMember, RunningCoordinator, form_group
from tests.support.waiting import wait_until_async


async def three_members(
    coordinator: RunningCoordinator | CoordinatorProcess, stack: AsyncExitStack
) -> list[GroupMember]:
    members = [
        await stack.enter_async_context(GroupMember(coordinator.address, name)) for name in "abc"
    ]
    await form_group(*members)
    return members


async def test_three_members_share_a_generation(coordinator: RunningCoordinator) -> None:
    async with AsyncExitStack() as stack:
        members = await three_members(coordinator, stack)
        assert len({each.joined.generation for each in members if each.joined}) == 1
        leaders = [each for each in members if each.joined and each.joined.members]
        assert len(leaders) == 1
        for member in members:
            assert (await member.sync()).assignment == b"for " + member.name.encode()
            assert await member.heartbeat() is False
        group = await members[0].client.describe(GROUP)
        assert group.state is GroupState.STABLE
        assert {each.client_id for each in group.members} == {"a", "b", "c"}
        assert {each.client_host for each in group.members} == {"127.0.0.1"}
        assert await members[0].client.find_coordinator(GROUP) == coordinator.address
        listed = await members[0].client.list_groups(states=[GroupState.STABLE])
        assert [(each.group_id, each.member_count) for each in listed] == [(GROUP, 3)]


async def test_a_rebalance_is_announced_before_any_heartbeat(
    coordinator: RunningCoordinator,
) -> None:
    async with AsyncExitStack() as stack:
        first, second, third = await three_members(coordinator, stack)
        leaver = [LeavingMember(third.member_id)]
        results = await first.client.leave(group_id=GROUP, members=leaver)
        assert [each.outcome for each in results] == [LeaveOutcome.LEFT]
        for member in (first, second):
            await member.wait_until_rejoin_needed()
        await third.wait_until_watch_ended()
        assert third.watch_error is not None
        assert third.watch_error.reason is Reason.UNKNOWN_MEMBER_ID
        await asyncio.gather(first.join(), second.join())
        await asyncio.gather(first.sync(), second.sync())
        await first.wait_until(lambda: first.seen[-1].state is GroupState.STABLE)


async def test_a_member_that_vanishes_is_out_long_before_its_session_ends(
    tmp_path: Path,
) -> None:
    coordinator = RunningCoordinator(tmp_path, disconnect_grace_ms=100)
    await coordinator.start()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(coordinator.stop)
        first, second, third = await three_members(coordinator, stack)
        await third.vanish()  # its session timeout is ten minutes
        for member in (first, second):
            await member.wait_until_rejoin_needed()
        joined = await asyncio.gather(first.join(), second.join())
        assert {each.generation for each in joined} == {joined[0].generation}
        group = await first.client.describe(GROUP)
        assert {each.client_id for each in group.members} == {"a", "b"}


async def test_a_member_that_vanishes_in_a_parked_join_holds_nobody_up(tmp_path: Path) -> None:
    coordinator = RunningCoordinator(tmp_path, disconnect_grace_ms=100)
    await coordinator.start()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(coordinator.stop)
        first, second, third = await three_members(coordinator, stack)
        leader = next(
            each for each in (first, second, third) if each.joined and each.joined.members
        )
        others = [each for each in (first, second, third) if each is not leader]
        parked = asyncio.create_task(leader.join())
        await others[0].wait_until_rejoin_needed()
        parked.cancel()
        await asyncio.wait([parked])
        await leader.vanish()

        async def is_out() -> bool:
            group = await others[0].client.describe(GROUP)
            return leader.member_id not in {each.member_id for each in group.members}

        # else the rebalance may include it: its disconnect arrives on another connection
        await wait_until_async(is_out)
        joined = await asyncio.gather(*(each.join() for each in others))
        assert {each.leader_id for each in joined} <= {each.member_id for each in others}


async def test_a_member_that_connects_again_is_kept(tmp_path: Path) -> None:
    coordinator = RunningCoordinator(tmp_path, disconnect_grace_ms=6_000)
    await coordinator.start()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(coordinator.stop)
        first, second, third = await three_members(coordinator, stack)
        generation = first.joined.generation if first.joined else 0
        await second.vanish()
        again = await stack.enter_async_context(GroupMember(coordinator.address, "b"))
        again.member_id, again.joined = second.member_id, second.joined
        await again.watch()
        await third.vanish()  # c does not reconnect, and its grace period starts after b's
        await first.wait_until_rejoin_needed()
        group = await first.client.describe(GROUP)
        assert {each.client_id for each in group.members} == {"a", "b"}
        assert group.generation == generation


@pytest.mark.parametrize("timeout_s", [2.0, 0.24], ids=["long", "shorter than the margin"])
async def test_a_parked_join_is_answered_before_its_deadline(
    coordinator: RunningCoordinator, timeout_s: float
) -> None:
    async with AsyncExitStack() as stack:
        first, *_ = await three_members(coordinator, stack)
        newcomer = await stack.enter_async_context(GroupMember(coordinator.address, "d"))

        async def join(member_id: str, timeout_s: float) -> Any:
            return await newcomer.client.join(
                group_id=GROUP,
                member_id=member_id,
                client_id="d",
                session_timeout_ms=60_000,
                rebalance_timeout_ms=60_000,
                protocol_type="connect",
                protocols=[OfferedProtocol("default", b"")],
                timeout_s=timeout_s,
            )

        member_id = (await join("", 30)).member_id
        for _ in range(9):  # on a busy machine the call may miss its deadline
            with suppress(DeadlineExceededError):
                answer = await join(member_id, timeout_s)
                break
        assert answer == RetryJoin(member_id)
        assert await first.heartbeat() is True


async def test_a_restart_keeps_generation_and_members(coordinator: RunningCoordinator) -> None:
    async with AsyncExitStack() as stack:
        members = await three_members(coordinator, stack)
        before = await members[0].client.describe(GROUP)
        await coordinator.stop()
        for member in members:
            await member.wait_until_watch_ended()
            assert member.watch_error is not None
            assert member.watch_error.reason is Reason.DRAINING
        await coordinator.start()
        for member in members:
            assert await member.heartbeat() is False  # a restart causes no rebalance
            await member.watch()
            assert not member.seen[-1].rejoin_needed
            assert (await member.sync()).assignment == b"for " + member.name.encode()
        assert await members[0].client.describe(GROUP) == before


async def test_a_join_that_was_parked_over_a_restart_gets_its_generation(
    coordinator: RunningCoordinator,
) -> None:
    async with AsyncExitStack() as stack:
        members = await three_members(coordinator, stack)
        leader = next(each for each in members if each.joined and each.joined.members)
        followers = [each for each in members if each is not leader]
        parked = asyncio.create_task(leader.join())
        await followers[0].wait_until_rejoin_needed()
        await coordinator.stop()  # the drain answers the parked join
        await coordinator.start()
        for follower in followers:  # the client retries its join, which starts a new rebalance
            await wait_until_async(follower.heartbeat)
        joined = await asyncio.gather(parked, *(each.join() for each in followers))
        assert [each.generation for each in joined] == [joined[0].generation] * 3
        await asyncio.gather(*(each.sync() for each in members))


async def test_a_watch_that_is_too_old_ends_and_says_nothing_of_the_member(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    posted: list[object] = []
    post = Runtime.post_nowait

    def record(runtime: Runtime[object], event: object) -> None:
        posted.append(event)
        post(runtime, event)

    monkeypatch.setattr(Runtime, "post_nowait", record)
    young = partial(RpcServer, watch_max_age_s=1)
    monkeypatch.setattr("drover_coordinator.__main__.RpcServer", young)
    coordinator = RunningCoordinator(tmp_path)
    await coordinator.start()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(coordinator.stop)
        member = await stack.enter_async_context(GroupMember(coordinator.address, "a"))
        await form_group(member)
        ended = await wait_until_async(lambda: posted)
        assert [(type(each), each.member_id) for each in ended] == [  # type: ignore[attr-defined]
            (WatchEnded, member.member_id)
        ]
        assert member.watch_error is None  # the watch ended with status OK


MEMBER_PROGRAM = """
import asyncio, sys
from tests.support.coordinator_process import CoordinatorProcess, coordinator_process
from tests.support.forked import ForkedProcess
from tests.support.group_members import GroupMember

async def main() -> None:
    async with GroupMember(sys.argv[1], "doomed") as member:
        await member.join()
        await member.watch()
        print("watching", flush=True)
        await member.sync()
        print("synced", flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.mark.e2e
async def test_a_killed_process_is_out_within_the_grace(
    coordinator: RunningCoordinator, tmp_path: Path
) -> None:
    async with GroupMember(coordinator.address, "survivor") as survivor:
        await form_group(survivor)
        with (tmp_path / "out").open("w") as out:
            program = ("-c", MEMBER_PROGRAM, coordinator.address)
            process = ForkedProcess(program, env=os.environ, out=out, err=out)
            await survivor.wait_until_rejoin_needed()
            await survivor.join()
            await survivor.sync()
            await wait_until_async(lambda: (tmp_path / "out").read_text() == "watching\nsynced\n")
            # after this state, the next change is caused by the kill
            await survivor.wait_until(lambda: survivor.seen[-1].state is GroupState.STABLE)
            process.kill()
            await survivor.wait_until_rejoin_needed()
        group = await survivor.client.describe(GROUP)
        assert [each.client_id for each in group.members] == ["survivor"]


@pytest.mark.e2e
async def test_kill_9_of_the_coordinator_keeps_generation_and_members(tmp_path: Path) -> None:
    async with coordinator_process(tmp_path) as coordinator, AsyncExitStack() as stack:
        members = await three_members(coordinator, stack)
        before = await members[0].client.describe(GROUP)
        await coordinator.kill()
        await coordinator.start()
        for member in members:
            assert await member.heartbeat() is False
        assert await members[0].client.describe(GROUP) == before


async def test_an_unknown_member_cannot_watch(coordinator: RunningCoordinator) -> None:
    async with coordinator.client() as client:
        watching = client.watch_group(group_id=GROUP, member_id="ghost")
        with pytest.raises(NotFoundError) as caught:
            await anext(watching)
        assert caught.value.reason is Reason.UNKNOWN_MEMBER_ID
