"""Vectorised operations on struct arrays."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from drover.record import RecordError
from drover.record.arrow import Array, Mask
from drover.record.json.values import default_column
from drover.record.schema import with_default

Column = tuple[pa.Field, Array]


def columns_of(values: Array, *, replace_nulls: bool = False) -> list[Column]:
    """The fields of a struct array and their columns.

    ``replace_nulls`` replaces nulls with the default of the field's schema. In rows where the
    struct itself is null, a column may have any value.
    """
    columns = []
    for index in range(values.type.num_fields):
        field, column = values.type.field(index), values.field(index)
        columns.append((field, with_defaults(field, column) if replace_nulls else column))
    return columns


def with_defaults(field: pa.Field, column: Array, where: Mask | None = None) -> Array:
    """The column with the default of the field's schema for nulls (``where`` it is true)."""
    default = default_column(field, 1) if column.null_count else None
    if default is None:
        return column
    missing = pc.is_null(column)
    return pc.if_else(missing if where is None else pc.and_(missing, where), default[0], column)


def struct_of(columns: Sequence[Column], like: Array) -> Array:
    """A struct array of these columns, with nulls in the rows where ``like`` is null.

    Raises:
        RecordError: Two columns have the same name, or a name is empty.
    """
    names = [field.name for field, _ in columns]
    if len(set(names)) < len(names):
        doubled = sorted({name for name in names if names.count(name) > 1})
        raise RecordError(f"there would be more than one field called {doubled[0]!r}")
    if "" in names:
        raise RecordError("there would be a field without a name")
    if not columns:
        # without columns, from_arrays has no row count
        return pa.array(
            [{} if valid else None for valid in like.is_valid().to_pylist()], pa.struct([])
        )
    return pa.StructArray.from_arrays(
        [column for _, column in columns],
        fields=[field for field, _ in columns],
        mask=like.is_null() if like.null_count else None,
    )


def rebuilt_field(field: pa.Field, values: Array) -> pa.Field:
    """The field for changed structs; it keeps the schema's name, version, doc and parameters.

    As in Kafka Connect, a rebuilt schema is required and has no default. A null value is a
    tombstone.
    """
    return with_default(field, None).with_type(values.type).with_nullable(False)
