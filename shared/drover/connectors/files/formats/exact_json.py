"""Numbers of JSON that Arrow's reader would round, and rows with all their digits.

Arrow's reader uses floating point for a field of whole numbers and fractions, and for whole numbers
of more than 64 bits. Such rows are read one by one instead: a field becomes a decimal if
floating point would change a value, and text if a decimal has too few digits.
"""

import decimal
import json
import math
import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from drover.connector.records import Fraction, fraction_of, has_float, is_double
from drover.connectors.files.formats.text_types import read_type, to_type

_INT64 = range(-(2**63), 2**63)
_DECIMAL_DIGITS = 38
#: Numbers that may have more digits, or a larger exponent, than floating point keeps.
_LONG_NUMBER = r"[0-9.]{16,}|[0-9][eE][+-]?[0-9]{3}"
_LONG_NUMBERS = re.compile(rb"[0-9][0-9.eE+-]{15,}|[0-9.]+[eE][+-]?[0-9]{3,}")


def parsed(text: str | bytes) -> Any:
    """Parsed JSON with all digits of its numbers: ``int``, ``float`` where it keeps a number, and
    otherwise ``Fraction``.

    Raises:
        ValueError: The text is not JSON.
    """
    return json.loads(text, parse_float=fraction_of, parse_constant=_refused)


def exact_text(value: Any) -> str:
    """The JSON of a value of ``parsed``."""
    if isinstance(value, Fraction):
        return value.text
    if isinstance(value, Mapping):
        fields = (
            f"{json.dumps(name, ensure_ascii=False)}:{exact_text(each)}"
            for name, each in value.items()
        )
        return f"{{{','.join(fields)}}}"
    if isinstance(value, list):
        return f"[{','.join(exact_text(each) for each in value)}]"
    return json.dumps(value, ensure_ascii=False)


def loses_digits(data: bytes, texts: Any, kinds: Sequence[pa.DataType]) -> bool:
    """Whether rows that Arrow's reader has read as columns of ``kinds`` may have lost digits.

    ``data`` has the JSON of all rows, ``texts`` that of each row.
    """
    with_float = any(has_float(kind) for kind in kinds)
    doubtful = {each for each in _LONG_NUMBERS.findall(data) if not _is_kept(each, with_float)}
    # they may be parts of texts
    return bool(doubtful) and any(
        _loses(text, with_float)
        for text in texts.filter(pc.match_substring_regex(texts, _LONG_NUMBER)).to_pylist()
        if any(each in doubtful for each in _LONG_NUMBERS.findall(text))
    )


def _is_kept(digits: bytes, with_float: bool) -> bool:
    """Whether Arrow's reader keeps a number without its sign, or what looks like one."""
    text = digits.decode()
    try:
        if text.isdecimal():
            number = int(text)
            return number in _INT64 and (not with_float or is_double(number))
        return repr(float(text)) == text or is_double(decimal.Decimal(text))
    except (ValueError, ArithmeticError):
        return False


def _loses(text: bytes, with_float: bool) -> bool:
    """Whether a number of a row loses digits."""
    kept = True

    def number(found: str) -> None:
        nonlocal kept
        kept = kept and _is_kept(found.removeprefix("-").encode(), with_float)

    json.loads(text, parse_int=number, parse_float=number)
    return not kept


def needs_exact_rows(kind: pa.DataType) -> bool:
    """Whether Arrow's reader does not read this type: decimals, which it takes from texts only,
    maps, and floating point of 32 bits, to which it rounds whole numbers.
    """
    if pa.types.is_decimal(kind) or pa.types.is_map(kind) or pa.types.is_float32(kind):
        return True
    return any(needs_exact_rows(kind.field(index).type) for index in range(kind.num_fields))


def exact_rows(texts: Sequence[bytes], types: pa.Schema, *, exact: bool) -> pa.RecordBatch:
    """Rows of JSON objects, parsed one by one.

    With ``exact`` they have the columns of ``types``. Otherwise they have all their fields, in the
    types of ``types`` where these fit.

    Raises:
        ArrowInvalid: A row is not JSON, or a value does not fit its type.
    """
    try:
        rows = [_row(text) for text in texts]
        names = types.names if exact else list(dict.fromkeys([n for row in rows for n in row]))
        columns, fields = [], []
        for name in names:
            values = [row.get(name) for row in rows]
            known = types.field(name).type if name in types.names else None
            column = _column(values, known, exact=exact)
            if exact or not pa.types.is_null(column.type):
                columns.append(column)
                fields.append(pa.field(name, column.type))
    except (AttributeError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise pa.ArrowInvalid(str(error)) from None
    if not fields:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * len(rows), pa.struct([])))
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _row(text: bytes) -> Any:
    return json.loads(
        text, parse_float=Fraction, parse_constant=_refused, object_pairs_hook=_object
    )


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("has a field twice")
    return found


