"""Computes the changes that records make to their tables: by columns if values have a schema, else
by record.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from drover.connector.records import (
    KEY,
    OFFSET,
    PARTITION,
    VALUE,
    is_schemaless,
    loads,
    original_topics,
)
from drover.connectors.jdbc.column_types import Row, UnwritableRecordError
from drover.connectors.jdbc.json_columns import with_columns
from drover.connectors.jdbc.write_settings import (
    KAFKA,
    KAFKA_FIELDS,
    NONE,
    RECORD_KEY,
    RECORD_VALUE,
    WriteSettings,
)
from drover.connectors.unavailable import Names, unavailable_names

#: What helps if a target lacks a value that the source cannot send.
REMEDY = "ALTER TABLE … REPLICA IDENTITY FULL at the source sends it; or read its table again"
#: A record's topic, partition and offset.
Place = tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class Change:
    """The change of one record: a row to write, or None to delete the row of the key.

    ``unavailable`` are columns that the row lacks, because the source could not send them: they
    keep their values.
    """

    key: Row
    row: Row | None
    unavailable: Names = frozenset()


@dataclass(frozen=True, slots=True)
class ColumnChanges:
    """The changes of a batch, in order, by columns of their table.

    ``rows`` includes the key columns, named in ``keys``; ``gone`` marks the records that delete the
    row of their key, None for no deletions.
    """

    rows: pa.RecordBatch
    keys: tuple[str, ...]
    gone: pa.Array | None


def places_of(batch: pa.RecordBatch) -> list[Place]:
    """The origin of each record."""
    return list(
        zip(
            original_topics(batch).to_pylist(),
            batch.column(PARTITION).to_pylist(),
            batch.column(OFFSET).to_pylist(),
            strict=True,
        )
    )


def changes_of(batch: pa.RecordBatch, settings: WriteSettings) -> list[Change]:
    """The changes of a batch, one per record; records without effect are skipped.

    Raises:
        UnwritableRecordError: A record has no key, or no fields.
    """
    names = unavailable_in(batch, settings) or [frozenset[str]()] * batch.num_rows
    rows = zip(places_of(batch), _values(batch, KEY), _values(batch, VALUE), names, strict=True)
    found = (_change(settings, *row) for row in rows)
    return [each for each in found if each is not None]


def unavailable_in(batch: pa.RecordBatch, settings: WriteSettings) -> list[Names] | None:
    """For each record the columns to leave unchanged; None if there are none."""
    if not settings.keeps_unavailable:
        return None
    return unavailable_names(batch, settings.placeholder)


def column_changes(batch: pa.RecordBatch, settings: WriteSettings) -> ColumnChanges | None:
    """The changes by columns; None if the values have no common schema (see ``with_columns``).

    Raises:
        UnwritableRecordError: A record has no key, or no fields.
    """
    value, key = batch.schema.field(VALUE), batch.schema.field(KEY)
    if is_schemaless(value) or (settings.pk_mode == RECORD_KEY and is_schemaless(key)):
        found = with_columns(batch, with_key=settings.pk_mode == RECORD_KEY)
        return None if found is None else column_changes(found, settings)
    gone = batch.column(VALUE).is_null() if batch.column(VALUE).null_count else None
    if gone is not None:
        acts = pc.invert(gone)
        if settings.deletes:
            acts = pc.or_(acts, batch.column(KEY).is_valid())
        batch, gone = batch.filter(acts), gone.filter(acts)
        gone = gone if batch.column(VALUE).null_count else None
    fields = _fields(batch.column(VALUE))
    if not pa.types.is_struct(value.type) and batch.column(VALUE).null_count < batch.num_rows:
        _refuse_first(batch, batch.column(VALUE).is_valid(), settings)
    keys = _keys(batch, settings, fields)
    if keys is None:
        _refuse_first(batch, None, settings)
    for array in keys.values():
        if array.null_count:
            _refuse_first(batch, array.is_null(), settings)
    kept = {n: a for n, a in fields.items() if settings.fields is None or n in settings.fields}
    columns = {**kept, **keys}
    schema = pa.schema([_described(value, name, array) for name, array in columns.items()])
    rows = pa.RecordBatch.from_arrays(list(columns.values()), schema=schema)
    return ColumnChanges(rows, tuple(keys), gone)


def _described(value: pa.Field, name: str, array: pa.Array) -> pa.Field:
    """The column with the metadata of the value's field of that name."""
    index = value.type.get_field_index(name) if pa.types.is_struct(value.type) else -1
    said = value.type.field(index).metadata if index >= 0 else None
    return pa.field(name, array.type, metadata=said)


