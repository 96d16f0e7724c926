"""From Kafka Connect's schemas to Avro's."""

import base64
import json
import re
from dataclasses import replace
from typing import Any

from drover.convert.avro.schemas import (
    CONNECT_DEFAULT,
    CONNECT_DOC,
    CONNECT_NAME,
    CONNECT_PARAMETERS,
    CONNECT_TYPE,
    CONNECT_VERSION,
    DEFAULT_NAME,
    ENUM,
    INTERNAL_TYPE,
    MAP_ENTRY,
    UNION,
    UNTOLD_PRECISION,
)
from drover.convert.registered.sum_types import enum_parameter, is_general_union, symbols_of
from drover.record import schema as schemas
from drover.record.errors import SchemaError
from drover.record.schema import PRECISION, SCALE, Schema, Type

_TYPES = {
    Type.BOOLEAN: "boolean",
    Type.INT8: "int",
    Type.INT16: "int",
    Type.INT32: "int",
    Type.INT64: "long",
    Type.FLOAT32: "float",
    Type.FLOAT64: "double",
    Type.STRING: "string",
    Type.BYTES: "bytes",
}
_LOGICAL = {
    schemas.DATE: "date",
    schemas.TIME: "time-millis",
    schemas.TIMESTAMP: "timestamp-millis",
}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def avro_text(schema: Schema, *, enums: bool, meta_data: bool) -> str:
    """The Avro schema to register for a Kafka Connect schema, as JSON text.

    Args:
        schema: The Kafka Connect schema.
        enums: Whether texts marked as enums become Avro enums (enhanced.avro.schema.support,
            generalized.sum.type.support).
        meta_data: Whether properties keep what Avro cannot express (connect.meta.data).

    Raises:
        SchemaError: A name is invalid in Avro, or is used for two different schemas.
    """
    writer = _Writer(enums, meta_data)
    return json.dumps(writer.write(schema), ensure_ascii=False, separators=(",", ":"))


