"""Converts between batches and records: the first and last steps of pipelines."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from drover.record.arrow import in_unit, offsets_of
from drover.record.batch import (
    ERROR,
    ERROR_COLUMN,
    HEADERS,
    HEADERS_TYPE,
    KEY,
    OFFSET,
    ORIGIN,
    ORIGIN_COLUMN,
    ORIGINAL_TOPIC,
    PARTITION,
    RAW,
    RAW_COLUMN,
    TIMESTAMP,
    TIMESTAMP_COLUMN,
    TOPIC,
    TOPIC_COLUMN,
    VALUE,
    make_batch,
    with_column,
)
from drover.record.errors import ErrorStage, RecordError, StageError
from drover.record.framed import Framed

_TIMESTAMP_TYPE = pa.timestamp("ms", tz="UTC")
_HEADER_BYTES = 8
_FURTHER = {ORIGIN_COLUMN: ORIGIN, ERROR_COLUMN: ERROR, RAW_COLUMN: RAW}
_SPECIAL = (*_FURTHER, TOPIC_COLUMN, TIMESTAMP_COLUMN)


@dataclass(frozen=True, slots=True)
class TableRows:
    """Records from a table's rows: the columns become the fields of the value.

    ``key`` names the key column, or several that become its fields.
    """

    key: str | tuple[str, ...] | None = None

    def __call__(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        """One batch of records."""
        names = batch.schema.names
        further = {target: batch.column(name) for name, target in _FURTHER.items() if name in names}
        if TOPIC_COLUMN in names:
            further[TOPIC] = batch.column(TOPIC_COLUMN).cast(pa.string())
        if TIMESTAMP_COLUMN in names:
            further[TIMESTAMP] = timestamps(batch.column(TIMESTAMP_COLUMN))
        value = _struct(batch, VALUE, [name for name in names if name not in _SPECIAL])
        key = self._key(batch)
        yield make_batch(batch.num_rows, key=key, value=value, **further)

    def _key(self, batch: pa.RecordBatch) -> tuple[pa.Field, pa.Array] | None:
        if self.key is None or _are_all_bad(batch):
            return None
        wanted = (self.key,) if isinstance(self.key, str) else self.key
        missing = [name for name in wanted if name not in batch.schema.names]
        if missing:
            raise RecordError(
                f"the key's column {missing[0]!r} is not in the rows: they have "
                f"{', '.join(name for name in batch.schema.names if name not in _SPECIAL)}"
            )
        if isinstance(self.key, str):
            return batch.schema.field(self.key), batch.column(self.key)
        return _struct(batch, KEY, wanted)


def _are_all_bad(batch: pa.RecordBatch) -> bool:
    """Whether no row could be read: then there are only error columns."""
    return ERROR_COLUMN in batch.schema.names and not batch.column(ERROR_COLUMN).null_count


@dataclass(frozen=True, slots=True)
class RecordRows:
    """Records from a source's rows that already have record columns; see SourceBatch.

    With ``text`` the bytes of keys and values are text, as in files.
    """

    text: bool = False

    def __call__(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        """One batch of records."""
        columns: dict[str, tuple[pa.Field, pa.Array] | pa.Array] = {}
        for name in batch.schema.names:
            array, field = batch.column(name), batch.schema.field(name)
            if pa.types.is_null(array.type):
                continue
            match name:
                case "key" | "value":
                    if self.text and pa.types.is_binary(array.type):
                        array = array.cast(pa.string())
                        field = field.with_type(pa.string())
                    columns[name] = (field, array)
                case "headers":
                    columns[name] = with_header_types(array)
                case "timestamp":
                    columns[name] = timestamps(array)
                case "topic":
                    columns[name] = array.cast(pa.string())
                case "partition":
                    columns[name] = array.cast(pa.int32())
                case _:
                    columns[_FURTHER.get(name, name)] = array
        yield make_batch(batch.num_rows, **columns)


def topic_records(batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
    """Records from a topic read."""
    yield make_batch(
        batch.num_rows,
        topic=batch.column(TOPIC),
        partition=batch.column(PARTITION),
        offset=batch.column(OFFSET),
        timestamp=timestamps(batch.column(TIMESTAMP)),
        key=(batch.schema.field(KEY), batch.column(KEY)),
        value=(batch.schema.field(VALUE), batch.column(VALUE)),
        headers=with_header_types(batch.column(HEADERS)),
    )


def renamable_records(batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
    """As ``topic_records``, for transforms that may rename topics: keeps the original topic."""
    for records in topic_records(batch):
        topics = records.column(TOPIC)
        yield records.append_column(pa.field(ORIGINAL_TOPIC, topics.type), topics)


@dataclass(frozen=True, slots=True)
class WithTopic:
    """Wraps another layout, and sets ``topic`` for records without one, for transforms and
    converters.
    """

    layout: Callable[[pa.RecordBatch], Iterable[pa.RecordBatch]]
    topic: str

    def __call__(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        """The layout's batches."""
        for records in self.layout(batch):
            topics = records.column(TOPIC)
            if topics.null_count:
                records = with_column(
                    records, records.schema.field(TOPIC), topics.fill_null(self.topic)
                )
            yield records


