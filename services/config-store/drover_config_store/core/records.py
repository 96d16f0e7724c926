"""The records of the config log: keys and JSON values as Kafka Connect writes them.

A value has the fields of Connect's schema in Connect's order, without white space. The properties
of a config are sorted, so that equal configs have equal bytes.
"""

import base64
import binascii
from collections.abc import Iterable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from drover.log.connect_json import (
    INT32_MAX,
    UnknownKindError,
    UnreadableRecordError,
    dump,
    is_unicode,
    parse_key,
    parse_name,
    parse_object,
    parse_task_id,
)
from drover.model.config import ConfigMap, DeadLettersChanged, SessionKey, TargetState
from drover.model.ids import TaskId
from drover.model.times import TIME_MAX_MS

_CONNECTOR = "connector-"
_TASK = "task-"
_COMMIT = "commit-"
_TARGET_STATE = "target-state-"
_RESTART = "restart-connector-"
_TASK_COUNT = "tasks-fencing-"
_SESSION_KEY = "session-key"
_LOGGER = "logger-cluster-"
_DEAD_LETTERS = "dead-letters-"

#: Larger values are not written, and skipped when they are read.
VALUE_MAX_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ConnectorRecord:
    """A connector's config; a ``config`` of None is a tombstone."""

    name: str
    config: ConfigMap | None


@dataclass(slots=True)  # not frozen: most records are of this kind, and creation is much faster
class TaskRecord:
    """A task's config; a commit marker must follow to make it effective."""

    task: TaskId
    config: ConfigMap


@dataclass(frozen=True, slots=True)
class CommitRecord:
    """A commit marker: the task records before it form a set of ``task_count``."""

    connector: str
    task_count: int


@dataclass(frozen=True, slots=True)
class TargetStateRecord:
    """A connector's target state; a ``state`` of None is a tombstone."""

    name: str
    state: TargetState | None


@dataclass(frozen=True, slots=True)
class RestartRecord:
    """A request to restart a connector, its tasks, or both."""

    name: str
    only_failed: bool
    include_tasks: bool


@dataclass(frozen=True, slots=True)
class TaskCountRecord:
    """How many tasks of a connector may hold transactional ids; earlier tasks were fenced."""

    connector: str
    task_count: int


@dataclass(frozen=True, slots=True)
class SessionKeyRecord:
    """The key that signs calls between workers after this record."""

    session_key: SessionKey


@dataclass(frozen=True, slots=True)
class LoggerLevelRecord:
    """A logger's level on every worker."""

    logger: str
    level: str


@dataclass(frozen=True, slots=True)
class DeadLettersRecord:
    """The states of a connector's dead letters, and the change that led to them."""

    name: str
    states_json: str
    change: DeadLettersChanged


@dataclass(frozen=True, slots=True)
class IgnoredRecord:
    """An unreadable record; it was logged when it was read and has no effect."""


ConfigRecord = (
    ConnectorRecord
    | TaskRecord
    | CommitRecord
    | TargetStateRecord
    | RestartRecord
    | TaskCountRecord
    | SessionKeyRecord
    | LoggerLevelRecord
    | DeadLettersRecord
    | IgnoredRecord
)

IGNORED: Final[ConfigRecord] = IgnoredRecord()


def encode(record: ConfigRecord) -> tuple[bytes, bytes | None]:
    """Encode the key and value of ``record``; a value of None is a tombstone."""
    match record:
        case ConnectorRecord(name, config):
            return _key(_CONNECTOR, name), None if config is None else _properties(config)
        case TaskRecord(task, config):
            return _key(_TASK, str(task)), _properties(config)
        case CommitRecord(connector, task_count):
            return _key(_COMMIT, connector), dump({"tasks": task_count})
        case TargetStateRecord(name, state):
            return _key(_TARGET_STATE, name), None if state is None else _target_state(state)
        case RestartRecord(name, only_failed, include_tasks):
            value = {"include-tasks": include_tasks, "only-failed": only_failed}
            return _key(_RESTART, name), dump(value)
        case TaskCountRecord(connector, task_count):
            return _key(_TASK_COUNT, connector), dump({"task-count": task_count})
        case SessionKeyRecord(session_key):
            return _SESSION_KEY.encode(), _session_key(session_key)
        case LoggerLevelRecord(logger, level):
            return _key(_LOGGER, logger), dump({"level": level})
        case DeadLettersRecord(name, states_json, change):
            return _key(_DEAD_LETTERS, name), _dead_letters(states_json, change)
        case IgnoredRecord():
            raise ValueError("an ignored record cannot be written")


def decode(key: bytes, value: bytes | None) -> ConfigRecord:
    """Decode a key and value; as tolerant as Kafka Connect, so that its logs can be read.

    Raises:
        UnreadableRecordError: Not a record of the config log, or its value is too large.
    """
    text = parse_key(key)
    # the most frequent kinds come first, to load the log faster
    if text.startswith(_TASK):
        return TaskRecord(parse_task_id(text, _TASK), _config(_present(value)))
    if text.startswith(_CONNECTOR):
        name = parse_name(text, _CONNECTOR)
        return ConnectorRecord(name, None if value is None else _config(_present(value)))
    if text.startswith(_COMMIT):
        return CommitRecord(parse_name(text, _COMMIT), _read_count(_present(value), "tasks"))
    if text.startswith(_TARGET_STATE):
        name = parse_name(text, _TARGET_STATE)
        return TargetStateRecord(
            name, None if value is None else _read_target_state(_present(value))
        )
    if text.startswith(_RESTART):
        return _restart(parse_name(text, _RESTART), _present(value))
    if text.startswith(_TASK_COUNT):
        connector = parse_name(text, _TASK_COUNT)
        return TaskCountRecord(connector, _read_count(_present(value), "task-count"))
    if text.startswith(_LOGGER):
        logger = parse_name(text, _LOGGER, what="logger")
        return LoggerLevelRecord(logger, _read_level(_present(value)))
    if text.startswith(_DEAD_LETTERS):
        return _read_dead_letters(parse_name(text, _DEAD_LETTERS), _present(value))
    if text == _SESSION_KEY:
        return SessionKeyRecord(_read_session_key(_present(value)))
    raise UnknownKindError(text)


