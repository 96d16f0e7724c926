"""Members that send invalid requests, vanish in a parked join, or exceed limits."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf.duration_pb2 import Duration

from drover.api.coordinator.v1 import coordinator_service_pb2 as pb
from drover.api.coordinator.v1 import coordinator_service_pb2_grpc as pb_grpc
from drover.client import channel
from drover.errors import DroverError, InvalidArgumentError, Reason, ResourceExhaustedError
from drover.model.group import (
    GroupState,
    Joined,
    JoinOutcome,
    MemberAssignment,
    MemberIdRequired,
    OfferedProtocol,
    Synced,
)
from drover_coordinator.core.groups.validate import METADATA_MAX_BYTES
from tests.support.group_members import (
    GROUP,
    GroupMember,
    RunningCoordinator,
    failure,
    form_group,
    join_request,
)
from tests.support.inside_coordinator import Inside
from tests.support.waiting import wait_until_async

Stub = Any
SERVICE = "/drover.api.coordinator.v1.CoordinatorService/"


@pytest.fixture(autouse=True)
def inside(monkeypatch: pytest.MonkeyPatch) -> Inside:
    return Inside(monkeypatch)


@pytest.fixture
async def bystander(coordinator: RunningCoordinator) -> AsyncIterator[GroupMember]:
    """A stable member of the group; no test may cause a rebalance for it."""
    async with GroupMember(coordinator.address, "bystander") as member:
        await form_group(member)
        generation = member.joined.generation if member.joined else 0
        yield member
        assert await member.heartbeat() is False
        group = await member.client.describe(GROUP)
        assert (group.state, group.generation) == (GroupState.STABLE, generation)
        assert not member.seen[-1].rejoin_needed
        assert member.watch_error is None


@pytest.fixture
async def stub(coordinator: RunningCoordinator, bystander: GroupMember) -> AsyncIterator[Stub]:
    async with channel(coordinator.address) as connection:
        yield pb_grpc.CoordinatorServiceStub(connection)


async def test_odd_texts_are_refused_by_every_call(stub: Stub) -> None:
    text = "a\nb"
    calls: list[tuple[str, str, Any]] = [
        ("JoinGroup", "client_id", join_request(client_id=text)),
        ("Heartbeat", "member_id", pb.HeartbeatRequest(group_id="odd", member_id=text)),
        ("SyncGroup", "group_id", pb.SyncGroupRequest(group_id=text, member_id="m")),
        (
            "LeaveGroup",
            "members[0].member_id",
            pb.LeaveGroupRequest(group_id="odd", members=[pb.LeavingMember(member_id=text)]),
        ),
        ("DescribeGroup", "group_id", pb.DescribeGroupRequest(group_id=text)),
        ("FindCoordinator", "group_id", pb.FindCoordinatorRequest(group_id=text)),
    ]
    for method, field, message in calls:
        error = await failure(getattr(stub, method)(message, timeout=10))
        assert isinstance(error, InvalidArgumentError), (method, field)
        assert [each.field for each in error.violations] == [field]
    watching = stub.WatchGroup(pb.WatchGroupRequest(group_id="odd", member_id=text))
    assert isinstance(await failure(watching.read()), InvalidArgumentError)


#: A group id, a member id and a client id that are not UTF-8; one is a lone surrogate.
NO_TEXTS = [b"\x0a\x01\xff", b"\x12\x03\xed\xa0\x80", b"\x22\x02\xc3\x28"]


async def test_bytes_that_are_no_request(
    coordinator: RunningCoordinator, bystander: GroupMember
) -> None:
    async with channel(coordinator.address) as connection:
        for raw in (*NO_TEXTS, b"\xff\xff\xff", b"\x0a\xff\xff\xff\xff\x0f", b"\x07"):
            for method in ("JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "ClaimTask"):
                call: Any = connection.unary_unary(SERVICE + method)
                error = await failure(call(raw, timeout=10))
                assert isinstance(error, InvalidArgumentError), method
                assert error.reason in (Reason.INVALID_REQUEST, Reason.INVALID_GROUP_ID)
            watch: Any = connection.unary_stream(SERVICE + "WatchGroup")
            assert isinstance(await failure(watch(raw).read()), DroverError)


async def test_two_million_empty_entries_are_refused_at_once(
    coordinator: RunningCoordinator, bystander: GroupMember
) -> None:
    async with channel(coordinator.address) as connection:
        for method, tag in (
            ("JoinGroup", b"\x42"),
            ("SyncGroup", b"\x3a"),
            ("LeaveGroup", b"\x12"),
            ("CommitOffsets", b"\x12"),
        ):
            call: Any = connection.unary_unary(SERVICE + method)
            error = await failure(call((tag + b"\x00") * 1_900_000, timeout=30))
            assert isinstance(error, InvalidArgumentError)
            assert "at most" in error.message
            assert await bystander.heartbeat() is False


async def test_a_message_that_is_too_large_is_refused_by_the_transport(stub: Stub) -> None:
    request = join_request(reason="r" * (5 << 20))
    error = await failure(stub.JoinGroup(request, timeout=10))
    assert error.reason is Reason.TOO_LARGE


# full groups: too many members or bytes


async def test_metadata_that_the_leader_could_not_be_told_is_refused(tmp_path: Path) -> None:
    coordinator = RunningCoordinator(tmp_path, initial_rebalance_delay_ms=1_500)
    await coordinator.start()
    big = bytes(METADATA_MAX_BYTES)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(coordinator.stop)
        client = await stack.enter_async_context(coordinator.client())

        async def join(member_id: str) -> JoinOutcome:
            return await client.join(
                group_id=GROUP,
                member_id=member_id,
                client_id="big",
                session_timeout_ms=600_000,
                rebalance_timeout_ms=60_000,
                protocol_type="connect",
                protocols=[OfferedProtocol("default", big)],
                timeout_s=30,
            )

        ids = []
        for _ in range(10):
            answer = await join("")
            assert isinstance(answer, MemberIdRequired)
            ids.append(answer.member_id)
        outcomes = await asyncio.gather(*map(join, ids), return_exceptions=True)
        refused = [each for each in outcomes if isinstance(each, ResourceExhaustedError)]
        joined = [each for each in outcomes if isinstance(each, Joined)]
        assert (len(joined), len(refused)) == (7, 3)
        for error in refused:
            assert error.reason is Reason.GROUP_MAX_SIZE_REACHED
            assert "less metadata" in error.message
        leader = next(each for each in joined if each.members)
        assert len(leader.members) == 7
        share = bytes(550_000)  # with the metadata, too large for a DescribeGroup response
        synced = await client.sync(
            group_id=GROUP,
            member_id=leader.member_id,
            generation=leader.generation,
            assignments=[MemberAssignment(each.member_id, share) for each in leader.members],
            timeout_s=30,
        )
        assert isinstance(synced, Synced)
        group = await client.describe(GROUP)
        assert group.details_omitted
        assert len(group.members) == 7
        await coordinator.stop()
        await coordinator.start()
        assert await client.describe(GROUP) == group


async def test_hundreds_that_vanish_while_parked_leave_nothing(tmp_path: Path) -> None:
    coordinator = RunningCoordinator(tmp_path, group_min_session_timeout_ms=500)
    await coordinator.start()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(coordinator.stop)
        stayer = await stack.enter_async_context(GroupMember(coordinator.address, "stayer"))
        await form_group(stayer)
        async with AsyncExitStack() as vanishing:
            connections = [
                await vanishing.enter_async_context(channel(coordinator.address)) for _ in range(4)
            ]
            calls = [
                asyncio.ensure_future(park(pb_grpc.CoordinatorServiceStub(connections[index % 4])))
                for index in range(300)
            ]

            async def all_are_there() -> bool:
                return len((await stayer.client.describe(GROUP)).members) == 301

            await wait_until_async(all_are_there)
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert all(
            isinstance(each, grpc.aio.AioRpcError | asyncio.CancelledError) for each in outcomes
        )

        async def is_alone() -> bool:
            joined = await stayer.join()  # does not wait for the 300 others
            return [each.member_id for each in joined.members] == [stayer.member_id]

        # until the coordinator sees the ends of the other connections, a join may include them
        await wait_until_async(is_alone)
        await stayer.sync()
        group = await stayer.client.describe(GROUP)
        assert [each.member_id for each in group.members] == [stayer.member_id]


async def park(stub: Any) -> Any:
    request = join_request(group_id=GROUP, session_timeout=Duration(seconds=5))
    answer = await stub.JoinGroup(request, timeout=60)
    request.member_id = answer.member_id_required.member_id
    return await stub.JoinGroup(request, timeout=60)
