"""Members that ask for nonsense, vanish while parked, or do what members do not do."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf.duration_pb2 import Duration

from drover.api.coordinator.v1 import coordinator_service_pb2 as pb
from drover.api.coordinator.v1 import coordinator_service_pb2_grpc as pb_grpc
from drover.client import channel
from drover.errors import (
    DroverError,
    InvalidArgumentError,
    Reason,
    ResourceExhaustedError,
    UnavailableError,
)
from drover.model.group import (
    GroupState,
    Joined,
    JoinOutcome,
    MemberAssignment,
    MemberIdRequired,
    OfferedProtocol,
    RebalanceInProgress,
    Synced,
)
from drover.rpc.status import from_rpc_error
from drover_coordinator.core.groups.validate import METADATA_MAX_BYTES
from tests.support.group_members import GROUP, GroupMember, RunningCoordinator, form_group
from tests.support.waiting import wait_until_async

Stub = Any
HUGE = "x" * 1_000_000
SERVICE = "/drover.api.coordinator.v1.CoordinatorService/"


@pytest.fixture
async def bystander(coordinator: RunningCoordinator) -> AsyncIterator[GroupMember]:
    """A member of the one group that nothing happens to; it must not notice."""
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


def join_request(**changes: Any) -> pb.JoinGroupRequest:
    good: dict[str, Any] = {
        "group_id": "odd",
        "client_id": "c",
        "session_timeout": Duration(seconds=10),
        "rebalance_timeout": Duration(seconds=60),
        "protocol_type": "connect",
        "protocols": [pb.GroupProtocol(name="default", metadata=b"x")],
    }
    return pb.JoinGroupRequest(**{**good, **changes})


async def failure(call: Any) -> DroverError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    assert "Traceback" not in (caught.value.details() or "")
    error = from_rpc_error(caught.value)
    assert error.code != "INTERNAL"
    assert len(error.message) <= 1_100
    return error


# ids, spans, enums, bytes

ODD_TEXTS = ["\0", "a\tb", "a\nb", "\x7f", "\x1b[31m", "\u202e", "\ufeff", "\ue000", HUGE]


@pytest.mark.parametrize("text", ODD_TEXTS, ids=lambda text: repr(text[:3]))
async def test_odd_texts_are_refused_wherever_they_come(stub: Stub, text: str) -> None:
    for field, message in (
        ("group_id", join_request(group_id=text)),
        ("client_id", join_request(client_id=text)),
        ("member_id", join_request(member_id=text)),
        ("instance_id", join_request(instance_id=text)),
        ("protocol_type", join_request(protocol_type=text)),
        ("protocols[0].name", join_request(protocols=[pb.GroupProtocol(name=text)])),
    ):
        error = await failure(stub.JoinGroup(message, timeout=10))
        assert isinstance(error, InvalidArgumentError), field
        assert [each.field for each in error.violations] == [field]
    calls: list[tuple[str, str, Any]] = [
        ("Heartbeat", "member_id", pb.HeartbeatRequest(group_id="odd", member_id=text)),
        ("Heartbeat", "group_id", pb.HeartbeatRequest(group_id=text, member_id="m")),
        ("SyncGroup", "group_id", pb.SyncGroupRequest(group_id=text, member_id="m")),
        ("SyncGroup", "member_id", pb.SyncGroupRequest(group_id="odd", member_id=text)),
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
    error = await failure(watching.read())
    assert isinstance(error, InvalidArgumentError)


@pytest.mark.parametrize("text", ODD_TEXTS, ids=lambda text: repr(text[:3]))
async def test_odd_ids_in_a_group_that_is_there_are_strangers(
    stub: Stub, bystander: GroupMember, text: str
) -> None:
    generation = bystander.joined.generation if bystander.joined else 0
    ids: dict[str, Any] = {"group_id": GROUP, "member_id": text, "generation": generation}
    for call in (
        stub.Heartbeat(pb.HeartbeatRequest(**ids), timeout=10),
        stub.SyncGroup(pb.SyncGroupRequest(**ids), timeout=10),
    ):
        error = await failure(call)
        assert error.reason in (Reason.UNKNOWN_MEMBER_ID, Reason.INVALID_REQUEST)


async def test_a_wrong_protocol_of_a_megabyte_is_told_in_short(
    stub: Stub, bystander: GroupMember
) -> None:
    generation = bystander.joined.generation if bystander.joined else 0
    ids: dict[str, Any] = {"member_id": bystander.member_id, "generation": generation}
    for field in ("protocol_type", "protocol_name"):
        request = pb.SyncGroupRequest(group_id=GROUP, **ids, **{field: HUGE})  # type: ignore[arg-type]
        error = await failure(stub.SyncGroup(request, timeout=10))
        assert error.reason is Reason.INCONSISTENT_GROUP_PROTOCOL


#: A group id, a member id and a client id that are no UTF-8, one of them a lone surrogate.
NO_TEXTS = [b"\x0a\x01\xff", b"\x12\x03\xed\xa0\x80", b"\x22\x02\xc3\x28"]


@pytest.mark.parametrize("raw", [*NO_TEXTS, b"\xff\xff\xff", b"\x0a\xff\xff\xff\xff\x0f", b"\x07"])
async def test_bytes_that_are_no_request(
    coordinator: RunningCoordinator, bystander: GroupMember, raw: bytes
) -> None:
    async with channel(coordinator.address) as connection:
        for method in ("JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "ClaimTask"):
            call: Any = connection.unary_unary(SERVICE + method)
            error = await failure(call(raw, timeout=10))
            assert isinstance(error, InvalidArgumentError), method
            assert error.reason in (Reason.INVALID_REQUEST, Reason.INVALID_GROUP_ID)
        watch: Any = connection.unary_stream(SERVICE + "WatchGroup")
        assert isinstance(await failure(watch(raw).read()), DroverError)


@pytest.mark.parametrize(
    "span",
    [
        Duration(),
        Duration(seconds=-10),
        Duration(seconds=7, nanos=-(2**31)),
        Duration(nanos=-1),
        Duration(nanos=2**31 - 1),
        Duration(seconds=2**63 - 1),
        Duration(seconds=-(2**63)),
        Duration(seconds=2**63 - 1, nanos=2**31 - 1),
        Duration(seconds=5, nanos=999_999_999),
        Duration(seconds=1_801),
    ],
    ids=lambda span: f"{span.seconds}s{span.nanos}",
)
async def test_session_timeouts_that_cannot_be(stub: Stub, span: Duration) -> None:
    error = await failure(stub.JoinGroup(join_request(session_timeout=span), timeout=10))
    assert isinstance(error, InvalidArgumentError)
    assert error.reason is Reason.INVALID_SESSION_TIMEOUT
    assert [each.field for each in error.violations] == ["session_timeout"]
    assert "6000 to 1800000 ms" in error.violations[0].description


@pytest.mark.parametrize(
    "span",
    [
        Duration(),
        Duration(nanos=999_999),
        Duration(seconds=-1),
        Duration(seconds=2**63 - 1, nanos=2**31 - 1),
        Duration(seconds=-(2**63)),
        Duration(seconds=3_601),
    ],
    ids=lambda span: f"{span.seconds}s{span.nanos}",
)
async def test_rebalance_timeouts_that_cannot_be(stub: Stub, span: Duration) -> None:
    error = await failure(stub.JoinGroup(join_request(rebalance_timeout=span), timeout=10))
    assert isinstance(error, InvalidArgumentError)
    assert [each.field for each in error.violations] == ["rebalance_timeout"]


async def test_protocols_over_their_limits(stub: Stub) -> None:
    offers = [pb.GroupProtocol(name=f"p{index}") for index in range(33)]
    big = pb.GroupProtocol(name="p", metadata=bytes(METADATA_MAX_BYTES + 1))
    for protocols, words in ((offers, "1 to 32"), ([big], f"{METADATA_MAX_BYTES} bytes")):
        error = await failure(stub.JoinGroup(join_request(protocols=protocols), timeout=10))
        assert isinstance(error, InvalidArgumentError)
        assert error.reason is Reason.INCONSISTENT_GROUP_PROTOCOL
        assert words in error.violations[0].description


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


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("FindCoordinator", pb.FindCoordinatorRequest(group_id=GROUP)),
        ("JoinGroup", join_request()),
        ("SyncGroup", pb.SyncGroupRequest(group_id=GROUP, member_id="m")),
        ("Heartbeat", pb.HeartbeatRequest(group_id=GROUP, member_id="m")),
        ("LeaveGroup", pb.LeaveGroupRequest(group_id=GROUP)),
        ("DescribeGroup", pb.DescribeGroupRequest(group_id=GROUP)),
        ("ListGroups", pb.ListGroupsRequest()),
        ("ClaimTask", pb.ClaimTaskRequest(group_id=GROUP)),
        ("CommitOffsets", pb.CommitOffsetsRequest(group_id=GROUP)),
        ("FetchOffsets", pb.FetchOffsetsRequest(group_id=GROUP, connector="c")),
    ],
)
async def test_without_a_deadline_nothing_is_done(stub: Stub, method: str, message: Any) -> None:
    assert (await failure(getattr(stub, method)(message))).reason is Reason.MISSING_DEADLINE


# joins and syncs that members do not make


@pytest.fixture
async def pair(
    coordinator: RunningCoordinator, bystander: GroupMember
) -> AsyncIterator[list["OddMember"]]:
    """Leader and follower of another group, in the generation that waits for its assignment."""
    async with channel(coordinator.address) as connection:
        leader, follower = (OddMember(connection, name) for name in ("one", "two"))
        await leader.get_id()
        await leader.join()
        await leader.sync({})
        await follower.get_id()
        joining = asyncio.create_task(follower.join())

        async def rebalances() -> bool:
            return bool((await leader.describe()).state == pb.GROUP_STATE_PREPARING_REBALANCE)

        await wait_until_async(rebalances)
        await asyncio.gather(joining, leader.join())
        assert leader.leader_id == leader.member_id
        yield [leader, follower]


class OddMember:
    """A member of the group "odd" that makes single calls."""

    def __init__(self, connection: grpc.aio.Channel, name: str) -> None:
        self.stub: Stub = pb_grpc.CoordinatorServiceStub(connection)
        self.name = name
        self.member_id = ""
        self.leader_id = ""
        self.generation = -1

    async def get_id(self) -> None:
        answer = await self.stub.JoinGroup(join_request(client_id=self.name), timeout=30)
        self.member_id = answer.member_id_required.member_id

    async def join(self, *, timeout_s: float = 30, metadata: bytes = b"x") -> Any:
        request = join_request(
            member_id=self.member_id,
            protocols=[pb.GroupProtocol(name="default", metadata=metadata)],
        )
        answer = await self.stub.JoinGroup(request, timeout=timeout_s)
        if answer.HasField("joined"):
            self.leader_id, self.generation = answer.joined.leader_id, answer.joined.generation
            return answer.joined
        return answer

    def sync(self, assignments: dict[str, bytes] | None = None, *, timeout_s: float = 30) -> Any:
        request = pb.SyncGroupRequest(
            group_id="odd",
            member_id=self.member_id,
            generation=self.generation,
            assignments=[
                pb.MemberAssignment(member_id=each, assignment=data)
                for each, data in (assignments or {}).items()
            ],
        )
        return self.stub.SyncGroup(request, timeout=timeout_s)

    async def describe(self) -> Any:
        return await self.stub.DescribeGroup(pb.DescribeGroupRequest(group_id="odd"), timeout=10)


async def test_assignments_for_strangers_are_ignored(pair: list[OddMember]) -> None:
    leader, follower = pair
    given = {"ghost": b"g", leader.member_id: b"l", "\0": b"", "x" * 500_000: b"h"}
    assert (await leader.sync(given)).synced.assignment == b"l"
    assert (await follower.sync()).synced.assignment == b""
    group = await leader.describe()
    assert {each.member_id: each.assignment for each in group.members} == {
        leader.member_id: b"l",
        follower.member_id: b"",
    }


async def test_a_member_that_is_assigned_twice_makes_the_leaders_call_invalid(
    pair: list[OddMember],
) -> None:
    leader, follower = pair
    request = pb.SyncGroupRequest(
        group_id="odd",
        member_id=leader.member_id,
        generation=leader.generation,
        assignments=[
            pb.MemberAssignment(member_id=each)
            for each in (leader.member_id, follower.member_id, follower.member_id)
        ],
    )
    error = await failure(leader.stub.SyncGroup(request, timeout=10))
    assert isinstance(error, InvalidArgumentError)
    assert [each.field for each in error.violations] == ["assignments[2].member_id"]
    assert (await leader.sync({follower.member_id: b"f"})).HasField("synced")  # it can try again
    assert (await follower.sync()).synced.assignment == b"f"


async def test_assignments_from_a_follower_are_ignored(pair: list[OddMember]) -> None:
    leader, follower = pair
    claimed = asyncio.ensure_future(follower.sync({follower.member_id: b"all of it"}))
    await wait_until_parked(leader)
    assert (await leader.sync({follower.member_id: b"a part"})).synced.assignment == b""
    assert (await claimed).synced.assignment == b"a part"
    late = await follower.sync({follower.member_id: b"all of it", leader.member_id: b"none"})
    assert late.synced.assignment == b"a part"


async def wait_until_parked(member: OddMember) -> None:
    """Some calls have to be on their way before the next one; the group does not show them."""
    for _ in range(5):
        await member.describe()


async def test_a_member_that_syncs_twice_hears_it_in_both_calls(pair: list[OddMember]) -> None:
    leader, follower = pair
    first = asyncio.ensure_future(follower.sync())
    await wait_until_parked(leader)
    second = asyncio.ensure_future(follower.sync())
    error = await failure(first)
    assert isinstance(error, UnavailableError)
    assert error.reason is Reason.COORDINATOR_NOT_AVAILABLE
    everything = {follower.member_id: b"f"}
    twice = await asyncio.gather(leader.sync(everything), leader.sync({}), return_exceptions=True)
    assert any(not isinstance(each, BaseException) for each in twice)
    assert (await second).HasField("synced")
    assert (await leader.describe()).state == pb.GROUP_STATE_STABLE


async def test_a_join_shorter_than_its_margin_is_answered_and_holds_nobody_up(
    pair: list[OddMember],
) -> None:
    leader, follower = pair
    await leader.sync({})
    # the answer comes when half of that is over; on a busy machine it may be late all the same
    for _ in range(10):
        with suppress(grpc.aio.AioRpcError):
            answer = await leader.join(timeout_s=0.24)
            break
    assert answer.retry_join.member_id == leader.member_id
    joined = await asyncio.gather(leader.join(), follower.join())
    assert {each.generation for each in joined} == {leader.generation}


@pytest.mark.parametrize("generation", [-1, 0, 2**31 - 1, -(2**31)])
async def test_wild_generations_of_members(pair: list[OddMember], generation: int) -> None:
    leader, follower = pair
    follower.generation, leader.generation = generation, leader.generation
    error = await failure(follower.sync())
    assert error.reason is Reason.ILLEGAL_GENERATION
    claim = pb.ClaimTaskRequest(
        group_id="odd", member_id=follower.member_id, generation=generation, request_id="r"
    )
    claim.task.connector = "c"
    error = await failure(follower.stub.ClaimTask(claim, timeout=10))
    assert error.reason is Reason.ILLEGAL_GENERATION


async def test_a_leader_that_never_syncs_loses_the_lead(tmp_path: Path) -> None:
    coordinator = RunningCoordinator(tmp_path)
    await coordinator.start()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(coordinator.stop)
        leader, follower = [
            await stack.enter_async_context(
                GroupMember(coordinator.address, name, rebalance_ms=7_000)
            )
            for name in ("a", "b")
        ]
        await form_group(leader)
        joining = asyncio.create_task(follower.join())
        await leader.wait_until_rejoin_needed()
        await asyncio.gather(leader.join(), joining)
        assert follower.joined is not None
        waited = await follower.client.sync(
            group_id=GROUP,
            member_id=follower.member_id,
            generation=follower.joined.generation,
            timeout_s=30,
        )
        assert isinstance(waited, RebalanceInProgress)  # the leader's time was up
        joined = await follower.join()
        assert joined.leader_id == follower.member_id
        assert (await follower.sync()).assignment
        with pytest.raises(DroverError) as caught:
            await leader.heartbeat()
        assert caught.value.reason is Reason.UNKNOWN_MEMBER_ID


# a group that is full, of members or of bytes


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
        share = bytes(550_000)  # with the metadata it is more than fits in a description
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
            joined = await stayer.join()  # 300 others need not be waited for
            return [each.member_id for each in joined.members] == [stayer.member_id]

        # a join that comes before the end of the others was seen still counts some of them
        await wait_until_async(is_alone)
        await stayer.sync()
        group = await stayer.client.describe(GROUP)
        assert [each.member_id for each in group.members] == [stayer.member_id]


async def park(stub: Any) -> Any:
    request = join_request(group_id=GROUP, session_timeout=Duration(seconds=5))
    answer = await stub.JoinGroup(request, timeout=60)
    request.member_id = answer.member_id_required.member_id
    return await stub.JoinGroup(request, timeout=60)
