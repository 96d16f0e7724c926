"""Computes the changes that a topic's records make to its table: rows to write, keys to delete."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from drover.connector.records import (
    KEY,
    OFFSET,
    PARTITION,
    TOPIC,
    VALUE,
    is_list,
    is_schemaless,
    loads,
    original_topics,
)

EXTRA = (
    "tables of Delta Lake and Iceberg need more libraries on the workers: pip install "
    "'drover-connect[lakehouse]', then restart them"
)
RECORD_KEY, RECORD_VALUE = "record_key", "record_value"
_DELETED, _ROW = "__drover_deleted", "__drover_row"


class TableError(Exception):
    """A table that cannot be written; the message has the remedy."""


@dataclass(frozen=True, slots=True)
class RowSettings:
    """How records become rows.

    ``keyed`` means that a row replaces the one with its key: the ``key_fields`` (all fields of the
    key if empty) of the record's key or value, according to ``key_source``. ``deletes`` makes a
    record without a value delete the row of its key; otherwise it is skipped.
    """

    keyed: bool = False
    key_source: str = RECORD_VALUE
    key_fields: tuple[str, ...] = ()
    deletes: bool = False


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes of new records: ``rows`` to write, and the keys of ``deleted`` rows; at most one
    per key.

    ``keys`` are the key columns. ``next_offsets`` are the offsets after the records, by partition.
    """

    rows: pa.Table
    deleted: pa.Table
    keys: tuple[str, ...]
    next_offsets: Mapping[int, int]


def by_topic(
    batches: Iterable[pa.RecordBatch],
) -> dict[tuple[str, str], list[pa.RecordBatch]]:
    """The records by their topic's name after transforms, and by their original topic."""
    found: dict[tuple[str, str], list[pa.RecordBatch]] = {}
    for batch in batches:
        names, origins = batch.column(TOPIC), original_topics(batch)
        pairs = pa.table({"name": names, "origin": origins})
        for each in pairs.group_by(["name", "origin"], use_threads=False).aggregate([]).to_pylist():
            name, origin = each["name"], each["origin"]
            own = batch.filter(pc.and_(pc.equal(names, name), pc.equal(origins, origin)))
            found.setdefault((name, origin), []).append(own)
    return found


def changes_of(
    batches: Sequence[pa.RecordBatch],
    written: Mapping[int, int],
    settings: RowSettings,
    storable: Callable[[pa.Array], pa.Array],
) -> Changes | None:
    """The changes of one topic's records that are not written yet.

    Args:
        batches: The records, in the order of their offsets.
        written: The next offsets by partition; earlier records are written.
        settings: How records become rows.
        storable: Converts a column to a type of the table format.

    Returns:
        None if all records were written.

    Raises:
        TableError: A record has no fields, or no key.
    """
    new = [each for each in (_new(batch, written) for batch in batches) if each.num_rows]
    if not new:
        return None
    next_offsets: dict[int, int] = {}
    for batch in new:
        pairs = pa.table({"p": batch.column(PARTITION), "o": batch.column(OFFSET)})
        for row in pairs.group_by("p").aggregate([("o", "max")]).to_pylist():
            next_offsets[row["p"]] = max(next_offsets.get(row["p"], 0), row["o_max"] + 1)
    keys: tuple[str, ...] = ()
    tables = []
    for batch in new:
        if settings.keyed:
            keys, table = _keyed_rows(batch, settings)
        else:
            table = _rows(batch.filter(pc.is_valid(batch.column(VALUE))))
        stored = {name: storable(table.column(name)) for name in table.column_names}
        tables.append(pa.table(stored))
    joined = _joined(tables, new[0].column(TOPIC)[0].as_py())
    if not settings.keyed:
        return Changes(joined, pa.table({}), (), next_offsets)
    last = _last_of_each_key(joined, keys)
    deleted = last.column(_DELETED)
    rows = last.filter(pc.invert(deleted)).drop_columns([_DELETED])
    return Changes(rows, last.filter(deleted).select(list(keys)), keys, next_offsets)


def aligned(rows: pa.Table, schema: pa.Schema, *, evolves: bool, evolve_setting: str) -> pa.Table:
    """Rows with the columns and types of a table; new columns are appended if it ``evolves``.

    A value that the table's type would change is rejected, except for floating-point rounding.

    Raises:
        TableError: The table lacks a column or struct field and does not evolve, or its type cannot
            hold a value.
    """
    columns, fields = [], []
    for each in schema:
        if each.name not in rows.column_names:
            columns.append(pa.chunked_array([pa.nulls(rows.num_rows, each.type)]))
            fields.append(each)
        else:
            column = rows.column(each.name)
            field = each.with_type(_evolved(each.type, column.type)) if evolves else each
            columns.append(_cast(column, field, evolve_setting))
            fields.append(field)
        if not each.nullable and columns[-1].null_count:
            raise TableError(
                f"column {each.name!r} of the table must not be null, but a record has no value "
                "for it: drop such records with Filter, or change the table"
            )
    more = [name for name in without_unknown(rows).column_names if name not in schema.names]
    if more and not evolves:
        raise TableError(_lacking(more[0], evolve_setting))
    columns += [rows.column(name) for name in more]
    fields += [pa.field(name, rows.column(name).type) for name in more]
    return pa.table(columns, schema=pa.schema(fields))


