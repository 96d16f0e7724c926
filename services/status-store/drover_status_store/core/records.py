"""The records of the status log: keys and JSON values as Kafka Connect writes them.

Drover adds data that Kafka Connect ignores: the mark of a status, stored as the record's request
id, and the value fields ``counts``, ``failures`` and ``figures`` of a task.
"""

import dataclasses
from dataclasses import dataclass
from functools import lru_cache
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
from drover.model.status import (
    FIGURES_MAX,
    RecordCounts,
    RunState,
    Status,
    StatusKey,
    TopicKey,
    TopicStatus,
    figure_fault,
)
from drover.model.times import TIME_MAX_MS
from drover_status_store.core.failure_fields import failure_fields, parse_failures
from drover_status_store.core.validate import COUNT_MAX, with_capped_trace

_CONNECTOR = "status-connector-"
_TASK = "status-task-"
_TOPIC = "status-topic-"
#: separates topic and connector; topic names cannot contain a colon
_TOPIC_OF = ":connector-"
#: encodes the empty writer
_NO_WRITER = "-"
_SAFE = "safe"
_STATES = {state.value: state for state in RunState}


@dataclass(frozen=True, slots=True)
class Mark:
    """The request that wrote a status: its writer, its number, and whether the write was ``safe``.

    A safe write is ignored if it is stale. Records of other programs have no mark.
    """

    writer: str = ""
    number: int = 0
    safe: bool = False


@dataclass(frozen=True, slots=True)
class StatusRecord:
    """A status of a key; a ``status`` of None is a tombstone."""

    key: StatusKey
    status: Status | None
    mark: Mark | None = None


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """A topic that a connector uses; a ``status`` of None is a tombstone."""

    key: TopicKey
    status: TopicStatus | None


@dataclass(frozen=True, slots=True)
class IgnoredRecord:
    """An unreadable record; it was logged when it was read and has no effect."""


AnyRecord = StatusRecord | TopicRecord | IgnoredRecord

IGNORED: Final[AnyRecord] = IgnoredRecord()


def encode(record: AnyRecord) -> tuple[bytes, bytes | None]:
    """Encode the key and value of ``record``; a value of None is a tombstone."""
    if isinstance(record, IgnoredRecord):
        raise ValueError("an ignored record cannot be written")
    if isinstance(record, TopicRecord):
        key = f"{_TOPIC}{record.key.topic}{_TOPIC_OF}{record.key.connector}"
        return key.encode(), None if record.status is None else _topic_value(record.status)
    prefix = _CONNECTOR if isinstance(record.key, str) else _TASK
    value = None if record.status is None else _status_value(record.status)
    return f"{prefix}{record.key}".encode(), value


def decode(key: bytes, value: bytes | None) -> AnyRecord:
    """Decode a key and value; a value with the state DESTROYED is read as a tombstone.

    Raises:
        UnreadableRecordError: Not a record of the status log.
    """
    text = parse_key(key)
    if text.startswith(_TOPIC):
        topic_key = _topic_key(text)
        return TopicRecord(topic_key, None if value is None else _topic(topic_key, value))
    status_key = _status_key(text)
    if value is None:
        return StatusRecord(status_key, None)
    status = _status(status_key, value)
    return StatusRecord(status_key, None if status.state is RunState.DESTROYED else status)


def mark_text(record: AnyRecord) -> str:
    """Encode the mark of ``record`` as a request id; empty without a mark."""
    mark = record.mark if isinstance(record, StatusRecord) else None
    return "" if mark is None else _text_of(mark)


def with_mark(record: AnyRecord, text: str) -> AnyRecord:
    """``record`` with the mark parsed from its request id; without one if it is not a mark."""
    if not text or not isinstance(record, StatusRecord):
        return record
    return StatusRecord(record.key, record.status, _mark(text))


def _status_key(text: str) -> StatusKey:
    if text.startswith(_CONNECTOR):
        return parse_name(text, _CONNECTOR)
    if text.startswith(_TASK):
        return parse_task_id(text, _TASK)
    raise UnknownKindError(text)


