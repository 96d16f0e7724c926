"""Fits rows to the columns of a table: no value changes, or the rows are refused."""

import decimal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from drover.connector import CredentialsRejectedError
from drover.connector.records import decimals_of_texts, is_binary, is_list, is_text
from drover.connectors.files.partition_levels import shown

#: The column that marks rows of which only the key is used.
DELETED = "__drover_deleted"
#: The column with what the source of a row could not send.
LACKS = "__drover_lacks"
LACKS_TYPE = pa.struct(
    [
        ("names", pa.list_(pa.string())),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
    ]
)
#: Columns that are not the table's.
_MARKS = {DELETED: pa.bool_(), LACKS: LACKS_TYPE}
#: The most decimal digits of an integer.
_DIGITS = 19
_CAST_ERRORS = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError)


class TableError(Exception):
    """A table that cannot be written; the message has the remedy."""


class TableAccessError(TableError, CredentialsRejectedError):
    """A catalogue or a store rejects the credentials, or they lack a right."""


def _same(kind: pa.DataType, new: pa.DataType) -> pa.DataType:
    del new
    return kind


def _no_fault(name: str, kind: pa.DataType) -> str | None:
    del name, kind
    return None


def _no_value_fault(name: str, column: pa.ChunkedArray) -> str | None:
    del name, column
    return None


@dataclass(frozen=True, slots=True)
class TableTypes:
    """The columns of a table; ``schema`` is None for a table that does not exist yet.

    If it ``evolves``, columns and fields of structs are added, and a column's type becomes
    ``widened(type, type of the values)`` where values do not fit: a type with more values, or the
    same type if the format has none. ``evolve_setting`` is the setting's name, for messages.
    ``fault`` returns the reason why the format has no column of a name and a type, if any, and
    ``value_fault`` the reason why the table cannot hold the values of a column.
    With ``folds_case`` names that differ in case only are equal. ``untyped`` are new columns for
    which no record has a type: their values are empty lists or objects without fields.
    """

    schema: pa.Schema | None = None
    evolves: bool = False
    evolve_setting: str = ""
    widened: Callable[[pa.DataType, pa.DataType], pa.DataType] = _same
    fault: Callable[[str, pa.DataType], str | None] = _no_fault
    value_fault: Callable[[str, pa.ChunkedArray], str | None] = _no_value_fault
    folds_case: bool = False
    untyped: frozenset[str] = frozenset()


NEW_TABLE = TableTypes()


