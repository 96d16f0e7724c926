"""Builds columns from the records of a batch, and reports the records that fail."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from drover.record.errors import RecordError, RowsError
from drover.record.schema import Schema, arrow_field


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
        bad = np.array([not _makes(make, found.slice(n, 1)) for n in range(len(found))], bool)
        refuse(called, rows, bad, f"has a value that is none: {error}")
        raise


def struct_column(schema: Schema, columns: list[Any], count: int, nulls: Any = None) -> Any:
    """A struct array of the fields' columns, null where ``nulls`` is true."""
    fields = [arrow_field(each.name, each.schema) for each in schema.fields]
    if not columns:
        return pa.array([{}] * count, pa.struct([]))
    mask = pa.array(nulls) if nulls is not None and nulls.any() else None
    return pa.StructArray.from_arrays(columns, fields=fields, mask=mask)


def _makes(make: Callable[[Any], Any], value: Any) -> bool:
    try:
        make(value)
    except (ValueError, pa.ArrowException):
        return False
    return True
