"""Bounds: requests that are refused before decoding, and details that responses omit."""

import pytest
from google.protobuf.message import Message

from drover.api.coordinator.v1 import coordinator_service_pb2 as pb
from drover.errors import InvalidArgumentError, Reason, ResourceExhaustedError
from drover.rpc import MESSAGE_MAX_BYTES
from drover_coordinator.bounds import (
    ASSIGNMENTS_MAX,
    COUNT_MAX,
    OFFSETS_MAX,
    check_counts,
    fit_in_message,
)


@pytest.mark.parametrize(
    ("request_message", "field"),
    [
        (pb.JoinGroupRequest(protocols=[pb.GroupProtocol()] * (COUNT_MAX + 1)), "protocols"),
        (
            pb.SyncGroupRequest(assignments=[pb.MemberAssignment()] * (ASSIGNMENTS_MAX + 1)),
            "assignments",
        ),
        (pb.LeaveGroupRequest(members=[pb.LeavingMember()] * (COUNT_MAX + 1)), "members"),
        (pb.ListGroupsRequest(states=[1] * (COUNT_MAX + 1)), "states"),  # type: ignore[list-item]
        (pb.CommitOffsetsRequest(tasks=[pb.TaskOffsets()] * (COUNT_MAX + 1)), "tasks"),
        (
            pb.CommitOffsetsRequest(
                tasks=[pb.TaskOffsets(offsets=[pb.CommittedOffset()] * (OFFSETS_MAX // 2 + 1))] * 2
            ),
            "tasks",
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Message) else value,
)
def test_far_too_many_entries_are_refused(request_message: Message, field: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        check_counts(request_message)
    assert [each.field for each in caught.value.violations] == [field]
    assert "at most" in caught.value.message


def test_as_many_as_a_group_may_have_are_let_through() -> None:
    check_counts(pb.SyncGroupRequest(assignments=[pb.MemberAssignment()] * ASSIGNMENTS_MAX))
    check_counts(pb.LeaveGroupRequest(members=[pb.LeavingMember()] * COUNT_MAX))
    check_counts(pb.JoinGroupRequest())


def description(member: pb.GroupMember, count: int) -> pb.DescribeGroupResponse:
    return pb.DescribeGroupResponse(group_id="g", members=[member] * count)


def test_a_description_that_does_not_fit_comes_without_its_details() -> None:
    member = pb.GroupMember(member_id="m", metadata=bytes(500_000), assignment=bytes(100_000))
    small = description(member, 5)
    assert fit_in_message(small) is small
    assert small.members[0].metadata
    assert not small.details_omitted
    large = fit_in_message(description(member, 10))
    assert large.ByteSize() < MESSAGE_MAX_BYTES
    assert large.details_omitted
    assert {(each.member_id, each.metadata, each.assignment) for each in large.members} == {
        ("m", b"", b"")
    }


def test_ids_that_do_not_fit_are_told_with_their_size() -> None:
    with pytest.raises(ResourceExhaustedError) as caught:
        fit_in_message(
            description(pb.GroupMember(member_id="m" * 292, client_id="c" * 255), 10_000)
        )
    assert caught.value.reason is Reason.TOO_LARGE
    assert "10000 members" in caught.value.message
    assert len(caught.value.message) < 500
