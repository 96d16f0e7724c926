"""Converts Avro schemas and records to Arrow."""

import decimal
from collections.abc import Mapping
from typing import Any

import fastavro
import pyarrow as pa

from drover.connector.records import has_decimal

_EXACT = decimal.Context(prec=400, traps=[decimal.InvalidOperation, decimal.Inexact])
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
#: What values of a logical type are stored as, if it is not long.
_STORED = {"date": "int", "time-millis": "int", "uuid": "string"}
_DECIMAL128_DIGITS = 38


def arrow_schema(avro: Any) -> pa.Schema:
    """The Arrow schema of a file's records.

    Raises:
        ValueError: The values are not records, or a field's type has no counterpart.
    """
    if not isinstance(avro, dict) or avro.get("type") != "record":
        raise ValueError("its values are not records: Avro files need a schema of type record")
    return pa.schema(_fields(avro, {}))


class AvroRecords:
    """Decodes the records of a file.

    Logical types are decoded to the numbers or bytes that are stored, for Arrow: Python's dates end
    in the year 9999, and its decimals have a limit of digits, so that one value would end the read.
    """

    def __init__(self, avro: Any) -> None:
        self._schema = arrow_schema(avro)
        self._stored = fastavro.parse_schema(_without_logical_types(avro), _force=True)
        self._has_decimals = any(has_decimal(each.type) for each in self._schema)

    def of_block(self, block: Any) -> list[Any]:
        """The records of a block."""
        return [
            # a text that is not UTF-8 must not end the read: ``batch`` rejects its surrogates
            fastavro.schemaless_reader(
                block.bytes_, self._stored, handle_unicode_errors="surrogateescape"
            )
            for _ in range(block.num_records)
        ]

    def batch(self, records: list[Any]) -> pa.RecordBatch:
        """The records as columns.

        Raises:
            ValueError: A value does not fit its type.
        """
        if self._has_decimals:
            kind = pa.struct(list(self._schema))
            records = [_with_decimals(each, kind) for each in records]
        return pa.RecordBatch.from_pylist(records, schema=self._schema)


def _without_logical_types(avro: Any) -> Any:
    if isinstance(avro, list):
        return [_without_logical_types(each) for each in avro]
    if not isinstance(avro, Mapping):
        return avro
    return {
        name: _without_logical_types(each)
        if name in ("type", "items", "values", "fields")
        else each
        for name, each in avro.items()
        if name not in ("logicalType", "default")
    }


def _with_decimals(value: Any, kind: pa.DataType) -> Any:
    """The value with decimals in place of the bytes that are stored for them."""
    if value is None:
        return None
    if pa.types.is_decimal(kind):
        number = decimal.Decimal(int.from_bytes(value, "big", signed=True))
        return number.scaleb(-kind.scale, _EXACT)
    if pa.types.is_struct(kind):
        return {each.name: _with_decimals(value[each.name], each.type) for each in kind}
    if pa.types.is_list(kind):
        return [_with_decimals(each, kind.value_type) for each in value]
    if pa.types.is_map(kind):
        return {name: _with_decimals(each, kind.item_type) for name, each in value.items()}
    return value


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
    if logical == "decimal" and avro["type"] in ("bytes", "fixed"):
        kind = pa.decimal128 if avro["precision"] <= _DECIMAL128_DIGITS else pa.decimal256
        return kind(avro["precision"], avro.get("scale", 0))
    if logical in _LOGICAL and avro["type"] == _STORED.get(logical, "long"):
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
