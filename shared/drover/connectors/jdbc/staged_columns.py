"""Arrow columns in the form of a PostgreSQL staging table, and their casts to the target table."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from drover.connector.records import is_binary, is_list, is_text, loads
from drover.connectors.jdbc.column_types import compact_json, json_text

_TEXT, _BIGINT, _BOOLEAN, _NUMERIC = "text", "bigint", "boolean", "numeric"
_DOUBLE, _BYTES, _DATE, _TIME = "double precision", "bytea", "date", "time without time zone"
_TIMESTAMP, _TIMESTAMPTZ = "timestamp without time zone", "timestamp with time zone"
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
    the table.
    """

    values: pa.Array
    kind: str
    cast: str
    key_cast: str
    exact: bool


def staged_column(
    name: str, array: pa.Array, target: TargetColumn, *, is_document: bool
) -> StagedColumn:
    """The staged form of a column for the target column ``name``; texts of a document are JSON."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if is_document and target.base.endswith("[]"):
        array = _each(array, _array_text_of_json)
    values, kind = _values_for(array, target)
    cast = _cast(name, kind, target.base)
    # a longer text must fail instead of being truncated
    full = cast if target.base in _CHARACTERS else f"CAST({cast} AS {_doubled(target.full)})"
    exact = target.deterministic and target.base in EXACT.get(kind, ())
    return StagedColumn(values, kind, cast, full, exact)


def _cast(name: str, kind: str, base: str) -> str:
    if kind == base:
        return name
    if kind == _TEXT and base == _TIMESTAMP:
        name = f"CAST({name} AS {_TIMESTAMPTZ})"  # otherwise the zone would be ignored
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
    """Limit to microseconds, as in Python; without a zone, because the session uses UTC and Arrow
    takes twenty times as long to format zones.
    """
    unit = "us" if array.type.unit == "ns" else array.type.unit
    return pc.cast(array, pa.timestamp(unit), safe=False)


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