#: Types that neither format supports, with their replacements.
_STORED = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.large_string(): pa.string(),
    pa.large_binary(): pa.binary(),
}


def stored_type(
    kind: pa.DataType, *, time: pa.DataType, others: Mapping[pa.DataType, pa.DataType]
) -> pa.DataType:
    """The type of a column in a table: unsigned integers become the next larger signed type, times
    of day become ``time``, and ``others`` are replaced as listed.
    """

    def stored(each: pa.DataType) -> pa.DataType:
        return stored_type(each, time=time, others=others)

    if kind in _STORED:
        return stored(_STORED[kind])
    if kind in others:
        return others[kind]
    if pa.types.is_time(kind):
        return time
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if kind.tz else None)
    if pa.types.is_dictionary(kind):
        return stored(kind.value_type)
    if pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(each.name, stored(each.type)) for each in kind])
    if pa.types.is_map(kind):
        return pa.map_(stored(kind.key_type), stored(kind.item_type))
    if is_list(kind):
        return pa.list_(stored(kind.value_type))
    return kind


def without_unknown(rows: pa.Table) -> pa.Table:
    """Rows without the columns of unknown type, in which all values are null."""
    known = [each.name for each in rows.schema if not pa.types.is_null(each.type)]
    return rows.select(known)


def _cast(column: pa.ChunkedArray, field: pa.Field, evolve_setting: str) -> pa.ChunkedArray:
    if column.type == field.type:
        return column
    lacking = _first_lacking(field.name, column.type, field.type)
    if lacking:
        raise TableError(_lacking(lacking, evolve_setting))
    why = "it would lose precision"
    try:
        found = column.cast(field.type)
        if _same_values(column.combine_chunks(), found.combine_chunks()):
            return found
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        why = str(error)[:200]
    raise TableError(
        f"column {field.name!r} of the table is {field.type}, and the records have "
        f"{column.type} which does not fit ({why}): convert it with Cast, or change the table"
    )


def _lacking(name: str, evolve_setting: str) -> str:
    return (
        f"the table has no column {name!r}: add it, set {evolve_setting}, or drop the field with "
        "ReplaceField"
    )


def _evolved(kind: pa.DataType, new: pa.DataType) -> pa.DataType:
    """A table's type, with the additional struct fields of ``new``."""
    if pa.types.is_struct(kind) and pa.types.is_struct(new):
        known = {each.name: each for each in kind}
        added = [each for each in new if each.name not in known]
        both = {each.name: each.type for each in new if each.name in known}
        kept = [
            each.with_type(_evolved(each.type, both.get(each.name, each.type)))
            for each in known.values()
        ]
        return pa.struct([*kept, *(each for each in added if not pa.types.is_null(each.type))])
    if is_list(kind) and is_list(new):
        item = kind.value_field
        return pa.list_(item.with_type(_evolved(item.type, new.value_type)))
    if pa.types.is_map(kind) and pa.types.is_map(new):
        item = kind.item_field
        return pa.map_(kind.key_field, item.with_type(_evolved(item.type, new.item_type)))
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


def _same_values(before: pa.Array, after: pa.Array) -> bool:
    """Whether a cast changed no value, except for floating-point rounding."""
    if before.type == after.type or pa.types.is_floating(after.type):
        return True
    if pa.types.is_struct(before.type):
        return all(
            _same_values(before.field(each.name), after.field(each.name))
            for each in before.type
            if after.type.get_field_index(each.name) >= 0
        )
    if is_list(before.type):
        return _same_values(before.flatten(), after.flatten())
    if pa.types.is_map(before.type):
        return _same_values(before.keys, after.keys) and _same_values(before.items, after.items)
    if pa.types.is_string(after.type) or pa.types.is_null(before.type):
        return True
    return bool(after.cast(before.type).equals(before))


def _new(batch: pa.RecordBatch, written: Mapping[int, int]) -> pa.RecordBatch:
    partitions = batch.column(PARTITION).to_numpy(zero_copy_only=False)
    offsets = batch.column(OFFSET).to_numpy(zero_copy_only=False)
    new = np.ones(batch.num_rows, bool)
    for partition, offset in written.items():
        new &= (partitions != partition) | (offsets >= offset)
    return batch if new.all() else batch.filter(pa.array(new))


