"""Two coordinators in the test process share the groups, over real gRPC and SQLite."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest

from drover.api.coordinator.v1 import coordinator_service_pb2 as pb
from drover.api.coordinator.v1 import coordinator_service_pb2_grpc as pb_grpc
from drover.client import CoordinatorClient, CoordinatorsClient, channel
from drover.clock import SystemClock
from drover.errors import (
    DroverError,
    FailedPreconditionError,
    NotFoundError,
    Reason,
    UnavailableError,
)
from drover.log.sqlite import SqliteLog
from drover.model.group import GroupState, OfferedProtocol, shard_of
from drover.model.ids import TaskId, Term
from drover.model.offsets import GroupOffset
from drover.rpc.status import from_rpc_error
from drover.runtime.runtime import Runtime
from drover_coordinator.backends.embedded.lease_file import FileLeases
from drover_coordinator.core.ownership.machine import TableSeen, Write
from tests.support.coordinator_pair import SHARDS, Coordinators, FollowingMember, group_of
from tests.support.group_members import CALL_S, GROUP, GroupMember, form_group
from tests.support.waiting import wait_until_async

SHARD = shard_of(GROUP, SHARDS)


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Coordinators]:
    """Two running coordinators, with two shards each and leases long enough for a slow machine."""
    coordinators = Coordinators(tmp_path, coordinator_lease_ms=60_000)
    for each in coordinators.each:
        await each.start()
    await coordinators.wait_until_shared()
    yield coordinators
    await coordinators.stop()


async def create(client: CoordinatorClient, group_id: str) -> None:
    """Create a group through a first join, which returns a member id."""
    await client.join(
        group_id=group_id,
        member_id="",
        client_id="c",
        session_timeout_ms=60_000,
        rebalance_timeout_ms=60_000,
        protocol_type="connect",
        protocols=[OfferedProtocol("default", b"")],
        timeout_s=CALL_S,
    )


async def members(pair: Coordinators, stack: AsyncExitStack, *names: str) -> list[FollowingMember]:
    found = [
        await stack.enter_async_context(FollowingMember(pair.addresses, name)) for name in names
    ]
    await form_group(*found)
    return found


async def refusal(call: object) -> DroverError:
    with pytest.raises(DroverError) as raised:
        await call  # type: ignore[misc]
    return raised.value


async def test_any_of_them_knows_the_owner_and_the_wrong_one_says_whom_to_ask(
    pair: Coordinators,
) -> None:
    owners = await pair.owners()
    assert sorted(owners) == sorted(pair.addresses * 2)
    for shard, owner in enumerate(owners):
        group_id = group_of(shard)
        [other] = [address for address in pair.addresses if address != owner]
        async with channel(owner) as right, channel(other) as wrong:
            described = await CoordinatorClient(right).describe(group_id)
            assert described.state is GroupState.DEAD
            client = CoordinatorClient(wrong)
            assert await client.find_coordinator(group_id) == owner
            calls = [
                client.describe(group_id),
                client.heartbeat(group_id=group_id, member_id="m", generation=1),
                client.leave(group_id=group_id, members=[]),
                client.fetch_offsets(group_id=group_id, connector="c"),
                client.commit_offsets(group_id=group_id, tasks=[]),
                anext(client.watch_group(group_id=group_id, member_id="m")),
                create(client, group_id),
            ]
            for call in calls:
                error = await refusal(call)
                assert error.reason is Reason.NOT_COORDINATOR, error
                assert isinstance(error, FailedPreconditionError)
                assert error.metadata == {"coordinator": owner}


async def test_each_lists_its_own_groups_and_a_following_client_those_of_all(
    pair: Coordinators,
) -> None:
    group_ids = sorted(group_of(shard, n) for shard in range(SHARDS) for n in range(3))
    owners = await pair.owners()
    async with pair.client() as client:
        for group_id in group_ids:
            await create(client, group_id)
        assert [g.group_id for g in await client.list_groups()] == group_ids
    async with CoordinatorsClient(pair.addresses[:1]) as client:
        assert [g.group_id for g in await client.list_groups()] == group_ids, "it asks the others"
    for address in pair.addresses:
        async with channel(address) as connection:
            listed = [g.group_id for g in await CoordinatorClient(connection).list_groups()]
            own = [g for g in group_ids if owners[shard_of(g, SHARDS)] == address]
            assert listed == own


async def test_a_client_that_knows_one_of_them_is_led_to_the_others(pair: Coordinators) -> None:
    for address in pair.addresses:
        async with FollowingMember([address], "a") as member:
            for shard in range(SHARDS):
                described = await member.client.describe(group_of(shard))
                assert described.state is GroupState.DEAD


async def test_groups_move_to_a_newcomer_and_their_members_notice_nothing(
    tmp_path: Path,
) -> None:
    pair = Coordinators(tmp_path)
    first, second = pair.each
    await first.start()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(pair.stop)
        a, b = await members(pair, stack, "a", "b")
        before = await a.client.describe(GROUP)
        await second.start()
        owners = await pair.wait_until_shared()
        if owners[SHARD] == first.address:  # move the group to the second in any case
            await first.stop()
        for member in (a, b):
            assert await member.heartbeat() is False
            assert (await member.sync()).assignment == b"for " + member.name.encode()
        after = await a.client.describe(GROUP)
        assert after == before
        owner = await a.client.find_coordinator(GROUP)
        assert owner == second.address


async def test_watches_end_with_not_coordinator_and_parked_calls_too(pair: Coordinators) -> None:
    owner_address = (await pair.owners())[SHARD]
    owner = next(each for each in pair.each if each.address == owner_address)
    async with AsyncExitStack() as stack:
        a, b = [await stack.enter_async_context(GroupMember(owner_address, name)) for name in "ab"]
        await form_group(a, b)
        leader, other = (a, b) if a.joined and a.joined.members else (b, a)
        parked = asyncio.create_task(leader.join())
        await other.wait_until_rejoin_needed()
        await owner.stop()
        error = await refusal(parked)
        assert error.reason is Reason.NOT_COORDINATOR
        for member in (a, b):
            await member.wait_until_watch_ended()
            assert member.watch_error is not None
            assert member.watch_error.reason is Reason.NOT_COORDINATOR


async def test_a_client_that_follows_finds_the_group_without_a_name(pair: Coordinators) -> None:
    async with pair.client() as client:
        await client.commit_group_offsets(group_id="", offsets=[GroupOffset("t", 0, 7)])
        [found] = await client.fetch_group_offsets(group_id="")
        assert found.offset == 7


async def test_members_in_a_parked_join_go_on_at_the_next_owner(pair: Coordinators) -> None:
    owner_address = (await pair.owners())[SHARD]
    owner = next(each for each in pair.each if each.address == owner_address)
    async with AsyncExitStack() as stack:
        a, b = await members(pair, stack, "a", "b")
        generation = a.joined.generation if a.joined else 0
        leader, other = (a, b) if a.joined and a.joined.members else (b, a)
        parked = asyncio.create_task(leader.join())
        await other.wait_until_rejoin_needed()
        await owner.stop()
        # a join before the leader's returns the current generation, so wait for the rebalance
        await wait_until_async(partial(_is_preparing, other.client))
        joined = await asyncio.gather(parked, other.join())
        assert {each.generation for each in joined} == {generation + 1}
        await asyncio.gather(a.sync(), b.sync())


async def _is_preparing(client: CoordinatorClient) -> bool:
    return (await client.describe(GROUP)).state is GroupState.PREPARING_REBALANCE


async def test_the_other_serves_everything_once_one_has_stopped_and_shares_when_it_is_back(
    pair: Coordinators,
) -> None:
    async with AsyncExitStack() as stack:
        a, b = await members(pair, stack, "a", "b")
        before = await a.client.describe(GROUP)
        for stopped in pair.each:
            await stopped.stop()
            [left] = [address for address in pair.addresses if address != stopped.address]
            await wait_until_async(partial(_owned_by, pair, left))
            assert await a.client.describe(GROUP) == before
            assert await a.heartbeat() is False
            await stopped.start()
            await pair.wait_until_shared()
        assert await b.heartbeat() is False
        assert await a.client.describe(GROUP) == before


async def _owned_by(pair: Coordinators, address: str) -> bool:
    try:
        return await pair.owners(address) == [address] * SHARDS
    except UnavailableError:
        return False


async def test_claims_hold_across_a_move_and_a_slow_starter_takes_nothing_back(
    pair: Coordinators,
) -> None:
    task = TaskId("c", 0)
    async with AsyncExitStack() as stack:
        a, b = await members(pair, stack, "a", "b")
        assert a.joined is not None
        generation = a.joined.generation
        first = await a.claim(task, request_id="1")
        owner_address = (await pair.owners())[SHARD]
        owner = next(each for each in pair.each if each.address == owner_address)
        await owner.stop()
        assert await a.claim(task, request_id="1") == first, "the same request, repeated"
        later = await b.claim(task, request_id="2")
        assert later > first
        error = await refusal(a.claim(task, generation=generation - 1, request_id="3"))
        assert error.reason is Reason.ILLEGAL_GENERATION


async def test_an_owner_whose_log_was_claimed_by_another_stops_answering(
    pair: Coordinators,
) -> None:
    """An owner that missed the loss of its lease learns of it at its next append."""
    owner_address = (await pair.owners())[SHARD]
    async with AsyncExitStack() as stack:
        a = await stack.enter_async_context(GroupMember(owner_address, "a"))
        await form_group(a)
        log = await SqliteLog.open(pair.directory / f"groups-{SHARD}.db", SystemClock())
        await log.claim("another", Term(40, 0))
        end_offset = await log.end_offset()
        error = await refusal(a.join())
        assert error.reason is Reason.NOT_COORDINATOR
        assert await log.end_offset() == end_offset
        await log.close()
        await a.wait_until_watch_ended()
        # it still holds the lease, so it claims the shard again, with an epoch above the log's
        async with FollowingMember(pair.addresses, "a") as again:
            again.member_id, again.joined = a.member_id, a.joined
            assert await again.heartbeat() is False
            assert a.joined is not None
            assert (await again.client.describe(GROUP)).generation == a.joined.generation
        with sqlite3.connect(pair.directory / "coordinators.db") as table:
            [(epoch,)] = table.execute("SELECT epoch FROM lease WHERE shard = ?", (SHARD,))
        assert epoch > 40


async def test_an_owner_that_cannot_renew_stops_answering_by_its_own_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner cannot reach the lease table, like a frozen process, so no write informs it."""
    pair = Coordinators(tmp_path, coordinator_lease_ms=1_000)
    reachable = asyncio.Event()
    reachable.set()
    cut_off: list[str] = []
    exchange = FileLeases.exchange

    async def slow_exchange(
        leases: FileLeases, writes: Sequence[Write], started_ms: int
    ) -> TableSeen:
        if leases._who.address in cut_off:
            await reachable.wait()
        return await exchange(leases, writes, started_ms)

    monkeypatch.setattr(FileLeases, "exchange", slow_exchange)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(pair.stop)
        stack.callback(reachable.set)
        for each in pair.each:
            await each.start()
        owner = (await pair.wait_until_shared())[SHARD]
        a, b = await members(pair, stack, "a", "b")
        before = await a.client.describe(GROUP)
        stale = CoordinatorClient(await stack.enter_async_context(channel(owner)))
        reachable.clear()
        cut_off.append(owner)
        [other] = [address for address in pair.addresses if address != owner]
        await wait_until_async(partial(_owned_by, pair, other))
        for call in (
            stale.describe(GROUP),
            stale.heartbeat(group_id=GROUP, member_id=a.member_id, generation=before.generation),
        ):
            error = await refusal(call)
            assert error.reason is Reason.NOT_COORDINATOR
        error = await refusal(stale.find_coordinator(GROUP, timeout_s=0.2))
        assert error.reason in (Reason.COORDINATOR_NOT_AVAILABLE, Reason.DEADLINE_EXCEEDED)
        assert await a.client.describe(GROUP) == before
        assert await b.heartbeat() is False
        reachable.set()
        await pair.wait_until_shared()
        assert await a.client.describe(GROUP) == before


