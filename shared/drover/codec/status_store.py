"""Codecs of the status store: statuses, active topics, snapshots, watches."""

from collections.abc import Iterable

from drover.api.status_store.v1 import status_store_service_pb2 as pb
from drover.codec.common import (
    EnumCodec,
    decode_counts,
    decode_figures,
    decode_task_id,
    decode_timestamp,
    encode_counts,
    encode_figures,
    encode_task_id,
    encode_timestamp,
    invalid_field,
    report_unknown_kind,
)
from drover.codec.failures import decode_failures, encode_failures
from drover.model.pages import PAGE_BYTES_MAX
from drover.model.status import (
    RunState,
    Status,
    StatusChange,
    StatusEvent,
    StatusKey,
    StatusSnapshot,
    StatusWrite,
    TopicEvent,
    TopicKey,
    TopicStatus,
)

RUN_STATES = EnumCodec(pb.RunState, "RUN_STATE_", RunState)


def encode_key(key: StatusKey) -> pb.StatusKey:
    """As proto."""
    if isinstance(key, str):
        return pb.StatusKey(connector=key)
    return pb.StatusKey(task=encode_task_id(key))


def decode_key(message: pb.StatusKey, field: str = "key") -> StatusKey:
    """As model."""
    match message.WhichOneof("key"):
        case "connector":
            return message.connector
        case "task":
            return decode_task_id(message.task)
        case _:
            raise invalid_field(field, "not set")


def encode_status(status: Status) -> pb.StatusEntry:
    """As proto."""
    return pb.StatusEntry(
        key=encode_key(status.key),
        state=RUN_STATES.encode(status.state),
        worker_id=status.worker_id,
        generation=status.generation,
        trace=status.trace,
        version=status.version,
        counts=None if status.counts is None else encode_counts(status.counts),
        failures=None if status.failures is None else encode_failures(status.failures),
        figures=encode_figures(status.figures),
    )


def decode_status(message: pb.StatusEntry, field: str = "status") -> Status:
    """As model."""
    key = decode_key(message.key, f"{field}.key")
    return _status(message, key, RUN_STATES.decode(message.state, f"{field}.state"))


def _status(message: pb.StatusEntry, key: StatusKey, state: RunState) -> Status:
    return Status(
        key=key,
        state=state,
        worker_id=message.worker_id,
        generation=message.generation,
        trace=message.trace,
        version=message.version,
        counts=decode_counts(message.counts) if message.HasField("counts") else None,
        failures=decode_failures(message.failures) if message.HasField("failures") else None,
        figures=decode_figures(message.figures),
    )


def encode_write(write: StatusWrite) -> pb.StatusWrite:
    """As proto."""
    return pb.StatusWrite(status=encode_status(write.status), safe=write.safe)


def decode_write(message: pb.StatusWrite, field: str = "write") -> StatusWrite:
    """As model."""
    return StatusWrite(decode_status(message.status, f"{field}.status"), message.safe)


def encode_topic(status: TopicStatus) -> pb.TopicStatus:
    """As proto."""
    return pb.TopicStatus(
        key=_encode_topic_key(status.key),
        task=status.task,
        discover_time=encode_timestamp(status.discovered_ms),
    )


def decode_topic(message: pb.TopicStatus) -> TopicStatus:
    """As model."""
    return TopicStatus(
        _decode_topic_key(message.key), message.task, decode_timestamp(message.discover_time)
    )


def _encode_topic_key(key: TopicKey) -> pb.TopicKey:
    return pb.TopicKey(connector=key.connector, topic=key.topic)


def _decode_topic_key(message: pb.TopicKey) -> TopicKey:
    return TopicKey(message.connector, message.topic)


def encode_event(event: StatusChange) -> pb.StatusEvent:
    """As proto."""
    message = pb.StatusEvent(offset=event.offset)
    if isinstance(event, TopicEvent):
        if event.status is None:
            message.topic_removed.CopyFrom(_encode_topic_key(event.key))
        else:
            message.topic_updated.CopyFrom(encode_topic(event.status))
    elif event.status is None:
        message.removed.CopyFrom(encode_key(event.key))
    else:
        message.updated.CopyFrom(encode_status(event.status))
    return message


