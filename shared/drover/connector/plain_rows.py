"""Converts rows in memory to an Arrow table."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa

_REFUSED = (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError)


class PlainRowsError(ValueError):
    """The rows cannot form a table; the message names the row and the field."""


def table_of(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """A table whose columns are the fields of all rows, in the order in which they first appear.

    A missing field is null. The type of a column follows from its values; a column of integers and
    floats has floats.

    Raises:
        PlainRowsError: A row is not a mapping with string names, no row has a field, or the
            values of a field have no common type.
    """
    names: dict[str, None] = {}
    for index, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise PlainRowsError(
                f"row {index} is {type(row).__name__}: it must be a dict of fields"
            )
        names.update(dict.fromkeys(row))
        wrong = next((name for name in row if not isinstance(name, str)), None)
        if wrong is not None:
            raise PlainRowsError(f"row {index} has a field named {wrong!r}: names must be strings")
    if rows and not names:
        raise PlainRowsError("none of the rows has a field")
    return pa.table({name: _column(name, [row.get(name) for row in rows]) for name in names})


def _column(name: str, values: list[Any]) -> pa.Array:
    try:
        return _array(values)
    except _REFUSED as error:
        index = bisect_left(range(len(values)), True, key=lambda last: _fails(values[: last + 1]))
        kinds = dict.fromkeys(type(each).__name__ for each in values[:index] if each is not None)
        before = f", and {' or '.join(kinds)} in rows before it" if kinds else ""
        raise PlainRowsError(
            f"field {name!r} of row {index} is {type(values[index]).__name__}{before}: {error}; "
            "use values of one type in all rows, or an Arrow table with a schema"
        ) from error


def _fails(values: list[Any]) -> bool:
    try:
        _array(values)
    except _REFUSED:
        return True
    return False


def _array(values: list[Any]) -> pa.Array:
    made = pa.array(values)
    if pa.types.is_temporal(made.type):  # Arrow drops the time or the zone of mixed values
        zones = (each.tzinfo is not None if isinstance(each, datetime) else None for each in values)
        if len({zone for zone, each in zip(zones, values, strict=True) if each is not None}) > 1:
            raise pa.ArrowInvalid("dates, times with a zone and times without one cannot be mixed")
    return made
