"""The records of a sink's batch as Python objects."""

import datetime
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from drover.record.batch import (
    HEADERS,
    KEY,
    OFFSET,
    PARTITION,
    TIMESTAMP,
    TOPIC,
    VALUE,
    original_topics,
)
from drover.record.errors import RecordError
from drover.record.json.schemaless import loads
from drover.record.schema import is_schemaless

#: How many records exist as Python objects at a time.
_SLICE_ROWS = 1_000
_PACKED = "packed"
_PACKED_SCHEMA = pa.schema([(_PACKED, pa.binary())])
#: Errors of Arrow and of Python's types for a value that Python has no object for.
_UNREADABLE = (
    *(ValueError, OverflowError, TypeError, KeyError),
    *(RecursionError, pa.ArrowException),
)


@dataclass(frozen=True, slots=True)
class SinkRecord:
    """One record that a sink receives.

    Values have the types of their schema: a struct or a map is a dict, an array a list, a decimal
    ``decimal.Decimal``, bytes ``bytes``; dates, times and timestamps have ``datetime``'s types,
    timestamps with the zone UTC. A value without a schema is parsed JSON, in which a number with a
    fraction is a ``decimal.Decimal`` if a float would change it. In a sink that is not structured,
    keys and values are bytes.

    Attributes:
        topic: The topic, after transforms.
        partition: The partition of ``original_topic``.
        offset: The offset in ``original_topic``.
        key: The key; None if the record has none.
        value: The value; None for a tombstone.
        timestamp: When the record was produced, in UTC; None if unknown.
        headers: Names and bytes, in order; a name may occur again.
        original_topic: The topic that the record was read from.
    """

    topic: str
    partition: int
    offset: int
    key: Any
    value: Any
    timestamp: datetime.datetime | None
    headers: tuple[tuple[str, bytes | None], ...]
    original_topic: str

    @property
    def is_tombstone(self) -> bool:
        """Whether the value is null: the record deletes its key."""
        return self.value is None

    @property
    def place(self) -> str:
        """Its position for messages, such as ``orders-0@17``."""
        return f"{self.original_topic}-{self.partition}@{self.offset}"


@dataclass(frozen=True, slots=True)
class UnreadableRecord:
    """A record with a key, value or timestamp for which Python has no object."""

    original_topic: str
    partition: int
    offset: int
    reason: str


def records_of(batch: pa.RecordBatch) -> Iterator[SinkRecord]:
    """The records of an Arrow batch, created lazily; for functions of ``SinkBatch.run_in_arrow``.

    Raises:
        RecordError: Python has no object for a key, value or timestamp, such as a date after the
            year 9999.
    """
    for each in _records_of(batch):
        if isinstance(each, UnreadableRecord):
            place = f"{each.original_topic}-{each.partition}@{each.offset}"
            raise RecordError(f"record {place}: {each.reason}")
        yield each


def packed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Batches as rows of bytes, which keep their schemas on the way from an executor."""
    for batch in batches:
        out = pa.BufferOutputStream()
        with pa.ipc.new_stream(out, batch.schema) as writer:
            writer.write_batch(batch)
        rows = {_PACKED: [out.getvalue().to_pybytes()]}
        yield pa.RecordBatch.from_pydict(rows, schema=_PACKED_SCHEMA)


def unpacked(rows: Iterable[dict[str, Any]]) -> Iterator[SinkRecord | UnreadableRecord]:
    """The records in rows of ``packed``; releases each row when its records have been created."""
    waiting = deque(rows)
    while waiting:
        with pa.ipc.open_stream(waiting.popleft()[_PACKED]) as reader:
            for batch in reader:
                yield from _records_of(batch)


def _records_of(batch: pa.RecordBatch) -> Iterator[SinkRecord | UnreadableRecord]:
    for start in range(0, batch.num_rows, _SLICE_ROWS):
        part = batch.slice(start, _SLICE_ROWS)
        keys, values, times = (_column(part, name) for name in (KEY, VALUE, TIMESTAMP))
        sources = original_topics(part).to_pylist()
        topics, partitions, offsets = (
            part.column(name).to_pylist() for name in (TOPIC, PARTITION, OFFSET)
        )
        headers = part.column(HEADERS).to_pylist()
        for row in range(part.num_rows):
            try:
                key, value, timestamp = keys(row), values(row), times(row)
            except RecordError as error:
                yield UnreadableRecord(sources[row], partitions[row], offsets[row], str(error))
                continue
            yield SinkRecord(
                topic=topics[row],
                partition=partitions[row],
                offset=offsets[row],
                key=key,
                value=value,
                timestamp=timestamp,
                headers=tuple((each["key"], each["value"]) for each in headers[row] or ()),
                original_topic=sources[row],
            )


def _column(batch: pa.RecordBatch, name: str) -> Callable[[int], Any]:
    """A function that returns the object of a row; it raises RecordError."""
    field, column = batch.schema.field(name), batch.column(name)
    read = _parsed if is_schemaless(field) else _plain
    try:
        found = [read(each) for each in column.to_pylist(maps_as_pydicts="strict")]
    except _UNREADABLE:
        return lambda row: _one(name, read, column[row])
    return lambda row: found[row]


def _one(name: str, read: Callable[[Any], Any], cell: pa.Scalar) -> Any:
    try:
        return read(cell.as_py(maps_as_pydicts="strict"))
    except _UNREADABLE as error:
        text = f"{type(error).__name__}: {error}"[:300]
        raise RecordError(f"the {name} of type {cell.type} has no Python object: {text}") from None


def _plain(value: Any) -> Any:
    return value


def _parsed(text: str | None) -> Any:
    return None if text is None else loads(text)
