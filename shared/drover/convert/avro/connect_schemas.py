"""From Avro's schemas to Kafka Connect's."""

import base64
import json
import re
from collections.abc import Mapping
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
    FIXED_SIZE,
    GENERAL_UNION_PREFIX,
    INTERNAL_TYPE,
    MAP_ENTRY,
    NAMED_KINDS,
    UNION,
    UNTOLD_PRECISION,
    AvroSchema,
    branch_name,
    kind_of,
    property_of,
)
from drover.convert.registered.sum_types import GENERAL_ENUM, GENERAL_UNION
from drover.record import schema as schemas
from drover.record.errors import SchemaError
from drover.record.schema import PRECISION, SCALE, Field, Schema, Type

_TYPES = {
    "boolean": Type.BOOLEAN,
    "int": Type.INT32,
    "long": Type.INT64,
    "float": Type.FLOAT32,
    "double": Type.FLOAT64,
    "bytes": Type.BYTES,
    "string": Type.STRING,
    "enum": Type.STRING,
    "fixed": Type.BYTES,
}
_NARROW = {"int8": Type.INT8, "int16": Type.INT16}
_LOGICAL = {
    ("int", "date"): schemas.DATE,
    ("int", "time-millis"): schemas.TIME,
    ("long", "timestamp-millis"): schemas.TIMESTAMP,
}
_UNNAMED = re.compile(re.escape(DEFAULT_NAME) + "[0-9]*")
_NO_DEFAULT: Any = object()


def connect_schema(avro: AvroSchema, default: Any = None, *, sum_types: bool = False) -> Schema:
    """The schema that Kafka Connect has for Avro's, which has this default, in Avro's JSON.

    ``sum_types``: unions and enums have general names (generalized.sum.type.support).

    Raises:
        SchemaError: it has none: recursive types, null alone.
    """
    return _Reader(avro, sum_types).read(avro.root, default)


def is_map_entry(node: Any) -> bool:
    """Whether an array of this resolved schema represents a map with keys other than strings."""
    return kind_of(node) == "record" and (
        node["name"] == MAP_ENTRY or property_of(node, INTERNAL_TYPE) == "MapEntry"
    )


