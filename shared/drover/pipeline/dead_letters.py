"""Dead letters: failed records in their original form, with headers for the failure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from drover.model.dead_letters import (
    CUT_HEADERS,
    HEADER_PREFIX,
    HEADERS_CUT_HEADER,
    KEY_CUT_HEADER,
    VALUE_CUT_HEADER,
)
from drover.pipeline.report import FailedRecord
from drover.record.arrow import in_unit
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

_TRACE = f"{HEADER_PREFIX}exception.stacktrace"
#: The lengths of a header's name and value, as variable-length numbers.
_HEADER_BYTES = 8
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
    bytes_max: int | None = None,
) -> pa.RecordBatch | None:
    """The dead letter of a record: its original bytes if it has some, otherwise the value as JSON,
    because a source has no bytes. A dead letter above ``bytes_max`` is cut; None if even then it is
    larger.
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
    parts = Parts(as_bytes(record, KEY), value, headers)
    if bytes_max is not None:
        parts = parts.cut_to(bytes_max)
        if parts.size_bytes > bytes_max:
            return None
    letter = make_batch(
        1,
        topic=pa.array([topic], pa.string()),
        key=pa.array([parts.key], pa.binary()),
        value=pa.array([parts.value], pa.binary()),
        headers=pa.array([parts.headers], HEADERS_TYPE),
    )
    if TIMESTAMP in record.schema.names:
        times = record.column(TIMESTAMP)
        if pa.types.is_timestamp(times.type):
            index = letter.schema.get_field_index(TIMESTAMP)
            letter = letter.set_column(
                index,
                letter.schema.field(index),
                in_unit(times, "ms").cast(pa.timestamp("ms", tz="UTC")),
            )
    return letter


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a dead letter whose sizes count."""

    key: bytes | None
    value: bytes | None
    headers: Sequence[Mapping[str, Any]]

    @property
    def size_bytes(self) -> int:
        """The size in a topic, at most."""
        return len(self.key or b"") + len(self.value or b"") + _size_of(self.headers)

    def cut_to(self, limit_bytes: int) -> "Parts":
        """The parts within a limit, as far as possible: without the stack trace, then with the
        beginning of the value, without the record's own headers, with the beginning of the key, and
        with the headers of the record's position only. Headers have the original sizes.
        """
        cut = self
        for smaller in (
            Parts._without_trace,
            Parts._with_cut_value,
            Parts._without_own_headers,
            Parts._with_cut_key,
            Parts._with_place_only,
        ):
            if cut.size_bytes <= limit_bytes:
                break
            cut = smaller(cut, limit_bytes)
        return cut

    def _without_trace(self, limit_bytes: int) -> "Parts":
        del limit_bytes
        return replace(self, headers=[each for each in self.headers if each["key"] != _TRACE])

    def _with_cut_value(self, limit_bytes: int) -> "Parts":
        if not self.value:
            return self
        marked = self._marked(VALUE_CUT_HEADER, len(self.value))
        left_bytes = limit_bytes - (marked.size_bytes - len(self.value))
        return replace(marked, value=_start_of(self.value, left_bytes))

    def _without_own_headers(self, limit_bytes: int) -> "Parts":
        del limit_bytes
        kept = [each for each in self.headers if each["key"].startswith(HEADER_PREFIX)]
        if len(kept) == len(self.headers):
            return self
        size_bytes = _size_of(self.headers) - _size_of(kept)
        return replace(self, headers=kept)._marked(HEADERS_CUT_HEADER, size_bytes)

    def _with_cut_key(self, limit_bytes: int) -> "Parts":
        if not self.key:
            return self
        marked = self._marked(KEY_CUT_HEADER, len(self.key))
        left_bytes = limit_bytes - (marked.size_bytes - len(self.key))
        return replace(marked, key=_start_of(self.key, left_bytes))

    def _with_place_only(self, limit_bytes: int) -> "Parts":
        del limit_bytes
        kept = [each for each in self.headers if not _is_cause(each["key"])]
        return replace(self, headers=kept)

    def _marked(self, name: str, size_bytes: int) -> "Parts":
        if any(each["key"] == name for each in self.headers):
            return self  # a dead letter that was cut before
        mark = {"key": name, "value": str(size_bytes).encode(), "type": None}
        return replace(self, headers=[*self.headers, mark])


def _size_of(headers: Sequence[Mapping[str, Any]]) -> int:
    sizes = (len(each["key"].encode()) + len(each["value"] or b"") for each in headers)
    return sum(size + _HEADER_BYTES for size in sizes)


def _start_of(part: bytes, size_bytes: int) -> bytes:
    """The first bytes of a part, without a part of a character in UTF-8 at the end."""
    end = max(0, min(size_bytes, len(part)))
    for _ in range(3):
        if 0 < end < len(part) and part[end] & 0xC0 == 0x80:
            end -= 1
    return part[:end]


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
    return name != key and name not in _PLACE and key not in CUT_HEADERS


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
