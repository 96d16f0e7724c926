"""Kafka Connect's schemas, and the Arrow fields that carry them.

Attributes that Arrow types do not have (name, version, doc, default and parameters) are in the
metadata of fields. Logical types use Arrow's type where there is one: Decimal is decimal128 or
decimal256, Date date32, Time time32[ms], Timestamp timestamp[ms, UTC].
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from drover.record.arrow import is_list
from drover.record.errors import SchemaError


class Type(StrEnum):
    """The types of Kafka Connect's schemas, named as its JSON converter names them."""

    INT8 = "int8"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    FLOAT32 = "float"
    FLOAT64 = "double"
    BOOLEAN = "boolean"
    STRING = "string"
    BYTES = "bytes"
    ARRAY = "array"
    MAP = "map"
    STRUCT = "struct"


DECIMAL = "org.apache.kafka.connect.data.Decimal"
DATE = "org.apache.kafka.connect.data.Date"
TIME = "org.apache.kafka.connect.data.Time"
TIMESTAMP = "org.apache.kafka.connect.data.Timestamp"
#: Parameters of a decimal's schema: digits after the point, and (if known) all digits.
SCALE = "scale"
PRECISION = "connect.decimal.precision"
#: Digits of decimal128 and decimal256.
DECIMAL128_DIGITS = 38
DECIMAL256_DIGITS = 76

_LOGICAL = {DATE: pa.date32(), TIME: pa.time32("ms"), TIMESTAMP: pa.timestamp("ms", tz="UTC")}
_LOGICAL_BASES = {DECIMAL: Type.BYTES, DATE: Type.INT32, TIME: Type.INT32, TIMESTAMP: Type.INT64}
#: Schema names that denote a logical type.
LOGICAL_NAMES = frozenset(_LOGICAL_BASES)
_PRIMITIVES = {
    Type.INT8: pa.int8(),
    Type.INT16: pa.int16(),
    Type.INT32: pa.int32(),
    Type.INT64: pa.int64(),
    Type.FLOAT32: pa.float32(),
    Type.FLOAT64: pa.float64(),
    Type.BOOLEAN: pa.bool_(),
    Type.STRING: pa.string(),
    Type.BYTES: pa.binary(),
}
#: Arrow types without an equivalent schema type, with the next wider schema type.
_WIDENED = {
    pa.uint8(): Type.INT16,
    pa.uint16(): Type.INT32,
    pa.uint32(): Type.INT64,
    pa.uint64(): Type.INT64,
    pa.float16(): Type.FLOAT32,
    pa.large_string(): Type.STRING,
    pa.string_view(): Type.STRING,
    pa.large_binary(): Type.BYTES,
    pa.binary_view(): Type.BYTES,
    pa.null(): Type.STRING,
}
_BY_ARROW = {arrow: kind for kind, arrow in _PRIMITIVES.items()} | _WIDENED

