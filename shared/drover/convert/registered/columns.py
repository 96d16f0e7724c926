"""Builds columns from the records of a batch, and reports the records that fail."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from drover.record.errors import RecordError, RowsError
from drover.record.schema import Schema, arrow_field

#: RowsError need not be complete.
_FAILING_MAX = 1_000


def refuse(called: str, rows: Any, bad: Any, fault: str) -> None:
    """Raise a RowsError for the rows where ``bad`` is true, if there are any."""
    if bad.any():
        error = RecordError(f"the {called} record {fault}: was it written with this schema?")
        raise RowsError(dict.fromkeys(rows[bad].tolist(), error))


def checked(called: str, make: Callable[[Any], Any], found: Any, rows: Any) -> Any:
    """Apply ``make`` to all values; on failure, raise a RowsError with the rows that fail."""
    try:
        return make(found)
    except (ValueError, pa.ArrowException) as error:
        refuse(called, rows, _failing(make, found), f"has a value that is none: {error}")
        raise


def struct_column(schema: Schema, columns: list[Any], count: int, nulls: Any = None) -> Any:
    """A struct array of the fields' columns, null where ``nulls`` is true."""
    fields = [arrow_field(each.name, each.schema) for each in schema.fields]
    if not columns:
        return pa.Array.from_buffers(pa.struct([]), count, [None])
    mask = pa.array(nulls) if nulls is not None and nulls.any() else None
    return pa.StructArray.from_arrays(columns, fields=fields, mask=mask)


def _failing(make: Callable[[Any], Any], found: Any) -> Any:
    """A mask of the values that fail, of so many of them that the time is bounded."""
    bad = np.zeros(len(found), bool)
    parts, count = [(0, len(found))], 0
    while parts and count < _FAILING_MAX:
        start, length = parts.pop()
        if _makes(make, found.slice(start, length)):
            continue
        if length == 1:
            bad[start] = True
            count += 1
        else:
            half = length // 2
            parts += [(start + half, length - half), (start, half)]
    return bad


def _makes(make: Callable[[Any], Any], value: Any) -> bool:
    try:
        make(value)
    except (ValueError, pa.ArrowException):
        return False
    return True