def _status_value(status: Status) -> bytes:
    value: dict[str, object] = {
        "state": status.state.value,
        "trace": status.trace or None,
        "worker_id": status.worker_id,
        "generation": status.generation,
        "version": status.version or None,
    }
    if status.counts is not None:
        value["counts"] = dataclasses.asdict(status.counts)
    if status.failures is not None:
        value["failures"] = failure_fields(status.failures)
    if status.figures:
        value["figures"] = dict(sorted(status.figures.items()))
    return dump(value)


def _status(key: StatusKey, value: bytes) -> Status:
    fields = parse_object(value)
    text = fields.get("state")
    state = _STATES.get(text) if isinstance(text, str) else None
    if state is None:
        raise UnreadableRecordError("the value has no known state")
    return with_capped_trace(
        Status(
            key=key,
            state=state,
            worker_id=_optional_text(fields, "worker_id"),
            generation=_whole_number(fields, "generation", -INT32_MAX, INT32_MAX),
            trace=_optional_text(fields, "trace"),
            version=_optional_text(fields, "version"),
            counts=_counts(fields.get("counts")),
            failures=parse_failures(fields.get("failures")),
            figures=_figures(fields.get("figures")),
        )
    )


def _counts(fields: object) -> RecordCounts | None:
    """Parse a task's counts; None if they are malformed, as Kafka Connect ignores this field."""
    if not isinstance(fields, dict):
        return None
    counts = {each.name: fields.get(each.name, 0) for each in dataclasses.fields(RecordCounts)}
    return RecordCounts(**counts) if all(map(_is_count, counts.values())) else None


def _figures(fields: object) -> dict[str, int]:
    """Parse a task's figures; empty if they are malformed, as Kafka Connect ignores this field."""
    if not isinstance(fields, dict) or len(fields) > FIGURES_MAX:
        return {}
    return {} if any(figure_fault(*each) for each in fields.items()) else fields


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= COUNT_MAX


def _topic_key(text: str) -> TopicKey:
    topic, separator, connector = text[len(_TOPIC) :].partition(":")
    suffix, prefix = separator + connector, _TOPIC_OF
    if not topic or not suffix.startswith(prefix) or suffix == prefix:
        raise UnreadableRecordError("the key does not name a topic and a connector")
    return TopicKey(suffix[len(prefix) :], topic)


def _topic_value(status: TopicStatus) -> bytes:
    return dump(
        {
            "topic": {
                "name": status.key.topic,
                "connector": status.key.connector,
                "task": status.task,
                "discoverTimestamp": status.discovered_ms,
            }
        }
    )


def _topic(key: TopicKey, value: bytes) -> TopicStatus:
    fields = parse_object(value).get("topic")
    if not isinstance(fields, dict):
        raise UnreadableRecordError("the value has no topic object")
    if (fields.get("name"), fields.get("connector")) != (key.topic, key.connector):
        raise UnreadableRecordError("the value names another topic or connector than the key")
    return TopicStatus(
        key,
        _whole_number(fields, "task", 0, INT32_MAX),
        _whole_number(fields, "discoverTimestamp", 0, TIME_MAX_MS),
    )


# cached: the records of one request share their mark


@lru_cache(maxsize=256)
def _text_of(mark: Mark) -> str:
    return "/".join([mark.writer or _NO_WRITER, str(mark.number), *([_SAFE] if mark.safe else [])])


@lru_cache(maxsize=256)
def _mark(text: str) -> Mark | None:
    writer, *rest = text.split("/")
    number = rest[0] if rest else ""
    if not writer or not (number.isascii() and number.isdigit() and len(number) <= 19):
        return None
    return Mark("" if writer == _NO_WRITER else writer, int(number), _SAFE in rest[1:])


def _whole_number(fields: dict[str, Any], field: str, lowest: int, highest: int) -> int:
    number = fields.get(field)
    if isinstance(number, int) and not isinstance(number, bool) and lowest <= number <= highest:
        return number
    raise UnreadableRecordError(f"{field} is not a number from {lowest} to {highest}")


def _optional_text(fields: dict[str, Any], field: str) -> str:
    text = fields.get(field)
    if text is None:
        return ""
    if not isinstance(text, str) or not is_unicode(text):
        raise UnreadableRecordError(f"{field} is not text")
    return text
