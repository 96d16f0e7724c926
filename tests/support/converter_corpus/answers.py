"""Results of our converters for the same cases, in the form of the corpus."""

import base64
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa

from drover.convert.converter import Converter
from drover.convert.headers import raw_headers, typed_headers
from drover.convert.registry import build_converter, converter_config_def
from drover.model.times import DAY_MS
from drover.record import schema as schemas
from drover.record.batch import HEADERS_TYPE
from drover.record.errors import RecordError
from drover.record.java_text import float_text
from drover.record.json.schema_parser import parse_schema
from drover.record.json.schema_writer import schema_text
from drover.record.json.values import exact_json, reader_of
from drover.record.schema import Schema, Type, arrow_field, arrow_type, schema_of
from tests.support.converter_corpus.cases import Case


def answer(case: Case) -> dict[str, Any]:
    """Our result of a case."""
    setting = "header.converter" if case["header"] else "value.converter"
    raw = {setting: case["class"]} | {
        f"{setting}.{name}": value for name, value in case["config"].items()
    }
    values = converter_config_def(setting, raw).parse(raw).require_valid()
    try:
        converter = build_converter(setting, values, is_key=False)
        if "bytes" in case:
            return _read(converter, case)
        return _write(converter, case)
    except RecordError as error:
        return {"error": str(error)}


def _read(converter: Converter, case: Case) -> dict[str, Any]:
    data = None if case["bytes"] is None else base64.b64decode(case["bytes"])
    if not case["header"]:
        (found,) = converter.decode(pa.array([data], pa.binary()), pa.array(["topic"]))
        schema = schema_of(found.field)
        assert len(found.values) == 1
        return {"schema": _schema(schema), "value": neutral(found.values, schema)}
    headers = typed_headers(_header(data, None), converter)
    entry = headers.to_pylist()[0][0]
    schema = parse_schema(entry["type"])
    if schema is None:
        field = arrow_field("value", None)
        text = None if entry["value"] is None else entry["value"].decode()
        return {"schema": None, "value": neutral(pa.array([text], field.type), None)}
    parsed = None if entry["value"] is None else exact_json(entry["value"])
    value = None if parsed is None else reader_of(schema)(parsed)
    values = pa.array([value], arrow_type(schema))
    return {"schema": _schema(schema), "value": neutral(values, schema)}


def _write(converter: Converter, case: Case) -> dict[str, Any]:
    said = json.dumps(case["schema"])
    schema = parse_schema(said)
    if case["header"]:
        text = None if case["value"] is None else json.dumps(case["value"]).encode()
        written = raw_headers(_header(text, said), converter).to_pylist()[0][0]["value"]
    else:
        field = arrow_field("value", schema)
        value = case["value"]
        if value is not None:
            value = json.dumps(value) if schema is None else _built(schema, value)
        values = pa.array([value], field.type)
        written = converter.encode(field, values, pa.array(["topic"]))[0].as_py()
    return {"bytes": None if written is None else base64.b64encode(written).decode()}


def _built(schema: Schema, value: Any) -> Any:
    """As the program does it: a missing value is null, whatever the schema."""
    if schema.type is not Type.STRUCT:
        return reader_of(schema)(value)
    return {
        each.name: None if value.get(each.name) is None else _built(each.schema, value[each.name])
        for each in schema.fields
    }


def _header(value: bytes | None, kind: str | None) -> Any:
    return pa.array([[{"key": "header", "value": value, "type": kind}]], HEADERS_TYPE)


def _schema(schema: Schema | None) -> Any:
    return json.loads(schema_text(schema))


def neutral(values: Any, schema: Schema | None) -> Any:
    """The first value, in the corpus's notation."""
    if schema is None:
        text = values[0].as_py()
        return None if text is None else _plain(json.loads(text, parse_float=Decimal))
    if not values[0].is_valid:
        return None
    match schema.type:
        case Type.STRUCT:
            return {
                each.name: neutral(values.slice(0, 1).flatten()[index], each.schema)
                for index, each in enumerate(schema.fields)
            }
        case Type.ARRAY:
            assert schema.value_schema is not None
            items = values[0].values
            return [
                neutral(items.slice(index, 1), schema.value_schema) for index in range(len(items))
            ]
        case Type.MAP:
            assert schema.key_schema is not None
            assert schema.value_schema is not None
            keys, items = values[0].values.flatten()
            return {
                "$map": [
                    [
                        neutral(keys.slice(index, 1), schema.key_schema),
                        neutral(items.slice(index, 1), schema.value_schema),
                    ]
                    for index in range(len(keys))
                ]
            }
        case Type.FLOAT32:
            return {"$float": float_text(values[0].as_py())}
        case Type.FLOAT64:
            return {"$float": values[0].as_py()}
        case Type.BYTES if schema.name != schemas.DECIMAL:
            return {"$bytes": base64.b64encode(values[0].as_py()).decode()}
    if schema.name == schemas.DECIMAL:
        return {"$decimal": str(values[0].as_py())}
    if schema.name == schemas.DATE:
        return {"$ms": str(values.cast(pa.int32())[0].as_py() * DAY_MS)}
    if schema.name in (schemas.TIME, schemas.TIMESTAMP):
        wire = pa.int32() if schema.name == schemas.TIME else pa.int64()
        return {"$ms": str(values.cast(wire)[0].as_py())}
    return values[0].as_py()


def _plain(value: Any) -> Any:
    match value:
        case dict():
            return {"$map": [[key, _plain(each)] for key, each in value.items()]}
        case list():
            return [_plain(each) for each in value]
        case Decimal():
            return {"$float": float(value)}
    return value


def comparable(result: Any) -> Any:
    """A result without irrelevant details: the notation of numbers, messages of errors."""
    if isinstance(result, list):
        return [comparable(each) for each in result]
    if not isinstance(result, dict):
        return result
    if "error" in result:
        return "error"
    if "$float" in result:
        return {"$float": repr(float(result["$float"]))}  # by their text NaNs are equal
    if "$decimal" in result:
        return {"$decimal": Decimal(result["$decimal"]).normalize()}
    if _lacks_elements(result.get("schema")):
        # an array or a map of values of several types: here it has no schema
        return {"schema": None, "value": comparable(result["value"])}
    return {key: comparable(value) for key, value in result.items()}


def _lacks_elements(schema: Any) -> bool:
    if not isinstance(schema, dict):
        return False
    parts = [schema[key] for key in ("items", "keys", "values") if key in schema]
    return any(part is None or _lacks_elements(part) for part in parts)


def written_json(data: str | None) -> Any:
    """Written bytes as a value to compare: JSON with numbers by their value."""
    return None if data is None else exact_json(base64.b64decode(data))
