"""Every value of a group's offsets survives encoding and decoding."""

from hypothesis import given
from hypothesis import strategies as st

from drover.api.coordinator.v1 import coordinator_service_pb2 as pb
from drover.codec import group_offsets as codec
from drover.model.offsets import (
    GroupCommit,
    GroupCommitOutcome,
    GroupOffset,
    GroupOffsetDeleted,
    GroupOffsetDeletion,
    GroupOffsetPage,
    TopicPartition,
)

text = st.text(max_size=20)
int32 = st.integers(-(2**31), 2**31 - 1)
moments = st.integers(0, 253_402_300_799_999)
partitions = st.builds(TopicPartition, text, int32)
offsets = st.builds(
    GroupOffset,
    topic=text,
    partition=int32,
    offset=st.integers(-(2**63), 2**63 - 1),
    leader_epoch=st.none() | int32,
    metadata=text,
    commit_time_ms=moments,
    expire_time_ms=st.none() | moments,
)


@given(value=partitions)
def test_partitions(value: TopicPartition) -> None:
    assert codec.decode_partition(codec.encode_partition(value)) == value


@given(value=offsets)
def test_offsets(value: GroupOffset) -> None:
    sent = pb.GroupOffset.FromString(codec.encode_group_offset(value).SerializeToString())
    assert codec.decode_group_offset(sent) == value


@given(
    outcomes=st.lists(st.tuples(partitions, st.sampled_from(GroupCommitOutcome)), max_size=3),
    rebalance_in_progress=st.booleans(),
)
def test_commits(
    outcomes: list[tuple[TopicPartition, GroupCommitOutcome]], rebalance_in_progress: bool
) -> None:
    value = GroupCommit(tuple(outcomes), rebalance_in_progress)
    assert codec.decode_group_commit(codec.encode_group_commit(value)) == value


@given(value=st.builds(GroupOffsetDeleted, partitions, st.sampled_from(GroupOffsetDeletion)))
def test_deletions(value: GroupOffsetDeleted) -> None:
    assert codec.decode_group_offset_deleted(codec.encode_group_offset_deleted(value)) == value


@given(page=st.lists(offsets, max_size=3), token=text)
def test_pages(page: list[GroupOffset], token: str) -> None:
    sent = codec.encode_group_offset_page(GroupOffsetPage(tuple(page), token))
    assert [codec.decode_group_offset(each) for each in sent.offsets] == page
    assert sent.next_page_token == token


def test_an_outcome_of_a_newer_coordinator_is_no_success() -> None:
    commit = pb.CommitGroupOffsetsResponse()
    commit.results.add(topic="t", partition=1).outcome = 4712  # type: ignore[assignment]
    ((_, outcome),) = codec.decode_group_commit(commit).outcomes
    assert outcome is not GroupCommitOutcome.COMMITTED
    deleted = pb.DeleteGroupOffsetsResponse.Result(topic="t", partition=1)
    deleted.outcome = 4712  # type: ignore[assignment]
    assert codec.decode_group_offset_deleted(deleted).outcome is not GroupOffsetDeletion.DELETED
