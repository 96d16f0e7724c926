"""Schemas and values as Kafka Connect's JSON converter writes them: in defaults and in headers."""

import base64
import binascii
import datetime
import decimal
import json
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from drover.record import schema as schemas
from drover.record.errors import RecordError
from drover.record.schema import Schema, Type, schema_of

#: The schema of values without one.
NO_SCHEMA = "null"

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_EPOCH_DAY = _EPOCH.date()
_MILLISECOND = datetime.timedelta(milliseconds=1)
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
#: Enough digits for every decimal.
_EXACT = decimal.Context(prec=1000)
#: Logical types that are whole numbers in JSON: the Arrow type of their schema, and the number's.
_WHOLE = {
    pa.date32().id: (pa.date32(), pa.int32()),
    pa.time32("ms").id: (pa.time32("ms"), pa.int32()),
    pa.timestamp("ms").id: (pa.timestamp("ms"), pa.int64()),
}
_ESCAPED = r'["\\\x00-\x1f]'


def schema_json(schema: Schema | None) -> str:
    """The schema as text; None is NO_SCHEMA."""
    if schema is None:
        return NO_SCHEMA
    return _ENCODER.encode(_schema(schema))


def from_json(schema: Schema, found: Any) -> Any:
    """The value that parsed JSON says, as Python has it for pyarrow.

    Raises:
        RecordError: it says none of this schema.
    """
    if found is None:
        return None
    try:
        return _from_json(schema, found)
    except (TypeError, ValueError, AttributeError, binascii.Error, OverflowError) as error:
        raise RecordError(f"{found!r} is no value of type {schema.type}: {error}") from error


def json_column(field: pa.Field, values: Any) -> Any:
    """The JSON of every value as a binary array, null for null; ``field`` carries their schema."""
    kind = values.type
    if (
        pa.types.is_integer(kind)
        or pa.types.is_boolean(kind)
        or (pa.types.is_floating(kind) and not _any(pc.invert(pc.is_finite(values))))
    ):
        return pc.cast(pc.cast(values, pa.string()), pa.binary())
    if pa.types.is_string(kind) and not _any(pc.match_substring_regex(values, _ESCAPED)):
        return pc.cast(pc.binary_join_element_wise('"', values, '"', ""), pa.binary())
    whole = _WHOLE.get(kind.id)
    if whole is not None:
        # Python's classes do not reach as far as Arrow's
        exact, number = whole
        return pc.cast(pc.cast(values.cast(exact).cast(number), pa.string()), pa.binary())
    schema = schema_of(field)
    assert schema is not None
    found = values.to_pylist()
    texts = [None if value is None else value_json(schema, value) for value in found]
    return pa.array(texts, pa.binary())


def value_json(schema: Schema, value: Any) -> bytes:
    """The JSON of a value, which is as pyarrow has it for Python."""
    return _ENCODER.encode(_to_json(schema, value)).encode()


def _any(mask: Any) -> bool:
    return bool(pc.any(mask).as_py())


def _schema(schema: Schema, name: str | None = None) -> dict[str, Any]:
    found: dict[str, Any] = {"type": str(schema.type)}
    if schema.type is Type.STRUCT:
        found["fields"] = [_schema(each.schema, each.name) for each in schema.fields]
    if schema.key_schema is not None:
        found["keys"] = _schema(schema.key_schema)
    if schema.value_schema is not None:
        is_map = schema.type is Type.MAP
        found["values" if is_map else "items"] = _schema(schema.value_schema)
    found["optional"] = schema.optional
    for key in ("name", "version", "doc"):
        if (said := getattr(schema, key)) is not None:
            found[key] = said
    if schema.parameters:
        found["parameters"] = dict(schema.parameters)
    if schema.default is not None:
        found["default"] = json.loads(schema.default)
    if name is not None:
        found["field"] = name
    return found


def _from_json(schema: Schema, found: Any) -> Any:
    read = _READERS.get(schema.name or "")
    if read is not None:
        return read(schema, found)
    match schema.type:
        case Type.BYTES:
            return base64.b64decode(found, validate=True)
        case Type.STRUCT:
            return {
                each.name: from_json(each.schema, found.get(each.name)) for each in schema.fields
            }
        case Type.ARRAY:
            assert schema.value_schema is not None
            return [from_json(schema.value_schema, each) for each in found]
        case Type.MAP:
            assert schema.key_schema is not None
            assert schema.value_schema is not None
            pairs = found.items() if isinstance(found, Mapping) else found
            return [
                (from_json(schema.key_schema, key), from_json(schema.value_schema, value))
                for key, value in pairs
            ]
    return found


def _read_decimal(schema: Schema, found: Any) -> decimal.Decimal:
    if isinstance(found, str):
        unscaled = int.from_bytes(base64.b64decode(found, validate=True), "big", signed=True)
        return decimal.Decimal(unscaled).scaleb(-int(schema.parameters[schemas.SCALE]), _EXACT)
    return decimal.Decimal(str(found))


_READERS: Mapping[str, Callable[[Schema, Any], Any]] = {
    schemas.DECIMAL: _read_decimal,
    schemas.DATE: lambda _, found: _EPOCH_DAY + datetime.timedelta(days=found),
    schemas.TIME: lambda _, found: (_EPOCH + found * _MILLISECOND).time(),
    schemas.TIMESTAMP: lambda _, found: _EPOCH + found * _MILLISECOND,
}


def _to_json(schema: Schema, value: Any) -> Any:
    if value is None:
        return None
    match value:
        case decimal.Decimal():
            unscaled = int(value.scaleb(int(schema.parameters[schemas.SCALE]), _EXACT))
            # two's complement, in as many bytes as it needs
            bits = (unscaled if unscaled >= 0 else ~unscaled).bit_length()
            return base64.b64encode(unscaled.to_bytes(bits // 8 + 1, "big", signed=True)).decode()
        case datetime.datetime():
            at = value if value.tzinfo is not None else value.replace(tzinfo=datetime.UTC)
            return (at - _EPOCH) // _MILLISECOND
        case datetime.date():
            return (value - _EPOCH_DAY).days
        case datetime.time():
            at = datetime.datetime.combine(_EPOCH_DAY, value, datetime.UTC)
            return (at - _EPOCH) // _MILLISECOND
        case bytes():
            return base64.b64encode(value).decode()
        case dict():
            return {each.name: _to_json(each.schema, value[each.name]) for each in schema.fields}
    if schema.type is Type.MAP:
        assert schema.key_schema is not None
        assert schema.value_schema is not None
        pairs = [
            [_to_json(schema.key_schema, key), _to_json(schema.value_schema, item)]
            for key, item in value
        ]
        return dict(pairs) if schema.key_schema.type is Type.STRING else pairs
    if schema.type is Type.ARRAY:
        assert schema.value_schema is not None
        return [_to_json(schema.value_schema, each) for each in value]
    return value
