"""Coordinators as processes that share a directory: killed, frozen, refused. Without Spark."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from drover.client import CoordinatorClient, channel
from drover.errors import DroverError, Reason
from drover.model.group import GroupDescription, GroupState, shard_of
from drover.model.ids import TaskId, Term
from drover.model.offsets import CommitOutcome, CommittedOffset, TaskOffsets
from tests.support.cluster import run_drover
from tests.support.coordinator_pair import SHARDS, FollowingMember
from tests.support.coordinator_process import CoordinatorProcesses
from tests.support.group_members import CALL_S, GROUP, form_group
from tests.support.service_process import assert_one_clear_line, run_to_its_end
from tests.support.waiting import wait_until_async

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

SHARD = shard_of(GROUP, SHARDS)
ENV = {"DROVER_INITIAL_REBALANCE_DELAY_MS": "50"}
TASK = TaskId("c", 0)


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[CoordinatorProcesses]:
    async with CoordinatorProcesses(tmp_path, env=ENV) as processes:
        yield processes


async def members(pair: CoordinatorProcesses, stack: AsyncExitStack) -> list[FollowingMember]:
    found = [
        await stack.enter_async_context(FollowingMember(pair.addresses, name)) for name in "ab"
    ]
    await form_group(*found)
    return found


async def join_again(a: FollowingMember, b: FollowingMember) -> None:
    """Both join the next generation."""
    leader, other = (a, b) if a.joined and a.joined.members else (b, a)
    joining = asyncio.create_task(leader.join())
    await wait_until_async(other.heartbeat, describe="a rebalance began")
    await asyncio.gather(joining, other.join())
    await asyncio.gather(a.sync(), b.sync())


async def owner_of(pair: CoordinatorProcesses) -> str:
    async with pair.client() as client:
        return await client.find_coordinator(GROUP)


async def assert_nothing_happened(before: GroupDescription, *all_members: FollowingMember) -> None:
    """The generation, members and assignments are the same; no member must rejoin."""
    for member in all_members:
        assert await member.heartbeat() is False
    assert await all_members[0].client.describe(GROUP) == before


async def test_the_other_takes_over_from_a_killed_one_and_gives_back_its_share(
    tmp_path: Path,
) -> None:
    """The takeover is immediate: the lease is longer than this test waits."""
    async with AsyncExitStack() as stack:
        pair = await stack.enter_async_context(
            CoordinatorProcesses(tmp_path, env={**ENV, "DROVER_COORDINATOR_LEASE_MS": "60000"})
        )
        a, b = await members(pair, stack)
        before = await a.client.describe(GROUP)
        assert before.state is GroupState.STABLE
        for _ in range(2):
            owner = await owner_of(pair)
            pair.kill(owner)
            await pair.wait_until_owned_by(pair.other(owner))
            await assert_nothing_happened(before, a, b)
            pair.start(owner)
            await pair.wait_until_shared()
            await assert_nothing_happened(before, a, b)


async def test_claims_and_commits_outlive_their_coordinator(pair: CoordinatorProcesses) -> None:
    async with AsyncExitStack() as stack:
        a, b = await members(pair, stack)
        assert a.joined is not None
        first = await claim(a, "1")
        assert await commit(a, first, 1) is CommitOutcome.COMMITTED
        pair.kill(await owner_of(pair))
        assert await commit(a, first, 2) is CommitOutcome.COMMITTED
        second = await claim(b, "2")
        assert second > first
        assert await commit(a, first, 3) is CommitOutcome.STALE_CLAIM
        assert await commit(b, second, 4) is CommitOutcome.COMMITTED
        [offset] = await b.client.fetch_offsets(group_id=GROUP, connector="c")
        assert offset.offset_json == '{"n":4}'


async def test_a_frozen_owner_answers_nothing_stale_and_is_a_peer_again(
    pair: CoordinatorProcesses,
) -> None:
    async with AsyncExitStack() as stack:
        a, b = await members(pair, stack)
        before = await a.client.describe(GROUP)
        frozen = await owner_of(pair)
        stale = CoordinatorClient(await stack.enter_async_context(channel(frozen)))
        assert (await stale.describe(GROUP)).state is GroupState.STABLE  # opens the connection
        await pair.freeze(frozen)
        late = [
            asyncio.create_task(stale.describe(GROUP, timeout_s=60)),
            asyncio.create_task(
                stale.heartbeat(
                    group_id=GROUP,
                    member_id=a.member_id,
                    generation=before.generation,
                    timeout_s=60,
                )
            ),
            asyncio.create_task(stale.find_coordinator(GROUP, timeout_s=60)),
        ]
        await pair.wait_until_owned_by(pair.other(frozen))
        await assert_nothing_happened(before, a, b)
        # the group forms another generation, which the frozen coordinator has not seen
        await join_again(a, b)
        after = await a.client.describe(GROUP)
        assert after.generation == before.generation + 1
        pair.thaw(frozen)
        described, beaten, found = await asyncio.gather(*late, return_exceptions=True)
        for answer in (described, beaten):
            assert isinstance(answer, DroverError), answer
            assert answer.reason is Reason.NOT_COORDINATOR
        assert found in pair.addresses
        await pair.wait_until_shared()
        await assert_nothing_happened(after, a, b)
        assert "Traceback" not in pair.log(frozen)


async def test_one_that_is_asked_to_stop_hands_over_at_once(pair: CoordinatorProcesses) -> None:
    async with AsyncExitStack() as stack:
        a, b = await members(pair, stack)
        before = await a.client.describe(GROUP)
        owner = await owner_of(pair)
        assert pair.stop(owner) == 0
        await pair.wait_until_owned_by(pair.other(owner))
        await assert_nothing_happened(before, a, b)
        log = pair.log(pair.other(owner))
        assert "Traceback" not in log + pair.log(owner)


async def test_one_that_is_alone_and_several_that_share_exclude_each_other(
    pair: CoordinatorProcesses,
) -> None:
    data = pair.directory / "data"
    alone = await run_to_its_end("coordinator", data)
    assert_one_clear_line(alone, "coordinator", "another coordinator uses", data)
    again = await run_to_its_end("coordinator", data, shared_env(pair, pair.addresses[0]))
    assert_one_clear_line(again, "coordinator", "another coordinator", data)


async def test_a_wrong_list_or_number_of_shards_is_one_clear_line(
    pair: CoordinatorProcesses,
) -> None:
    data = pair.directory / "data"
    stranger = {**shared_env(pair, pair.addresses[0]), "DROVER_COORDINATOR_LISTEN": "127.0.0.1:1"}
    refused = await run_to_its_end("coordinator", data, stranger)
    assert_one_clear_line(
        refused, "coordinator", "must include this coordinator's own address", exit_code=2
    )
    pair.kill(pair.addresses[0])
    more = {**shared_env(pair, pair.addresses[0]), "DROVER_GROUP_SHARDS": "5"}
    refused = await run_to_its_end("coordinator", data, more)
    assert_one_clear_line(refused, "coordinator", "DROVER_GROUP_SHARDS must be 4", exit_code=2)


async def test_damage_of_the_table_of_leases_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "coordinators.db").write_bytes(b"not a database, whatever it may be" * 100)
    refused = await run_to_its_end("coordinator", tmp_path)
    assert_one_clear_line(refused, "coordinator", tmp_path / "coordinators.db", "move it away")


def shared_env(pair: CoordinatorProcesses, address: str) -> dict[str, str]:
    return {
        "DROVER_COORDINATOR_LISTEN": address,
        "DROVER_COORDINATORS": ",".join(pair.addresses),
    }


async def claim(member: FollowingMember, request: str) -> Term:
    assert member.joined is not None
    return await member.client.claim_task(
        group_id=GROUP,
        member_id=member.member_id,
        generation=member.joined.generation,
        task=TASK,
        task_config_generation=1,
        request_id=request,
        timeout_s=CALL_S,
    )


async def commit(member: FollowingMember, term: Term, number: int) -> CommitOutcome:
    offset = CommittedOffset('{"p":0}', f'{{"n":{number}}}')
    [result] = await member.client.commit_offsets(
        group_id=GROUP, tasks=[TaskOffsets(TASK, term, (offset,))], timeout_s=CALL_S
    )
    return result.outcome


async def test_the_command_shows_the_groups_of_all_and_of_those_that_are_left(
    pair: CoordinatorProcesses,
) -> None:
    addresses = ",".join(pair.addresses)
    async with AsyncExitStack() as stack:
        await members(pair, stack)
        for asked in (addresses, addresses, pair.addresses[1]):
            # on a busy machine the output may lack the groups of a slow coordinator
            for _ in range(3):
                listed = await run_drover(
                    *("group", "list", "--address", asked, "--output", "json"), cwd=pair.directory
                )
                assert (listed.exit_code, listed.err) == (0, "")
                shown = [group["group_id"] for group in json.loads(listed.out)]
                if shown:
                    break
            described = await run_drover(
                *("group", "describe", GROUP, "--address", asked), cwd=pair.directory
            )
            assert described.exit_code == 0
            assert f"{GROUP}: STABLE" in described.out
            assert shown == [GROUP]
            pair.kill(pair.addresses[0])
            await pair.wait_until_owned_by(pair.addresses[1])
