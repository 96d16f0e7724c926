"""Casts of columns and of values without schema, with the results of Kafka Connect's Cast."""

import base64
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from drover.model.times import DAY_MS
from drover.record import RecordError, Type, arrow_type, schema_of
from drover.record.arrow import Array, Texts
from drover.record.json.numbers import Fraction
from drover.transform import java_numbers as java
from drover.transform.key_or_value import kind_of

#: The target types by their names in the setting "spec".
TARGETS: Mapping[str, Type] = {
    "int8": Type.INT8,
    "int16": Type.INT16,
    "int32": Type.INT32,
    "int64": Type.INT64,
    "float32": Type.FLOAT32,
    "float64": Type.FLOAT64,
    "boolean": Type.BOOLEAN,
    "string": Type.STRING,
}
_ARROW: Mapping[Type, pa.DataType] = {
    Type.INT8: pa.int8(),
    Type.INT16: pa.int16(),
    Type.INT32: pa.int32(),
    Type.INT64: pa.int64(),
    Type.FLOAT32: pa.float32(),
    Type.FLOAT64: pa.float64(),
    Type.BOOLEAN: pa.bool_(),
    Type.STRING: pa.string(),
}
_BITS: Mapping[Type, int] = {Type.INT8: 8, Type.INT16: 16, Type.INT32: 32, Type.INT64: 64}
#: Texts that Arrow parses like Java; all others are parsed row by row.
_PLAIN_INTEGER, _PLAIN_REAL = r"^-?[0-9]{1,19}$", r"^-?[0-9]{1,300}(\.[0-9]{1,300})?$"
#: Decimals with at most this scale are formatted without an exponent.
_PLAIN_SCALE_MAX = 6


def cast_column(field: pa.Field, values: Array, target: Type) -> Array:
    """Cast a column to the target type; ``field`` has the column's schema.

    Raises:
        RecordError: The type or a value cannot be cast to the target type.
    """
    if values.null_count == len(values):
        return pa.nulls(len(values), _ARROW[target])
    schema = schema_of(field)
    assert schema is not None
    if schema.type in (Type.STRUCT, Type.MAP, Type.ARRAY):
        raise RecordError(f"field {field.name!r}: a cast from {schema.type} is not possible")
    try:
        return _cast(plain_column(field, values), target)
    except (ValueError, pa.ArrowException) as error:
        raise RecordError(f"field {field.name!r}: {error}") from error


def cast_value(value: Any, target: Type) -> Any:
    """Cast a value without schema.

    Raises:
        RecordError: The value cannot be cast to the target type.
    """
    if value is None:
        return None
    if isinstance(value, bytes) and target is Type.STRING:
        return base64.b64encode(value).decode()
    if isinstance(value, Fraction):
        value = value.text if target is Type.STRING else float(value)
    if not isinstance(value, bool | int | float | str):
        raise RecordError(f"a cast of {kind_of(value)} to {target} is not possible")
    try:
        return _cast_plain(value, target)
    except ValueError as error:
        raise RecordError(str(error)) from error


def _cast_plain(value: bool | float | str, target: Type) -> Any:
    is_text, is_real = isinstance(value, str), isinstance(value, float)
    match target:
        case Type.STRING:
            if is_text:
                return value
            if isinstance(value, bool):
                return "true" if value else "false"
            return java.double_text(value) if isinstance(value, float) else str(value)
        case Type.BOOLEAN:
            if isinstance(value, str):
                return value.lower() == "true"
            return java.narrow(value, 64) != 0 if is_real else bool(value)
        case Type.FLOAT64:
            return java.parse_double(value) if isinstance(value, str) else float(value)
        case Type.FLOAT32:
            single = java.parse_float(value) if isinstance(value, str) else java.to_float32(value)
            # the 64-bit number of the 32-bit text, so converters write the same text as Java
            return float(java.float_text(single))
    bits = _BITS[target]
    if isinstance(value, str):
        return java.parse_integer(value, bits)
    return java.narrow(value, bits) if isinstance(value, float) else java.wrap(int(value), bits)


def plain_column(field: pa.Field, values: Array) -> Array:
    """Cast values to their schema's Arrow type; connectors may return other Arrow types.

    Raises:
        pa.ArrowInvalid: A number is too large for the type.
    """
    schema = schema_of(field)
    assert schema is not None
    kind = arrow_type(schema)
    if values.type == kind:
        return values
    if pa.types.is_date(kind):
        # date64 may have a time of day, which is dropped
        values = values.cast(pa.timestamp("ms"))
    return values.cast(kind, safe=not pa.types.is_temporal(kind))


def _cast(values: Array, target: Type) -> Array:
    kind = values.type
    if pa.types.is_temporal(kind):
        if target is Type.STRING:
            return _moment_texts(values)
        values = values.cast(pa.int32() if kind.bit_width == 32 else pa.int64())
    elif pa.types.is_binary(kind):
        if target is not Type.STRING:
            raise ValueError(f"bytes cannot be cast to {target}")
        return _by_row(values, lambda each: base64.b64encode(each).decode(), pa.string())
    if values.type == _ARROW[target]:
        return values
    if pa.types.is_string(kind):
        return _from_texts(values, target)
    if pa.types.is_decimal(kind):
        return _from_decimals(values, target)
    if target is Type.STRING:
        return _real_texts(values) if pa.types.is_floating(kind) else values.cast(pa.string())
    if pa.types.is_boolean(kind):
        return values.cast(pa.int8()).cast(_ARROW[target])
    if target is Type.BOOLEAN:
        if pa.types.is_floating(kind):
            return pc.greater_equal(pc.abs(values), pa.scalar(1, kind))
        return pc.not_equal(values, pa.scalar(0, values.type))
    return _numbers(values, target)