class _Reader:
    def __init__(self, avro: AvroSchema, sum_types: bool) -> None:
        self._avro = avro
        self._sum_types = sum_types
        self._union_count = 0
        self._within: list[str] = []

    def read(self, found: Any, default: Any = _NO_DEFAULT, *, optional: bool = False) -> Schema:
        node = self._avro.resolved(found)
        kind = kind_of(node)
        if kind == "union":
            return self._union(node, default)
        if kind == "null":
            raise SchemaError("the type null alone has no counterpart: make it part of a union")
        if kind in NAMED_KINDS and node["name"] in self._within:
            raise SchemaError(f"the type {node['name']} contains itself, which no column can")
        shape = self._shape(node, kind)
        name = property_of(node, CONNECT_NAME)
        if name is None and kind in NAMED_KINDS and not _UNNAMED.fullmatch(node["name"]):
            name = node["name"]
        version = property_of(node, CONNECT_VERSION)
        given = property_of(node, CONNECT_PARAMETERS)
        parameters = dict(given) if isinstance(given, dict) else {}
        logical = shape.pop("logical", None)
        schema = Schema(
            optional=optional,
            name=logical or (name if shape["type"] is not Type.MAP or name != MAP_ENTRY else None),
            version=version if isinstance(version, int) else (1 if logical else None),
            doc=property_of(node, "doc") or property_of(node, CONNECT_DOC),
            parameters=_texts(parameters | shape.pop("parameters", {})),
            **shape,
        )
        if default is _NO_DEFAULT or default is None:
            default = property_of(node, CONNECT_DEFAULT)
        if default is None:
            return schema
        return _with_default(schema, default)

    def _union(self, branches: list[Any], default: Any) -> Schema:
        nodes = [self._avro.resolved(each) for each in branches]
        others = [each for each in nodes if kind_of(each) != "null"]
        optional = len(others) < len(nodes)
        if len(others) == 1:
            return self.read(others[0], default, optional=optional)
        if self._sum_types:
            return self._general_union(nodes, optional=optional)
        fields = tuple(Field(branch_name(each), self.read(each, optional=True)) for each in others)
        return Schema(Type.STRUCT, optional=optional, name=UNION, fields=fields)

    def _general_union(self, nodes: list[Any], *, optional: bool) -> Schema:
        """Unions are numbered in their order, their types as they stand, null among them."""
        name = f"{GENERAL_UNION_PREFIX}{self._union_count}"
        self._union_count += 1
        fields = tuple(
            Field(f"{GENERAL_UNION_PREFIX}field_{index}", self.read(each, optional=True))
            for index, each in enumerate(nodes)
            if kind_of(each) != "null"
        )
        parameters = {GENERAL_UNION: name}
        return Schema(
            Type.STRUCT, optional=optional, name=name, fields=fields, parameters=parameters
        )

    def _shape(self, node: Any, kind: str) -> dict[str, Any]:
        if kind == "record":
            self._within.append(node["name"])
            fields = tuple(
                Field(each["name"], self.read(each["type"], each.get("default", _NO_DEFAULT)))
                for each in node["fields"]
            )
            self._within.pop()
            return {"type": Type.STRUCT, "fields": fields}
        if kind == "map":
            values = self.read(node["values"])
            return {
                "type": Type.MAP, "key_schema": Schema(Type.STRING), "value_schema": values,
            }  # fmt: skip
        if kind == "array":
            items = self._avro.resolved(node["items"])
            entry = self.read(items)
            if is_map_entry(items):
                key, value = (entry.fields[at].schema for at in (0, 1))
                return {"type": Type.MAP, "key_schema": key, "value_schema": value}
            return {"type": Type.ARRAY, "value_schema": entry}
        return self._plain(node, kind)

    def _plain(self, node: Any, kind: str) -> dict[str, Any]:
        logical = property_of(node, "logicalType")
        if kind in ("bytes", "fixed") and logical == "decimal":
            precision = int(node["precision"])
            told = {PRECISION: str(precision)} if precision != UNTOLD_PRECISION else {}
            return {
                "type": Type.BYTES,
                "logical": schemas.DECIMAL,
                "parameters": {SCALE: str(node.get("scale", 0))} | told,
            }
        found = _LOGICAL.get((kind, logical or ""))
        if found is not None:
            return {"type": _TYPES[kind], "logical": found}
        if kind == "enum":
            own = GENERAL_ENUM if self._sum_types else ENUM
            symbols = {
                f"{own}.{each}": str(number) if self._sum_types else each
                for number, each in enumerate(node["symbols"])
            }
            return {"type": Type.STRING, "parameters": {own: node["name"]} | symbols}
        if kind == "fixed":
            return {"type": Type.BYTES, "parameters": {FIXED_SIZE: str(node["size"])}}
        narrow = _NARROW.get(property_of(node, CONNECT_TYPE) or "") if kind == "int" else None
        return {"type": narrow or _TYPES[kind]}


def _texts(parameters: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in parameters.items()}


def _with_default(schema: Schema, default: Any) -> Schema:
    text = json.dumps(_default(schema, default), ensure_ascii=False, separators=(",", ":"))
    return replace(schema, default=text)


def _default(schema: Schema, found: Any) -> Any:
    """A default of Avro's, in JSON, as the JSON converter writes it."""
    if found is None:
        return None
    match schema.type:
        case Type.BYTES if isinstance(found, str):
            return base64.b64encode(found.encode("latin-1")).decode()
        case Type.STRUCT if isinstance(found, dict):
            return {
                each.name: _default(each.schema, found.get(each.name)) for each in schema.fields
            }
        case Type.ARRAY if isinstance(found, list):
            assert schema.value_schema is not None
            return [_default(schema.value_schema, each) for each in found]
        case Type.MAP if isinstance(found, dict):
            assert schema.value_schema is not None
            return {key: _default(schema.value_schema, each) for key, each in found.items()}
        case Type.MAP if isinstance(found, list):
            assert schema.key_schema is not None
            assert schema.value_schema is not None
            key, value = schema.key_schema, schema.value_schema
            return [[_default(key, each["key"]), _default(value, each["value"])] for each in found]
    return found
