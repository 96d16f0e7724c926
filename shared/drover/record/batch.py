"""Record batches: which columns they have, and how steps make new ones."""

import pyarrow as pa

from drover.record.arrow import Array, Texts
from drover.record.schema import Schema, arrow_field, schema_of

TOPIC, PARTITION, OFFSET, TIMESTAMP = "topic", "partition", "offset", "timestamp"
KEY, VALUE, HEADERS = "key", "value", "headers"
#: Columns that may be missing: where a source has a record from, for people ("/data/a.csv:17"); why
#: it could not be read, null for one that could; and the bytes of one that could not.
ORIGIN, ERROR, RAW = "origin", "error", "raw"
#: In sinks whose transforms may rename topics: the one that a record is from, whose partition and
#: offset it has (KIP-793).
ORIGINAL_TOPIC = "original_topic"

#: Columns of a table's rows that are no fields of the value: each says what its name says.
ORIGIN_COLUMN = "__drover_origin"
ERROR_COLUMN = "__drover_error"
RAW_COLUMN = "__drover_raw"
TOPIC_COLUMN = "__drover_topic"
TIMESTAMP_COLUMN = "__drover_timestamp"

#: In order of position; key and value are of any type, and there may be further columns.
RECORD_COLUMNS = (TOPIC, PARTITION, OFFSET, TIMESTAMP, KEY, VALUE, HEADERS)

#: Headers keep their order and may repeat a key. ``type`` null: ``value`` is as the topic has it.
#: Else ``type`` is the schema as the JSON converter writes it, ``value`` the JSON of the value.
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
    """A batch of records; key and value are (field, array), a column left out is null.

    Further columns (ORIGIN) come last.
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
    """The topics that a sink's records are from, whatever transforms call them."""
    return batch.column(ORIGINAL_TOPIC if ORIGINAL_TOPIC in batch.schema.names else TOPIC)


def with_column(batch: pa.RecordBatch, field: pa.Field, array: Array) -> pa.RecordBatch:
    """The batch with a column of ``field.name`` replaced, or added as the last one."""
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
