"""Converts single values from parsed JSON, in Kafka Connect's form, to input for pyarrow arrays.

``decode`` reads whole columns at once where it can. For rare shapes and faulty rows it uses this
module, which returns the same values and names the fault. Kafka Connect silently converts values of
another type or range (text for a number, 300 for an int8) to 0, false or null; this module raises
an error.
"""

import base64
import binascii
import decimal
import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from drover.model.times import DAY_MS
from drover.record import schema as schemas
from drover.record.arrow import Array
from drover.record.errors import RecordError
from drover.record.json.numbers import exact_number
from drover.record.schema import (
    DECIMAL128_DIGITS,
    PRECISION,
    SCALE,
    Schema,
    Type,
    arrow_type,
    default_of,
    schema_of,
)

#: Converts parsed JSON to a value for pyarrow.
Reader = Callable[[Any], Any]

_BITS = {Type.INT8: 8, Type.INT16: 16, Type.INT32: 32, Type.INT64: 64}
_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
#: Floating point of 32 bits rounds numbers from here on to infinity.
_FLOAT_END = 2.0**128 - 2.0**103
_EXACT = decimal.Context(prec=400, traps=[decimal.InvalidOperation, decimal.Inexact])


def exact_json(text: str | bytes) -> Any:
    """Parsed JSON, with fractions as decimals.

    Raises:
        ValueError: the text is not JSON.
    """
    try:
        return json.loads(text, parse_float=exact_number, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def reader_of(schema: Schema, *, replace_null: bool = True) -> Reader:
    """A function from parsed JSON to a value of the schema, for pyarrow.

    Dates, times and timestamps become whole numbers, maps lists of pairs. With ``replace_null`` the
    schema's default, if any, replaces null and missing values. The function raises RecordError.
    """
    read = _reader(schema, replace_null)
    default = None
    if replace_null and schema.default is not None:
        default = read(exact_json(schema.default))
    optional, kind = schema.optional or default is not None, schema.type

    def read_or_default(found: Any) -> Any:
        if found is not None:
            return read(found)
        if not optional:
            raise RecordError(f"null for a required value of type {kind}")
        return default

    return read_or_default


def default_column(field: pa.Field, count: int) -> Array | None:
    """A column of ``count`` copies of the default of ``field``'s schema; None without a default.

    Raises:
        RecordError: the default is not a value of the schema.
    """
    text = default_of(field)
    if text is None:
        return None
    schema = schema_of(field)
    assert schema is not None
    default = pa.array(
        [reader_of(schema, replace_null=False)(exact_json(text))], arrow_type(schema)
    )
    if default.type != field.type:
        default = default.cast(field.type, safe=False)
    # take(), because pa.repeat does not support nested values
    return default if count == 1 else default.take(pa.array(np.zeros(count, np.int64)))


def bytes_of(found: Any) -> bytes:
    """The bytes of a base64 text.

    Raises:
        RecordError: the value is not base64 text.
    """
    if not isinstance(found, str):
        raise _mismatch(found, Type.BYTES)
    try:
        return base64.b64decode(found, validate=True)
    except (binascii.Error, ValueError) as error:
        raise RecordError(f"bytes must be base64: {error}") from None


def decimal_of(schema: Schema, found: Any) -> decimal.Decimal:
    """A decimal from a number or from the base64 of its unscaled value, with the schema's scale.

    Raises:
        RecordError: it is neither, or does not fit into the schema's digits.
    """
    scale = int(schema.parameters[SCALE])
    if isinstance(found, str):
        digits_bytes = bytes_of(found)
        if not digits_bytes:
            raise RecordError("a decimal must have at least one byte")
        value = decimal.Decimal(int.from_bytes(digits_bytes, "big", signed=True))
        value = value.scaleb(-scale, _EXACT)
    elif isinstance(found, bool) or not isinstance(found, int | float | decimal.Decimal):
        raise _mismatch(found, "decimal")
    else:
        value = found if isinstance(found, decimal.Decimal) else decimal.Decimal(repr(found))
    digits = int(schema.parameters.get(PRECISION, DECIMAL128_DIGITS))
    try:
        value = value.quantize(decimal.Decimal(1).scaleb(-scale), context=_EXACT)
    except (decimal.Inexact, decimal.InvalidOperation):
        raise RecordError(f"the decimal {_short(value)} has more than {scale} digits "
                          "behind the point, which its schema allows") from None  # fmt: skip
    if value.adjusted() + 1 + scale > digits:
        raise RecordError(f"the decimal {_short(value)} does not fit into {digits} digits")
    return value


def check_time(found: int) -> int:
    """Returns a time of day in milliseconds unchanged.

    Raises:
        RecordError: it is negative or not less than a day.
    """
    if not 0 <= found < DAY_MS:
        raise RecordError(f"the time {found} is not among the milliseconds of a day")
    return found


def _reader(schema: Schema, replace_null: bool) -> Reader:
    kind = schema.type
    schemas.arrow_type(schema)  # raises SchemaError for inconsistent schemas
    if kind is Type.BYTES and schema.name == schemas.DECIMAL:
        return lambda found: decimal_of(schema, found)
    if kind is Type.INT32 and schema.name == schemas.TIME:
        return lambda found: check_time(_whole(found, kind))
    if kind in _BITS:
        return lambda found: _whole(found, kind)
    if kind is Type.STRUCT:
        return _struct_reader(schema, replace_null)
    if kind is Type.ARRAY:
        assert schema.value_schema is not None
        return _array_reader(reader_of(schema.value_schema, replace_null=replace_null))
    if kind is Type.MAP:
        return _map_reader(schema, replace_null)
    return _READERS[kind]


def _whole(found: Any, kind: Type) -> int:
    if isinstance(found, float):
        # a larger float does not identify one whole number
        if not found.is_integer() or abs(found) > 2**53:
            raise RecordError(f"the number {_short(found)} is no value of type {kind}")
        found = int(found)
    elif isinstance(found, decimal.Decimal):
        if found.adjusted() > 20 or found != int(found):
            raise RecordError(f"the number {_short(found)} is no value of type {kind}")
        found = int(found)
    if isinstance(found, bool) or not isinstance(found, int):
        raise _mismatch(found, kind)
    bound = 1 << (_BITS[kind] - 1)
    if not -bound <= found < bound:
        raise RecordError(f"the number {_short(found)} does not fit into {kind}")
    return found


def _nearest(found: Any, kind: Type) -> float:
    """A number that may have been rounded, as Kafka Connect does for 32 bits."""
    if isinstance(found, str) and found in _NOT_FINITE:
        return _NOT_FINITE[found]
    if isinstance(found, bool) or not isinstance(found, int | float | decimal.Decimal):
        raise _mismatch(found, kind)
    try:
        return float(found)
    except OverflowError:
        return math.copysign(math.inf, found)


def _float(found: Any) -> float:
    number = _nearest(found, Type.FLOAT32)
    if not isinstance(found, str) and abs(number) >= _FLOAT_END:
        raise RecordError(f"the number {_short(found)} does not fit into {Type.FLOAT32}")
    return number


def _double(found: Any) -> float:
    number = _nearest(found, Type.FLOAT64)
    if isinstance(found, str):
        return number
    if not math.isfinite(number):
        raise RecordError(f"the number {_short(found)} does not fit into {Type.FLOAT64}")
    if isinstance(found, int) and int(number) != found:
        raise RecordError(f"the number {_short(found)} has more digits than a double holds")
    return number


def _boolean(found: Any) -> bool:
    if not isinstance(found, bool):
        raise _mismatch(found, Type.BOOLEAN)
    return found


def _string(found: Any) -> str:
    if not isinstance(found, str):
        raise _mismatch(found, Type.STRING)
    return found


_READERS: dict[Type, Reader] = {
    Type.FLOAT32: _float,
    Type.FLOAT64: _double,
    Type.BOOLEAN: _boolean,
    Type.STRING: _string,
    Type.BYTES: bytes_of,
}


def _struct_reader(schema: Schema, replace_null: bool) -> Reader:
    readers = [
        (each.name, reader_of(each.schema, replace_null=replace_null)) for each in schema.fields
    ]

    def read(found: Any) -> dict[str, Any]:
        if not isinstance(found, dict):
            raise _mismatch(found, Type.STRUCT)
        values = {}
        for name, read_field in readers:
            try:
                values[name] = read_field(found.get(name))
            except RecordError as error:
                raise _within(name, error) from None
        return values

    return read


def _array_reader(read_item: Reader) -> Reader:
    def read(found: Any) -> list[Any]:
        if not isinstance(found, list):
            raise _mismatch(found, Type.ARRAY)
        return [read_item(each) for each in found]

    return read


def _map_reader(schema: Schema, replace_null: bool) -> Reader:
    assert schema.key_schema is not None
    assert schema.value_schema is not None
    read_key = reader_of(schema.key_schema, replace_null=replace_null)
    read_value = reader_of(schema.value_schema, replace_null=replace_null)
    is_object = schema.key_schema.type is Type.STRING

    def read(found: Any) -> list[tuple[Any, Any]]:
        if not isinstance(found, dict if is_object else list):
            raise _mismatch(found, Type.MAP)
        pairs = list(found.items()) if isinstance(found, dict) else found
        if not all(len(pair) == 2 for pair in pairs if isinstance(pair, list | tuple)) or not all(
            isinstance(pair, list | tuple) for pair in pairs
        ):
            raise RecordError("the entries of a map must be arrays of a key and a value")
        read_pairs = [(read_key(key), read_value(value)) for key, value in pairs]
        if any(key is None for key, _ in read_pairs):
            raise RecordError("a key of a map is null, which Arrow's maps cannot hold")
        return list(dict(read_pairs).items()) if _hashable(read_pairs) else read_pairs

    return read


def _hashable(pairs: list[tuple[Any, Any]]) -> bool:
    return all(not isinstance(key, list | dict) for key, _ in pairs)


def _within(name: str, error: RecordError) -> RecordError:
    text = str(error)
    if text.startswith("field "):
        return RecordError(f"field {name}.{text.removeprefix('field ')}")
    return RecordError(f"field {name}: {text}")


def _mismatch(found: Any, wanted: str) -> RecordError:
    return RecordError(f"{_short(found)} is no value of type {wanted}")


def _short(found: Any) -> str:
    text = str(found) if isinstance(found, decimal.Decimal) else repr(found)
    return text if len(text) <= 80 else f"{text[:80]}…"


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")
