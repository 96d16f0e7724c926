"""Static members over real gRPC: restarted processes, twins, a restarted coordinator."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from drover.errors import FailedPreconditionError, NotFoundError, Reason
from drover.model.group import GroupState, LeaveOutcome, LeavingMember
from drover.model.ids import TaskId
from tests.support.group_members import GROUP, GroupMember, RunningCoordinator, form_group


@pytest.fixture
async def coordinator(tmp_path: Path) -> AsyncIterator[RunningCoordinator]:
    """A coordinator whose grace period lets a process restart on a busy machine."""
    running = RunningCoordinator(tmp_path, disconnect_grace_ms=30_000)
    await running.start()
    yield running
    await running.stop()


async def static_members(
    coordinator: RunningCoordinator, stack: AsyncExitStack, *names: str
) -> list[GroupMember]:
    """Members that have formed a group; the instance id of a is A, and so on."""
    members = [
        await stack.enter_async_context(
            GroupMember(coordinator.address, name, instance_id=name.upper())
        )
        for name in names
    ]
    await form_group(*members)
    return members


async def test_a_process_starts_again_and_nobody_else_notices(
    coordinator: RunningCoordinator,
) -> None:
    async with AsyncExitStack() as stack:
        first, second = await static_members(coordinator, stack, "a", "b")
        generation = (await first.client.describe(GROUP)).generation
        seen = [len(first.seen), len(second.seen)]
        await second.vanish()
        again = await stack.enter_async_context(
            GroupMember(coordinator.address, "b", instance_id="B")
        )
        joined = await again.join()
        assert joined.generation == generation
        assert joined.member_id.startswith("B-")
        assert joined.member_id != second.member_id
        assert (await again.sync()).assignment == b"for b"
        assert await again.heartbeat() is False
        assert await first.heartbeat() is False
        assert [len(first.seen), len(second.seen)] == seen


async def test_a_leader_that_starts_again_is_told_not_to_assign(
    coordinator: RunningCoordinator,
) -> None:
    async with AsyncExitStack() as stack:
        members = await static_members(coordinator, stack, "a", "b")
        leader = next(each for each in members if each.joined and each.joined.members)
        await leader.vanish()
        again = await stack.enter_async_context(
            GroupMember(coordinator.address, "again", instance_id=leader.instance_id)
        )
        joined = await again.join()
        assert joined.skip_assignment
        assert joined.leader_id == joined.member_id == again.member_id
        assert {each.instance_id for each in joined.members} == {"A", "B"}
        assert (await again.sync()).assignment == b"for " + leader.name.encode()


async def test_a_twin_fences_the_one_before_wherever_it_shows_up(
    coordinator: RunningCoordinator,
) -> None:
    async with AsyncExitStack() as stack:
        _, second = await static_members(coordinator, stack, "a", "b")
        assert second.joined is not None
        generation = second.joined.generation
        twin = await stack.enter_async_context(
            GroupMember(coordinator.address, "b", instance_id="B")
        )
        await twin.join()
        await second.wait_until_watch_ended()
        assert isinstance(second.watch_error, FailedPreconditionError)
        assert second.watch_error.reason is Reason.FENCED_INSTANCE_ID
        for call in (second.heartbeat(), second.sync(), second.join()):
            with pytest.raises(FailedPreconditionError) as caught:
                await call
            assert caught.value.reason is Reason.FENCED_INSTANCE_ID
            assert caught.value.metadata["instanceId"] == "B"
        leaver = [LeavingMember(second.member_id, "B")]
        (result,) = await second.client.leave(group_id=GROUP, members=leaver)
        assert result.outcome is LeaveOutcome.FENCED_INSTANCE_ID
        with pytest.raises(NotFoundError) as refused:
            await second.claim(TaskId("c", 0))
        assert refused.value.reason is Reason.UNKNOWN_MEMBER_ID
        assert (await twin.claim(TaskId("c", 0))).generation == generation


async def test_places_survive_a_restart_of_the_coordinator(
    coordinator: RunningCoordinator,
) -> None:
    async with AsyncExitStack() as stack:
        first, second = await static_members(coordinator, stack, "a", "b")
        twin = await stack.enter_async_context(
            GroupMember(coordinator.address, "b", instance_id="B")
        )
        await twin.join()
        before = await first.client.describe(GROUP)
        await coordinator.stop()
        await coordinator.start()
        after = await first.client.describe(GROUP)
        assert (after.state, after.members) == (GroupState.STABLE, before.members)
        assert await twin.heartbeat() is False
        with pytest.raises(FailedPreconditionError, match="another process"):
            await second.heartbeat()


async def test_a_first_join_that_is_given_up_leaves_no_ghost(
    coordinator: RunningCoordinator,
) -> None:
    async with AsyncExitStack() as stack:
        (first,) = await static_members(coordinator, stack, "a")
        newcomer = await stack.enter_async_context(
            GroupMember(coordinator.address, "b", instance_id="B", session_ms=6_000)
        )
        parked = asyncio.create_task(newcomer.join())
        await first.wait_until_rejoin_needed()
        parked.cancel()
        await asyncio.wait([parked])
        # by its instance id, this join replaces the cancelled one
        again = asyncio.create_task(newcomer.join())
        generations = await asyncio.gather(first.join(), again)
        assert generations[0].generation == generations[1].generation
        assert len((await first.client.describe(GROUP)).members) == 2
