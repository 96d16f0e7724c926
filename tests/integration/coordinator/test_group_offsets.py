"""A group's own offsets and its deletion, over real gRPC and on a real log."""

from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from drover.api.coordinator.v1 import coordinator_service_pb2 as pb
from drover.api.coordinator.v1 import coordinator_service_pb2_grpc as pb_grpc
from drover.client import CoordinatorClient, channel
from drover.errors import (
    DroverError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    Reason,
)
from drover.model.group import GroupState, LeavingMember
from drover.model.offsets import (
    NO_OFFSET,
    GroupCommitOutcome,
    GroupOffset,
    GroupOffsetDeletion,
    TopicPartition,
)
from drover.rpc.status import from_rpc_error
from tests.support.group_members import GROUP, GroupMember, RunningCoordinator, form_group
from tests.support.waiting import wait_until_async

A0, B7 = TopicPartition("a", 0), TopicPartition("b", 7)
COMMITTED = GroupCommitOutcome.COMMITTED


@pytest.fixture
async def client(coordinator: RunningCoordinator) -> AsyncIterator[CoordinatorClient]:
    async with coordinator.client() as client:
        yield client


async def commit(client: CoordinatorClient, group_id: str, **positions: int) -> None:
    """Commit positions in partition 0 of topics, by topic."""
    offsets = [GroupOffset(topic, 0, offset) for topic, offset in positions.items()]
    result = await client.commit_group_offsets(group_id=group_id, offsets=offsets)
    assert {outcome for _, outcome in result.outcomes} == {COMMITTED}


async def positions(client: CoordinatorClient, group_id: str) -> dict[str, int]:
    found = await client.fetch_group_offsets(group_id=group_id)
    return {each.topic: each.offset for each in found}


async def refused(
    client: CoordinatorClient, group_id: str, member_id: str, generation: int
) -> Reason:
    with pytest.raises(DroverError) as caught:
        await client.commit_group_offsets(
            group_id=group_id,
            offsets=[GroupOffset("a", 0, 1)],
            member_id=member_id,
            generation=generation,
        )
    return caught.value.reason


async def test_a_simple_group_keeps_its_offsets_across_restarts(
    coordinator: RunningCoordinator,
) -> None:
    sent = GroupOffset("b", 7, 2**62, leader_epoch=4, metadata="ünder way", expire_time_ms=2**42)
    async with coordinator.client() as client:
        await client.commit_group_offsets(group_id="readers", offsets=[sent])
        await commit(client, "", a=3)
    await coordinator.stop()
    await coordinator.start()
    async with coordinator.client() as client:
        found = await client.fetch_group_offsets(group_id="readers", partitions=[A0, B7])
        assert [each.offset for each in found] == [NO_OFFSET, 2**62]
        assert (found[1].leader_epoch, found[1].metadata) == (4, "ünder way")
        assert found[1].expire_time_ms == 2**42
        assert found[1].commit_time_ms > 0
        assert await positions(client, "") == {"a": 3}
        (deleted,) = await client.delete_group_offsets(group_id="readers", partitions=[B7])
        assert deleted.outcome is GroupOffsetDeletion.DELETED
        assert await positions(client, "readers") == {}
        described = await client.describe("readers")
        assert (described.state, described.protocol_type) == (GroupState.EMPTY, "")