class FittedRows:
    """Rows with the columns of a table, and the columns that the table must have for them."""

    def __init__(self, types: TableTypes) -> None:
        self._types = types
        self._fields: dict[str, pa.Field] = {each.name: each for each in types.schema or ()}
        self._own = frozenset(self._fields)
        self._parts: list[pa.Table] = []

    def add(self, rows: pa.Table) -> None:
        """Add rows, all or none.

        Raises:
            TableError: The table lacks a column, a value does not fit, or is missing.
        """
        fields, columns = dict(self._fields), {}
        for name in rows.column_names:
            column = rows.column(name)
            if name in _MARKS:
                columns[name] = column
            elif name in fields:
                columns[name], fields[name] = self._fitted(fields[name], column)
            elif not pa.types.is_null(column.type):
                columns[name], fields[name] = column, self._new_field(name, column, fields)
            fault = self._types.value_fault(name, columns[name]) if name in columns else None
            if fault is not None:
                raise TableError(fault)
        present = rows
        if DELETED in rows.column_names and pc.any(rows.column(DELETED)).as_py():
            present = rows.filter(pc.invert(rows.column(DELETED)))
        if present.num_rows:
            self._check_required(present, fields)
        parts = self._parts
        changed = {
            name: each
            for name, each in fields.items()
            if name in self._fields and each.type != self._fields[name].type
        }
        if changed:
            parts = [_recast(each, changed) for each in parts]
        self._fields, self._parts = fields, [*parts, pa.table(columns)]

    def joined(self) -> pa.Table:
        """All rows, with all columns of the table."""
        fields = list(self._fields.values())
        marks = [
            pa.field(name, kind)
            for name, kind in _MARKS.items()
            if any(name in each.column_names for each in self._parts)
        ]
        schema = pa.schema([*fields, *marks])
        parts = [_with_all(each, schema) for each in self._parts]
        return pa.concat_tables(parts).combine_chunks() if parts else schema.empty_table()

    @property
    def untyped(self) -> frozenset[str]:
        """The new columns whose types are not known yet."""
        own = (each for name, each in self._fields.items() if name not in self._own)
        return frozenset(each.name for each in own if _is_untyped(each.type))

    def _new_field(
        self, name: str, column: pa.ChunkedArray, fields: Mapping[str, pa.Field]
    ) -> pa.Field:
        types = self._types
        if types.schema is not None and not types.evolves:
            raise TableError(_lacking(name, types.evolve_setting))
        if name in types.untyped and _is_untyped(column.type):
            raise unfit(name, column, "no record has a type for it: create the column")
        if types.folds_case:
            same = [each for each in fields if each.lower() == name.lower()]
            if same:
                raise TableError(f"field {name!r} differs from column {same[0]!r} only in case")
        self._check_format(name, column.type)
        return pa.field(name, column.type)

    def _check_format(self, name: str, kind: pa.DataType) -> None:
        fault = self._types.fault(name, kind)
        if fault is None and self._types.folds_case:
            same = _same_in_case(kind)
            fault = f"its fields {same[0]!r} and {same[1]!r} differ only in case" if same else None
        if fault is not None:
            raise TableError(f"field {name!r} cannot be a column of the table: {fault}")

    def _fitted(self, known: pa.Field, column: pa.ChunkedArray) -> tuple[pa.ChunkedArray, pa.Field]:
        """The column in the type of the table, and the field that the table must have for it."""
        if column.type == known.type:
            return column, known
        if known.name not in self._own:
            return self._merged(known, column)
        types, kind = self._types, known.type
        if types.evolves:
            kind = _with_new_fields(kind, column.type)
        lacking = _first_lacking(known.name, column.type, kind)
        if lacking:
            raise TableError(_lacking(lacking, types.evolve_setting))
        if kind != known.type:
            if _is_untyped(kind):
                raise unfit(known.name, column, "a part of it has no type: create the column")
            self._check_format(known.name, kind)
        wider, remedy = types.widened(kind, column.type), ""
        if (
            wider != kind
            and not _casts(column, kind, exact=True)
            and _casts(column, wider, exact=False)
        ):
            if types.evolves:
                kind = wider
            else:
                remedy = f"set {types.evolve_setting}, "
        return cast(column, known.with_type(kind), remedy), known.with_type(kind)

    def _merged(self, known: pa.Field, column: pa.ChunkedArray) -> tuple[pa.ChunkedArray, pa.Field]:
        """The same for a column that the table does not have yet."""
        kind = _common(known, column)
        self._check_format(known.name, kind)
        wanted = known.with_type(kind)
        return cast(column, wanted), wanted

    def _check_required(self, rows: pa.Table, fields: Mapping[str, pa.Field]) -> None:
        lacks = rows.column(LACKS).to_pylist() if LACKS in rows.column_names else []
        if any(lacks):  # the rows of the table have these values
            names = frozenset[str]().union(*(each["names"] for each in lacks if each))
            complete = rows.filter(pa.array([not each for each in lacks])).drop_columns([LACKS])
            if complete.num_rows:
                self._check_required(complete, fields)
            fields = {name: each for name, each in fields.items() if name not in names}
        for name, each in fields.items():
            if not each.nullable and (
                name not in rows.column_names or rows.column(name).null_count
            ):
                raise _no_value(name)
            if name in rows.column_names and _has_required(each.type):
                values = rows.column(name).combine_chunks()
                path = _first_missing(name, each.type, values)
                if path is not None:
                    raise _no_value(path)


def aligned(rows: pa.Table, schema: pa.Schema, *, evolves: bool, evolve_setting: str) -> pa.Table:
    """Rows with the columns and types of a table; new columns are appended if it ``evolves``.

    A value that the table's type would change is rejected, except for floating-point rounding.

    Raises:
        TableError: The table lacks a column or struct field and does not evolve, or its type cannot
            hold a value.
    """
    found = FittedRows(TableTypes(schema, evolves, evolve_setting))
    found.add(rows)
    return found.joined()


def unfit(name: str, column: pa.ChunkedArray, why: str) -> TableError:
    """The error of a field whose value cannot be stored."""
    values = column.drop_null()
    value = f" has the value {shown(values[0])}, and" if len(values) else ""
    return TableError(f"field {name!r}{value} {why[:300]}")


