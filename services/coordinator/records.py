"""The group log's records: ``GroupRecord`` ⇄ the messages of storage/v1/group_record.proto."""

from google.protobuf.message import DecodeError

from drover.api.storage.v1 import group_record_pb2 as pb
from drover.errors import DataLossError, Reason
from drover.log.log import LogRecord, StoredRecord
from drover.model.group import OfferedProtocol
from services.coordinator.core.values import GroupMetadata, GroupRecord, MemberRecord


def encode_record(record: GroupRecord) -> LogRecord:
    """A group's record as the log keeps it."""
    key = pb.GroupMetadataKey(group_id=record.group_id).SerializeToString(deterministic=True)
    if record.metadata is None:
        return LogRecord(key, None)
    value = _encode_metadata(record.metadata)
    return LogRecord(key, value.SerializeToString(deterministic=True))


def decode_record(stored: StoredRecord) -> GroupRecord:
    """The way back.

    Raises:
        DataLossError: LOG_CORRUPT, the bytes are no group record.
    """
    key = pb.GroupMetadataKey()
    value = pb.GroupMetadataValue()
    try:
        key.ParseFromString(stored.record.key)
        if stored.record.value is not None:
            value.ParseFromString(stored.record.value)
    except DecodeError as error:
        raise DataLossError(
            Reason.LOG_CORRUPT, f"no group record at offset {stored.offset} ({error})"
        ) from error
    if not key.group_id:
        raise DataLossError(
            Reason.LOG_CORRUPT, f"the record at offset {stored.offset} names no group"
        )
    if stored.record.value is None:
        return GroupRecord(key.group_id, None)
    return GroupRecord(key.group_id, _decode_metadata(value))


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
