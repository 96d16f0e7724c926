"""Writes Kafka Connect's schemas as JSON, with keys in its JsonConverter's order."""

import json

from drover.record.json.encode import default_text
from drover.record.json.form import CONNECT, JsonForm
from drover.record.schema import Schema, Type, arrow_field

#: The JSON of a schemaless value's schema.
NO_SCHEMA = "null"


def schema_text(schema: Schema | None, form: JsonForm = CONNECT) -> str:
    """The schema as JSON, with defaults in the form of the values; NO_SCHEMA for None."""
    return NO_SCHEMA if schema is None else _text(schema, None, form)


def _text(schema: Schema, field_name: str | None, form: JsonForm) -> str:
    parts = [f'"type":"{schema.type}"']
    if schema.type is Type.STRUCT:
        fields = (_text(each.schema, each.name, form) for each in schema.fields)
        parts.append(f'"fields":[{",".join(fields)}]')
    if schema.key_schema is not None:
        parts.append(f'"keys":{_text(schema.key_schema, None, form)}')
    if schema.value_schema is not None:
        key = "values" if schema.type is Type.MAP else "items"
        parts.append(f'"{key}":{_text(schema.value_schema, None, form)}')
    parts.append(f'"optional":{_json(schema.optional)}')
    said = {"name": schema.name, "version": schema.version, "doc": schema.doc}
    parts += [f'"{key}":{_json(value)}' for key, value in said.items() if value is not None]
    if schema.parameters:
        parts.append(f'"parameters":{_json(dict(schema.parameters))}')
    if schema.default is not None:
        parts.append(f'"default":{_default(schema, form)}')
    if field_name is not None:
        parts.append(f'"field":{_json(field_name)}')
    return "{" + ",".join(parts) + "}"


def _default(schema: Schema, form: JsonForm) -> str:
    assert schema.default is not None
    if form.decimals is CONNECT.decimals:
        return schema.default
    return default_text(arrow_field("default", schema), form)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
