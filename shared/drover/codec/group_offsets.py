"""Codecs of a group's committed positions, as Kafka consumers commit them."""

from drover.api.coordinator.v1 import coordinator_service_pb2 as pb
from drover.codec.common import EnumCodec, decode_timestamp, encode_timestamp
from drover.model.offsets import (
    GroupCommit,
    GroupCommitOutcome,
    GroupOffset,
    GroupOffsetDeleted,
    GroupOffsetDeletion,
    GroupOffsetPage,
    TopicPartition,
)

GROUP_COMMIT_OUTCOMES = EnumCodec(
    pb.GroupCommitOutcome, "GROUP_COMMIT_OUTCOME_", GroupCommitOutcome
)
GROUP_OFFSET_DELETIONS = EnumCodec(
    pb.GroupOffsetDeletion, "GROUP_OFFSET_DELETION_", GroupOffsetDeletion
)


def encode_partition(partition: TopicPartition) -> pb.TopicPartition:
    """As proto."""
    return pb.TopicPartition(topic=partition.topic, partition=partition.partition)


def decode_partition(message: pb.TopicPartition) -> TopicPartition:
    """As model."""
    return TopicPartition(message.topic, message.partition)


def encode_group_offset(offset: GroupOffset) -> pb.GroupOffset:
    """As proto; a commit time of 0 stays unset."""
    expire_time_ms = offset.expire_time_ms
    return pb.GroupOffset(
        topic=offset.topic,
        partition=offset.partition,
        offset=offset.offset,
        leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
        commit_time=encode_timestamp(offset.commit_time_ms) if offset.commit_time_ms else None,
        expire_time=None if expire_time_ms is None else encode_timestamp(expire_time_ms),
    )


def decode_group_offset(message: pb.GroupOffset) -> GroupOffset:
    """As model."""
    has_expire_time = message.HasField("expire_time")
    return GroupOffset(
        topic=message.topic,
        partition=message.partition,
        offset=message.offset,
        leader_epoch=message.leader_epoch if message.HasField("leader_epoch") else None,
        metadata=message.metadata,
        commit_time_ms=decode_timestamp(message.commit_time),
        expire_time_ms=decode_timestamp(message.expire_time) if has_expire_time else None,
    )


def encode_group_commit(commit: GroupCommit) -> pb.CommitGroupOffsetsResponse:
    """As proto."""
    return pb.CommitGroupOffsetsResponse(
        results=[
            pb.CommitGroupOffsetsResponse.Result(
                topic=at.topic,
                partition=at.partition,
                outcome=GROUP_COMMIT_OUTCOMES.encode(outcome),
            )
            for at, outcome in commit.outcomes
        ],
        rebalance_in_progress=commit.rebalance_in_progress,
    )


def decode_group_commit(message: pb.CommitGroupOffsetsResponse) -> GroupCommit:
    """As model; an unknown outcome is decoded as a failure."""
    return GroupCommit(
        tuple(
            (
                TopicPartition(result.topic, result.partition),
                GROUP_COMMIT_OUTCOMES.decode_response(
                    result.outcome, GroupCommitOutcome.METADATA_TOO_LARGE
                ),
            )
            for result in message.results
        ),
        message.rebalance_in_progress,
    )


def encode_group_offset_page(page: GroupOffsetPage) -> pb.FetchGroupOffsetsResponse:
    """As proto."""
    return pb.FetchGroupOffsetsResponse(
        offsets=[encode_group_offset(offset) for offset in page.offsets],
        next_page_token=page.next_page_token,
    )


def encode_group_offset_deleted(
    deleted: GroupOffsetDeleted,
) -> pb.DeleteGroupOffsetsResponse.Result:
    """As proto."""
    return pb.DeleteGroupOffsetsResponse.Result(
        topic=deleted.partition.topic,
        partition=deleted.partition.partition,
        outcome=GROUP_OFFSET_DELETIONS.encode(deleted.outcome),
    )


def decode_group_offset_deleted(
    message: pb.DeleteGroupOffsetsResponse.Result,
) -> GroupOffsetDeleted:
    """As model; an unknown outcome is decoded as a failure."""
    return GroupOffsetDeleted(
        TopicPartition(message.topic, message.partition),
        GROUP_OFFSET_DELETIONS.decode_response(
            message.outcome, GroupOffsetDeletion.GROUP_SUBSCRIBED_TO_TOPIC
        ),
    )