# writing


def _key(prefix: str, rest: str) -> bytes:
    return f"{prefix}{rest}".encode()


def _properties(config: ConfigMap) -> bytes:
    return dump({"properties": dict(sorted(config.items()))})


def _target_state(state: TargetState) -> bytes:
    # old workers, which do not know STOPPED, read the first field and pause
    old = TargetState.PAUSED if state is TargetState.STOPPED else state
    return dump({"state": old.value, "state.v2": state.value})


def _session_key(session_key: SessionKey) -> bytes:
    return dump(
        {
            "key": base64.b64encode(session_key.key).decode(),
            "algorithm": session_key.algorithm,
            "creation-timestamp": session_key.creation_ms,
        }
    )


def _dead_letters(states_json: str, change: DeadLettersChanged) -> bytes:
    return dump(
        {
            "states": states_json,
            "topic": change.topic,
            "ranges": change.ranges,
            "discarded": change.discarded,
            "reason": change.reason,
        }
    )


# reading


def _present(value: bytes | None) -> bytes:
    if value is None:
        raise UnreadableRecordError("the value is null, but this kind of record has no tombstone")
    if len(value) > VALUE_MAX_BYTES:
        raise UnreadableRecordError(
            f"the value takes {len(value)} bytes; the maximum is {VALUE_MAX_BYTES}"
        )
    return value


def _config(value: bytes) -> ConfigMap:
    properties = parse_object(value).get("properties")
    if not isinstance(properties, dict):
        raise UnreadableRecordError("the value has no properties")
    # check properties one by one only if needed, to load the log faster
    if b"\\u" in value or not _are_text(properties.values()):
        properties = _checked(properties)
    return MappingProxyType(properties)


def _are_text(settings: Iterable[object]) -> bool:
    try:
        "".join(settings)  # type: ignore[arg-type]  # checks the types faster than a loop
    except TypeError:
        return False
    return True


def _checked(properties: dict[str, Any]) -> dict[str, str]:
    """The properties with a value other than null."""
    for key, setting in properties.items():
        if not is_unicode(key) or (isinstance(setting, str) and not is_unicode(setting)):
            raise UnreadableRecordError(f"the property {key!r} is not valid Unicode")
        if not isinstance(setting, str) and setting is not None:
            raise UnreadableRecordError(f"the property {key!r} is not a string")
    return {key: setting for key, setting in properties.items() if setting is not None}


def _read_count(value: bytes, field: str) -> int:
    count = parse_object(value).get(field)
    if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count <= INT32_MAX:
        raise UnreadableRecordError(f"the value has no valid task count in {field!r}")
    return count


def _read_target_state(value: bytes) -> TargetState:
    fields = parse_object(value)
    for field in ("state.v2", "state"):
        state = fields.get(field)
        if isinstance(state, str) and state in TargetState.__members__:
            return TargetState(state)
    raise UnreadableRecordError("the value has no known target state")


def _restart(name: str, value: bytes) -> RestartRecord:
    fields = parse_object(value)
    return RestartRecord(
        name,
        only_failed=fields.get("only-failed") is True,
        include_tasks=fields.get("include-tasks") is True,
    )


def _read_level(value: bytes) -> str:
    level = parse_object(value).get("level")
    if not isinstance(level, str) or not level or not is_unicode(level):
        raise UnreadableRecordError("the value has no valid level")
    return level


def _read_dead_letters(name: str, value: bytes) -> DeadLettersRecord:
    fields = parse_object(value)
    texts = [fields.get(field) for field in ("states", "topic", "ranges", "reason")]
    if not all(isinstance(each, str) and is_unicode(each) for each in texts):
        raise UnreadableRecordError("the value has no valid states of dead letters")
    states, topic, ranges, reason = map(str, texts)
    discarded = fields.get("discarded") is True
    change = DeadLettersChanged(name, topic, ranges, discarded=discarded, reason=reason)
    return DeadLettersRecord(name, states, change)


def _read_session_key(value: bytes) -> SessionKey:
    """Parse a session key; errors leave the value out because it is a secret."""
    fields = parse_object(value)
    key, algorithm = fields.get("key"), fields.get("algorithm")
    created = fields.get("creation-timestamp")
    if not isinstance(key, str) or not isinstance(algorithm, str) or not is_unicode(algorithm):
        raise UnreadableRecordError("the value has no key and algorithm")
    if not isinstance(created, int) or isinstance(created, bool) or not 0 <= created <= TIME_MAX_MS:
        raise UnreadableRecordError("the value has no valid creation-timestamp")
    try:
        return SessionKey(base64.b64decode(key, validate=True), algorithm, created)
    except (binascii.Error, ValueError) as error:
        raise UnreadableRecordError("the key is not base64") from error
