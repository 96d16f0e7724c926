"""Arrow columns in the form of a PostgreSQL staging table, and their casts to the target table."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from typing import Any

import pyarrow as pa

from drover.connector.records import is_binary, is_list, is_text, loads
from drover.connectors.jdbc.exact_values import LossError, compact_json, json_text

_TEXT, _BIGINT, _BOOLEAN, _NUMERIC = "text", "bigint", "boolean", "numeric"
_DOUBLE, _BYTES, _DATE, _TIME = "double precision", "bytea", "date", "time without time zone"
_TIMESTAMP, _TIMESTAMPTZ = "timestamp without time zone", "timestamp with time zone"
_TIMESTAMPS = (_TIMESTAMP, _TIMESTAMPTZ)
_TIMES = (*_TIMESTAMPS, _TIME, "time with time zone")
_NANOSECONDS = "[.][0-9]{6}[0-9]*[1-9]"
_NUMERIC_SCALE = re.compile(r"numeric\(\d+,(-?\d+)\)")
_CHARACTERS = ("character varying", "bpchar")
_JSON = ("json", "jsonb")
#: Target types with the same equality as in Arrow, by staged type.
EXACT = {
    _BIGINT: ("smallint", "integer", _BIGINT),
    _TEXT: (_TEXT, "character varying"),
    _BOOLEAN: (_BOOLEAN,),
    _BYTES: (_BYTES,),
    _DATE: (_DATE,),
}


@dataclass(frozen=True, slots=True)
class TargetColumn:
    """A column of a table: its type with and without length and precision, and whether different
    texts are never equal.
    """

    base: str
    full: str
    deterministic: bool


@dataclass(frozen=True, slots=True)
class StagedColumn:
    """Values in COPY's format, their type, and their cast to the target type.

    ``key_cast`` is for comparisons; ``exact`` means that values which differ here also differ in
    the table. ``loss`` is a condition for values that the column would round or cut; empty if there
    are none.
    """

    values: pa.Array
    kind: str
    cast: str
    key_cast: str
    exact: bool
    loss: str


def staged_column(
    name: str, array: pa.Array, target: TargetColumn, *, is_document: bool
) -> StagedColumn:
    """The staged form of a column for the target column ``name``; texts of a document are JSON.

    Raises:
        LossError: PostgreSQL has no place for the nanoseconds of a time.
    """
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if is_document and target.base.endswith("[]"):
        array = _each(array, _array_text_of_json)
    values, kind = _values_for(array, target)
    cast = _cast(name, kind, target.base)
    # a longer text must fail instead of being truncated
    full = cast if target.base in _CHARACTERS else f"CAST({cast} AS {_doubled(target.full)})"
    exact = target.deterministic and target.base in EXACT.get(kind, ())
    scale = array.type.scale if pa.types.is_decimal(array.type) else None
    losses = (_type_loss(name, kind, cast, target.base), _modifier_loss(cast, target, scale))
    return StagedColumn(values, kind, cast, full, exact, " OR ".join(filter(None, losses)))


def _type_loss(name: str, kind: str, cast: str, base: str) -> str:
    """The condition for values that differ after the cast to the column's type."""
    array = "[]" if kind.endswith("[]") and base.endswith("[]") else ""
    kind, base = kind.removesuffix(array), base.removesuffix(array)

    def differs(back: str, compared: str = kind, original: str = name) -> str:
        return f"CAST({back} AS {compared}{array}) <> {original}"

    as_text = f"CAST({cast} AS text{array})"
    match kind, base:
        case (_, same) if same == kind:
            return ""
        case ("bigint" | "numeric" | "double precision", "boolean"):
            return differs(cast, "integer")
        case ("numeric" | "double precision", "smallint" | "integer" | "bigint" | "oid" | "money"):
            return differs(cast)
        case ("bigint", "real" | "double precision") | ("double precision", "real"):
            return differs(cast)
        case ("numeric" | "text", "real" | "double precision"):
            number = f"CAST({name} AS numeric{array})"
            if array:
                return differs(as_text, "numeric", number)
            # it is exact if its shortest text is, or as an integer
            return (
                f"CASE WHEN CAST({as_text} AS numeric) = {number} THEN false"
                f" WHEN {number} = trunc({number}) AND abs({number}) < 9e18"
                f" THEN CAST({cast} AS bigint) <> {number} ELSE {name} IS NOT NULL END"
            )
        case ("text", '"char"' | "name"):
            return differs(cast)
        case ("text", "date") if not array:
            return differs(cast, _TIMESTAMP, f"CAST({name} AS {_TIMESTAMP})")
        case ("text", each) if each in _TIMES and not array:
            return f"{name} ~ '{_NANOSECONDS}'"
        case (each, "date") if each in _TIMESTAMPS:
            return differs(cast)
        case (each, "time without time zone" | "time with time zone") if each in _TIMESTAMPS:
            return f"{name} IS NOT NULL"
        case ("numeric" | "bigint" | "double precision", "numeric" | "bigint") if array:
            return ""
        case ("bigint" | "numeric" | "double precision" | "boolean", _) if array:
            return differs(cast)  # such as an array of a domain
        case (each, _) if array and each in (*_TIMESTAMPS, _TIME):
            return differs(cast)
        case _:
            return ""


