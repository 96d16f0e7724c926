"""Records as Arrow: the content of blobs, and the columns of frames."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa

from drover.pipeline.layouts import without_header_types
from drover.record.arrow import in_unit, is_binary, is_text
from drover.record.batch import HEADERS_TYPE as TYPED_HEADERS_TYPE
from drover.record.framed import Framed

HEADERS_TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

#: The content of a blob; topic, partition and offsets are in the row that refers to it.
PAYLOAD_SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", HEADERS_TYPE),
        ("timestamp_ms", pa.int64()),
    ]
)

#: The content of a compacted blob. Its offsets have gaps; ``kept_ms`` is when a pass of compaction
#: first kept a tombstone, null for other records.
COMPACTED_SCHEMA = PAYLOAD_SCHEMA.append(pa.field("offset", pa.int64())).append(
    pa.field("kept_ms", pa.int64())
)

#: The columns of topic reads, for Spark.
READ_DDL = (
    "topic string, partition int, offset bigint, key binary, value binary, "
    "headers array<struct<key:string,value:binary>>, timestamp timestamp"
)
READ_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", HEADERS_TYPE),
        ("timestamp", pa.timestamp("us", tz="UTC")),
    ]
)

_WRITE_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")


class FrameError(ValueError):
    """A frame's columns are not those of records; the message has the column and the remedy."""


def encode(batches: list[Any], schema: Any = PAYLOAD_SCHEMA) -> bytes:
    """Record batches of ``PAYLOAD_SCHEMA``, or of ``COMPACTED_SCHEMA``, as one Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema, options=_WRITE_OPTIONS) as writer:
        for batch in batches:
            writer.write_batch(batch)
    payload: bytes = sink.getvalue().to_pybytes()
    return payload


def decode(payload: bytes, base_offset: int = 0) -> Iterator[Any]:
    """The record batches of a blob, in order, in ``COMPACTED_SCHEMA``; none is empty.

    The records of a blob that was not compacted have consecutive offsets from ``base_offset`` on.
    """
    offset = base_offset
    with pa.ipc.open_stream(pa.py_buffer(payload)) as reader:
        for records in reader:
            count = records.num_rows
            if not count:
                continue
            if records.num_columns == len(COMPACTED_SCHEMA):
                yield records
                continue
            numbers = pa.arange(offset, offset + count)
            columns = [*records.columns, numbers, pa.nulls(count, pa.int64())]
            yield pa.RecordBatch.from_arrays(columns, schema=COMPACTED_SCHEMA)
            offset += count


def decode_times(payload: bytes, base_offset: int = 0) -> Iterator[Any]:
    """The columns ``offset`` and ``timestamp_ms`` of a blob, as ``decode`` returns them; the other
    columns are not decompressed.
    """
    data = pa.py_buffer(payload)
    names = pa.ipc.read_schema(data).names
    fields = [names.index(each) for each in ("timestamp_ms", "offset") if each in names]
    offset = base_offset
    with pa.ipc.open_stream(data, options=pa.ipc.IpcReadOptions(included_fields=fields)) as reader:
        for records in reader:
            count = records.num_rows
            if not count:
                continue
            offsets = column(records, "offset")
            if offsets is None:
                offsets = pa.arange(offset, offset + count)
            yield pa.RecordBatch.from_arrays(
                [offsets, records.column("timestamp_ms")], names=["offset", "timestamp_ms"]
            )
            offset += count


def normalise(batch: Any, now_ms: int, *, framed: bool = False) -> Any:
    """The record columns of a frame's batch, in ``PAYLOAD_SCHEMA``.

    Strings become UTF-8 bytes; missing keys and headers are null; missing timestamps become the
    current time. With ``framed`` the fields of keys and values may have frames (see Framed), which
    otherwise are part of each key and value.

    Raises:
        FrameError: ``value`` is missing or a column has another type.
    """
    if batch.schema.get_field_index("value") < 0:
        raise FrameError(
            f"the frame has no column 'value'; its columns are {', '.join(batch.schema.names)}"
        )
    key, value = _binary(batch, "key"), _binary(batch, "value")
    columns = [key.values, value.values, _headers(batch), _timestamps(batch, now_ms)]
    schema = PAYLOAD_SCHEMA
    if key.frame_bytes or value.frame_bytes:
        if framed:
            schema = pa.schema([key.field("key"), value.field("value"), *list(schema)[2:]])
        else:
            columns[:2] = key.joined(), value.joined()
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def column(batch: Any, name: str) -> Any | None:
    """A column by name, or None."""
    index = batch.schema.get_field_index(name)
    return None if index < 0 else batch.column(index)


def _binary(batch: Any, name: str) -> Framed:
    values = column(batch, name)
    if values is None or pa.types.is_null(values.type):
        return Framed(pa.nulls(batch.num_rows, pa.binary()))
    kind = values.type
    if is_binary(kind) or is_text(kind):
        return replace(Framed.of(batch, name), values=values.cast(pa.binary()))
    raise FrameError(
        f"column '{name}' must be binary or string, not {kind}: convert it, for instance with "
        f"to_json() or cast('string')"
    )


def _headers(batch: Any) -> Any:
    values = column(batch, "headers")
    if values is None or pa.types.is_null(values.type):
        return pa.nulls(batch.num_rows, HEADERS_TYPE)
    if values.type == HEADERS_TYPE:
        return values
    if values.type == TYPED_HEADERS_TYPE:
        return without_header_types(values)
    try:
        return values.cast(HEADERS_TYPE)
    except pa.ArrowException as error:
        raise FrameError(
            "column 'headers' must be array<struct<key:string,value:binary>>, not "
            f"{values.type}: {error}"
        ) from error


def _timestamps(batch: Any, now_ms: int) -> Any:
    values = column(batch, "timestamp")
    if values is None or pa.types.is_null(values.type):
        return pa.repeat(pa.scalar(now_ms, pa.int64()), batch.num_rows)
    if pa.types.is_timestamp(values.type):
        values = in_unit(values, "ms").cast(pa.int64())
    elif pa.types.is_integer(values.type):
        values = values.cast(pa.int64())
    else:
        raise FrameError(
            "column 'timestamp' must be a timestamp or milliseconds since 1970 as an integer, not "
            f"{values.type}"
        )
    return values.fill_null(now_ms)
