"""Column types for text formats, and conversion of texts to values."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from drover.connectors.ddl import TIMESTAMP

_ZONED = r"\d:\d\d.*(?:[zZ]|[+-]\d\d(?::?\d\d)?)$"


def field_of(types: pa.Schema, name: str) -> pa.Field:
    """The field with that name; string if its type is unknown."""
    index = types.get_field_index(name)
    return types.field(index).with_nullable(True) if index >= 0 else pa.field(name, pa.string())


def read_schema(schema: pa.Schema) -> pa.Schema:
    """The schema with ``read_type`` applied to every column."""
    return pa.schema([(each.name, read_type(each.type)) for each in schema])


def read_type(kind: pa.DataType) -> pa.DataType:
    """The type to read before conversion: the readers support only one format of times."""
    if pa.types.is_temporal(kind) or pa.types.is_binary(kind) or pa.types.is_decimal(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        fields = [kind.field(index) for index in range(kind.num_fields)]
        return pa.struct([(each.name, read_type(each.type)) for each in fields])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, read_type(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(read_type(kind.value_type))
    return kind


def has_time(kind: pa.DataType) -> bool:
    """Whether the type contains times."""
    if pa.types.is_temporal(kind):
        return True
    return any(has_time(kind.field(index).type) for index in range(kind.num_fields))


def converted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Convert columns in the form of ``read_type`` to the types of the schema.

    Raises:
        ArrowInvalid: A value cannot be converted.
    """
    columns = [to_type(batch.column(each.name), each.type) for each in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def to_type(values: Any, kind: pa.DataType) -> Any:
    """Convert values in the form of ``read_type``, or texts, to the type.

    Raises:
        ArrowInvalid: A value cannot be converted.
    """
    if values.type == kind:
        return values
    if pa.types.is_timestamp(kind) and pa.types.is_string(values.type):
        return to_timestamp(values)
    if pa.types.is_struct(kind) and pa.types.is_struct(values.type):
        fields = [kind.field(index) for index in range(kind.num_fields)]
        children = [to_type(pc.struct_field(values, each.name), each.type) for each in fields]
        return pa.StructArray.from_arrays(
            children, fields=[each.with_nullable(True) for each in fields], mask=values.is_null()
        )
    if pa.types.is_list(kind) and pa.types.is_list(values.type):
        counts = pc.list_value_length(values).fill_null(0).to_numpy(zero_copy_only=False)
        offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32))
        items = to_type(values.flatten(), kind.value_type)
        return pa.ListArray.from_arrays(offsets, items, type=kind, mask=values.is_null())
    return values.cast(kind)


def to_timestamp(texts: Any) -> Any:
    """Convert ISO 8601 texts to timestamps; texts without a zone are in UTC.

    Raises:
        ArrowInvalid: A text is not ISO 8601.
    """
    for zone in (None, "UTC"):
        try:
            return _parse_times(texts, zone)
        except pa.ArrowInvalid:
            continue
    zoned = pc.match_substring_regex(texts, _ZONED)
    nothing = pa.scalar(None, pa.string())
    return pc.coalesce(
        _parse_times(pc.if_else(zoned, texts, nothing), "UTC"),
        _parse_times(pc.if_else(zoned, nothing, texts), None),
    )


def _parse_times(texts: Any, zone: str | None) -> Any:
    try:
        times = texts.cast(pa.timestamp("us", zone))
    except pa.ArrowInvalid:
        times = texts.cast(pa.timestamp("ns", zone))
    if zone is None:
        times = pc.assume_timezone(times, "UTC")
    return times.cast(TIMESTAMP, safe=False)
