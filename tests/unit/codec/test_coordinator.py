from collections.abc import Callable

import pytest
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from drover.api.coordinator.v1 import coordinator_service_pb2 as pb
from drover.codec import coordinator as codec
from drover.errors import InvalidArgumentError
from drover.model.group import (
    GroupDescription,
    GroupListing,
    GroupMember,
    GroupPage,
    GroupState,
    Joined,
    JoinedMember,
    LeaveOutcome,
    LeaveResult,
    LeavingMember,
    MemberAssignment,
    MemberIdRequired,
    OfferedProtocol,
    RebalanceInProgress,
    RetryJoin,
    Synced,
    WatchedGroup,
)
from drover.model.ids import TaskId, Term
from drover.model.offsets import CommitOutcome, CommitResult, CommittedOffset, TaskOffsets

text = st.text(max_size=20)
raw = st.binary(max_size=20)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
span_ms = st.integers(0, 10**12)
maybe_text = st.none() | text
tasks = st.builds(TaskId, text, int32)


def tuple_of(elements: st.SearchStrategy[object]) -> st.SearchStrategy[tuple[object, ...]]:
    return st.lists(elements, max_size=3).map(tuple)


joined_members = st.builds(JoinedMember, text, raw, maybe_text)
join_outcomes = st.one_of(
    st.builds(Joined, int32, text, text, text, text, tuple_of(joined_members), st.booleans()),
    st.builds(MemberIdRequired, text),
    st.builds(RetryJoin, text),
)
sync_outcomes = st.builds(Synced, raw, text, text) | st.builds(RebalanceInProgress)
members = st.builds(
    GroupMember,
    member_id=text,
    client_id=text,
    client_host=text,
    session_timeout_ms=span_ms,
    rebalance_timeout_ms=span_ms,
    metadata=raw,
    assignment=raw,
    instance_id=maybe_text,
)
groups = st.builds(
    GroupDescription,
    group_id=text,
    state=st.sampled_from(GroupState),
    protocol_type=text,
    protocol_name=text,
    generation=int32,
    leader_id=text,
    members=tuple_of(members),
    state_change_time_ms=span_ms,
)
pages = st.builds(
    GroupPage,
    tuple_of(st.builds(GroupListing, text, st.sampled_from(GroupState), text, int32, int32)),
    text,
    tuple_of(text),
)
offsets = st.builds(CommittedOffset, text, maybe_text, text)
task_offsets = st.builds(
    TaskOffsets,
    tasks,
    st.builds(Term, int32, int64),
    tuple_of(offsets),
    int64,
    text,
    st.booleans(),
)


@pytest.mark.parametrize(
    ("values", "encode", "decode"),
    [
        (st.builds(OfferedProtocol, text, raw), codec.encode_protocol, codec.decode_protocol),
        (join_outcomes, codec.encode_join_outcome, codec.decode_join_outcome),
        (sync_outcomes, codec.encode_sync_outcome, codec.decode_sync_outcome),
        (st.builds(MemberAssignment, text, raw), codec.encode_assignment, codec.decode_assignment),
        (
            st.builds(LeavingMember, text, maybe_text, text),
            codec.encode_leaving_member,
            codec.decode_leaving_member,
        ),
        (
            st.builds(LeaveResult, text, st.sampled_from(LeaveOutcome), maybe_text),
            codec.encode_leave_result,
            codec.decode_leave_result,
        ),
        (
            st.builds(
                WatchedGroup, st.booleans(), st.sampled_from(GroupState), int32, st.booleans()
            ),
            codec.encode_watched_group,
            codec.decode_watched_group,
        ),
        (groups, codec.encode_group_description, codec.decode_group_description),
        (pages, codec.encode_group_page, codec.decode_group_page),
        (task_offsets, codec.encode_task_offsets, codec.decode_task_offsets),
        (
            st.builds(CommitResult, tasks, st.sampled_from(CommitOutcome), text),
            codec.encode_commit_result,
            codec.decode_commit_result,
        ),
    ],
    ids=lambda argument: getattr(argument, "__name__", ""),
)
@given(data=st.data())
def test_a_value_comes_back_as_it_was(
    values: st.SearchStrategy[object],
    encode: Callable[[object], Message],
    decode: Callable[[Message], object],
    data: st.DataObject,
) -> None:
    value = data.draw(values)
    message = encode(value)
    assert decode(type(message).FromString(message.SerializeToString())) == value


def test_a_newer_server_may_say_what_this_version_does_not_know() -> None:
    result = pb.CommitOffsetsResponse.Result(outcome=99)  # type: ignore[arg-type]
    assert codec.decode_commit_result(result).outcome is CommitOutcome.INVALID
    watched = codec.decode_watched_group(
        pb.WatchGroupResponse(state=99, generation=7, rejoin_needed=True)  # type: ignore[arg-type]
    )
    assert watched == WatchedGroup(False, GroupState.DEAD, 7, True)
    group = pb.DescribeGroupResponse(group_id="g", state=99)  # type: ignore[arg-type]
    assert codec.decode_group_description(group).state is GroupState.DEAD


def test_a_leave_outcome_of_a_newer_coordinator_is_no_success() -> None:
    result = pb.LeaveGroupResponse.Result(member_id="m")
    result.outcome = 4712  # type: ignore[assignment]
    assert codec.decode_leave_result(result).outcome is not LeaveOutcome.LEFT


def test_an_answer_without_outcome_is_refused() -> None:
    with pytest.raises(InvalidArgumentError):
        codec.decode_join_outcome(pb.JoinGroupResponse())
    with pytest.raises(InvalidArgumentError):
        codec.decode_sync_outcome(pb.SyncGroupResponse())
