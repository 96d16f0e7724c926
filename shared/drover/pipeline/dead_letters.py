"""Dead letters: failed records in their original form, with headers for the failure."""

from typing import Any

import pyarrow as pa

from drover.model.dead_letters import HEADER_PREFIX
from drover.pipeline.report import FailedRecord
from drover.record.batch import (
    HEADERS,
    HEADERS_TYPE,
    KEY,
    OFFSET,
    PARTITION,
    RAW,
    TIMESTAMP,
    TOPIC,
    VALUE,
    make_batch,
)
from drover.record.json import schemaless
from drover.record.schema import is_schemaless

#: Headers with the position of a record.
_PLACE = frozenset({"topic", "partition", "offset", "origin"})


def dead_letter(
    record: pa.RecordBatch,
    failure: FailedRecord,
    *,
    topic: str,
    connector: str,
    task: int,
    context_headers: bool,
) -> pa.RecordBatch:
    """The dead letter of a record: its original bytes if it has some, otherwise the value as JSON,
    because a source has no bytes.
    """
    headers = list(_first(record, HEADERS) or ())
    # if a dead letter fails again, its position stays and its cause is replaced
    replayed = any(each["key"] == f"{HEADER_PREFIX}topic" for each in headers)
    headers = [each for each in headers if not _is_cause(each["key"])]
    if context_headers:
        headers += [
            {"key": f"{HEADER_PREFIX}{name}", "value": str(value).encode(), "type": None}
            for name, value in _context(record, failure, connector, task).items()
            if value is not None and not (replayed and name in _PLACE)
        ]
    raw = _first(record, RAW)
    value = raw if raw is not None else as_bytes(record, VALUE)
    letter = make_batch(
        1,
        topic=pa.array([topic], pa.string()),
        key=pa.array([as_bytes(record, KEY)], pa.binary()),
        value=pa.array([value], pa.binary()),
        headers=pa.array([headers], HEADERS_TYPE),
    )
    if TIMESTAMP in record.schema.names:
        times = record.column(TIMESTAMP)
        if pa.types.is_timestamp(times.type):
            index = letter.schema.get_field_index(TIMESTAMP)
            letter = letter.set_column(
                index,
                letter.schema.field(index),
                times.cast(pa.timestamp("ms", tz="UTC"), safe=False),
            )
    return letter


def as_bytes(record: pa.RecordBatch, name: str) -> bytes | None:
    """A record's key or value as bytes."""
    index = record.schema.get_field_index(name)
    value = record.column(index)[0].as_py() if index >= 0 else None
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str) and (
        is_schemaless(record.schema.field(index)) or pa.types.is_string(record.column(index).type)
    ):
        return value.encode()
    try:
        return schemaless.dumps(value).encode()
    except (TypeError, ValueError):
        return str(value).encode()


def _is_cause(key: str) -> bool:
    name = key.removeprefix(HEADER_PREFIX)
    return name != key and name not in _PLACE


def _context(
    record: pa.RecordBatch, failure: FailedRecord, connector: str, task: int
) -> dict[str, object]:
    offset = _first(record, OFFSET)
    return {
        # unknown for sources, whose position is in Drover's own header
        "topic": _first(record, TOPIC),
        "partition": _first(record, PARTITION) if offset is not None else None,
        "offset": offset,
        "origin": failure.place if offset is None else None,
        "connector.name": connector,
        "task.id": task,
        "stage": failure.stage,
        "class.name": failure.step,
        "exception.class.name": failure.error_class,
        "exception.message": failure.message,
        "exception.stacktrace": failure.trace,
    }


def _first(record: pa.RecordBatch, name: str) -> Any:
    index = record.schema.get_field_index(name)
    return record.column(index)[0].as_py() if index >= 0 else None