@dataclass(frozen=True, slots=True)
class TopicRows:
    """A step that gives records the columns and types of topic reads, in their order; keys, values
    and headers must be bytes.
    """

    schema: pa.Schema
    name: str = "to bytes"

    def __call__(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        """See Step."""
        columns = [
            without_header_types(batch.column(field.name))
            if field.name == HEADERS
            else batch.column(field.name).cast(field.type)
            for field in self.schema
        ]
        return (pa.RecordBatch.from_arrays(columns, schema=self.schema),)


@dataclass(frozen=True, slots=True)
class SizeLimit:
    """A step that rejects records with a larger key, value and headers (as bytes) than the topic
    accepts, so that such a record fails individually instead of its batch.
    """

    max_bytes: int
    #: Lower limits of some topics.
    by_topic: Mapping[str, int] = field(default_factory=dict)
    name: str = "produce"

    def __call__(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        """See Step.

        Raises:
            StageError: A record is larger.
        """
        sizes = pc.add(*(_lengths(Framed.of(batch, name)) for name in (KEY, VALUE)))
        sizes = pc.add(sizes, _header_bytes(batch.column(HEADERS)))
        if not self.by_topic:
            self._check(sizes, self.max_bytes)
            return (batch,)
        topics = batch.column(TOPIC)
        for topic in topics.unique().to_pylist():
            of_topic = sizes.filter(pc.equal(topics, topic).fill_null(False))
            self._check(of_topic, self.by_topic.get(topic, self.max_bytes))
        return (batch,)

    def _check(self, sizes: pa.Array, limit_bytes: int) -> None:
        largest_bytes = pc.max(sizes).as_py() or 0
        if largest_bytes > limit_bytes:
            fault = RecordError(
                f"key, value and headers have {largest_bytes} bytes, but the limit is "
                f"{limit_bytes} (message.max.bytes of the client, max.message.bytes of the topic)"
            )
            raise StageError(ErrorStage.KAFKA_PRODUCE, str(fault)) from fault


@dataclass(frozen=True, slots=True)
class KeyRequired:
    """A step that rejects records without a key for topics that keep the latest record of each key,
    as Kafka's brokers do (INVALID_RECORD), so that such a record fails individually.
    """

    is_compacted: Callable[[str], bool]
    name: str = "produce"

    def __call__(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        """See Step.

        Raises:
            StageError: A record has no key.
        """
        keys = batch.column(KEY)
        if keys.null_count:
            topics = batch.column(TOPIC).filter(keys.is_null()).unique().to_pylist()
            for topic in topics:
                if topic is not None and self.is_compacted(topic):
                    fault = RecordError(no_key_fault(topic))
                    raise StageError(ErrorStage.KAFKA_PRODUCE, str(fault)) from fault
        return (batch,)


def no_key_fault(topic: str) -> str:
    """Why a record without a key cannot be written to a compacted topic."""
    return (
        f"the record has no key, but the topic {topic} has cleanup.policy=compact, which keeps the "
        "latest record of each key: set a key, for instance with ValueToKey"
    )


def _lengths(framed: Framed) -> pa.Array:
    """The sizes of whole keys or values; 0 for null."""
    lengths = pc.binary_length(framed.values).cast(pa.int64())
    return pc.add(lengths, framed.frame_bytes).fill_null(0)


def _header_bytes(headers: pa.Array) -> pa.Array | pa.Scalar:
    """The sizes of each row's headers; 0 for all rows if there are none."""
    if headers.null_count == len(headers):
        return pa.scalar(0, pa.int64())
    items = headers.flatten()
    sizes = np.full(len(items), _HEADER_BYTES)
    for index in range(2):  # key and value
        lengths = pc.binary_length(pc.struct_field(items, index)).fill_null(0)
        sizes += lengths.to_numpy(zero_copy_only=False)
    rows = pc.list_parent_indices(headers).to_numpy(zero_copy_only=False)
    return pa.array(np.bincount(rows, sizes, len(headers)).astype(np.int64))


def timestamps(values: pa.Array) -> pa.Array:
    """Milliseconds, or timestamps of any unit, as the timestamp type of records.

    Raises:
        RecordError: The type is neither.
    """
    if pa.types.is_timestamp(values.type):
        return in_unit(values, "ms").cast(_TIMESTAMP_TYPE)
    if pa.types.is_integer(values.type):
        return values.cast(pa.int64()).cast(_TIMESTAMP_TYPE)
    raise RecordError(
        "column 'timestamp' must be a timestamp or milliseconds since 1970 as an integer, not "
        f"{values.type}"
    )


def with_header_types(headers: pa.Array) -> pa.Array:
    """Headers with the type column of records; untyped headers are raw."""
    if headers.type == HEADERS_TYPE:
        return headers
    if pa.types.is_null(headers.type) or headers.null_count == len(headers):
        return pa.nulls(len(headers), HEADERS_TYPE)
    items = headers.flatten()
    rows = pa.StructArray.from_arrays(
        [
            pc.struct_field(items, "key").cast(pa.string()),
            pc.struct_field(items, "value").cast(pa.binary()),
            pa.nulls(len(items), pa.string()),
        ],
        fields=list(HEADERS_TYPE.value_type),
    )
    return _like(headers, rows, HEADERS_TYPE)


def without_header_types(headers: pa.Array) -> pa.Array:
    """Raw headers as in topics: keys and bytes."""
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    if headers.null_count == len(headers):
        return pa.nulls(len(headers), kind)
    items = headers.flatten()
    rows = pa.StructArray.from_arrays(
        [pc.struct_field(items, "key"), pc.struct_field(items, "value")],
        fields=list(kind.value_type),
    )
    return _like(headers, rows, kind)


def _like(headers: pa.Array, items: pa.Array, kind: pa.DataType) -> pa.Array:
    """A list array with the lengths and nulls of ``headers``, and other items."""
    # the offsets of a slice cannot be used together with a mask
    lengths = pc.fill_null(pc.list_value_length(headers), 0)
    return pa.ListArray.from_arrays(
        offsets_of(lengths),
        items,
        type=kind,
        mask=headers.is_null() if headers.null_count else None,
    )


def _struct(batch: pa.RecordBatch, name: str, columns: Sequence[str]) -> tuple[pa.Field, pa.Array]:
    fields = [batch.schema.field(column) for column in columns]
    kind = pa.struct(fields)
    if not columns:
        return pa.field(name, kind), pa.array([{}] * batch.num_rows, kind)
    array = pa.StructArray.from_arrays([batch.column(each) for each in columns], fields=fields)
    return pa.field(name, kind, nullable=False), array


__all__ = [
    "RecordRows",
    "TableRows",
    "TopicRows",
    "timestamps",
    "topic_records",
    "with_header_types",
    "without_header_types",
]
