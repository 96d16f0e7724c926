"""The value and the type that a literal text stands for, as Kafka Connect's headers have them."""

import datetime
import decimal
import json
import re
from typing import Any

from drover.record import schema as schemas
from drover.record.json_form import schema_json, value_json
from drover.record.schema import Schema, Type

_INTEGERS = ((Type.INT8, 8), (Type.INT16, 16), (Type.INT32, 32), (Type.INT64, 64))
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?", re.ASCII)
_WIDTHS = (Type.INT8, Type.INT16, Type.INT32, Type.INT64, Type.FLOAT32, Type.FLOAT64)
_FLOAT32_MAX = 3.4028234663852886e38
#: Forms of dates and times; of other lengths, too, strptime would take them.
_MOMENTS = (
    ("%Y-%m-%d", 10, schemas.DATE, Type.INT32),
    ("%H:%M:%S.%fZ", 13, schemas.TIME, Type.INT32),
    ("%Y-%m-%dT%H:%M:%S.%fZ", 24, schemas.TIMESTAMP, Type.INT64),
)


def parse_literal(text: str) -> tuple[Schema, Any]:
    """The schema and the value (as pyarrow takes it): the smallest number that it fits, a boolean,
    a date, a time, a timestamp, a list or a map of one type each; else the text.
    """
    if text in ("true", "false"):
        return Schema(Type.BOOLEAN), text == "true"
    found = _number(text) or _moment(text) or _collection(text)
    return found if found is not None else (Schema(Type.STRING), text)


def header_form(schema: Schema, value: Any) -> tuple[str, bytes]:
    """Type and value as the headers of record batches have them."""
    return schema_json(schema), value_json(schema, value)


def _number(text: str) -> tuple[Schema, Any] | None:
    if not _NUMBER.fullmatch(text):
        return None
    number = decimal.Decimal(text)
    if number == number.to_integral_value():
        whole = int(number)
        for kind, bits in _INTEGERS:
            if -(1 << (bits - 1)) <= whole < 1 << (bits - 1):
                return Schema(kind), whole
    scale = -int(number.as_tuple().exponent)
    as_float = abs(float(number))
    if scale != 0 and as_float < float("inf"):
        kind = Type.FLOAT32 if as_float <= _FLOAT32_MAX else Type.FLOAT64
        return Schema(kind), float(number)
    parameters = {schemas.SCALE: str(scale)}
    return Schema(Type.BYTES, name=schemas.DECIMAL, version=1, parameters=parameters), number


def _moment(text: str) -> tuple[Schema, Any] | None:
    for form, length, name, kind in _MOMENTS:
        if len(text) != length:
            continue
        try:
            at = datetime.datetime.strptime(text, form).replace(tzinfo=datetime.UTC)
        except ValueError:
            return None
        value = {schemas.DATE: at.date(), schemas.TIME: at.time()}.get(name, at)
        return Schema(kind, name=name, version=1), value
    return None


def _collection(text: str) -> tuple[Schema, Any] | None:
    if not text.startswith(("[", "{")):
        return None
    try:
        return _of_json(json.loads(text))
    except ValueError:
        return None


def _of_json(found: Any) -> tuple[Schema, Any]:
    """Raises ValueError when elements are of several types, or null."""
    match found:
        case bool():
            return Schema(Type.BOOLEAN), found
        case str():
            return Schema(Type.STRING), found
        case int() | float():
            number = _number(str(found))
            if number is None:
                raise ValueError("a number without a type")
            return number
        case list():
            element, values = _of_one_type(found)
            return Schema(Type.ARRAY, value_schema=element), values
        case dict():
            element, values = _of_one_type(list(found.values()))
            of_text = Schema(Type.STRING)
            pairs = list(zip(found, values, strict=True))
            return Schema(Type.MAP, key_schema=of_text, value_schema=element), pairs
    raise ValueError("null has no type")


def _of_one_type(items: list[Any]) -> tuple[Schema, list[Any]]:
    if not items:
        return Schema(Type.STRING, optional=True), []
    parsed = [_of_json(each) for each in items]
    found, values = [schema for schema, _ in parsed], [value for _, value in parsed]
    if all(each.type in _WIDTHS for each in found):
        return Schema(max((each.type for each in found), key=_WIDTHS.index)), values
    if all(each == found[0] for each in found):
        return found[0], values
    raise ValueError("elements of several types")
