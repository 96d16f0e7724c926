"""Converts Avro schemas and records to Arrow."""

import uuid
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

_PRIMITIVES = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL = {
    "date": pa.date32(),
    "time-millis": pa.time32("ms"),
    "time-micros": pa.time64("us"),
    "timestamp-millis": pa.timestamp("ms", tz="UTC"),
    "timestamp-micros": pa.timestamp("us", tz="UTC"),
    "local-timestamp-millis": pa.timestamp("ms"),
    "local-timestamp-micros": pa.timestamp("us"),
    "uuid": pa.string(),
}


def arrow_schema(avro: Any) -> pa.Schema:
    """The Arrow schema of a file's records.

    Raises:
        ValueError: The values are not records, or a field's type has no counterpart.
    """
    if not isinstance(avro, dict) or avro.get("type") != "record":
        raise ValueError("its values are not records: Avro files need a schema of type record")
    return pa.schema(_fields(avro, {}))


def plain_records(records: list[Any]) -> list[Any]:
    """Convert values for Arrow: UUIDs become text."""
    return [
        {
            name: str(value) if isinstance(value, uuid.UUID) else value
            for name, value in each.items()
        }
        for each in records
    ]


def _fields(record: Mapping[str, Any], known: dict[str, pa.DataType]) -> list[pa.Field]:
    return [
        pa.field(each["name"], _type(each["type"], each["name"], known))
        for each in record["fields"]
    ]


def _type(avro: Any, field: str, known: dict[str, pa.DataType]) -> pa.DataType:
    if isinstance(avro, str):
        kind = _PRIMITIVES.get(avro, known.get(avro))
        if kind is None:
            raise ValueError(
                f"field {field!r} is of type {avro!r}, which contains itself or is unknown"
            )
        return kind
    if isinstance(avro, list):
        kinds = [each for each in avro if each != "null"]
        if len(kinds) > 1:
            raise ValueError(
                f"field {field!r} is a union of several types, which a column cannot have"
            )
        return _type(kinds[0], field, known) if kinds else pa.null()
    kind = _complex(avro, field, known)
    if "name" in avro:
        known[avro["name"]] = kind
    return kind


def _complex(avro: Mapping[str, Any], field: str, known: dict[str, pa.DataType]) -> pa.DataType:
    logical = avro.get("logicalType")
    if logical == "decimal":
        return pa.decimal128(avro["precision"], avro.get("scale", 0))
    if logical in _LOGICAL:
        return _LOGICAL[logical]
    what = avro["type"]
    if what == "record":
        return pa.struct(_fields(avro, known))
    if what == "array":
        return pa.list_(_type(avro["items"], field, known))
    if what == "map":
        return pa.map_(pa.string(), _type(avro["values"], field, known))
    if what == "enum":
        return pa.string()
    if what == "fixed":
        return pa.binary()
    return _type(what, field, known)