def _column(values: list[Any], known: pa.DataType | None, *, exact: bool) -> Any:
    if known is not None:
        try:
            return _array(values, known, declared=exact)
        except (AttributeError, TypeError, ValueError, OverflowError):
            if exact:
                raise
    return _array(values, _inferred(values), number_texts=True)


def _array(
    values: list[Any], kind: pa.DataType, *, number_texts: bool = False, declared: bool = False
) -> Any:
    value = partial(_value, number_texts=number_texts, declared=declared)
    found = [value(each, kind) for each in values]
    return to_type(pa.array(found, read_type(kind)), kind)


def _value(value: Any, kind: pa.DataType, *, number_texts: bool, declared: bool) -> Any:
    """A value in the form for ``read_type(kind)``.

    With ``number_texts`` a number may become text. With ``declared``, for the types of a schema, a
    text may become a decimal, and a fraction the nearest floating-point number.
    """
    if value is None:
        return None
    inner = partial(_value, number_texts=number_texts, declared=declared)
    if pa.types.is_struct(kind) and isinstance(value, Mapping):
        fields = [kind.field(index) for index in range(kind.num_fields)]
        return {each.name: inner(value.get(each.name), each.type) for each in fields}
    if pa.types.is_list(kind) and isinstance(value, list):
        return [inner(each, kind.value_type) for each in value]
    if pa.types.is_map(kind) and isinstance(value, Mapping):
        return [(name, inner(each, kind.item_type)) for name, each in value.items()]
    if isinstance(value, Mapping | list) or pa.types.is_nested(kind):
        raise TypeError(f"{_shown(value)} is no value of type {kind}")
    if not _is_number(value):
        if pa.types.is_decimal(kind) and not (declared and isinstance(value, str)):
            raise TypeError(f"{_shown(value)} is no value of type {kind}")
        return value
    if pa.types.is_decimal(kind) or (number_texts and pa.types.is_string(kind)):
        return _text(value)
    if pa.types.is_floating(kind):
        found = float(value)
        if pa.types.is_float32(kind):
            found = float(np.float32(found))
        if not math.isfinite(found) or (isinstance(value, int) and int(found) != value):
            raise ValueError(f"{kind} does not hold all digits of {_shown(value)}")
        if not declared and not is_double(value):
            raise ValueError(f"{kind} does not hold all digits of {_shown(value)}")
        return found
    if isinstance(value, Fraction):
        raise TypeError(f"{value.text[:80]} is no value of type {kind}")
    return value


def _inferred(values: list[Any]) -> pa.DataType:
    """The type of values of a field; null if all are null."""
    values = [each for each in values if each is not None]
    kinds = {"number" if _is_number(each) else type(each).__name__ for each in values}
    if not values:
        return pa.null()
    if len(kinds) > 1:
        raise TypeError(f"a field has values of several types: {', '.join(sorted(kinds))}")
    match kinds.pop():
        case "number":
            return _number_type(values)
        case "list":
            return pa.list_(_inferred([item for each in values for item in each]))
        case "dict":
            names = dict.fromkeys(name for each in values for name in each)
            return pa.struct(
                (name, _inferred([each.get(name) for each in values])) for name in names
            )
        case "bool":
            return pa.bool_()
    return pa.string()


def _number_type(numbers: list[int | Fraction]) -> pa.DataType:
    """A type that holds every digit of the numbers."""
    if all(isinstance(each, int) for each in numbers):
        if all(each in _INT64 for each in numbers):
            return pa.int64()
    elif all(is_double(each) for each in numbers):
        return pa.float64()
    exact = [decimal.Decimal(each) for each in numbers]
    scale = max(0, *(-int(each.as_tuple().exponent) for each in exact))
    if scale + max(each.adjusted() + 1 for each in exact) > _DECIMAL_DIGITS:
        return pa.string()
    return pa.decimal128(_DECIMAL_DIGITS, scale)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | Fraction) and not isinstance(value, bool)


def _text(number: int | Fraction) -> str:
    return number.text if isinstance(number, Fraction) else str(number)


def _shown(value: Any) -> str:
    return repr(value)[:80]


def _refused(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")