def _rows(batch: pa.RecordBatch) -> pa.Table:
    """The fields of values as columns; null values become null fields."""
    values, field = batch.column(VALUE), batch.schema.field(VALUE)
    if is_schemaless(field):
        return _parsed(batch)
    if not pa.types.is_struct(values.type):
        if values.null_count == len(values):
            return pa.table({}).select([])
        raise TableError(
            f"{_place(batch, 0)} has no fields: set a converter with a schema, or HoistField"
        )
    names = [each.name for each in values.type]
    return pa.table(values.flatten(), names=names)


def _parsed(batch: pa.RecordBatch) -> pa.Table:
    texts = batch.column(VALUE).to_pylist()
    rows = [{} if each is None else loads(each) for each in texts]
    for index, each in enumerate(rows):
        if not isinstance(each, dict):
            raise TableError(
                f"{_place(batch, index)} is not a JSON object: its table needs columns"
            )
    try:
        return pa.Table.from_pylist(rows, schema=_names_of(rows))
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        raise TableError(
            f"records from {_place(batch, 0)} on have values of different types in one field "
            f"({str(error)[:200]}): use a converter with schemas"
        ) from error


def _names_of(rows: list[dict[str, Any]]) -> pa.Schema:
    """All fields of all rows, with the types inferred from their values."""
    names = dict.fromkeys(name for row in rows for name in row)
    return pa.schema([(name, pa.array([row.get(name) for row in rows]).type) for name in names])


def _keyed_rows(batch: pa.RecordBatch, settings: RowSettings) -> tuple[tuple[str, ...], pa.Table]:
    """The key columns, the value's columns, and a deletion flag."""
    deleted = pc.is_null(batch.column(VALUE))
    if not settings.deletes:
        batch = batch.filter(pc.invert(deleted))
        deleted = pa.array([False] * batch.num_rows, pa.bool_())
    rows = _rows(batch)
    columns = {name: rows.column(name) for name in rows.column_names}
    keys = _key_columns(batch, rows, settings)
    for name, column in keys.items():
        if column.null_count and batch.num_rows:
            row = pc.index(pc.is_null(column), True).as_py()
            where = "key" if settings.key_source == RECORD_KEY else "value"
            raise TableError(f"the {where} of {_place(batch, row)} has no {name!r} (the key)")
        columns[name] = column
    return tuple(keys), pa.table({**columns, _DELETED: deleted})


def _key_columns(
    batch: pa.RecordBatch, rows: pa.Table, settings: RowSettings
) -> dict[str, pa.ChunkedArray]:
    names = settings.key_fields
    if settings.key_source == RECORD_VALUE:
        missing = [each for each in names if each not in rows.column_names]
        if missing and batch.num_rows:
            raise TableError(f"the value of {_place(batch, 0)} has no {missing[0]!r} (the key)")
        return {name: rows.column(name) for name in names if name in rows.column_names}
    key = batch.column(KEY)
    if not pa.types.is_struct(key.type):
        if len(names) != 1:
            raise TableError(
                f"the key of {_place(batch, 0)} has no fields: name the one column for it"
            )
        return {names[0]: pa.chunked_array([key])}
    fields = {each.name: column for each, column in zip(key.type, key.flatten(), strict=True)}
    wanted = names or tuple(fields)
    missing = [each for each in wanted if each not in fields]
    if missing:
        raise TableError(f"the key of {_place(batch, 0)} has no {missing[0]!r}")
    return {name: pa.chunked_array([fields[name]]) for name in wanted}


def _joined(tables: list[pa.Table], topic: str) -> pa.Table:
    try:
        joined = pa.concat_tables(tables, promote_options="permissive").combine_chunks()
        for name in joined.column_names:
            own = {each.schema.field(name).type for each in tables if name in each.column_names}
            if pa.types.is_floating(joined.schema.field(name).type) and any(
                pa.types.is_decimal(kind) for kind in own
            ):
                raise pa.ArrowTypeError(
                    f"{name!r} is a decimal in some records and floating point in others"
                )
        return joined
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise TableError(
            f"topic {topic}: records have schemas that do not fit together ({str(error)[:200]}): "
            "convert them with Cast"
        ) from error


def _last_of_each_key(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """The last row of each key, in order."""
    numbered = rows.append_column(_ROW, pa.array(range(rows.num_rows), pa.int64()))
    last = numbered.group_by(list(keys)).aggregate([(_ROW, "max")]).column(f"{_ROW}_max")
    return rows.take(last.combine_chunks().sort())


def _place(batch: pa.RecordBatch, row: int) -> str:
    if not batch.num_rows:
        return "a record"
    columns = original_topics(batch), batch.column(PARTITION), batch.column(OFFSET)
    topic, partition, offset = (each[row] for each in columns)
    return f"record {topic}-{partition}@{offset}"
