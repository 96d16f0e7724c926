"""Converts values of one schema to the known schema of a column."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from drover.record.arrow import offsets_of
from drover.record.errors import RecordError
from drover.record.json.values import default_column
from drover.record.schema import arrow_type, is_schemaless, schema_of

_WHOLE = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_FLOATING = (pa.float32(), pa.float64())


class SchemaChangeError(RecordError):
    """Values do not fit the known schema. With ``of_rows`` their schema fits, but some values are
    null where the known schema requires a value.
    """

    def __init__(self, faults: Sequence[str], *, of_rows: bool) -> None:
        super().__init__("; ".join(faults))
        self.of_rows = of_rows


def fit(known: pa.Field, found: pa.Field, values: pa.Array, *, drop: bool = False) -> pa.Array:
    """``values`` of the schema ``found`` as values of the schema ``known``.

    Values fit if the conversion loses nothing: their columns are in any order and have the known
    types or narrower ones; columns that are optional or have a default may be missing. Names,
    versions and defaults of schemas are not compared. Nulls (tombstones, for instance) always fit.

    With ``drop`` new columns are dropped, and optional columns whose type has changed become null.

    Raises:
        SchemaChangeError: the values do not fit; the message names each column and its types.
    """
    if values.null_count == len(values):
        return pa.nulls(len(values), known.type)
    same_kind = is_schemaless(known) == is_schemaless(found)
    if same_kind and found.type.equals(known.type, check_metadata=True):
        return values
    fitting = _Fitting(drop)
    fitted = fitting.column(known, found, values, known.name)
    if fitting.faults or fitting.nulls:
        raise SchemaChangeError(fitting.faults or fitting.nulls, of_rows=not fitting.faults)
    return fitted


@dataclass
class _Fitting:
    drop: bool
    #: Faults of the schema; ``nulls`` are faults of rows.
    faults: list[str] = field(default_factory=list)
    nulls: list[str] = field(default_factory=list)

    def column(self, known: pa.Field, found: pa.Field, values: pa.Array, path: str) -> pa.Array:
        if is_schemaless(known) or is_schemaless(found):
            return self._changed(known, found, values, path)
        if pa.types.is_struct(known.type) and pa.types.is_struct(found.type):
            return self._struct(known.type, found.type, values, path)
        if pa.types.is_list(known.type) and pa.types.is_list(found.type):
            return self._list(known.type, found.type, values, path)
        if found.type == known.type:
            return values.cast(known.type)
        if _widens(known.type, found.type) or _is_same(known, found):
            return values.cast(known.type, safe=False)
        return self._changed(known, found, values, path)

    def _changed(self, known: pa.Field, found: pa.Field, values: pa.Array, path: str) -> pa.Array:
        # only a field can become null: a path without a dot is the whole value
        if not (self.drop and known.nullable and "." in path):
            self.faults.append(f"{path} is {_told(found)} and was {_told(known)}")
        return pa.nulls(len(values), known.type)

    def _struct(
        self, known: pa.DataType, found: pa.DataType, values: pa.Array, path: str
    ) -> pa.Array:
        mask = values.is_null() if values.null_count else None
        columns = [self._child(each, found, values, path) for each in known]
        if not self.drop:
            names = {each.name for each in known}
            self.faults += [
                f"{path}.{each.name} ({_told(each)}) is new"
                for each in found
                if each.name not in names
            ]
        if not columns:
            return values.cast(known) if not found.num_fields else _empty(known, values)
        return pa.StructArray.from_arrays(columns, fields=list(known), mask=mask)

    def _child(self, known: pa.Field, struct: pa.DataType, values: pa.Array, path: str) -> pa.Array:
        place = f"{path}.{known.name}"
        index = struct.get_field_index(known.name)
        if index < 0:
            return self._missing(known, len(values), place)
        # field() keeps children of null structs; flatten() would turn them into nulls
        column = self.column(known, struct.field(index), values.field(index), place)
        if not known.nullable and column.null_count:
            absent = pc.and_(column.is_null(), values.is_valid())
            if pc.any(absent).as_py():
                self.nulls.append(f"{place} is null and was required")
        return column

    def _missing(self, known: pa.Field, row_count: int, place: str) -> pa.Array:
        default = default_column(known, row_count)
        if default is not None:
            return default
        if not known.nullable:
            self.faults.append(f"{place} ({_told(known)}), which was required, is missing")
        return pa.nulls(row_count, known.type)

    def _list(
        self, known: pa.DataType, found: pa.DataType, values: pa.Array, path: str
    ) -> pa.Array:
        items = self.column(known.value_field, found.value_field, values.flatten(), f"{path}.item")
        offsets = offsets_of(values.value_lengths().fill_null(0))
        mask = values.is_null() if values.null_count else None
        return pa.ListArray.from_arrays(offsets, items, type=known, mask=mask)


def _empty(known: pa.DataType, values: pa.Array) -> pa.Array:
    return pa.array([None if not each else {} for each in values.is_valid().to_pylist()], known)


def _widens(known: pa.DataType, found: pa.DataType) -> bool:
    """Whether ``known`` can hold every value of ``found``."""
    for kinds in (_WHOLE, _FLOATING):
        if known in kinds and found in kinds:
            return kinds.index(found) <= kinds.index(known)
    if pa.types.is_decimal(known) and pa.types.is_decimal(found):
        return bool(known.scale == found.scale and known.precision >= found.precision)
    return False


def _is_same(known: pa.Field, found: pa.Field) -> bool:
    """Whether two Arrow types have the same schema type, as timestamps of all units do."""
    a, b = schema_of(known), schema_of(found)
    assert a is not None
    assert b is not None
    return bool(arrow_type(a) == arrow_type(b))


def _told(found: pa.Field) -> str:
    return "a value without schema" if is_schemaless(found) else str(found.type)