def decode_event(message: pb.StatusEvent) -> StatusChange | None:
    """As model; None for an unknown kind of event or key."""
    match message.WhichOneof("event"):
        case "updated":
            key, status = _find_key(message.updated.key), _find_status(message.updated)
        case "removed":
            key, status = _find_key(message.removed), None
        case "topic_updated":
            topic = decode_topic(message.topic_updated)
            return TopicEvent(message.offset, topic.key, topic)
        case "topic_removed":
            return TopicEvent(message.offset, _decode_topic_key(message.topic_removed), None)
        case _:
            report_unknown_kind(message)
            return None
    return None if key is None else StatusEvent(message.offset, key, status)


def encode_snapshot(
    snapshot: StatusSnapshot, chunk_max_bytes: int = PAGE_BYTES_MAX
) -> Iterable[pb.GetSnapshotResponse]:
    """The chunks of a snapshot; the last one is ``complete``.

    A chunk exceeds the limit only if it has a single entry.
    """
    chunk = pb.GetSnapshotResponse(end_offset=snapshot.end_offset, log_id=snapshot.log_id)
    size = 0
    for entry in _entries(snapshot):
        entry_size = entry.ByteSize() + 8
        if size and size + entry_size > chunk_max_bytes:
            yield chunk
            chunk = pb.GetSnapshotResponse(end_offset=snapshot.end_offset, log_id=snapshot.log_id)
            size = 0
        size += entry_size
        if isinstance(entry, pb.TopicStatus):
            chunk.topics.append(entry)
        else:
            chunk.statuses.append(entry)
    chunk.complete = True
    yield chunk


def _entries(snapshot: StatusSnapshot) -> Iterable[pb.StatusEntry | pb.TopicStatus]:
    for key in sorted(snapshot.statuses, key=_by_name):
        yield encode_status(snapshot.statuses[key])
    for topic in sorted(snapshot.topics):
        yield encode_topic(snapshot.topics[topic])


def decode_snapshot(chunks: Iterable[pb.GetSnapshotResponse]) -> StatusSnapshot:
    """Combine the chunks of a snapshot."""
    end_offset, log_id = 0, ""
    statuses: dict[StatusKey, Status] = {}
    topics: dict[TopicKey, TopicStatus] = {}
    for chunk in chunks:
        end_offset, log_id = chunk.end_offset, chunk.log_id
        for entry in chunk.statuses:
            status = _find_status(entry)
            if status is not None:
                statuses[status.key] = status
        for message in chunk.topics:
            topic = decode_topic(message)
            topics[topic.key] = topic
    return StatusSnapshot(end_offset, statuses, topics, log_id)


def _find_status(message: pb.StatusEntry) -> Status | None:
    """As model; None for an unknown state or kind of key."""
    key = _find_key(message.key)
    state = RUN_STATES.decode_response(message.state, None)
    if key is None or state is None:
        return None
    return _status(message, key, state)


def _find_key(message: pb.StatusKey) -> StatusKey | None:
    """As model; None for an unknown kind of key."""
    if message.WhichOneof("key") is None:
        report_unknown_kind(message)
        return None
    return decode_key(message)


def encode_watch_responses(
    events: Iterable[StatusChange],
    end_offset: int,
    *,
    created: bool = False,
    log_id: str = "",
    message_max_bytes: int = PAGE_BYTES_MAX,
) -> Iterable[pb.WatchStatusesResponse]:
    """The messages of a watch for some events; at least one.

    A message has all events of an offset. Each message except the last has the next message's first
    offset as its ``end_offset``.
    """
    message = pb.WatchStatusesResponse(created=created, log_id=log_id)
    size = 0
    for event in events:
        piece = encode_event(event)
        piece_size = piece.ByteSize() + 8
        fits = size + piece_size <= message_max_bytes
        if message.events and not fits and message.events[-1].offset != event.offset:
            message.end_offset = event.offset
            yield message
            message, size = pb.WatchStatusesResponse(log_id=log_id), 0
        message.events.append(piece)
        size += piece_size
    message.end_offset = end_offset
    yield message


def _by_name(key: StatusKey) -> tuple[bool, str, int]:
    if isinstance(key, str):
        return (False, key, -1)
    return (True, key.connector, key.task)