def _keys(
    batch: pa.RecordBatch, settings: WriteSettings, fields: Mapping[str, pa.Array]
) -> dict[str, pa.Array] | None:
    """The key columns; None if every record lacks one."""
    names = settings.pk_fields
    match settings.pk_mode:
        case mode if mode == NONE:
            return {}
        case mode if mode == KAFKA:
            place = (original_topics(batch), batch.column(PARTITION), batch.column(OFFSET))
            return dict(zip(names or KAFKA_FIELDS, place, strict=True))
        case mode if mode == RECORD_VALUE:
            source: Mapping[str, pa.Array] = fields
        case _:
            key = batch.column(KEY)
            if not pa.types.is_struct(key.type):
                return {names[0]: key} if len(names) == 1 or not batch.num_rows else None
            source = _fields(key)
            if key.null_count and not (names or source):
                return None
    wanted = names or tuple(source)
    if any(name not in source for name in wanted):
        return None if batch.num_rows else {}
    return {name: source[name] for name in wanted}


def _fields(array: pa.Array) -> dict[str, pa.Array]:
    """The fields of structs, each null where the struct is null."""
    if not pa.types.is_struct(array.type):
        return {}
    names = [array.type.field(index).name for index in range(array.type.num_fields)]
    return dict(zip(names, array.flatten(), strict=True))


def _refuse_first(
    batch: pa.RecordBatch, faulty: pa.Array | None, settings: WriteSettings
) -> NoReturn:
    index = 0 if faulty is None else pc.index(faulty, True).as_py()
    changes_of(batch.slice(index, 1), settings)
    raise UnwritableRecordError("it does not fit its table")


def _change(
    settings: WriteSettings, place: Place, key: Any, value: Any, unavailable: Names
) -> Change | None:
    if value is None:
        if not settings.deletes or key is None:
            return None
        return Change(_key(settings, place, key, value), None)
    if not isinstance(value, dict):
        raise UnwritableRecordError(
            f"it has no fields: its value is {repr(value)[:80]}; set a converter with a schema"
        )
    own = _key(settings, place, key, value)
    if settings.pk_mode == RECORD_VALUE and not unavailable.isdisjoint(own):
        raise UnwritableRecordError(f"the source could not send its key: {REMEDY}")
    fields = settings.fields
    row = {name: each for name, each in value.items() if fields is None or name in fields}
    lacking = unavailable & row.keys() - own.keys()
    kept = {name: each for name, each in row.items() if name not in lacking}
    return Change(own, {**kept, **own}, lacking)


def _key(settings: WriteSettings, place: Place, key: Any, value: Any) -> Row:
    names = settings.pk_fields
    match settings.pk_mode:
        case mode if mode == NONE:
            return {}
        case mode if mode == KAFKA:
            return dict(zip(names or KAFKA_FIELDS, place, strict=True))
        case mode if mode == RECORD_VALUE:
            source = value or {}
        case _:
            if not isinstance(key, dict):
                if key is None or len(names) != 1:
                    listed = ", ".join(names) or "of the primary key"
                    raise UnwritableRecordError(f"its key lacks the fields {listed} (pk.fields)")
                return {names[0]: key}
            source = key
    wanted = names or tuple(source)
    missing = [name for name in wanted if source.get(name) is None]
    if missing:
        where = "value" if settings.pk_mode == RECORD_VALUE else "key"
        raise UnwritableRecordError(f"its {where} has no {missing[0]!r} (pk.fields)")
    return {name: source[name] for name in wanted}


def _values(batch: pa.RecordBatch, name: str) -> list[Any]:
    """Keys or values as Python objects; schemaless JSON is parsed."""
    field = batch.schema.field(name)
    values: list[Any] = batch.column(name).to_pylist(maps_as_pydicts="lossy")
    if is_schemaless(field):
        return [None if each is None else loads(each) for each in values]
    return values
