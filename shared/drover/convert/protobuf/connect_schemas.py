"""From Protobuf's messages to Kafka Connect's schemas."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from drover.convert.protobuf.names import (
    DATE,
    DECIMAL,
    ENUM,
    TAG,
    TIME,
    TIMESTAMP,
    TYPE,
    UNION_PREFIX,
    WRAPPERS,
    map_name,
)
from drover.convert.registered.sum_types import GENERAL_ENUM, GENERAL_UNION, is_general_union
from drover.record import schema as schemas
from drover.record.errors import SchemaError
from drover.record.schema import PRECISION, SCALE, Field, Schema, Type

_F = FieldDescriptor
#: Kafka Connect's type of each of Protobuf's.
SCALARS = {
    _F.TYPE_INT32: Type.INT32,
    _F.TYPE_SINT32: Type.INT32,
    _F.TYPE_SFIXED32: Type.INT32,
    _F.TYPE_UINT32: Type.INT64,
    _F.TYPE_FIXED32: Type.INT64,
    _F.TYPE_INT64: Type.INT64,
    _F.TYPE_SINT64: Type.INT64,
    _F.TYPE_UINT64: Type.INT64,
    _F.TYPE_FIXED64: Type.INT64,
    _F.TYPE_SFIXED64: Type.INT64,
    _F.TYPE_FLOAT: Type.FLOAT32,
    _F.TYPE_DOUBLE: Type.FLOAT64,
    _F.TYPE_BOOL: Type.BOOLEAN,
    _F.TYPE_STRING: Type.STRING,
    _F.TYPE_BYTES: Type.BYTES,
}
#: Types that a schema parameter distinguishes, because they share a type in Kafka Connect.
_TOLD = {
    _F.TYPE_SINT32: "sint32",
    _F.TYPE_SFIXED32: "sfixed32",
    _F.TYPE_UINT32: "uint32",
    _F.TYPE_FIXED32: "fixed32",
    _F.TYPE_SINT64: "sint64",
    _F.TYPE_UINT64: "uint64",
    _F.TYPE_FIXED64: "fixed64",
    _F.TYPE_SFIXED64: "sfixed64",
}
_LOGICAL = {
    DECIMAL: (Type.BYTES, schemas.DECIMAL),
    DATE: (Type.INT32, schemas.DATE),
    TIME: (Type.INT32, schemas.TIME),
    TIMESTAMP: (Type.INT64, schemas.TIMESTAMP),
}
_NARROW = {"int8": Type.INT8, "int16": Type.INT16}


@dataclass(frozen=True, slots=True)
class Conventions:
    """The settings that decide how schemas are translated."""

    full_names: bool = False
    int_enums: bool = False
    optional_nulls: bool = False
    wrapped_nulls: bool = False
    scrubbed_names: bool = False
    sum_types: bool = False


def connect_schema(message: Any, conventions: Conventions) -> Schema:
    """The schema that Kafka Connect has for a message.

    Raises:
        SchemaError: it has none: the message contains itself.
    """
    reader = _Reader(conventions)
    if message.full_name in WRAPPERS:
        return replace(reader.field(message.fields[0]), optional=False, parameters={})
    return reader.message(message)


def is_map(field: Any) -> bool:
    """Whether a field is a map: its messages are entries with a key and a value."""
    message = field.message_type
    return (
        field.is_repeated
        and message is not None
        and message.name.endswith("Entry")
        and [each.name for each in message.fields] == ["key", "value"]
        and not any(each.is_repeated for each in message.fields)
    )


def union_name(oneof: Any) -> str:
    """The name of the struct field that represents a oneof."""
    return f"{oneof.name}_{oneof.index}"


def is_union(schema: Schema) -> bool:
    """Whether a struct represents a oneof."""
    own = schema.type is Type.STRUCT and (schema.name or "").startswith(UNION_PREFIX)
    return own or is_general_union(schema)


def real_oneofs(message: Any) -> list[Any]:
    """A message's oneofs without the synthetic ones of optional fields."""
    return [each for each in message.oneofs if oneof_of(each.fields[0]) is not None]


def oneof_of(field: Any) -> Any:
    """The oneof that a field belongs to; None where that is only how it is optional."""
    oneof = field.containing_oneof
    is_synthetic = oneof is not None and len(oneof.fields) == 1 and oneof.name == f"_{field.name}"
    return None if is_synthetic else oneof


