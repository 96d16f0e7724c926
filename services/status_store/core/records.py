"""The records of the status log: JSON as Kafka Connect writes it, keys and values alike."""

from dataclasses import dataclass
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
from drover.model.status import RunState, Status, StatusKey
from services.status_store.core.validate import with_capped_trace

_CONNECTOR = "status-connector-"
_TASK = "status-task-"
#: a kind that belongs to the log but means nothing to this version
_TOPIC = "status-topic-"


@dataclass(frozen=True, slots=True)
class StatusRecord:
    """A status; None removes it."""

    key: StatusKey
    status: Status | None


@dataclass(frozen=True, slots=True)
class IgnoredRecord:
    """A record without effect: of a kind that this version has no use for, or unreadable."""


AnyRecord = StatusRecord | IgnoredRecord

IGNORED: Final[AnyRecord] = IgnoredRecord()


def encode(record: AnyRecord) -> tuple[bytes, bytes | None]:
    """Key and value of ``record`` as they stand in the log; a value of None is a tombstone."""
    if isinstance(record, IgnoredRecord):
        raise ValueError("a record without effect is never written")
    prefix = _CONNECTOR if isinstance(record.key, str) else _TASK
    key = f"{prefix}{record.key}".encode()
    status = record.status
    if status is None:
        return key, None
    value = {
        "state": status.state.value,
        "trace": status.trace or None,
        "worker_id": status.worker_id,
        "generation": status.generation,
    }
    return key, dump(value)


def decode(key: bytes, value: bytes | None) -> AnyRecord:
    """The way back; a DESTROYED that was written as a value removes like a tombstone.

    Raises:
        UnreadableRecordError: Not a record of the status log.
    """
    text = parse_key(key)
    if text.startswith(_TOPIC):
        return IGNORED
    status_key = _status_key(text)
    if value is None:
        return StatusRecord(status_key, None)
    status = _status(status_key, value)
    return StatusRecord(status_key, None if status.state is RunState.DESTROYED else status)


def _status_key(text: str) -> StatusKey:
    if text.startswith(_CONNECTOR):
        return parse_name(text, _CONNECTOR)
    if text.startswith(_TASK):
        return parse_task_id(text, _TASK)
    raise UnreadableRecordError("the key is of no known kind")


def _status(key: StatusKey, value: bytes) -> Status:
    fields = parse_object(value)
    state, generation = fields.get("state"), fields.get("generation")
    if not isinstance(state, str) or state not in RunState.__members__:
        raise UnreadableRecordError("the value names no state")
    if not isinstance(generation, int) or not -INT32_MAX <= generation <= INT32_MAX:
        raise UnreadableRecordError("the value has no generation")
    return with_capped_trace(
        Status(
            key=key,
            state=RunState(state),
            worker_id=_optional_text(fields, "worker_id"),
            generation=int(generation),
            trace=_optional_text(fields, "trace"),
        )
    )


def _optional_text(fields: dict[str, Any], field: str) -> str:
    text = fields.get(field)
    if text is None:
        return ""
    if not isinstance(text, str) or not is_unicode(text):
        raise UnreadableRecordError(f"{field} is not text")
    return text
