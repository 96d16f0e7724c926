"""Keeps null lists and maps of structs in Iceberg tables: PyIceberg writes and reads them as empty
ones, because it rebuilds such columns from their offsets, without the nulls.
"""

from typing import Any

import pyarrow as pa
from pyiceberg.io import pyarrow as pyiceberg_arrow


class _NullsKept(pyiceberg_arrow.ArrowProjectionVisitor):
    """PyIceberg's conversion of columns to the types of a table."""

    def list(self, list_type: Any, list_array: Any, value_array: Any) -> Any:
        found = super().list(list_type, list_array, value_array)
        return found if found is None else _with_nulls_of(list_array, found)

    def map(self, map_type: Any, map_array: Any, key_result: Any, value_result: Any) -> Any:
        found = super().map(map_type, map_array, key_result, value_result)
        return found if found is None else _with_nulls_of(map_array, found)


def keep_null_lists() -> None:
    """Make PyIceberg keep null lists and maps in this process."""
    setattr(pyiceberg_arrow, "ArrowProjectionVisitor", _NullsKept)  # noqa: B010 - for mypy


def _with_nulls_of(source: Any, found: Any) -> Any:
    if found.null_count == source.null_count:
        return found
    nulls = source.is_null()
    if pa.types.is_map(found.type):
        return pa.MapArray.from_arrays(
            _offsets(found), found.keys, found.items, type=found.type, mask=nulls
        )
    kind = type(found)
    return kind.from_arrays(_offsets(found), found.values, type=found.type, mask=nulls)


def _offsets(found: Any) -> Any:
    """The offsets in an array that starts at zero, as a mask requires."""
    return pa.concat_arrays([found.offsets])
