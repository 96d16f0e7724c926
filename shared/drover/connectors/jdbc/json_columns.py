"""Converts schemaless values to columns if all values of a batch have the same fields."""

from collections.abc import Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa

from drover.connector.records import KEY, VALUE, is_schemaless, loads, with_column
from drover.connectors.jdbc.exact_values import compact_json

#: Marks text fields with JSON of lists and structs.
DOCUMENT = b"drover.jdbc.document"
_SAFE_INTEGER = 2**53
_MIXED_NUMBERS = {int, float}
_PLAIN = {bool, int, float, str, bytes, Decimal, datetime, date, time}
_CONTAINERS = {dict, list}


def with_columns(batch: pa.RecordBatch, *, with_key: bool) -> pa.RecordBatch | None:
    """The batch with values, and optionally keys, as structs; None if their fields differ or are
    missing.
    """
    for name in (VALUE, KEY) if with_key else (VALUE,):
        if not is_schemaless(batch.schema.field(name)):
            continue
        texts = batch.column(name).to_pylist()
        values = [None if each is None else loads(each) for each in texts]
        array = _array(values, fields=name == VALUE)
        if array is None:
            return None
        batch = with_column(batch, pa.field(name, array.type), array)
    return batch


def _array(values: Sequence[Any], *, fields: bool) -> pa.Array | None:
    """Structs from dicts; other values as a plain column unless ``fields`` are required."""
    first = next((each for each in values if each is not None), None)
    if not isinstance(first, dict):
        plain = not any(isinstance(each, dict | list) for each in values)
        allowed = first is None or (plain and not fields)
        return _column(values)[0] if allowed else None
    names = list(first)
    if any(each is not None and (type(each) is not dict or list(each) != names) for each in values):
        return None
    columns = []
    described = []
    for name in names:
        array, is_document = _column([None if each is None else each[name] for each in values])
        columns.append(array)
        marks = {DOCUMENT: b"json"} if is_document else None
        described.append(pa.field(name, array.type, metadata=marks))
    gone = pa.array([each is None for each in values])
    return pa.StructArray.from_arrays(columns, fields=described, mask=gone)


def _column(values: Sequence[Any]) -> tuple[pa.Array, bool]:
    """Values of a field with their common type, else as texts; whether these are JSON."""
    kinds = {_kind(each) for each in values if each is not None}
    if not kinds:
        return pa.nulls(len(values), pa.string()), False
    if Decimal in kinds and kinds <= {Decimal, *_MIXED_NUMBERS}:
        values = [None if each is None else Decimal(str(each)) for each in values]
        kinds = {Decimal}
    if kinds == _MIXED_NUMBERS and all(
        each is None or isinstance(each, float) or abs(each) <= _SAFE_INTEGER for each in values
    ):
        return pa.array(values, pa.float64()), False
    if len(kinds) == 1 and kinds <= _PLAIN:
        try:
            return pa.array(values), False
        except (pa.ArrowException, OverflowError):  # an integer with too many digits
            pass
    texts = [None if each is None else _text(each) for each in values]
    return pa.array(texts, pa.string()), kinds <= _CONTAINERS


def _kind(value: Any) -> type:
    return Decimal if isinstance(value, Decimal) else type(value)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return compact_json(value) if isinstance(value, bool | dict | list) else str(value)