async def test_members_commit_and_others_may_not(coordinator: RunningCoordinator) -> None:
    async with GroupMember(coordinator.address, "m") as member:
        await form_group(member)
        client = member.client
        result = await client.commit_group_offsets(
            group_id=GROUP,
            offsets=[GroupOffset("a", 0, 1), GroupOffset("a", 1, 1, metadata="x" * 4_097)],
            member_id=member.member_id,
            generation=1,
        )
        assert [outcome for _, outcome in result.outcomes] == [
            COMMITTED,
            GroupCommitOutcome.METADATA_TOO_LARGE,
        ]
        assert await refused(client, GROUP, "", -1) is Reason.UNKNOWN_MEMBER_ID
        assert await refused(client, GROUP, member.member_id, 2) is Reason.ILLEGAL_GENERATION
        assert await refused(client, "unknown", "m", 0) is Reason.ILLEGAL_GENERATION
        assert await positions(client, GROUP) == {"a": 1}
        with pytest.raises(FailedPreconditionError) as caught:
            await client.delete_group_offsets(group_id=GROUP, partitions=[A0])
        assert caught.value.reason is Reason.NON_EMPTY_GROUP
        with pytest.raises(FailedPreconditionError) as caught:
            await client.delete_group(GROUP)
        assert caught.value.reason is Reason.NON_EMPTY_GROUP


async def test_a_deleted_group_comes_back_above_its_generations(
    coordinator: RunningCoordinator,
) -> None:
    async with GroupMember(coordinator.address, "m") as member:
        await form_group(member)
        await member.join()
        assert member.joined is not None
        assert member.joined.generation == 2
    async with coordinator.client() as client:
        await client.leave(group_id=GROUP, members=[LeavingMember(member.member_id)])
        await commit(client, GROUP, a=1)
        await client.delete_group(GROUP)
        with pytest.raises(NotFoundError) as caught:
            await client.delete_group(GROUP)
        assert caught.value.reason is Reason.GROUP_ID_NOT_FOUND
        assert (await client.describe(GROUP)).state is GroupState.DEAD
        assert await positions(client, GROUP) == {}
    await coordinator.stop()
    await coordinator.start()
    async with GroupMember(coordinator.address, "n") as member:
        assert (await member.join()).generation == 4  # the empty group had generation 3


async def test_offsets_of_any_number_come_by_page(client: CoordinatorClient) -> None:
    many = [GroupOffset("t", index, index, metadata="m" * 1_500) for index in range(2_000)]
    await client.commit_group_offsets(group_id="readers", offsets=many)
    found = await client.fetch_group_offsets(group_id="readers")
    assert [each.partition for each in found] == list(range(2_000))
    named = [TopicPartition("t", index) for index in reversed(range(2_500))]
    found = await client.fetch_group_offsets(group_id="readers", partitions=named)
    assert [each.partition for each in found] == list(reversed(range(2_500)))
    assert [each.offset for each in found[:501]] == [-1] * 500 + [1_999]


async def test_offsets_expire_and_the_group_with_them(tmp_path: Path) -> None:
    coordinator = RunningCoordinator(
        tmp_path, offsets_retention_ms=1, offsets_retention_check_ms=20
    )
    await coordinator.start()
    try:
        async with coordinator.client() as client:
            await commit(client, "readers", a=1)

            async def gone() -> bool:
                return (await client.describe("readers")).state is GroupState.DEAD

            await wait_until_async(gone)
            assert await positions(client, "readers") == {}
    finally:
        await coordinator.stop()


async def test_bad_input_is_told_by_field(coordinator: RunningCoordinator) -> None:
    bad: list[tuple[str, object, str]] = [
        (
            "CommitGroupOffsets",
            pb.CommitGroupOffsetsRequest(
                group_id="g", generation=-1, offsets=[pb.GroupOffset(topic="t", offset=-1)]
            ),
            "offsets[0].offset",
        ),
        (
            "FetchGroupOffsets",
            pb.FetchGroupOffsetsRequest(group_id="g", page_token="junk"),
            "page_token",
        ),
        ("DeleteGroupOffsets", pb.DeleteGroupOffsetsRequest(group_id="g"), "partitions"),
        ("DeleteGroup", pb.DeleteGroupRequest(group_id="g" * 300), "group_id"),
    ]
    async with channel(coordinator.address) as connection:
        stub = pb_grpc.CoordinatorServiceStub(connection)
        for method, request, field in bad:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await getattr(stub, method)(request, timeout=10)
            error = from_rpc_error(caught.value)
            assert isinstance(error, InvalidArgumentError)
            assert field in [each.field for each in error.violations]