def _numbers(values: Array, target: Type) -> Array:
    """Convert between number types with numpy's conversions, which wrap and round as in C."""
    numbers = pc.fill_null(values, 0).to_numpy(zero_copy_only=False)
    dtype = _ARROW[target].to_pandas_dtype()
    if target in _BITS and numbers.dtype.kind == "f":
        # in C, converting a number out of range is undefined: clamp it
        wide: Any = np.int64 if target is Type.INT64 else np.int32
        bound = float(1 << (np.dtype(wide).itemsize * 8 - 1))
        numbers = np.nan_to_num(numbers.astype(np.float64), nan=0.0)
        inside = (numbers >= -bound) & (numbers < bound)
        whole = np.where(inside, numbers, 0.0).astype(wide)
        limits = np.iinfo(wide)
        numbers = np.where(inside, whole, np.where(numbers > 0, limits.max, limits.min))
    with np.errstate(over="ignore"):
        found = numbers.astype(dtype)
    nulls = None if not values.null_count else pc.is_null(values).to_numpy(zero_copy_only=False)
    return pa.array(found, _ARROW[target], mask=nulls)


def _from_texts(texts: Texts, target: Type) -> Array:
    arrow = _ARROW[target]
    if target is Type.BOOLEAN:
        return pc.equal(pc.ascii_lower(texts), "true")
    is_real = target not in _BITS
    plain = pc.match_substring_regex(texts, _PLAIN_REAL if is_real else _PLAIN_INTEGER)
    others = pc.invert(pc.fill_null(plain, True))
    has_others = pc.any(others).as_py()
    try:
        found = (pc.if_else(plain, texts, None) if has_others else texts).cast(arrow)
    except pa.ArrowInvalid:
        # a number is too large: parse row by row, so the error names it
        found, others, has_others = pa.nulls(len(texts), arrow), pc.is_valid(texts), True
    if not has_others:
        return found
    read = _text_reader(target)
    return pc.replace_with_mask(found, others, _by_row(texts.filter(others), read, arrow))


def _text_reader(target: Type) -> Callable[[str], Any]:
    if target in _BITS:
        bits = _BITS[target]
        return lambda text: java.parse_integer(text, bits)
    return java.parse_float if target is Type.FLOAT32 else java.parse_double


def _from_decimals(values: Array, target: Type) -> Array:
    arrow = _ARROW[target]
    if target is Type.STRING:
        if 0 <= values.type.scale <= _PLAIN_SCALE_MAX:
            return values.cast(arrow)
        return _by_row(values, str, arrow)
    if target is Type.FLOAT32:
        return _by_row(values, lambda each: java.parse_float(str(each)), arrow)
    if target is Type.FLOAT64:
        return _by_row(values, float, arrow)
    if target is Type.BOOLEAN:
        return _by_row(values, lambda each: java.narrow_decimal(each, 64) != 0, arrow)
    # BigDecimal.byteValue takes the lowest bits of intValue
    bits = _BITS[target]
    return _by_row(values, lambda each: java.narrow_decimal(each, bits), arrow)


def _real_texts(values: Array) -> Texts:
    """Format like Java: Arrow has the same digits, but no point and another range for exponents."""
    size = pc.abs(values)
    kind = values.type
    plain = pc.and_(
        pc.greater_equal(size, pa.scalar(1e-3, kind)), pc.less(size, pa.scalar(1e7, kind))
    )
    texts = values.cast(pa.string())
    texts = pc.if_else(
        pc.match_substring(texts, "."), texts, pc.binary_join_element_wise(texts, ".0", "")
    )
    others = pc.invert(pc.fill_null(plain, True))
    if not pc.any(others).as_py():
        return texts
    write = java.float_text if kind == pa.float32() else java.double_text
    return pc.replace_with_mask(texts, others, _by_row(values.filter(others), write, pa.string()))


def _moment_texts(values: Array) -> Texts:
    """Format as Kafka Connect: a time before 1970-01-02, a date at midnight, else a timestamp."""
    kind = values.type
    if pa.types.is_date(kind):
        ms = pc.multiply(values.cast(pa.int32()).cast(pa.int64()), DAY_MS)
    else:
        ms = (
            values.cast(pa.int32()).cast(pa.int64())
            if pa.types.is_time(kind)
            else values.cast(pa.int64())
        )
    moments = ms.cast(pa.timestamp("ms"))
    stamps = pc.strftime(moments, "%Y-%m-%dT%H:%M:%SZ")
    days = pc.utf8_slice_codeunits(stamps, 0, 10)
    return pc.if_else(
        pc.less(ms, DAY_MS),
        pc.utf8_slice_codeunits(stamps, 11),
        pc.if_else(pc.equal(ms, pc.multiply(pc.divide(ms, DAY_MS), DAY_MS)), days, stamps),
    )


def _by_row(values: Array, convert: Callable[[Any], Any], kind: pa.DataType) -> Array:
    return pa.array([None if each is None else convert(each) for each in values.to_pylist()], kind)
