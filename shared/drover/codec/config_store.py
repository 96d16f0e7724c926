"""Codecs of the config store: connectors, task configs, snapshots, watches, history."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict

from drover.api.config_store.v1 import config_store_service_pb2 as pb
from drover.codec.common import (
    EnumCodec,
    decode_config,
    decode_task_id,
    decode_timestamp,
    encode_task_id,
    encode_timestamp,
    report_unknown_kind,
)
from drover.model.config import (
    ConfigChange,
    ConfigEvent,
    ConfigMap,
    ConfigSnapshot,
    ConfigVersion,
    ConnectorConfigRemoved,
    ConnectorConfigUpdated,
    ConnectorEntry,
    DeadLettersChanged,
    HistoryChange,
    HistoryEntry,
    LoggerLevelSet,
    RestartRequested,
    SessionKey,
    SessionKeyUpdated,
    TargetState,
    TargetStateChanged,
    TaskConfigsUpdated,
)
from drover.model.ids import TaskId
from drover.model.pages import PAGE_BYTES_MAX

TARGET_STATES = EnumCodec(pb.TargetState, "TARGET_STATE_", TargetState)


def encode_connector(entry: ConnectorEntry) -> pb.ConnectorEntry:
    """As proto."""
    return pb.ConnectorEntry(
        name=entry.name,
        config=entry.config or {},
        has_config=entry.config is not None,
        config_revision=entry.config_revision,
        target_state=TARGET_STATES.encode(entry.target_state),
        task_count=entry.task_count,
        task_config_generation=entry.task_config_generation,
        inconsistent=entry.inconsistent,
        applied_config=entry.applied_config or {},
        has_applied_config=entry.applied_config is not None,
        fenced_task_count=entry.fenced_task_count,
        fencing_pending=entry.fencing_pending,
    )


def decode_connector(message: pb.ConnectorEntry) -> ConnectorEntry:
    """As model."""
    return ConnectorEntry(
        name=message.name,
        config=decode_config(message.config) if message.has_config else None,
        config_revision=message.config_revision,
        target_state=_decode_target_state(message.target_state),
        task_count=message.task_count,
        task_config_generation=message.task_config_generation,
        inconsistent=message.inconsistent,
        applied_config=(
            decode_config(message.applied_config) if message.has_applied_config else None
        ),
        fenced_task_count=(
            message.fenced_task_count if message.HasField("fenced_task_count") else None
        ),
        fencing_pending=message.fencing_pending,
    )


def encode_session_key(session_key: SessionKey) -> pb.SessionKey:
    """As proto."""
    return pb.SessionKey(
        key=session_key.key,
        algorithm=session_key.algorithm,
        creation_time=encode_timestamp(session_key.creation_ms),
    )


def decode_session_key(message: pb.SessionKey) -> SessionKey:
    """As model."""
    return SessionKey(message.key, message.algorithm, decode_timestamp(message.creation_time))


def encode_task_config(task: TaskId, config: ConfigMap) -> pb.TaskConfigEntry:
    """As proto."""
    return pb.TaskConfigEntry(task=encode_task_id(task), config=config)


def decode_task_configs(messages: Iterable[pb.TaskConfigEntry]) -> dict[TaskId, ConfigMap]:
    """As model."""
    return {decode_task_id(message.task): decode_config(message.config) for message in messages}


def encode_event(event: ConfigEvent) -> pb.ConfigEvent:
    """As proto, in one message."""
    message = pb.ConfigEvent(offset=event.offset)
    match event.change:
        case ConnectorConfigUpdated(connector):
            message.connector_config_updated.connector.CopyFrom(encode_connector(connector))
        case ConnectorConfigRemoved(name):
            message.connector_config_removed.name = name
        case TaskConfigsUpdated(connector, task_configs):
            message.task_configs_updated.connector.CopyFrom(encode_connector(connector))
            message.task_configs_updated.task_configs.extend(_encode_task_configs(task_configs))
        case TargetStateChanged(name, target_state):
            message.target_state_changed.name = name
            message.target_state_changed.target_state = TARGET_STATES.encode(target_state)
        case RestartRequested(name, only_failed, include_tasks):
            message.restart_requested.name = name
            message.restart_requested.only_failed = only_failed
            message.restart_requested.include_tasks = include_tasks
        case SessionKeyUpdated(session_key):
            message.session_key_updated.CopyFrom(encode_session_key(session_key))
        case LoggerLevelSet(logger, level):
            message.logger_level_set.logger = logger
            message.logger_level_set.level = level
    return message


def decode_event(message: pb.ConfigEvent) -> ConfigEvent | None:
    """As model; None for a kind of event that this version does not know."""
    change: ConfigChange
    match message.WhichOneof("event"):
        case "connector_config_updated":
            change = ConnectorConfigUpdated(
                decode_connector(message.connector_config_updated.connector)
            )
        case "connector_config_removed":
            change = ConnectorConfigRemoved(message.connector_config_removed.name)
        case "task_configs_updated":
            change = TaskConfigsUpdated(
                decode_connector(message.task_configs_updated.connector),
                decode_task_configs(message.task_configs_updated.task_configs),
            )
        case "target_state_changed":
            changed = message.target_state_changed
            change = TargetStateChanged(changed.name, _decode_target_state(changed.target_state))
        case "restart_requested":
            restart = message.restart_requested
            change = RestartRequested(restart.name, restart.only_failed, restart.include_tasks)
        case "session_key_updated":
            change = SessionKeyUpdated(decode_session_key(message.session_key_updated))
        case "logger_level_set":
            change = LoggerLevelSet(message.logger_level_set.logger, message.logger_level_set.level)
        case _:
            report_unknown_kind(message)
            return None
    return ConfigEvent(message.offset, change)


def encode_snapshot(
    snapshot: ConfigSnapshot, chunk_max_bytes: int = PAGE_BYTES_MAX
) -> Iterable[pb.GetSnapshotResponse]:
    """The chunks of a snapshot; the last one is ``complete``.

    A chunk exceeds the limit only if it has a single entry.
    """

    def new_chunk() -> pb.GetSnapshotResponse:
        return pb.GetSnapshotResponse(end_offset=snapshot.end_offset, log_id=snapshot.log_id)

    chunk = new_chunk()
    if snapshot.session_key is not None:
        chunk.session_key.CopyFrom(encode_session_key(snapshot.session_key))
    for logger in sorted(snapshot.logger_levels):
        chunk.logger_levels.add(logger=logger, level=snapshot.logger_levels[logger])
    size = chunk.ByteSize()
    for name in sorted(snapshot.connectors):
        connector = encode_connector(snapshot.connectors[name])
        size += connector.ByteSize() + 8
        if size > chunk_max_bytes and (chunk.connectors or chunk.logger_levels):
            yield chunk
            chunk = new_chunk()
            size = connector.ByteSize() + 8
        chunk.connectors.append(connector)
    for task in sorted(snapshot.task_configs):
        entry = encode_task_config(task, snapshot.task_configs[task])
        size += entry.ByteSize() + 8
        if size > chunk_max_bytes and (chunk.connectors or chunk.task_configs):
            yield chunk
            chunk = new_chunk()
            size = entry.ByteSize() + 8
        chunk.task_configs.append(entry)
    chunk.complete = True
    yield chunk


def decode_snapshot(chunks: Iterable[pb.GetSnapshotResponse]) -> ConfigSnapshot:
    """Combine the chunks of a snapshot."""
    end_offset = 0
    log_id = ""
    session_key: SessionKey | None = None
    logger_levels: dict[str, str] = {}
    connectors: dict[str, ConnectorEntry] = {}
    task_configs: dict[TaskId, ConfigMap] = {}
    for chunk in chunks:
        end_offset, log_id = chunk.end_offset, chunk.log_id
        if chunk.HasField("session_key"):
            session_key = decode_session_key(chunk.session_key)
        logger_levels.update((each.logger, each.level) for each in chunk.logger_levels)
        connectors.update((c.name, decode_connector(c)) for c in chunk.connectors)
        task_configs.update(decode_task_configs(chunk.task_configs))
    return ConfigSnapshot(end_offset, connectors, task_configs, session_key, logger_levels, log_id)


def encode_watch_responses(
    events: Iterable[ConfigEvent],
    end_offset: int,
    *,
    created: bool = False,
    log_id: str = "",
    message_max_bytes: int = PAGE_BYTES_MAX,
) -> Iterable[pb.WatchConfigsResponse]:
    """The messages of a watch for some events; at least one.

    Each message except the last has the next message's first offset as its ``end_offset``. A set of
    task configs that exceeds the limit is split over several messages (``fragment``).
    """
    message = pb.WatchConfigsResponse(created=created, log_id=log_id)
    size = 0
    for event in events:
        for piece in _pieces(encode_event(event), message_max_bytes):
            piece_size = piece.ByteSize() + 8
            if message.events and size + piece_size > message_max_bytes:
                message.fragment = message.events[-1].offset == piece.offset
                message.end_offset = piece.offset
                yield message
                message, size = pb.WatchConfigsResponse(log_id=log_id), 0
            message.events.append(piece)
            size += piece_size
    message.end_offset = end_offset
    yield message


def join_fragments(
    pending: list[pb.ConfigEvent], message: pb.WatchConfigsResponse
) -> list[pb.ConfigEvent]:
    """Append the events of a message to the pending events of earlier fragments.

    The first event of ``message`` is merged into the last pending event if both are parts of the
    same set of task configs.
    """
    events = list(message.events)
    if pending and events and _same_set(pending[-1], events[0]):
        pending[-1].task_configs_updated.task_configs.extend(
            events.pop(0).task_configs_updated.task_configs
        )
    return [*pending, *events]


def encode_history_entry(entry: HistoryEntry) -> pb.ConnectorHistoryEntry:
    """As proto."""
    message = pb.ConnectorHistoryEntry(
        offset=entry.offset, write_time=encode_timestamp(entry.time_ms), author=entry.author
    )
    match entry.change:
        case ConfigVersion(revision, config):
            message.config_version.revision = revision
            message.config_version.config.update(config)
        case ConnectorConfigRemoved(name):
            message.connector_config_removed.name = name
        case TargetStateChanged(name, target_state):
            message.target_state_changed.name = name
            message.target_state_changed.target_state = TARGET_STATES.encode(target_state)
        case RestartRequested(name, only_failed, include_tasks):
            message.restart_requested.name = name
            message.restart_requested.only_failed = only_failed
            message.restart_requested.include_tasks = include_tasks
        case DeadLettersChanged() as change:
            message.dead_letter_change.CopyFrom(encode_dead_letter_change(change))
    return message


def encode_dead_letter_change(change: DeadLettersChanged) -> pb.DeadLetterChange:
    """As proto."""
    return pb.DeadLetterChange(**asdict(change))


def decode_dead_letter_change(message: pb.DeadLetterChange) -> DeadLettersChanged:
    """As model."""
    return DeadLettersChanged(
        message.name,
        message.topic,
        message.ranges,
        discarded=message.discarded,
        reason=message.reason,
    )


def decode_history_entry(message: pb.ConnectorHistoryEntry) -> HistoryEntry | None:
    """As model; None for a kind of change that this version does not know."""
    change: HistoryChange
    match message.WhichOneof("change"):
        case "config_version":
            version = message.config_version
            change = ConfigVersion(version.revision, decode_config(version.config))
        case "connector_config_removed":
            change = ConnectorConfigRemoved(message.connector_config_removed.name)
        case "target_state_changed":
            changed = message.target_state_changed
            change = TargetStateChanged(changed.name, _decode_target_state(changed.target_state))
        case "restart_requested":
            restart = message.restart_requested
            change = RestartRequested(restart.name, restart.only_failed, restart.include_tasks)
        case "dead_letter_change":
            change = decode_dead_letter_change(message.dead_letter_change)
        case _:
            report_unknown_kind(message)
            return None
    time_ms = decode_timestamp(message.write_time)
    return HistoryEntry(message.offset, time_ms, message.author, change)


def _same_set(first: pb.ConfigEvent, second: pb.ConfigEvent) -> bool:
    kind = "task_configs_updated"
    return (
        first.offset == second.offset
        and first.WhichOneof("event") == kind
        and second.WhichOneof("event") == kind
    )


def _pieces(event: pb.ConfigEvent, max_bytes: int) -> Iterable[pb.ConfigEvent]:
    if event.ByteSize() <= max_bytes or event.WhichOneof("event") != "task_configs_updated":
        yield event
        return
    entries = list(event.task_configs_updated.task_configs)
    del event.task_configs_updated.task_configs[:]
    base = event.ByteSize()
    piece, size = pb.ConfigEvent(), base
    piece.CopyFrom(event)
    for entry in entries:
        entry_size = entry.ByteSize() + 8
        if size + entry_size > max_bytes and piece.task_configs_updated.task_configs:
            yield piece
            piece, size = pb.ConfigEvent(), base
            piece.CopyFrom(event)
        piece.task_configs_updated.task_configs.append(entry)
        size += entry_size
    yield piece


def _decode_target_state(number: int) -> TargetState:
    """As model; PAUSED for an unknown state of a newer store, so the connector does not run."""
    return TARGET_STATES.decode_response(number, TargetState.PAUSED)


def _encode_task_configs(task_configs: Mapping[TaskId, ConfigMap]) -> list[pb.TaskConfigEntry]:
    return [encode_task_config(task, task_configs[task]) for task in sorted(task_configs)]
