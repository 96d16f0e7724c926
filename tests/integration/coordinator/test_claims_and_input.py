"""Claims and offsets, bad input and health while loading, over real gRPC."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from drover.api.coordinator.v1 import coordinator_service_pb2 as pb
from drover.api.coordinator.v1 import coordinator_service_pb2_grpc as pb_grpc
from drover.client import CoordinatorClient, channel
from drover.clock import SystemClock
from drover.dataplane.store import EmbeddedStore
from drover.errors import (
    DroverError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    Reason,
    UnavailableError,
)
from drover.model.ids import TaskId, Term
from drover.model.offsets import CommitOutcome, CommittedOffset, TaskOffsets
from drover.rpc.server import RpcServer
from drover_coordinator.backends.embedded.offsets import EmbeddedOffsets
from drover_coordinator.backends.embedded.shard_files import open_shard_log
from drover_coordinator.core.groups.settings import GroupSettings
from drover_coordinator.server import SERVICE_NAME, CoordinatorServicer
from drover_coordinator.sharding.shards import Shards, SingleOwner
from tests.support.group_members import (
    GROUP,
    GroupMember,
    RunningCoordinator,
    failure,
    form_group,
    join_request,
)

TASK = TaskId("flights", 0)
Stub = Any


@pytest.fixture
async def member(coordinator: RunningCoordinator) -> AsyncIterator[GroupMember]:
    async with GroupMember(coordinator.address, "a") as member:
        await form_group(member)
        yield member


@pytest.fixture
async def stub(coordinator: RunningCoordinator) -> AsyncIterator[Stub]:
    async with channel(coordinator.address) as connection:
        yield pb_grpc.CoordinatorServiceStub(connection)


def offsets_of(term: Term, position: int) -> TaskOffsets:
    return TaskOffsets(TASK, term, (CommittedOffset('{"file":"f"}', f'{{"position":{position}}}'),))


# claims and offsets


async def test_only_members_of_the_generation_get_claims(member: GroupMember) -> None:
    assert (await member.claim(TASK)).generation == 1
    with pytest.raises(NotFoundError) as unknown:
        await member.claim(TASK, member_id="ghost")
    assert unknown.value.reason is Reason.UNKNOWN_MEMBER_ID
    with pytest.raises(FailedPreconditionError) as stale:
        await member.claim(TASK, generation=2)
    assert stale.value.reason is Reason.ILLEGAL_GENERATION
    assert stale.value.metadata["currentGeneration"] == "1"
    with pytest.raises(NotFoundError):
        await member.claim(TASK, group_id="another")


async def test_a_claim_fences_and_a_repeated_one_does_not(member: GroupMember) -> None:
    first = await member.claim(TASK, request_id="r1")
    assert await member.claim(TASK, request_id="r1") == first
    second = await member.claim(TASK, request_id="r2")
    assert second > first
    results = await member.client.commit_offsets(
        group_id=GROUP, tasks=[offsets_of(first, 1), offsets_of(second, 2)]
    )
    assert [each.outcome for each in results] == [
        CommitOutcome.STALE_CLAIM,
        CommitOutcome.COMMITTED,
    ]
    found = await member.client.fetch_offsets(group_id=GROUP, connector="flights")
    assert [each.offset_json for each in found] == ['{"position":2}']


async def test_offsets_that_are_no_json_objects_are_refused_one_by_one(
    member: GroupMember,
) -> None:
    term = await member.claim(TASK)
    bad = TaskOffsets(TASK, term, (CommittedOffset("[]", "{}"), CommittedOffset("{}", "x")))
    good = offsets_of(term, 7)
    refused, taken = await member.client.commit_offsets(group_id=GROUP, tasks=[bad, good])
    assert refused.outcome is CommitOutcome.INVALID
    assert "offsets[0].partition_json" in refused.message
    assert "offsets[1].offset_json" in refused.message
    assert taken.outcome is CommitOutcome.COMMITTED


async def test_a_locked_store_is_unavailable_and_membership_goes_on(
    coordinator: RunningCoordinator, member: GroupMember, tmp_path: Path
) -> None:
    term = await member.claim(TASK)
    other = sqlite3.connect(tmp_path / "data.db", isolation_level=None)
    try:
        other.execute("BEGIN IMMEDIATE")
        async with channel(coordinator.address) as connection:
            stub: Stub = pb_grpc.CoordinatorServiceStub(connection)
            request = pb.CommitOffsetsRequest(group_id=GROUP, tasks=[pb.TaskOffsets()])
            request.tasks[0].task.connector = "flights"
            request.tasks[0].claim.sequence = term.sequence
            committing = asyncio.ensure_future(stub.CommitOffsets(request, timeout=60))
            assert await member.heartbeat() is False
            assert (await failure(committing)).reason is Reason.STORAGE_UNAVAILABLE
            claiming = pb.ClaimTaskRequest(
                group_id=GROUP, member_id=member.member_id, generation=1, request_id="r"
            )
            claiming.task.connector = "flights"
            error = await failure(stub.ClaimTask(claiming, timeout=60))
            assert error.reason is Reason.STORAGE_UNAVAILABLE
        assert await member.client.fetch_offsets(group_id=GROUP, connector="flights") == []
        other.execute("ROLLBACK")
    finally:
        other.close()
    results = await member.client.commit_offsets(group_id=GROUP, tasks=[offsets_of(term, 1)])
    assert results[0].outcome is CommitOutcome.COMMITTED


# bad input


async def test_every_violation_arrives_at_once(stub: Stub) -> None:
    error = await failure(stub.JoinGroup(pb.JoinGroupRequest(), timeout=10))
    assert isinstance(error, InvalidArgumentError)
    assert [each.field for each in error.violations] == [
        "group_id",
        "session_timeout",
        "protocol_type",
        "protocols",
        "rebalance_timeout",
    ]


#: Invalid requests of every RPC, with the reason of the refusal.
BAD_REQUESTS: list[tuple[str, Any, Reason]] = [
    ("Heartbeat", pb.HeartbeatRequest(), Reason.INVALID_GROUP_ID),
    ("Heartbeat", pb.HeartbeatRequest(group_id="g"), Reason.INVALID_REQUEST),
    ("SyncGroup", pb.SyncGroupRequest(), Reason.INVALID_GROUP_ID),
    ("LeaveGroup", pb.LeaveGroupRequest(), Reason.INVALID_GROUP_ID),
    ("LeaveGroup", pb.LeaveGroupRequest(group_id="g"), Reason.INVALID_REQUEST),
    ("DescribeGroup", pb.DescribeGroupRequest(group_id="\n"), Reason.INVALID_GROUP_ID),
    (
        "ListGroups",
        pb.ListGroupsRequest(states=[pb.GROUP_STATE_UNSPECIFIED]),
        Reason.INVALID_REQUEST,
    ),
    ("ListGroups", pb.ListGroupsRequest(page_size=-1), Reason.INVALID_REQUEST),
    ("FindCoordinator", pb.FindCoordinatorRequest(group_id="\n"), Reason.INVALID_GROUP_ID),
    ("ClaimTask", pb.ClaimTaskRequest(), Reason.INVALID_GROUP_ID),
    ("ClaimTask", pb.ClaimTaskRequest(group_id="g", member_id="m"), Reason.INVALID_REQUEST),
    ("CommitOffsets", pb.CommitOffsetsRequest(), Reason.INVALID_REQUEST),
    ("FetchOffsets", pb.FetchOffsetsRequest(), Reason.INVALID_REQUEST),
    ("AlterOffsets", pb.AlterOffsetsRequest(), Reason.INVALID_GROUP_ID),
    ("AlterOffsets", pb.AlterOffsetsRequest(group_id="g"), Reason.INVALID_REQUEST),
    (
        "AlterOffsets",
        pb.AlterOffsetsRequest(
            group_id="g",
            member_id="m",
            connector="c",
            offsets=[pb.CommittedOffset(partition_json="?")],
        ),
        Reason.INVALID_REQUEST,
    ),
    ("DeleteOffsets", pb.DeleteOffsetsRequest(), Reason.INVALID_GROUP_ID),
    ("DeleteOffsets", pb.DeleteOffsetsRequest(group_id="g"), Reason.INVALID_REQUEST),
    (
        "FetchOffsets",
        pb.FetchOffsetsRequest(connector="c", page_token="?"),
        Reason.INVALID_REQUEST,
    ),
]


async def test_bad_requests(stub: Stub) -> None:
    for method, request_message, reason in BAD_REQUESTS:
        error = await failure(getattr(stub, method)(request_message, timeout=10))
        assert isinstance(error, InvalidArgumentError), method
        assert error.reason is reason, method
        assert error.violations


async def test_an_enum_value_nobody_knows(stub: Stub) -> None:
    request = pb.ListGroupsRequest.FromString(b"\x0a\x01\x63")  # states: [99]
    error = await failure(stub.ListGroups(request, timeout=10))
    assert isinstance(error, InvalidArgumentError)
    assert [each.field for each in error.violations] == ["states[0]"]


async def test_a_call_without_a_deadline(stub: Stub) -> None:
    error = await failure(stub.DescribeGroup(pb.DescribeGroupRequest(group_id="g")))
    assert error.reason is Reason.MISSING_DEADLINE


# loading, storage


async def test_while_the_log_is_read_nothing_is_served(tmp_path: Path) -> None:
    clock = SystemClock()
    offsets = EmbeddedOffsets(await asyncio.to_thread(EmbeddedStore, tmp_path / "data.db"))
    single_owner = SingleOwner()
    shards = Shards(
        partial(open_shard_log, tmp_path, clock),
        shard_count=1,
        settings=GroupSettings(),
        clock=clock,
        ownership=single_owner,
    )
    await shards.open(0)
    server = RpcServer(listen="127.0.0.1:0", internal=True)
    servicer = CoordinatorServicer(shards, offsets, clock)
    server.add(pb_grpc.add_CoordinatorServiceServicer_to_server, servicer, SERVICE_NAME)
    address = single_owner.address = await server.start()
    try:
        async with channel(address) as connection:
            health: Any = health_pb2_grpc.HealthStub(connection)
            for service in ("", SERVICE_NAME):
                answer = await health.Check(
                    health_pb2.HealthCheckRequest(service=service), timeout=10
                )
                assert answer.status == health_pb2.HealthCheckResponse.NOT_SERVING
            stub: Stub = pb_grpc.CoordinatorServiceStub(connection)
            for call, request in (
                (stub.JoinGroup, join_request()),
                (stub.SyncGroup, pb.SyncGroupRequest(group_id="g")),
                (stub.LeaveGroup, pb.LeaveGroupRequest(group_id="g")),
                (stub.DescribeGroup, pb.DescribeGroupRequest(group_id="g")),
                (stub.ListGroups, pb.ListGroupsRequest()),
                (stub.ClaimTask, pb.ClaimTaskRequest(group_id="g")),
                (stub.CommitOffsets, pb.CommitOffsetsRequest()),
                (stub.FetchOffsets, pb.FetchOffsetsRequest()),
            ):
                error = await failure(call(request, timeout=10))
                assert isinstance(error, UnavailableError)
                assert error.reason is Reason.COORDINATOR_LOAD_IN_PROGRESS
            heartbeat = pb.HeartbeatRequest(group_id="g", member_id="m", generation=3)
            beaten = await stub.Heartbeat(heartbeat, timeout=10)
            assert beaten == pb.HeartbeatResponse(rebalance_in_progress=False)
            found = await stub.FindCoordinator(pb.FindCoordinatorRequest(group_id="g"), timeout=10)
            assert found.address == address
    finally:
        await server.drain(0)
        await shards.close_all()
        await offsets.close()


async def test_a_second_coordinator_on_the_directory_is_refused(
    coordinator: RunningCoordinator, tmp_path: Path
) -> None:
    with pytest.raises(FailedPreconditionError, match="another coordinator") as caught:
        await RunningCoordinator(tmp_path).start()
    assert caught.value.reason is Reason.STORAGE_OWNED
    assert await coordinator.serves()


async def test_a_corrupt_log_is_told_and_nothing_is_left_open(tmp_path: Path) -> None:
    (tmp_path / "groups-3.db").write_bytes(b"this is no database" * 1_000)
    for _ in range(2):
        with pytest.raises(DroverError) as caught:
            await RunningCoordinator(tmp_path).start()
        assert caught.value.reason is Reason.LOG_CORRUPT
    (tmp_path / "groups-3.db").unlink()
    running = RunningCoordinator(tmp_path)
    await running.start()
    await running.stop()


async def test_the_client_pages_through_all_offsets(member: GroupMember) -> None:
    client: CoordinatorClient = member.client
    term = await member.claim(TASK)
    written = [
        CommittedOffset(f'{{"file":"f{index:04}"}}', '{"position":1}', "m" * 4_000)
        for index in range(600)
    ]
    await client.commit_offsets(group_id=GROUP, tasks=[TaskOffsets(TASK, term, written)])
    assert await client.fetch_offsets(group_id=GROUP, connector="flights") == written
