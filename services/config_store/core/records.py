"""The records of the config log: JSON as Kafka Connect writes it, keys and values alike.

A value has the fields of Connect's schema in Connect's order, no white space; the properties of a
config are sorted, so that equal configs are equal bytes.
"""

from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from drover.log.connect_json import (
    INT32_MAX,
    UnreadableRecordError,
    dump,
    is_unicode,
    parse_key,
    parse_name,
    parse_object,
    parse_task_id,
)
from drover.model.config import ConfigMap, TargetState
from drover.model.ids import TaskId

_CONNECTOR = "connector-"
_TASK = "task-"
_COMMIT = "commit-"
_TARGET_STATE = "target-state-"
_RESTART = "restart-connector-"
#: kinds that belong to the log but mean nothing to this version
_TASK_COUNT = "tasks-fencing-"
_SESSION_KEY = "session-key"
_LOGGER = "logger-cluster-"

_TEXT: Final = frozenset({str})


@dataclass(frozen=True, slots=True)
class ConnectorRecord:
    """A connector's config; None removes it."""

    name: str
    config: ConfigMap | None


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """One task's config, which counts once a commit marker follows."""

    task: TaskId
    config: ConfigMap


@dataclass(frozen=True, slots=True)
class CommitRecord:
    """The task configs written before are a set of ``task_count``."""

    connector: str
    task_count: int


@dataclass(frozen=True, slots=True)
class TargetStateRecord:
    """What a connector should be doing; None forgets it."""

    name: str
    state: TargetState | None


@dataclass(frozen=True, slots=True)
class RestartRecord:
    """A connector should be restarted."""

    name: str
    only_failed: bool
    include_tasks: bool


@dataclass(frozen=True, slots=True)
class IgnoredRecord:
    """A record without effect: of a kind that this version has no use for, or unreadable."""


ConfigRecord = (
    ConnectorRecord | TaskRecord | CommitRecord | TargetStateRecord | RestartRecord | IgnoredRecord
)

IGNORED: Final[ConfigRecord] = IgnoredRecord()


def encode(record: ConfigRecord) -> tuple[bytes, bytes | None]:
    """Key and value of ``record`` as they stand in the log; a value of None is a tombstone."""
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
        case IgnoredRecord():
            raise ValueError("a record without effect is never written")


def decode(key: bytes, value: bytes | None) -> ConfigRecord:
    """The way back; tolerant where Kafka Connect is, so that its logs can be read.

    Raises:
        UnreadableRecordError: Not a record of the config log.
    """
    text = parse_key(key)
    if text.startswith(_CONNECTOR):
        name = parse_name(text, _CONNECTOR)
        return ConnectorRecord(name, None if value is None else _config(value))
    if text.startswith(_TASK):
        task = parse_task_id(text, _TASK)
        return IGNORED if value is None else TaskRecord(task, _config(value))
    if text.startswith(_COMMIT):
        connector = parse_name(text, _COMMIT)
        return IGNORED if value is None else CommitRecord(connector, _task_count(value))
    if text.startswith(_TARGET_STATE):
        name = parse_name(text, _TARGET_STATE)
        return TargetStateRecord(name, None if value is None else _read_target_state(value))
    if text.startswith(_RESTART):
        name = parse_name(text, _RESTART)
        return IGNORED if value is None else _restart(name, value)
    if text.startswith((_TASK_COUNT, _LOGGER)) or text == _SESSION_KEY:
        return IGNORED
    raise UnreadableRecordError("the key is of no known kind")


# writing


def _key(prefix: str, rest: str) -> bytes:
    return f"{prefix}{rest}".encode()


def _properties(config: ConfigMap) -> bytes:
    return dump({"properties": dict(sorted(config.items()))})


def _target_state(state: TargetState) -> bytes:
    # workers that do not know STOPPED read the first field, and pause
    old = TargetState.PAUSED if state is TargetState.STOPPED else state
    return dump({"state": old.value, "state.v2": state.value})


# reading


def _config(value: bytes) -> ConfigMap:
    properties = parse_object(value).get("properties")
    if not isinstance(properties, dict):
        raise UnreadableRecordError("the value has no properties")
    # a log is read at every start: what is plainly good is not looked at one by one
    if b"\\u" in value or not _TEXT.issuperset(map(type, properties.values())):
        properties = _checked(properties)
    return MappingProxyType(properties)


def _checked(properties: dict[str, Any]) -> dict[str, str]:
    """The settings that are there; a null counts as absent."""
    for key, setting in properties.items():
        if not is_unicode(key) or (isinstance(setting, str) and not is_unicode(setting)):
            raise UnreadableRecordError(f"the property {key!r} holds half a character")
        if not isinstance(setting, str) and setting is not None:
            raise UnreadableRecordError(f"the property {key!r} is not a string")
    return {key: setting for key, setting in properties.items() if setting is not None}


def _task_count(value: bytes) -> int:
    count = parse_object(value).get("tasks")
    if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count <= INT32_MAX:
        raise UnreadableRecordError("the value has no number of tasks")
    return count


def _read_target_state(value: bytes) -> TargetState:
    fields = parse_object(value)
    for field in ("state.v2", "state"):
        state = fields.get(field)
        if isinstance(state, str) and state in TargetState.__members__:
            return TargetState(state)
    raise UnreadableRecordError("the value names no target state")


def _restart(name: str, value: bytes) -> RestartRecord:
    fields = parse_object(value)
    return RestartRecord(
        name,
        only_failed=fields.get("only-failed") is True,
        include_tasks=fields.get("include-tasks") is True,
    )