class _Reader:
    def __init__(self, conventions: Conventions) -> None:
        self._conventions = conventions
        self._within: list[str] = []

    def message(self, message: Any) -> Schema:
        if message.full_name in self._within:
            raise SchemaError(f"the message {message.full_name} contains itself, which no column "
                              "can")  # fmt: skip
        self._within.append(message.full_name)
        fields = [Field(union_name(each), self._union(each)) for each in real_oneofs(message)]
        fields += [
            Field(each.name, self.field(each)) for each in message.fields if oneof_of(each) is None
        ]
        self._within.pop()
        return Schema(Type.STRUCT, name=self._name(message), fields=tuple(fields))

    def field(self, field: Any) -> Schema:
        schema = self._single(field)
        if field.is_repeated and schema.type is not Type.MAP:
            item = replace(schema, optional=True)
            schema = Schema(Type.ARRAY, optional=True, value_schema=item)
        by_label = self._conventions.optional_nulls and _is_labelled(field)
        always = not self._conventions.optional_nulls and not self._conventions.wrapped_nulls
        return replace(
            schema,
            optional=schema.optional or by_label or always,
            parameters={**schema.parameters, TAG: str(field.number)},
        )

    def _union(self, oneof: Any) -> Schema:
        fields = tuple(
            Field(each.name, replace(self.field(each), optional=True)) for each in oneof.fields
        )
        if self._conventions.sum_types:
            name, parameters = oneof.name, {GENERAL_UNION: oneof.name}
        else:
            own = oneof.full_name if self._conventions.full_names else oneof.name
            name, parameters = f"{UNION_PREFIX}{own}", {}
        return Schema(Type.STRUCT, optional=True, name=name, fields=fields, parameters=parameters)

    def _single(self, field: Any) -> Schema:
        if field.type == _F.TYPE_GROUP:
            raise SchemaError(f"the field {field.full_name} is a group, which no column can be")
        if field.type == _F.TYPE_MESSAGE:
            return self._nested(field)
        if field.type == _F.TYPE_ENUM:
            own = GENERAL_ENUM if self._conventions.sum_types else ENUM
            symbols = {f"{own}.{each.name}": str(each.number) for each in field.enum_type.values}
            return Schema(
                Type.INT32 if self._conventions.int_enums else Type.STRING,
                optional=True,
                name=self._name(field.enum_type),
                parameters={own: field.enum_type.name, **symbols},
            )
        kind = SCALARS[field.type]
        if kind is Type.INT32:
            narrow = _NARROW.get(_params(field).get("connect.type", ""))
            if narrow is not None:
                return Schema(narrow)
        told = _TOLD.get(field.type)
        return Schema(kind, parameters={TYPE: told} if told is not None else {})

    def _nested(self, field: Any) -> Schema:
        message = field.message_type
        logical = _LOGICAL.get(message.full_name)
        if logical is not None:
            kind, name = logical
            parameters = _decimal(field) if name == schemas.DECIMAL else {}
            return Schema(kind, optional=True, name=name, version=1, parameters=parameters)
        if self._conventions.wrapped_nulls and message.full_name in WRAPPERS:
            return Schema(SCALARS[message.fields[0].type], optional=True)
        if is_map(field):
            key, value = (self.field(each) for each in message.fields)
            return Schema(
                Type.MAP,
                optional=True,
                name=map_name(self._name(message)),
                key_schema=key,
                value_schema=value,
            )
        return replace(self.message(message), optional=True)

    def _name(self, found: Any) -> str:
        return str(found.full_name if self._conventions.full_names else found.name)


def _is_labelled(field: Any) -> bool:
    """Whether the word optional stands before it."""
    if field.is_repeated or field.is_required or oneof_of(field) is not None:
        return False
    return field.containing_oneof is not None or (
        field.has_presence and field.type != _F.TYPE_MESSAGE
    )


def _decimal(field: Any) -> dict[str, str]:
    params = _params(field)
    found = {SCALE: params["scale"] if _is_number(params.get("scale")) else "0"}
    if _is_number(params.get("precision")):
        found[PRECISION] = params["precision"]
    return found


def _is_number(text: str | None) -> bool:
    return text is not None and text.lstrip("-").isdecimal()


def _params(field: Any) -> Mapping[str, str]:
    """What the option confluent.field_meta says."""
    options = field.GetOptions()
    if not options.ByteSize():
        return {}
    # its extension is known only when it is imported
    meta: Any = import_module("confluent_kafka.schema_registry.confluent.meta_pb2")
    known = type(options).FromString(options.SerializeToString())
    return dict(known.Extensions[meta.field_meta].params)