class _Writer:
    def __init__(self, enums: bool, meta_data: bool) -> None:
        self._enums = enums
        self._meta_data = meta_data
        self._written: dict[str, Schema] = {}

    def write(self, schema: Schema) -> Any:
        """The schema, with null beside it where it is optional."""
        default = avro_default(schema)
        node = self._plain(schema, default)
        if not schema.optional:
            return node
        if isinstance(node, list):
            return ["null", *node]
        # a default is of the first type
        return ["null", node] if default is None else [node, "null"]

    def _plain(self, schema: Schema, default: Any) -> Any:
        if schema.type is Type.STRUCT:
            if schema.name == UNION or is_general_union(schema):
                return [_without_null(self.write(each.schema)) for each in schema.fields]
            return self._record(schema)
        if schema.type is Type.ARRAY:
            assert schema.value_schema is not None
            node = {"type": "array", "items": self.write(schema.value_schema)}
        elif schema.type is Type.MAP:
            node = self._map(schema)
        elif self._enums and schema.type is Type.STRING and enum_parameter(schema, ENUM):
            return self._enum(schema)
        else:
            node = self._primitive(schema)
        return self._with_meta_data(node, schema, default)

    def _primitive(self, schema: Schema) -> dict[str, Any]:
        node: dict[str, Any] = {"type": _TYPES[schema.type]}
        logical = _LOGICAL.get(schema.name or "")
        if schema.name == schemas.DECIMAL and schema.type is Type.BYTES:
            precision = int(schema.parameters.get(PRECISION, UNTOLD_PRECISION))
            node |= {"scale": int(schema.parameters[SCALE]), "precision": precision}
            logical = "decimal"
        elif schema.type in (Type.INT8, Type.INT16):
            node[CONNECT_TYPE] = str(schema.type)
        if logical is not None:
            node["logicalType"] = logical
        return node

    def _map(self, schema: Schema) -> dict[str, Any]:
        assert schema.key_schema is not None
        assert schema.value_schema is not None
        key, value = schema.key_schema, schema.value_schema
        if key.type is Type.STRING and not key.optional:
            return {"type": "map", "values": self.write(value)}
        name = self._free_name(MAP_ENTRY)
        entry: dict[str, Any] = _named("record", name)
        self._written[name] = schema
        entry["fields"] = [
            {"name": "key", "type": self.write(key)},
            {"name": "value", "type": self.write(value)},
        ]
        if name != MAP_ENTRY:
            entry[INTERNAL_TYPE] = "MapEntry"
        return {"type": "array", "items": entry}

    def _record(self, schema: Schema) -> Any:
        name = schema.name or self._free_name(DEFAULT_NAME)
        if self._is_written(name, schema):
            return name
        node = _named("record", name)
        if schema.doc is not None:
            node["doc"] = schema.doc
        node["fields"] = [self._field(each.name, each.schema) for each in schema.fields]
        return self._with_meta_data(node, schema, avro_default(schema))

    def _field(self, name: str, schema: Schema) -> dict[str, Any]:
        if not _NAME.fullmatch(name):
            raise SchemaError(
                f"field {name!r}: names in Avro have letters, digits and _ only and begin with no "
                "digit; ReplaceField can rename it"
            )
        field: dict[str, Any] = {"name": name, "type": self.write(schema)}
        default = avro_default(schema)
        if default is not None or schema.optional:
            field["default"] = default
        return field

    def _enum(self, schema: Schema) -> Any:
        parameter = enum_parameter(schema, ENUM)
        assert parameter is not None
        name = schema.parameters[parameter]
        if self._is_written(name, schema):
            return name
        return _named("enum", name) | {"symbols": list(symbols_of(schema, parameter))}

    def _is_written(self, name: str, schema: Schema) -> bool:
        """Whether the name is defined already, so a reference to it is sufficient."""
        plain = replace(schema, optional=False, default=None)
        before = self._written.setdefault(name, plain)
        if before is not plain and before != plain:
            raise SchemaError(f"the name {name} stands for two different schemas")
        return before is not plain

    def _free_name(self, name: str) -> str:
        number, free = 1, name
        while free in self._written:
            number += 1
            free = f"{name}{number}"
        return free

    def _with_meta_data(self, node: dict[str, Any], schema: Schema, default: Any) -> Any:
        if self._meta_data:
            said = {
                CONNECT_NAME: schema.name,
                CONNECT_VERSION: schema.version,
                CONNECT_DOC: schema.doc if schema.type is not Type.STRUCT else None,
                CONNECT_DEFAULT: default,
                CONNECT_PARAMETERS: dict(schema.parameters) or None,
            }
            node = node | {key: value for key, value in said.items() if value is not None}
        # the bare word where there is nothing else to say
        return node["type"] if len(node) == 1 else node


def avro_default(schema: Schema) -> Any:
    """The default of a schema in Avro's JSON; None where there is none."""
    return None if schema.default is None else _default(schema, json.loads(schema.default))


def _default(schema: Schema, found: Any) -> Any:
    if found is None:
        return None
    match schema.type:
        case Type.BYTES:
            return base64.b64decode(found).decode("latin-1")
        case Type.STRUCT:
            return {
                each.name: _default(each.schema, found.get(each.name)) for each in schema.fields
            }
        case Type.ARRAY:
            assert schema.value_schema is not None
            return [_default(schema.value_schema, each) for each in found]
        case Type.MAP:
            assert schema.key_schema is not None
            assert schema.value_schema is not None
            if schema.key_schema.type is Type.STRING and not schema.key_schema.optional:
                return {key: _default(schema.value_schema, each) for key, each in found.items()}
            pairs = found.items() if isinstance(found, dict) else found
            return [
                {
                    "key": _default(schema.key_schema, key),
                    "value": _default(schema.value_schema, at),
                }
                for key, at in pairs
            ]
    return found


def _named(kind: str, name: str) -> dict[str, Any]:
    namespace, _, last = name.rpartition(".")
    if not all(_NAME.fullmatch(part) for part in name.split(".")):
        raise SchemaError(
            f"{name!r} is no name in Avro, whose names have letters, digits and _ between dots; "
            "SetSchemaMetadata can change it"
        )
    return {"type": kind, "name": last} | ({"namespace": namespace} if namespace else {})


def _without_null(node: Any) -> Any:
    if not isinstance(node, list):
        return node
    (found,) = (each for each in node if each != "null")
    return found
