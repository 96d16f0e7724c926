"""Parses Kafka Connect's schemas from the JSON that its JsonConverter writes."""

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from drover.record.errors import RecordError, SchemaError
from drover.record.json.encode import json_texts
from drover.record.json.form import CONNECT
from drover.record.json.values import exact_json, reader_of
from drover.record.schema import Field, Schema, Type, arrow_field

_CACHED_SCHEMA_COUNT = 1000
_TYPES = {str(kind): kind for kind in Type}


@lru_cache(maxsize=_CACHED_SCHEMA_COUNT)
def parse_schema(text: str) -> Schema | None:
    """Parses a schema that ``schema_writer`` or Kafka Connect wrote; None for null.

    Raises:
        RecordError: the text is not a valid schema.
    """
    try:
        found = exact_json(text)
    except ValueError as error:
        raise RecordError(f"the schema is no JSON: {error}") from None
    return None if found is None else _parse(found)


def _parse(found: Any) -> Schema:
    if not isinstance(found, dict):
        raise SchemaError(f"a schema must be a JSON object, not {_short(found)}")
    said = found.get("type")
    if not isinstance(said, str):
        raise SchemaError("a schema must contain the field 'type'")
    kind = _TYPES.get(said)
    if kind is None:
        raise SchemaError(f"unknown schema type {said!r}: one of {', '.join(_TYPES)}")
    name, version, doc = found.get("name"), found.get("version"), found.get("doc")
    schema = Schema(
        type=kind,
        optional=found.get("optional") is True,
        name=name if isinstance(name, str) else None,
        version=version if isinstance(version, int) else None,
        doc=doc if isinstance(doc, str) else None,
        parameters=_parameters(found.get("parameters")),
        fields=_fields(found) if kind is Type.STRUCT else (),
        key_schema=_part(found, "keys", kind) if kind is Type.MAP else None,
        value_schema=_elements(found, kind),
    )
    default = found.get("default")
    if default is None:
        return schema
    field = arrow_field("default", schema)
    value = pa.array([reader_of(schema)(default)], field.type)
    return replace(schema, default=json_texts(field, value, CONNECT)[0].as_py())


def _parameters(found: Any) -> Mapping[str, str]:
    if not isinstance(found, dict):
        return MappingProxyType({})
    if not all(isinstance(value, str) for value in found.values()):
        raise SchemaError("the parameters of a schema must have string values")
    return MappingProxyType(found)


def _elements(found: dict[str, Any], kind: Type) -> Schema | None:
    if kind is Type.ARRAY:
        return _part(found, "items", kind)
    return _part(found, "values", kind) if kind is Type.MAP else None


def _part(found: dict[str, Any], key: str, kind: Type) -> Schema:
    part = found.get(key)
    if part is None:
        raise SchemaError(f"a schema of type {kind} must contain the field {key!r}")
    return _parse(part)


def _fields(found: dict[str, Any]) -> tuple[Field, ...]:
    fields = found.get("fields")
    if not isinstance(fields, list):
        raise SchemaError("a struct's schema must contain an array called 'fields'")
    parsed: dict[str, Field] = {}
    for each in fields:
        name = each.get("field") if isinstance(each, dict) else None
        if not isinstance(name, str):
            raise SchemaError(f"a field of a struct's schema must say its name: {_short(each)}")
        if name in parsed:
            raise SchemaError(f"a struct's schema has the field {name!r} twice")
        parsed[name] = Field(name, _parse(each))
    return tuple(parsed.values())


def _short(value: object) -> str:
    return repr(value)[:80]