_SCHEMALESS = b"drover.schemaless"
_NAME, _VERSION, _DOC = b"connect.name", b"connect.version", b"connect.doc"
_DEFAULT, _PARAMETERS = b"connect.default", b"connect.parameters"
_NO_PARAMETERS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Schema:
    """The type of a value, with Kafka Connect's attributes.

    ``default`` is JSON text, as the JSON converter writes the value; None for no default.
    Structs have ``fields``, maps have ``key_schema``, maps and arrays have ``value_schema``.
    """

    type: Type
    optional: bool = False
    name: str | None = None
    version: int | None = None
    doc: str | None = None
    default: str | None = None
    parameters: Mapping[str, str] = field(default_factory=lambda: _NO_PARAMETERS)
    fields: "tuple[Field, ...]" = ()
    key_schema: "Schema | None" = None
    value_schema: "Schema | None" = None

    def field(self, name: str) -> "Field | None":
        """A struct's field by its name."""
        return next((each for each in self.fields if each.name == name), None)


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a struct."""

    name: str
    schema: Schema


def arrow_type(schema: Schema) -> pa.DataType:
    """The Arrow type of a schema's values.

    Raises:
        SchemaError: no Arrow type fits: too many decimal digits, an array without element schema.
    """
    logical = _LOGICAL.get(schema.name or "")
    if logical is not None and schema.type is _LOGICAL_BASES[schema.name or ""]:
        return logical
    if schema.name == DECIMAL and schema.type is Type.BYTES:
        return _decimal_type(schema)
    primitive = _PRIMITIVES.get(schema.type)
    if primitive is not None:
        return primitive
    if schema.type is Type.STRUCT:
        return pa.struct([arrow_field(each.name, each.schema) for each in schema.fields])
    if schema.value_schema is None or (schema.type is Type.MAP and schema.key_schema is None):
        raise SchemaError(f"the schema of type {schema.type} does not say what its elements are")
    if schema.type is Type.ARRAY:
        return pa.list_(arrow_field("item", schema.value_schema))
    assert schema.key_schema is not None
    key = arrow_field("key", schema.key_schema).with_nullable(False)
    return pa.map_(key, arrow_field("value", schema.value_schema))


def arrow_field(name: str, schema: Schema | None) -> pa.Field:
    """The Arrow field of a schema; None means schemaless values."""
    if schema is None:
        return pa.field(name, pa.string(), metadata={_SCHEMALESS: b"json"})
    metadata: dict[bytes, bytes] = {}
    if schema.name is not None:
        metadata[_NAME] = schema.name.encode()
    if schema.version is not None:
        metadata[_VERSION] = str(schema.version).encode()
    if schema.doc is not None:
        metadata[_DOC] = schema.doc.encode()
    if schema.default is not None:
        metadata[_DEFAULT] = schema.default.encode()
    if schema.parameters:
        metadata[_PARAMETERS] = json.dumps(dict(schema.parameters)).encode()
    return pa.field(name, arrow_type(schema), nullable=schema.optional, metadata=metadata or None)


def is_schemaless(arrow: pa.Field) -> bool:
    """Whether the field holds schemaless values as JSON text."""
    return _SCHEMALESS in (arrow.metadata or {})


def name_of(arrow: pa.Field) -> str | None:
    """The name of the schema that a field carries; None without one."""
    name: bytes | None = (arrow.metadata or {}).get(_NAME)
    return name.decode() if name is not None else None


def default_of(arrow: pa.Field) -> str | None:
    """The default of the schema that a field carries, as JSON text (see Schema)."""
    text: bytes | None = (arrow.metadata or {}).get(_DEFAULT)
    return text.decode() if text is not None else None


def with_default(arrow: pa.Field, default: str | None) -> pa.Field:
    """The field with another default, as JSON text; None removes the default."""
    return _with_metadata(arrow, {_DEFAULT: default})


def with_identity(
    arrow: pa.Field, *, name: str | None = None, version: int | None = None
) -> pa.Field:
    """The field with another schema name or version; None keeps the current one."""
    changes = {_NAME: name, _VERSION: str(version) if version is not None else None}
    return _with_metadata(arrow, {key: text for key, text in changes.items() if text is not None})


def schema_of(arrow: pa.Field) -> Schema | None:
    """The schema that an Arrow field carries; None for schemaless values.

    Fields without Drover's metadata have a schema, too: an Arrow type without an equivalent maps to
    the next wider schema type, a timestamp of any unit to milliseconds.

    Raises:
        SchemaError: the Arrow type has no equivalent schema type (intervals, unions).
    """
    if is_schemaless(arrow):
        return None
    metadata = arrow.metadata or {}
    name, version, doc, default = (
        text.decode() if (text := metadata.get(key)) is not None else None
        for key in (_NAME, _VERSION, _DOC, _DEFAULT)
    )
    parameters: dict[str, str] = json.loads(metadata.get(_PARAMETERS, b"{}"))
    kind, logical_name, fields, key_schema, value_schema = _shape(arrow)
    if pa.types.is_decimal(arrow.type):
        # a schema without a precision means 38 digits, so add the parameter for other values only
        parameters = {SCALE: str(arrow.type.scale)} | parameters
        if arrow.type.precision != DECIMAL128_DIGITS:
            parameters = {PRECISION: str(arrow.type.precision)} | parameters
    return Schema(
        type=kind,
        optional=arrow.nullable,
        name=logical_name or name,
        version=int(version) if version is not None else (1 if logical_name else None),
        doc=doc,
        default=default,
        parameters=MappingProxyType(parameters) if parameters else _NO_PARAMETERS,
        fields=fields,
        key_schema=key_schema,
        value_schema=value_schema,
    )


def _with_metadata(arrow: pa.Field, changes: Mapping[bytes, str | None]) -> pa.Field:
    metadata = dict(arrow.metadata or {})
    for key, text in changes.items():
        metadata.pop(key, None)
        if text is not None:
            metadata[key] = text.encode()
    # with_metadata does not accept None
    return arrow.with_metadata(metadata) if metadata else arrow.remove_metadata()


def _decimal_type(schema: Schema) -> pa.DataType:
    try:
        scale = int(schema.parameters[SCALE])
        precision = int(schema.parameters.get(PRECISION, DECIMAL128_DIGITS))
    except (KeyError, ValueError):
        raise SchemaError(
            f"a decimal's schema needs the parameter {SCALE!r}, a whole number"
        ) from None
    if precision <= DECIMAL128_DIGITS:
        return pa.decimal128(precision, scale)
    if precision <= DECIMAL256_DIGITS:
        return pa.decimal256(precision, scale)
    raise SchemaError(f"a decimal of {precision} digits: {DECIMAL256_DIGITS} at most")


def _shape(
    arrow: pa.Field,
) -> "tuple[Type, str | None, tuple[Field, ...], Schema | None, Schema | None]":
    kind = arrow.type
    known = _BY_ARROW.get(kind)
    if known is not None:
        return known, None, (), None, None
    if pa.types.is_struct(kind):
        children = [kind.field(index) for index in range(kind.num_fields)]
        return Type.STRUCT, None, tuple(_child(each) for each in children), None, None
    if pa.types.is_map(kind):
        key, value = _inner(kind.key_field), _inner(kind.item_field)
        return Type.MAP, None, (), key, value
    if is_list(kind):
        return Type.ARRAY, None, (), None, _inner(kind.value_field)
    if pa.types.is_timestamp(kind):
        return Type.INT64, TIMESTAMP, (), None, None
    if pa.types.is_date(kind):
        return Type.INT32, DATE, (), None, None
    if pa.types.is_time(kind):
        return Type.INT32, TIME, (), None, None
    if pa.types.is_decimal(kind):
        return Type.BYTES, DECIMAL, (), None, None
    if pa.types.is_dictionary(kind):
        return _shape(arrow.with_type(kind.value_type))
    if pa.types.is_fixed_size_binary(kind):
        return Type.BYTES, None, (), None, None
    raise SchemaError(f"field {arrow.name!r}: values of type {kind} have no schema: cast them")


def _child(arrow: pa.Field) -> Field:
    return Field(arrow.name, _inner(arrow))


def _inner(arrow: pa.Field) -> Schema:
    schema = schema_of(arrow)
    if schema is None:
        raise SchemaError(f"field {arrow.name!r}: schemaless values cannot be part of a schema")
    return schema


def plain(kind: Type, *, optional: bool = True, **more: Any) -> Schema:
    """A schema of the type, optional by default; ``more`` are further attributes."""
    return Schema(kind, optional=optional, **more)
