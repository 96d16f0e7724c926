"""Columns of record batches, and functions that create and change batches."""

import pyarrow as pa

from drover.record.arrow import Array, Texts
from drover.record.schema import Schema, arrow_field, schema_of

TOPIC, PARTITION, OFFSET, TIMESTAMP = "topic", "partition", "offset", "timestamp"
KEY, VALUE, HEADERS = "key", "value", "headers"
#: Optional columns: a record's place in its source, for error messages ("/data/a.csv:17"); the
#: error if the record could not be read, else null; and the bytes of an unreadable record.
ORIGIN, ERROR, RAW = "origin", "error", "raw"
#: In sinks whose transforms may rename topics: the topic that the record was consumed from. Its
#: partition and offset belong to that topic (KIP-793).
ORIGINAL_TOPIC = "original_topic"

#: Columns of a table that are not fields of the value; each holds the record attribute it names.
ORIGIN_COLUMN = "__drover_origin"
ERROR_COLUMN = "__drover_error"
RAW_COLUMN = "__drover_raw"
TOPIC_COLUMN = "__drover_topic"
TIMESTAMP_COLUMN = "__drover_timestamp"

#: In order of position. Key and value have any type; other columns may follow.
RECORD_COLUMNS = (TOPIC, PARTITION, OFFSET, TIMESTAMP, KEY, VALUE, HEADERS)

#: Headers keep their order and may repeat a key. If ``type`` is null, ``value`` is the header's raw
#: bytes. Else ``type`` is the schema as the JSON converter writes it, ``value`` the value as JSON.
HEADERS_TYPE = pa.list_(
    pa.struct([("key", pa.string()), ("value", pa.binary()), ("type", pa.string())])
)
_PLAIN_TYPES = {
    TOPIC: pa.string(),
    PARTITION: pa.int32(),
    OFFSET: pa.int64(),
    TIMESTAMP: pa.timestamp("ms", tz="UTC"),
    HEADERS: HEADERS_TYPE,
}


def make_batch(row_count: int, **columns: tuple[pa.Field, Array] | Array) -> pa.RecordBatch:
    """A batch of records; key and value are (field, array). An omitted column is null.

    Other columns (ORIGIN) are last.
    """
    fields: list[pa.Field] = []
    arrays: list[Array] = []
    for name in (*RECORD_COLUMNS, *(each for each in columns if each not in RECORD_COLUMNS)):
        given = columns.get(name)
        if isinstance(given, tuple):
            found, array = given
            fields.append(found.with_name(name))
        elif given is not None:
            array = given
            fields.append(pa.field(name, array.type))
        else:
            kind = _PLAIN_TYPES.get(name, pa.binary())
            array = pa.nulls(row_count, kind)
            fields.append(pa.field(name, kind))
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def original_topics(batch: pa.RecordBatch) -> Texts:
    """The topics that a sink's records were consumed from, before transforms renamed them."""
    return batch.column(ORIGINAL_TOPIC if ORIGINAL_TOPIC in batch.schema.names else TOPIC)


def with_column(batch: pa.RecordBatch, field: pa.Field, array: Array) -> pa.RecordBatch:
    """The batch with the column ``field.name`` replaced, or appended if there is none."""
    index = batch.schema.get_field_index(field.name)
    if index < 0:
        return batch.append_column(field, array)
    return batch.set_column(index, field, array)


def with_values(
    batch: pa.RecordBatch, name: str, schema: Schema | None, array: Array
) -> pa.RecordBatch:
    """The batch with its key or value replaced by ``array`` of ``schema``; None is schemaless."""
    return with_column(batch, arrow_field(name, schema), array)


def column_schema(batch: pa.RecordBatch, name: str) -> Schema | None:
    """The schema of the batch's key or value; None for schemaless ones."""
    return schema_of(batch.schema.field(name))