def _modifier_loss(cast: str, target: TargetColumn, scale: int | None) -> str:
    """The condition for values that differ with the column's length, precision or scale."""
    base = target.base.removesuffix("[]")
    if target.full == target.base:
        return ""
    if target.base == "character varying":  # of other characters the server reports the excess
        length = int("".join(filter(str.isdigit, target.full)))
        text = f"CAST({cast} AS text)"
        return f"char_length({text}) > {length} AND char_length(rtrim({text})) <= {length}"
    found = None if scale is None else _NUMERIC_SCALE.fullmatch(target.full)
    if found is not None and scale is not None and scale <= int(found[1]):
        return ""
    if base in (_NUMERIC, "interval", *_TIMES):
        return f"CAST({cast} AS {_doubled(target.full)}) <> {cast}"
    return ""


def _cast(name: str, kind: str, base: str) -> str:
    if kind == base:
        return name
    if kind == _TEXT and base == _TIMESTAMP:
        name = f"CAST({name} AS {_TIMESTAMPTZ})"  # otherwise the zone would be ignored
    elif kind == _DOUBLE and base == _NUMERIC:
        name = f"CAST({name} AS {_TEXT})"  # otherwise the number would have 15 digits
    elif kind == f"{_DOUBLE}[]" and base == f"{_NUMERIC}[]":
        name = f"CAST({name} AS {_TEXT}[])"
    elif _BOOLEAN in (kind, base) and kind != _TEXT and base != _TEXT:
        name = f"CAST({name} AS integer)"  # only integers can be cast to boolean
    return f"CAST({name} AS {_doubled(base)})"


def _doubled(text: str) -> str:
    return text.replace("%", "%%")


def _values_for(array: pa.Array, target: TargetColumn) -> tuple[pa.Array, str]:
    kind = array.type
    if target.base in _JSON:
        return (array, _TEXT) if is_text(kind) else (_each(array, json_text), _TEXT)
    if pa.types.is_nested(kind):
        if target.base.endswith("[]") and is_list(kind):
            return _each(array, _array_text), f"{_inner_kind(kind)}[]"
        return _each(array, compact_json), _TEXT
    return _plain_values(array)


def _plain_values(array: pa.Array) -> tuple[pa.Array, str]:
    types, kind = pa.types, array.type
    if types.is_boolean(kind) or types.is_date(kind) or types.is_decimal(kind):
        return array, _plain_kind(kind)
    if types.is_time(kind) and kind == pa.time64("ns"):
        return _microseconds(array, pa.time64("us")), _TIME
    if types.is_integer(kind) or types.is_time(kind):
        return array, _plain_kind(kind)
    if types.is_floating(kind):
        return array.cast(pa.float64()), _DOUBLE
    if types.is_timestamp(kind):
        return _utc(array), _plain_kind(kind)
    if is_binary(kind):
        return _each(array, _bytes_text), _BYTES
    if types.is_null(kind):
        return array.cast(pa.string()), _TEXT
    return array, _TEXT


def _plain_kind(kind: pa.DataType) -> str:
    types = pa.types
    if types.is_boolean(kind):
        return _BOOLEAN
    if types.is_integer(kind):
        return _NUMERIC if kind == pa.uint64() else _BIGINT
    if types.is_floating(kind):
        return _DOUBLE
    if types.is_decimal(kind):
        return _NUMERIC
    if types.is_date(kind):
        return _DATE
    if types.is_time(kind):
        return _TIME
    if types.is_timestamp(kind):
        return _TIMESTAMPTZ if kind.tz is not None else _TIMESTAMP
    return _BYTES if is_binary(kind) else _TEXT


def _utc(array: pa.Array) -> pa.Array:
    """Limit to microseconds; without a zone, because the session uses UTC and Arrow takes twenty
    times as long to format zones.
    """
    plain = array.cast(pa.timestamp(array.type.unit))
    return _microseconds(plain, pa.timestamp("us")) if plain.type.unit == "ns" else plain


def _microseconds(array: pa.Array, kind: pa.DataType) -> pa.Array:
    try:
        return array.cast(kind)
    except pa.ArrowInvalid:
        raise LossError from None


def _inner_kind(kind: pa.DataType) -> str:
    inner = kind.value_type
    while is_list(inner):
        inner = inner.value_type
    return _TEXT if pa.types.is_nested(inner) else _plain_kind(inner)


def _each(array: pa.Array, write: Callable[[Any], str]) -> pa.Array:
    values = array.to_pylist(maps_as_pydicts="lossy")
    return pa.array([None if each is None else write(each) for each in values], pa.string())


def _bytes_text(value: bytes) -> str:
    return f"\\x{value.hex()}"


def _array_text_of_json(text: str) -> str:
    value = loads(text)
    return _array_text(value) if isinstance(value, list) else text


def _array_text(values: Sequence[Any]) -> str:
    """An array in PostgreSQL's text format."""
    return "{" + ",".join(_element_text(each) for each in values) + "}"


def _element_text(value: Any) -> str:
    match value:
        case None:
            return "NULL"
        case list():
            return _array_text(value)
        case bool():
            return "true" if value else "false"
        case bytes():
            text = _bytes_text(value)
        case dict():
            text = compact_json(value)
        case datetime() | date() | time():
            text = value.isoformat()
        case _:
            text = str(value)
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