async def test_while_a_shard_is_loaded_heartbeats_are_fine_and_other_calls_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = Coordinators(tmp_path)
    first, second = pair.each
    await first.start()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(pair.stop)
        [a] = await members(pair, stack, "a")
        may_load = asyncio.Event()
        load = Runtime.load

        async def slow_load(runtime: "Runtime[object]") -> None:
            await may_load.wait()
            await load(runtime)

        monkeypatch.setattr(Runtime, "load", slow_load)
        starting = asyncio.create_task(second.start())
        await first.stop()  # the second must load all shards
        async with channel(second.address) as connection:
            client = CoordinatorClient(connection)
            stub: Any = pb_grpc.CoordinatorServiceStub(connection)

            async def answer(method: str, request: object) -> object:
                """The response or error reason of one call, without a retry."""
                try:
                    return await getattr(stub, method)(request, timeout=CALL_S)
                except grpc.RpcError as error:
                    return from_rpc_error(error).reason

            async def loading() -> bool:
                described = await answer("DescribeGroup", pb.DescribeGroupRequest(group_id=GROUP))
                return described is Reason.COORDINATOR_LOAD_IN_PROGRESS

            await wait_until_async(loading)
            beat = pb.HeartbeatRequest(group_id=GROUP, member_id="whoever", generation=77)
            assert await answer("Heartbeat", beat) == pb.HeartbeatResponse()
            assert await client.find_coordinator(GROUP) == second.address
            for method, request in (
                ("ListGroups", pb.ListGroupsRequest()),
                ("SyncGroup", pb.SyncGroupRequest(group_id=GROUP, member_id=a.member_id)),
                ("FetchOffsets", pb.FetchOffsetsRequest(group_id=GROUP, connector="c")),
            ):
                found = await answer(method, request)
                assert found is Reason.COORDINATOR_LOAD_IN_PROGRESS, method
            watch = client.watch_group(group_id=GROUP, member_id=a.member_id)
            error = await refusal(anext(watch))
            assert error.reason is Reason.COORDINATOR_LOAD_IN_PROGRESS
            described = asyncio.create_task(client.describe(GROUP))
            may_load.set()
            assert (await described).state is GroupState.STABLE
            with pytest.raises(NotFoundError):
                await client.heartbeat(group_id=GROUP, member_id="whoever", generation=77)
        await starting
        assert await a.heartbeat() is False
