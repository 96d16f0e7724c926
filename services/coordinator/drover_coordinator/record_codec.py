"""The group log's records: ``LogValue`` ⇄ the messages of storage/v1/group_record.proto."""

from functools import cache
from typing import TypeVar

import structlog
from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from drover.api.storage.v1 import group_record_pb2 as pb
from drover.errors import DataLossError, Reason
from drover.log.log import LogRecord, StoredRecord
from drover.model.group import OfferedProtocol
from drover.model.offsets import GroupOffset, TopicPartition
from drover.rpc.log_service import log_skipped_record
from drover_coordinator.core.groups.records import (
    FloorRecord,
    GroupMetadata,
    GroupRecord,
    LogValue,
    MemberRecord,
    OffsetRecord,
)

MessageT = TypeVar("MessageT", bound=Message)

_logger = structlog.get_logger(__name__)


def encode_record(record: LogValue) -> LogRecord:
    """Encode a record for the log."""
    match record:
        case GroupRecord(group_id, metadata):
            key = pb.GroupMetadataKey(group_id=group_id)
            return _log_record(key, None if metadata is None else _encode_metadata(metadata))
        case OffsetRecord(group_id, at, offset):
            name = pb.GroupOffsetKey(group_id=group_id, topic=at.topic, partition=at.partition)
            value = None if offset is None else _encode_offset(offset)
            return _log_record(pb.GroupMetadataKey(offset=name), value)
        case FloorRecord(generation):
            return _log_record(
                pb.GroupMetadataKey(generation_floor=pb.GenerationFloorKey()),
                pb.GenerationFloorValue(generation=generation),
            )


def decode_record(stored: StoredRecord) -> LogValue | None:
    """Decode a record; None for a kind that a later version added.

    Raises:
        DataLossError: LOG_CORRUPT, not a record of a group log.
    """
    raw = stored.record.value
    key = _parsed(pb.GroupMetadataKey(), stored.record.key, stored.offset)
    kind = key.WhichOneof("kind")
    if key.group_id and kind is None:
        if raw is None:
            return GroupRecord(key.group_id, None)
        metadata = _decode_metadata(_parsed(pb.GroupMetadataValue(), raw, stored.offset))
        return GroupRecord(key.group_id, metadata)
    if key.group_id:
        raise _corrupt(stored.offset, "has a key that is of two kinds")
    if kind == "offset":
        return _decode_offset(key.offset, raw, stored.offset)
    if kind == "generation_floor":
        floor = _parsed(pb.GenerationFloorValue(), raw or b"", stored.offset)
        return FloorRecord(floor.generation)
    unknown = UnknownFieldSet(key)
    kinds = tuple(sorted({unknown[index].field_number for index in range(len(unknown))}))
    if not kinds:
        raise _corrupt(stored.offset, "has a key without a group")
    _report_unknown(kinds)
    return None


def decode_shard_record(stored: StoredRecord) -> LogValue | None:
    """Decode a record; an unreadable one in a topic is logged and skipped.

    Other programs may write to a topic, but not to a log file.

    Raises:
        DataLossError: LOG_CORRUPT, the unreadable record is in a file.
    """
    try:
        return decode_record(stored)
    except DataLossError as error:
        if stored.place is None:
            raise
        log_skipped_record(stored, "coordinator", error.message)
        return None


@cache
def _report_unknown(kinds: tuple[int, ...]) -> None:
    """Log each unknown kind once."""
    _logger.warning(
        "records of an unknown kind are skipped; a newer version of Drover wrote them",
        key_fields=kinds,
    )


def _parsed(message: MessageT, content: bytes, offset: int) -> MessageT:
    try:
        message.ParseFromString(content)
    except DecodeError as error:
        raise _corrupt(offset, f"is not a record of a group log ({error})") from error
    return message


def _corrupt(offset: int, what: str) -> DataLossError:
    return DataLossError(Reason.LOG_CORRUPT, f"the record at offset {offset} {what}")


def _log_record(key: Message, value: Message | None) -> LogRecord:
    return LogRecord(
        key.SerializeToString(deterministic=True),
        None if value is None else value.SerializeToString(deterministic=True),
    )


def _encode_offset(offset: GroupOffset) -> pb.GroupOffsetValue:
    return pb.GroupOffsetValue(
        offset=offset.offset,
        leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
        commit_time_ms=offset.commit_time_ms,
        expire_time_ms=offset.expire_time_ms,
    )


def _decode_offset(key: pb.GroupOffsetKey, raw: bytes | None, offset: int) -> OffsetRecord:
    if not key.topic or key.partition < 0:
        raise _corrupt(offset, "has a key without a topic partition")
    at = TopicPartition(key.topic, key.partition)
    if raw is None:
        return OffsetRecord(key.group_id, at, None)
    value = _parsed(pb.GroupOffsetValue(), raw, offset)
    return OffsetRecord(
        key.group_id,
        at,
        GroupOffset(
            topic=at.topic,
            partition=at.partition,
            offset=value.offset,
            leader_epoch=value.leader_epoch if value.HasField("leader_epoch") else None,
            metadata=value.metadata,
            commit_time_ms=value.commit_time_ms,
            expire_time_ms=value.expire_time_ms if value.HasField("expire_time_ms") else None,
        ),
    )


def _encode_metadata(metadata: GroupMetadata) -> pb.GroupMetadataValue:
    return pb.GroupMetadataValue(
        protocol_type=metadata.protocol_type,
        generation=metadata.generation,
        protocol_name=metadata.protocol_name,
        leader_id=metadata.leader_id,
        state_timestamp_ms=metadata.state_timestamp_ms,
        members=[_encode_member(member) for member in metadata.members],
        assigned=metadata.assigned,
    )


def _encode_member(member: MemberRecord) -> pb.GroupMemberValue:
    return pb.GroupMemberValue(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=member.session_timeout_ms,
        protocols=[
            pb.GroupProtocolValue(name=each.name, metadata=each.metadata)
            for each in member.protocols
        ],
        assignment=member.assignment,
    )


def _decode_metadata(value: pb.GroupMetadataValue) -> GroupMetadata:
    return GroupMetadata(
        protocol_type=value.protocol_type,
        generation=value.generation,
        protocol_name=value.protocol_name,
        leader_id=value.leader_id,
        state_timestamp_ms=value.state_timestamp_ms,
        members=tuple(_decode_member(member) for member in value.members),
        assigned=value.assigned,
    )


def _decode_member(value: pb.GroupMemberValue) -> MemberRecord:
    return MemberRecord(
        member_id=value.member_id,
        instance_id=value.instance_id if value.HasField("instance_id") else None,
        client_id=value.client_id,
        client_host=value.client_host,
        session_timeout_ms=value.session_timeout_ms,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        protocols=tuple(OfferedProtocol(each.name, each.metadata) for each in value.protocols),
        assignment=value.assignment,
    )
