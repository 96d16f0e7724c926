"""Many members that join at once, vanish while parked, and a coordinator killed while they join."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from drover.errors import FailedPreconditionError, Reason
from drover.model.group import GroupState
from drover.model.ids import TaskId
from drover.model.offsets import CommitOutcome, CommittedOffset, TaskOffsets
from tests.support.coordinator_process import MIB, CoordinatorProcess, coordinator_process
from tests.support.group_members import GROUP, GroupMember, form_group
from tests.support.waiting import pause, wait_until_async

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

CROWD = "crowd"
TASK = TaskId("flights", 0)
FAULTS = pytest.mark.faults("coordinator")


@asynccontextmanager
async def crowd(
    coordinator: CoordinatorProcess, count: int, what: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process that simulates ``count`` members; killed at the end."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.support.group_crowd"),
        *(coordinator.address, CROWD, str(count), what),
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONPATH": f"{Path(__file__).parents[2]}"},
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def line_of(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    async with asyncio.timeout(300):
        return (await process.stdout.readline()).decode().strip()


@asynccontextmanager
async def beating(member: GroupMember) -> AsyncIterator[list[bool]]:
    """Send heartbeats of a stable member throughout; each must be answered without a rebalance."""
    answers: list[bool] = []
    generation = member.joined.generation if member.joined else -1

    async def beat() -> None:
        while True:
            answers.append(
                await member.client.heartbeat(
                    group_id=GROUP,
                    member_id=member.member_id,
                    generation=generation,
                    timeout_s=60,  # it is queued behind many calls
                )
            )
            await pause(0.2)

    task = asyncio.create_task(beat())
    try:
        yield answers
        assert not task.done(), task
    finally:
        task.cancel()
        await asyncio.wait([task])
    assert answers
    assert not any(answers)


@FAULTS
async def test_ten_thousand_that_join_at_once_are_all_answered_and_nobody_else_notices(
    tmp_path: Path,
) -> None:
    settings = {"initial_rebalance_delay_ms": 3_000, "group_max_size": 9_900}
    async with (
        coordinator_process(tmp_path, **settings) as coordinator,
        GroupMember(coordinator.address, "bystander", session_ms=60_000) as bystander,
    ):
        await form_group(bystander)
        before_bytes = coordinator.memory_bytes()
        peak_bytes = 0
        async with beating(bystander), crowd(coordinator, 10_000, "join") as process:
            answered = asyncio.create_task(line_of(process))
            while not answered.done():
                peak_bytes = max(peak_bytes, coordinator.memory_bytes())
                await asyncio.wait([answered], timeout=0.2)
            answers: dict[str, int] = json.loads(await answered)
        assert sum(answers.values()) == 10_000
        assert set(answers) <= {
            "joined",
            "retry_join",
            "RESOURCE_EXHAUSTED GROUP_MAX_SIZE_REACHED",
            "RESOURCE_EXHAUSTED QUEUE_FULL",
            "NOT_FOUND UNKNOWN_MEMBER_ID",  # its id had expired after a minute
        }, answers
        assert answers["joined"] > 5_000, answers
        assert peak_bytes - before_bytes < 600 * MIB
        group = await bystander.client.describe(CROWD)
        assert len(group.members) <= 9_900
        assert bystander.seen[-1].state is GroupState.STABLE


@pytest.mark.parametrize("where", ["join-and-park", pytest.param("sync-and-park", marks=FAULTS)])
async def test_a_process_of_hundreds_that_is_killed_while_they_are_parked_leaves_nothing(
    tmp_path: Path, where: str
) -> None:
    async with (
        coordinator_process(tmp_path, initial_rebalance_delay_ms=5_000) as coordinator,
        GroupMember(coordinator.address, "bystander", session_ms=60_000) as bystander,
    ):
        await form_group(bystander)

        async def nobody_is_left() -> bool:
            return not (await bystander.client.describe(CROWD)).members

        sizes: list[int] = []
        async with beating(bystander):
            for _ in range(3):
                async with crowd(coordinator, 300, where) as process:
                    assert await line_of(process) == "parked"
                    process.kill()
                    await process.wait()
                await wait_until_async(nobody_is_left, timeout_s=55)  # sessions last 60 s
                sizes.append(coordinator.memory_bytes())
        assert sizes[-1] - sizes[0] < 30 * MIB, sizes


async def test_a_claim_whose_answer_was_lost_with_the_coordinator_is_the_same_again(
    tmp_path: Path,
) -> None:
    async with (
        coordinator_process(tmp_path) as coordinator,
        GroupMember(coordinator.address, "a") as member,
    ):
        await form_group(member)
        terms = []
        for number in range(3):
            claims = [
                asyncio.create_task(
                    claim(member, TaskId("flights", task), f"{number}-{task}", timeout_s=3)
                )
                for task in range(50)
            ]
            await asyncio.sleep(0)
            await answered(claims, 10 * number)
            await coordinator.kill()  # between the grants and the responses
            await asyncio.wait(claims)
            await coordinator.start()
            granted = [
                await claim(member, TaskId("flights", task), f"{number}-{task}")
                for task in range(50)
            ]
            heard = [each.result() for each in claims if each.exception() is None]
            assert set(heard) <= set(granted)
            again = [
                await claim(member, TaskId("flights", task), f"{number}-{task}")
                for task in range(50)
            ]
            assert again == granted
            terms.append(granted[0])
        assert terms == sorted(set(terms))
        results = await member.client.commit_offsets(
            group_id=GROUP, tasks=[offsets_of(term) for term in terms]
        )
        stale = [CommitOutcome.STALE_CLAIM] * 2
        assert [each.outcome for each in results] == [*stale, CommitOutcome.COMMITTED]


async def answered(claims: Sequence["asyncio.Task[Any]"], count: int) -> None:
    """Wait until ``count`` claims are answered."""
    await wait_until_async(lambda: sum(each.done() for each in claims) >= count)


async def claim(
    member: GroupMember, task: TaskId, request_id: str, *, timeout_s: float = 30
) -> Any:
    assert member.joined is not None
    return await member.client.claim_task(
        group_id=GROUP,
        member_id=member.member_id,
        generation=member.joined.generation,
        task=task,
        task_config_generation=1,
        request_id=request_id,
        timeout_s=timeout_s,
    )


def offsets_of(term: Any) -> TaskOffsets:
    return TaskOffsets(TASK, term, (CommittedOffset('{"file":"f"}', '{"position":1}'),))


async def test_a_slow_starter_of_the_generation_before_never_takes_a_task_back(
    tmp_path: Path,
) -> None:
    async with (
        coordinator_process(tmp_path) as coordinator,
        GroupMember(coordinator.address, "slow") as slow,
        GroupMember(coordinator.address, "heir") as heir,
    ):
        await form_group(slow)
        old_generation = slow.joined.generation if slow.joined else -1
        first = await claim(slow, TASK, "first")
        joining = asyncio.create_task(heir.join())
        await slow.wait_until_rejoin_needed()
        await asyncio.gather(slow.join(), joining)
        await asyncio.gather(slow.sync(), heir.sync())
        taken = await claim(heir, TASK, "heir")
        assert taken > first
        await coordinator.kill()
        await coordinator.start()
        for request_id in ("first", "late"):
            with pytest.raises(FailedPreconditionError) as caught:
                await slow.client.claim_task(
                    group_id=GROUP,
                    member_id=slow.member_id,
                    generation=old_generation,
                    task=TASK,
                    task_config_generation=1,
                    request_id=request_id,
                )
            assert caught.value.reason in (Reason.ILLEGAL_GENERATION, Reason.STALE_TERM)
        refused, taken_up = await heir.client.commit_offsets(
            group_id=GROUP, tasks=[offsets_of(first), offsets_of(taken)]
        )
        assert refused.outcome is CommitOutcome.STALE_CLAIM
        assert taken_up.outcome is CommitOutcome.COMMITTED