def cast(column: pa.ChunkedArray, wanted: pa.Field, remedy: str = "") -> pa.ChunkedArray:
    """A column with the type of a table's column.

    Raises:
        TableError: A value would change; ``remedy`` is named before the usual ones.
    """
    if column.type == wanted.type:
        return column
    try:
        found = _converted(column, wanted.type)
        if _same_values(column.combine_chunks(), found.combine_chunks(), exact=False):
            return found
        why = "it would change"
    except _CAST_ERRORS as error:
        why = str(error).partition("\n")[0][:200]
    values = column.drop_null().combine_chunks()
    path, value = _first_unfit(wanted.name, values, wanted.type)
    raise TableError(
        f"column {wanted.name!r} of the table is {wanted.type}, and the records have {column.type} "
        f"which does not fit: {path!r} has the value {value} ({why}): {remedy}convert it with "
        "Cast, or change the table"
    )


def _converted(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    between = _between(column.type, kind)
    return (column if between == column.type else column.cast(between)).cast(kind)


def _between(kind: pa.DataType, wanted: pa.DataType) -> pa.DataType:
    """The type by which pyarrow converts integers to decimals if their values fit, and to times as
    milliseconds, the unit of Kafka Connect.
    """
    types = pa.types
    if types.is_integer(kind):
        if types.is_decimal(wanted):
            return pa.decimal128(38, min(wanted.scale, 38 - _DIGITS))
        if types.is_timestamp(wanted):
            return pa.timestamp("ms", wanted.tz)
        if types.is_time(wanted):
            raise pa.ArrowNotImplementedError("a number is not a time of day")
    if types.is_struct(kind) and types.is_struct(wanted):
        found = {each.name: each.type for each in wanted}
        inner = [
            each.with_type(_between(each.type, found.get(each.name, each.type))) for each in kind
        ]
        return pa.struct(inner)
    if is_list(kind) and is_list(wanted):
        item = kind.value_field
        return pa.list_(item.with_type(_between(item.type, wanted.value_type)))
    if types.is_map(kind) and types.is_map(wanted):
        item = kind.item_field
        return pa.map_(kind.key_field, item.with_type(_between(item.type, wanted.item_type)))
    return kind


def _casts(column: pa.ChunkedArray, kind: pa.DataType, *, exact: bool) -> bool:
    try:
        found = _converted(column, kind)
        return _same_values(column.combine_chunks(), found.combine_chunks(), exact=exact)
    except _CAST_ERRORS:
        return False


def _recast(part: pa.Table, changed: Mapping[str, pa.Field]) -> pa.Table:
    for name in part.column_names:
        if name in changed:
            at = part.schema.get_field_index(name)
            part = part.set_column(at, name, cast(part.column(name), changed[name]))
    return part


def _with_all(part: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = [
        part.column(each.name)
        if each.name in part.column_names
        else pa.chunked_array([pa.nulls(part.num_rows, each.type)])
        for each in schema
    ]
    filled = [
        _with_fillers(column.combine_chunks(), each.type) if _has_required(each.type) else column
        for each, column in zip(schema, columns, strict=True)
    ]
    return pa.table(filled, schema=schema)


def _with_fillers(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Structs whose required fields have some value where the struct is null: the writer of Parquet
    accepts no null there.
    """
    if not pa.types.is_struct(kind):
        return values
    children = []
    for index, each in enumerate(kind):
        child = values.field(index)
        if child.null_count and not each.nullable:
            filler = pa.array([_filler(each.type)], child.type)
            at = np.where(child.is_null().to_numpy(False), len(child), np.arange(len(child)))
            child = pa.concat_arrays([child, filler]).take(pa.array(at))
        children.append(_with_fillers(child, each.type))
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=values.is_null())


def _filler(kind: pa.DataType) -> Any:
    if pa.types.is_struct(kind):
        return {each.name: _filler(each.type) for each in kind}
    if pa.types.is_nested(kind):
        return []
    if is_text(kind) or is_binary(kind):
        return b"" if is_binary(kind) else ""
    return decimal.Decimal(0) if pa.types.is_decimal(kind) else pa.scalar(0).cast(kind).as_py()


def _common(known: pa.Field, column: pa.ChunkedArray) -> pa.DataType:
    """A type for the values of both; none of them may change."""
    name, kind = known.name, column.type
    fields = [pa.schema([pa.field(name, each)]) for each in (known.type, kind)]
    conflict = _conflict(known.type, kind)
    if conflict is None:
        try:
            found = pa.unify_schemas(fields, promote_options="permissive").field(name).type
            if not _has_large_decimal(found):
                return found
        except _CAST_ERRORS:
            pass
    values = column.drop_null().combine_chunks()
    value = f", such as {shown(values[0])}" if len(values) else ""
    told = conflict or f"is of type {kind} here{value}, and of type {known.type} in earlier records"
    raise TableError(f"field {name!r} {told}: convert it with Cast")


def _conflict(one: pa.DataType, other: pa.DataType) -> str | None:
    """Why pyarrow's common type of both would change values."""
    types = pa.types
    if {types.is_decimal(one), types.is_decimal(other)} == {True, False} and (
        types.is_floating(one) or types.is_floating(other)
    ):
        return "is a decimal in some records and floating point in others"
    if (is_text(one) and is_binary(other)) or (is_binary(one) and is_text(other)):
        return "is text in some records and bytes in others"
    pairs: list[tuple[pa.DataType, pa.DataType]] = []
    if types.is_struct(one) and types.is_struct(other):
        own = {each.name: each.type for each in one}
        pairs = [(own[each.name], each.type) for each in other if each.name in own]
    elif is_list(one) and is_list(other):
        pairs = [(one.value_type, other.value_type)]
    elif types.is_map(one) and types.is_map(other):
        pairs = [(one.key_type, other.key_type), (one.item_type, other.item_type)]
    return next((found for each in pairs if (found := _conflict(*each))), None)


def _has_large_decimal(kind: pa.DataType) -> bool:
    if pa.types.is_decimal256(kind):
        return True
    return any(_has_large_decimal(kind.field(index).type) for index in range(kind.num_fields))


def _lacking(name: str, evolve_setting: str) -> str:
    return (
        f"the table has no column {name!r}: add it, set {evolve_setting}, or drop the field with "
        "ReplaceField"
    )


def _with_new_fields(kind: pa.DataType, new: pa.DataType) -> pa.DataType:
    """A table's type, with the additional struct fields of ``new``."""
    if pa.types.is_struct(kind) and pa.types.is_struct(new):
        known = {each.name: each for each in kind}
        added = [each for each in new if each.name not in known]
        both = {each.name: each.type for each in new if each.name in known}
        kept = [
            each.with_type(_with_new_fields(each.type, both.get(each.name, each.type)))
            for each in known.values()
        ]
        return pa.struct([*kept, *(each for each in added if not pa.types.is_null(each.type))])
    if is_list(kind) and is_list(new):
        item = kind.value_field
        return pa.list_(item.with_type(_with_new_fields(item.type, new.value_type)))
    if pa.types.is_map(kind) and pa.types.is_map(new):
        item = kind.item_field
        return pa.map_(kind.key_field, item.with_type(_with_new_fields(item.type, new.item_type)))
    return kind


def _first_lacking(name: str, kind: pa.DataType, table: pa.DataType) -> str | None:
    """The first field of ``kind`` that the table's type lacks; a cast would drop it silently."""
    inner: list[tuple[str, pa.DataType, pa.DataType]] = []
    if pa.types.is_struct(kind) and pa.types.is_struct(table):
        known = {each.name: each.type for each in table}
        for each in kind:
            if each.name in known:
                inner.append((f"{name}.{each.name}", each.type, known[each.name]))
            elif not pa.types.is_null(each.type):
                return f"{name}.{each.name}"
    elif is_list(kind) and is_list(table):
        inner.append((f"{name}.element", kind.value_type, table.value_type))
    elif pa.types.is_map(kind) and pa.types.is_map(table):
        inner.append((f"{name}.value", kind.item_type, table.item_type))
    return next((found for each in inner if (found := _first_lacking(*each))), None)


def _same_values(before: pa.Array, after: pa.Array, *, exact: bool) -> bool:
    """Whether a cast changed no value, except for floating-point rounding if not ``exact``.

    Raises:
        ArrowInvalid: It changed a text with more digits than a decimal has.
    """
    if before.type == after.type:
        return True
    if pa.types.is_floating(after.type):
        if not pa.types.is_floating(before.type):
            return not pc.any(pc.is_inf(after)).as_py()  # the cast checks integers
        if exact:
            back = after.cast(before.type)
            same = pc.or_(pc.equal(back, before), pc.and_(pc.is_nan(back), pc.is_nan(before)))
            return pc.all(same).as_py() is not False
        # a number beyond the range becomes an infinity
        return bool(pc.is_inf(before).equals(pc.is_inf(after)))
    if pa.types.is_struct(before.type):
        return all(
            _same_values(before.field(each.name), after.field(each.name), exact=exact)
            for each in before.type
            if after.type.get_field_index(each.name) >= 0
        )
    if is_list(before.type):
        return _same_values(before.flatten(), after.flatten(), exact=exact)
    if pa.types.is_map(before.type):
        keys = _same_values(before.keys, after.keys, exact=exact)
        return keys and _same_values(before.items, after.items, exact=exact)
    if is_text(after.type) or pa.types.is_null(before.type):
        return True
    if pa.types.is_temporal(after.type) and not pa.types.is_temporal(before.type):
        return True  # other forms of the same time; the cast loses no digits
    if is_text(before.type) and pa.types.is_decimal(after.type):
        return bool(decimals_of_texts(before, after.type).equals(after))
    return bool(after.cast(before.type).equals(before))


def _first_unfit(name: str, values: pa.Array, kind: pa.DataType) -> tuple[str, str]:
    """The path and the text of the first value that a type cannot hold."""
    inner: list[tuple[str, pa.Array, pa.DataType]] = []
    if pa.types.is_struct(values.type) and pa.types.is_struct(kind):
        wanted = {each.name: each.type for each in kind}
        inner = [
            (f"{name}.{each.name}", values.field(each.name), wanted[each.name])
            for each in values.type
            if each.name in wanted
        ]
    elif is_list(values.type) and is_list(kind):
        inner = [(f"{name}.element", values.flatten(), kind.value_type)]
    elif pa.types.is_map(values.type) and pa.types.is_map(kind):
        inner = [(f"{name}.value", values.items, kind.item_type)]
    for path, own, wanted_type in inner:
        present = own.drop_null()
        if not _casts(pa.chunked_array([present]), wanted_type, exact=False):
            return _first_unfit(path, present, wanted_type)
    for each in values:
        if not _casts(pa.chunked_array([[each.as_py()]], values.type), kind, exact=False):
            return name, shown(each)
    return name, shown(values[0]) if len(values) else "null"


def _is_untyped(kind: pa.DataType) -> bool:
    """Whether a type has a part without a type: the elements of empty lists, or no fields."""
    if pa.types.is_null(kind) or (pa.types.is_struct(kind) and kind.num_fields == 0):
        return True
    return any(_is_untyped(kind.field(index).type) for index in range(kind.num_fields))


def _same_in_case(kind: pa.DataType) -> tuple[str, str] | None:
    """Two nested fields whose names differ only in case."""
    seen: dict[str, str] = {}
    for index in range(kind.num_fields):
        each = kind.field(index)
        if each.name.lower() in seen:
            return seen[each.name.lower()], each.name
        seen[each.name.lower()] = each.name
        found = _same_in_case(each.type)
        if found is not None:
            return found
    return None


def _no_value(path: str) -> TableError:
    return TableError(
        f"column {path!r} of the table must not be null, but the record has no value for it: drop "
        "such records with Filter, or change the table"
    )


def _has_required(kind: pa.DataType) -> bool:
    """Whether a nested field must not be null."""
    fields = [kind.field(index) for index in range(kind.num_fields)]
    if pa.types.is_map(kind):
        fields = [kind.item_field]
    return any(not each.nullable or _has_required(each.type) for each in fields)


def _first_missing(name: str, kind: pa.DataType, values: pa.Array) -> str | None:
    """The path of the first null in a nested field that must not be null."""
    present = values.drop_null()
    inner: list[tuple[str, pa.Field, pa.Array]] = []
    if pa.types.is_struct(kind) and pa.types.is_struct(present.type):
        for each in kind:
            at = present.type.get_field_index(each.name)
            own = pa.nulls(len(present)) if at < 0 else present.field(at)
            inner.append((f"{name}.{each.name}", each, own))
    elif is_list(kind) and is_list(present.type):
        inner.append((f"{name}.element", kind.value_field, present.flatten()))
    elif pa.types.is_map(kind) and pa.types.is_map(present.type):
        inner.append((f"{name}.value", kind.item_field, present.items))
    for path, wanted, own in inner:
        if own.null_count and not wanted.nullable:
            return path
        found = _first_missing(path, wanted.type, own)
        if found is not None:
            return found
    return None
