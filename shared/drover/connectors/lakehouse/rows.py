"""Computes the changes that a topic's records make to its table: rows to write, keys to delete."""

import decimal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from drover.connector import PredictedWrite, Violation, fieldless_converter
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
from drover.connectors.files.partition_levels import shown
from drover.connectors.lakehouse.fitted_rows import (
    DELETED,
    NEW_TABLE,
    FittedRows,
    TableError,
    TableTypes,
    unfit,
)
from drover.connectors.lakehouse.kept_values import (
    Lack,
    ReadRows,
    completed,
    filled,
    without_unavailable,
)
from drover.connectors.refused_records import RefusedRecord, RefusedRecordError
from drover.connectors.unavailable import PLACEHOLDER, unavailable_names

if TYPE_CHECKING:
    import numpy.typing as npt

EXTRA = (
    "tables of Delta Lake and Iceberg need more libraries on the workers: pip install "
    "'drover-connect[lakehouse]'"
)
RECORD_KEY, RECORD_VALUE = "record_key", "record_value"
_ROW = "__drover_row"


@dataclass(frozen=True, slots=True)
class RowSettings:
    """How records become rows.

    ``keyed`` means that a row replaces the one with its key: the ``key_fields`` (all fields of the
    key if empty) of the record's key or value, according to ``key_source``. ``deletes`` makes a
    record without a value delete the row of its key; otherwise it is skipped. ``placeholder`` marks
    values that the source could not send.
    """

    keyed: bool = False
    key_source: str = RECORD_VALUE
    key_fields: tuple[str, ...] = ()
    deletes: bool = False
    placeholder: str = PLACEHOLDER


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes of new records: ``rows`` to write, and the keys of ``deleted`` rows; at most one
    per key.

    ``keys`` are the key columns. ``next_offsets`` are the offsets after the records, by partition.
    ``refused`` are records that cannot be rows of the table. ``lacking`` is what the source could
    not send, by row: such columns keep the values that the table has.
    """

    rows: pa.Table
    deleted: pa.Table
    keys: tuple[str, ...]
    next_offsets: Mapping[int, int]
    refused: tuple[RefusedRecord, ...] = ()
    lacking: Mapping[int, Lack] = field(default_factory=dict)

    def completed(self, read: ReadRows, *, tolerates: bool) -> "Changes":
        """The changes with the lacking values.

        Args:
            read: Reads rows of the table.
            tolerates: Add the records of rows that the table does not have to ``refused``.

        Raises:
            RefusedRecordError: There is such a record, and ``tolerates`` is false.
        """
        if not self.lacking:
            return self
        rows, refused = completed(self.rows, self.keys, self.lacking, read)
        if refused and not tolerates:
            raise RefusedRecordError(refused[0])
        return replace(self, rows=rows, refused=(*self.refused, *refused), lacking={})


def predictions(
    batches: Iterable[pa.RecordBatch],
    predicted: Iterable[tuple[str, str, RefusedRecord | None]],
) -> list[PredictedWrite]:
    """What a table writer would do with each record of some batches.

    Args:
        batches: The records.
        predicted: For each table its original topic, its name, and None; and the records that it
            would refuse.
    """
    targets: dict[str, dict[str, None]] = {}
    refusals: dict[tuple[str, int, int], str] = {}
    for topic, target, refused in predicted:
        targets.setdefault(topic, {})[target] = None
        if refused is not None:
            refusals.setdefault(refused.place, refused.reason)
    found = []
    for batch in batches:
        columns = original_topics(batch), batch.column(PARTITION), batch.column(OFFSET)
        places = zip(*(each.to_pylist() for each in columns), strict=True)
        for topic, partition, offset in places:
            refusal = refusals.get((topic, partition, offset), "")
            target = "" if refusal else ", ".join(targets.get(topic, ()))
            found.append(PredictedWrite(topic, partition, offset, target, refusal))
    return found


def converter_faults(config: Mapping[str, Any]) -> Iterator[Violation]:
    """The error of a value converter whose values cannot be rows."""
    converter = fieldless_converter(config)
    if converter is not None:
        yield Violation(
            "value.converter",
            f"must give values with fields, which are the columns, and {converter} gives none: use "
            "JsonConverter, AvroConverter or ProtobufConverter, or add HoistField$Value",
        )


def type_fault(kind: pa.DataType) -> str | None:
    """Why neither format has a column of a type, if so."""
    types = pa.types
    if types.is_decimal256(kind):
        return f"{kind} has more than 38 digits"
    if types.is_duration(kind) or types.is_interval(kind) or types.is_union(kind):
        return f"the format has no type for {kind}"
    fields = [kind.field(index) for index in range(kind.num_fields)]
    if any(not each.name for each in fields):
        return "it has a field with an empty name"
    names = [each.name for each in fields]
    if types.is_struct(kind) and len(set(names)) < len(names):
        return f"it has two fields of one name: {', '.join(names)}"
    inner = (type_fault(each.type) for each in fields)
    return next((each for each in inner if each is not None), None)


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
    types: TableTypes = NEW_TABLE,
    *,
    tolerates: bool = False,
) -> Changes | None:
    """The changes of one topic's records that are not written yet.

    Args:
        batches: The records, in the order of their offsets.
        written: The next offsets by partition; earlier records are written.
        settings: How records become rows.
        storable: Converts a column to a type of the table format.
        types: The columns of the table.
        tolerates: Leave out records that cannot be rows, and return them as ``refused``; those
            before the offsets as well, because a killed task may not have reported them.

    Returns:
        None if all records were written.

    Raises:
        RefusedRecordError: A record cannot be a row of the table, and ``tolerates`` is false.
    """
    new = [each for each in (_new(batch, written) for batch in batches) if each.num_rows]
    if not new and not tolerates:
        return None
    refused: list[RefusedRecord] = []
    if tolerates and written:
        # a killed task may have written its rows without reporting the refused records
        _read([_old(each, written) for each in batches], settings, storable, types, refused)
    next_offsets: dict[int, int] = {}
    for batch in new:
        pairs = pa.table({"p": batch.column(PARTITION), "o": batch.column(OFFSET)})
        for row in pairs.group_by("p").aggregate([("o", "max")]).to_pylist():
            next_offsets[row["p"]] = max(next_offsets.get(row["p"], 0), row["o_max"] + 1)
    reader = _read(new, settings, storable, types, refused if tolerates else None)
    if reader.fitted.untyped:
        types = replace(types, untyped=reader.fitted.untyped)
        reader = _read(new, settings, storable, types, refused if tolerates else None)
    joined = reader.fitted.joined()
    keys = reader.keys
    if joined.num_rows and joined.column_names == [DELETED]:
        _refuse_all(new, refused, tolerates=tolerates)
        return Changes(pa.table({}), pa.table({}), (), next_offsets, tuple(refused))
    if not settings.keyed:
        rows = joined.drop_columns([DELETED]) if joined.num_rows else joined
        return Changes(rows, pa.table({}), (), next_offsets, tuple(refused))
    if not keys:  # no record is left
        return Changes(pa.table({}), pa.table({}), (), next_offsets, tuple(refused))
    joined, lacks = filled(joined, keys)
    numbers = _last_of_each_key(joined, keys)
    last = joined.take(numbers)
    deleted = last.column(DELETED)
    rows = last.filter(pc.invert(deleted)).drop_columns([DELETED])
    gone = last.filter(deleted).select(list(keys))
    lacking: dict[int, Lack] = {}
    if lacks:
        own = numbers.filter(pc.invert(deleted.combine_chunks())).to_pylist()
        lacking = {row: lacks[number] for row, number in enumerate(own) if number in lacks}
    return Changes(rows, gone, keys, next_offsets, tuple(refused), lacking)


def _refuse_all(
    batches: Iterable[pa.RecordBatch], refused: list[RefusedRecord], *, tolerates: bool
) -> None:
    """Refuse the records of a table that does not exist, of which none has a value."""
    known = {(each.topic, each.partition, each.offset) for each in refused}
    for batch in batches:
        present = batch.filter(pc.is_valid(batch.column(VALUE)))
        columns = original_topics(present), present.column(PARTITION), present.column(OFFSET)
        for topic, partition, offset in zip(*(each.to_pylist() for each in columns), strict=True):
            if (topic, partition, offset) not in known:
                reason = "no record has a value, so its table has no columns yet"
                refusal = RefusedRecord(topic, partition, offset, reason)
                if not tolerates:
                    raise RefusedRecordError(refusal)
                refused.append(refusal)


def _read(
    batches: Sequence[pa.RecordBatch],
    settings: RowSettings,
    storable: Callable[[pa.Array], pa.Array],
    types: TableTypes,
    refused: list[RefusedRecord] | None,
) -> "_RowReader":
    reader = _RowReader(settings, storable, FittedRows(types), refused)
    for batch in batches:
        reader.read(batch)
    return reader


class _RowReader:
    """Reads records as rows of a table; a failing batch is halved until the records that fail are
    found.
    """

    def __init__(
        self,
        settings: RowSettings,
        storable: Callable[[pa.Array], pa.Array],
        fitted: FittedRows,
        refused: list[RefusedRecord] | None,
    ) -> None:
        """Without ``refused`` the first record that cannot be a row raises."""
        self._settings = settings
        self._storable = storable
        self.fitted = fitted
        self._refused = refused
        self.keys: tuple[str, ...] = ()

    def read(self, batch: pa.RecordBatch) -> None:
        """Add the rows of a batch.

        Raises:
            RefusedRecordError: A record cannot be a row.
        """
        if not batch.num_rows:
            return
        try:
            self._add(batch)
        except TableError as error:
            if batch.num_rows > 1:
                middle = batch.num_rows // 2
                self.read(batch.slice(0, middle))
                self.read(batch.slice(middle))
                return
            columns = original_topics(batch), batch.column(PARTITION), batch.column(OFFSET)
            topic, partition, offset = (each[0].as_py() for each in columns)
            refusal = RefusedRecord(topic, partition, offset, str(error))
            if self._refused is None:
                raise RefusedRecordError(refusal) from error
            self._refused.append(refusal)

    def _add(self, batch: pa.RecordBatch) -> None:
        if self._settings.keyed:
            keys, table = _keyed_rows(batch, self._settings)
        else:
            rows = _rows(batch.filter(pc.is_valid(batch.column(VALUE))))
            # the column keeps rows without any other column
            keys, table = (), rows.append_column(DELETED, pa.array([False] * rows.num_rows))
        if not table.num_rows:
            return
        if self.keys and set(keys) != set(self.keys):
            raise TableError(
                f"its key has the fields {', '.join(keys)}, and earlier records have "
                f"{', '.join(self.keys)}: set the key columns"
            )
        stored = {}
        for name in table.column_names:
            try:
                stored[name] = self._storable(table.column(name))
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                column = table.column(name)
                raise unfit(name, column, f"the table cannot hold it: {error}") from error
        self.fitted.add(pa.table(stored))
        self.keys = self.keys or keys


#: Types that neither format supports, with their replacements.
_STORED = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.large_string(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.date64(): pa.date32(),
}


#: The first and the last day and microsecond of the years 1 to 9999.
_DAYS = (-719_162, 2_932_896)
_TIMES_US = (-62_135_596_800_000_000, 253_402_300_799_999_999)


def check_years(column: pa.ChunkedArray, *, timestamps: bool) -> None:
    """Check that dates, and ``timestamps`` in microseconds, are in the years 1 to 9999.

    Raises:
        ArrowInvalid: One is not.
    """
    for each in column.chunks:
        _check_years(each, timestamps=timestamps)


def _check_years(values: pa.Array, *, timestamps: bool) -> None:
    kind, types = values.type, pa.types
    if types.is_nested(kind):
        if types.is_map(kind):
            inner = [values.keys, values.items]
        else:
            inner = values.flatten() if types.is_struct(kind) else [values.flatten()]
        for each in inner:
            _check_years(each, timestamps=timestamps)
        return
    bounds = _DAYS if types.is_date32(kind) else _TIMES_US
    if not (types.is_date32(kind) or (types.is_timestamp(kind) and timestamps)):
        return
    ends = pc.min_max(values.cast(pa.int32() if types.is_date32(kind) else pa.int64()))
    if (
        ends["min"].is_valid
        and not bounds[0] <= ends["min"].as_py() <= ends["max"].as_py() <= (bounds[1])
    ):
        raise pa.ArrowInvalid("it is not in the years 1 to 9999")


def stored_type(
    kind: pa.DataType, *, time: pa.DataType, others: Mapping[pa.DataType, pa.DataType]
) -> pa.DataType:
    """The type of a column in a table: unsigned integers become the next larger signed type, times
    of day become ``time``, and ``others`` are replaced as listed. Fields of structs of which all
    values are null have no type and are left out.
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
        fields = [pa.field(each.name, stored(each.type)) for each in kind]
        return pa.struct([each for each in fields if not pa.types.is_null(each.type)])
    if pa.types.is_map(kind):
        return pa.map_(stored(kind.key_type), stored(kind.item_type))
    if is_list(kind):
        return pa.list_(stored(kind.value_type))
    return kind


def _new(batch: pa.RecordBatch, written: Mapping[int, int]) -> pa.RecordBatch:
    new = _is_new(batch, written)
    return batch if new.all() else batch.filter(pa.array(new))


def _old(batch: pa.RecordBatch, written: Mapping[int, int]) -> pa.RecordBatch:
    return batch.filter(pa.array(~_is_new(batch, written)))


def _is_new(batch: pa.RecordBatch, written: Mapping[int, int]) -> "npt.NDArray[np.bool_]":
    partitions = batch.column(PARTITION).to_numpy(zero_copy_only=False)
    offsets = batch.column(OFFSET).to_numpy(zero_copy_only=False)
    new = np.ones(batch.num_rows, bool)
    for partition, offset in written.items():
        new &= (partitions != partition) | (offsets >= offset)
    return new


def _rows(batch: pa.RecordBatch) -> pa.Table:
    """The fields of values as columns; null values become null fields.

    Raises:
        TableError: A value has no fields, or its fields have no common types.
    """
    values, field = batch.column(VALUE), batch.schema.field(VALUE)
    if is_schemaless(field):
        return _parsed([{} if each is None else loads(each) for each in values.to_pylist()])
    if not pa.types.is_struct(values.type):
        if values.null_count == len(values):
            return _no_columns(batch.num_rows)
        raise TableError(
            f"it has no fields, as its value is {shown(values.drop_null()[0])}: set a converter "
            "with a schema, or HoistField"
        )
    names = [each.name for each in values.type]
    if len(set(names)) < len(names):
        raise TableError(f"its value has two fields of one name: {', '.join(names)}")
    return pa.table(values.flatten(), names=names) if names else _no_columns(batch.num_rows)


def _no_columns(row_count: int) -> pa.Table:
    return pa.table({"": pa.nulls(row_count)}).select([])


def _parsed(values: Sequence[Any]) -> pa.Table:
    for each in values:
        if not isinstance(each, dict):
            raise TableError(
                f"it has no fields, as its value is {shown(each)}, not a JSON object: its table "
                "needs columns"
            )
    names = dict.fromkeys(name for each in values for name in each)
    columns = {name: _inferred(name, [each.get(name) for each in values]) for name in names}
    return pa.table(columns) if columns else _no_columns(len(values))


def _inferred(name: str, values: Sequence[Any]) -> pa.Array:
    """Values as a column of a type that all have.

    Raises:
        TableError: They have no common type.
    """
    try:
        return pa.array(values)
    except OverflowError:
        large = [decimal.Decimal(each) if type(each) is int else each for each in values]
        try:
            return pa.array(large)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
            raise _no_type(name, values, error) from error
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise _no_type(name, values, error) from error


def _no_type(name: str, values: Sequence[Any], error: Exception) -> TableError:
    first = next((each for each in values if each is not None), None)
    return TableError(
        f"field {name!r} has the value {shown(first)}, for which no column type exists "
        f"({str(error)[:200]}): use a converter with schemas"
    )


def _keyed_rows(batch: pa.RecordBatch, settings: RowSettings) -> tuple[tuple[str, ...], pa.Table]:
    """The key columns, the value's columns, and a deletion flag."""
    deleted = pc.is_null(batch.column(VALUE))
    if not settings.deletes:
        batch = batch.filter(pc.invert(deleted))
        deleted = pa.array([False] * batch.num_rows, pa.bool_())
    if not batch.num_rows:
        return (), pa.table({})
    rows = _rows(batch)
    columns = {name: rows.column(name) for name in rows.column_names}
    keys = _key_columns(batch, rows, settings)
    where = "key" if settings.key_source == RECORD_KEY else "value"
    for name, column in keys.items():
        if column.null_count:
            raise TableError(f"its {where} has no {name!r}, which is a key column")
    names = unavailable_names(batch, settings.placeholder)
    if names is not None:
        own = tuple(keys) if settings.key_source == RECORD_VALUE else ()
        columns = without_unavailable(batch, columns, names, own)
    return tuple(keys), pa.table({**columns, **keys, DELETED: deleted})


def _key_columns(
    batch: pa.RecordBatch, rows: pa.Table, settings: RowSettings
) -> dict[str, pa.ChunkedArray]:
    names = settings.key_fields
    if settings.key_source == RECORD_VALUE:
        missing = [each for each in names if each not in rows.column_names]
        if missing:
            raise TableError(f"its value has no {missing[0]!r}, which is a key column")
        return {name: rows.column(name) for name in names}
    key = batch.column(KEY)
    if is_schemaless(batch.schema.field(KEY)):
        parsed = [None if each is None else loads(each) for each in key.to_pylist()]
        key = _inferred("key", parsed)
    if not pa.types.is_struct(key.type):
        if len(names) != 1:
            raise TableError(f"its key {shown(key[0])} has no fields: name the one column for it")
        return {names[0]: pa.chunked_array([key])}
    fields = {each.name: column for each, column in zip(key.type, key.flatten(), strict=True)}
    wanted = names or tuple(fields)
    missing = [each for each in wanted if each not in fields]
    if missing or not wanted:
        named = repr(missing[0]) if missing else "fields"
        raise TableError(f"its key has no {named}, which is a key column")
    return {name: pa.chunked_array([fields[name]]) for name in wanted}


def _last_of_each_key(rows: pa.Table, keys: Sequence[str]) -> pa.Array:
    """The numbers of the last row of each key, in order."""
    numbered = comparable(rows.select(list(keys))).append_column(
        _ROW, pa.array(range(rows.num_rows), pa.int64())
    )
    last = numbered.group_by(list(keys)).aggregate([(_ROW, "max")]).column(f"{_ROW}_max")
    return last.combine_chunks().sort()


def comparable(keys: pa.Table) -> pa.Table:
    """Keys with one zero, as in SQL: Arrow groups and joins 0.0 and -0.0 as different numbers."""
    for index, (name, kind) in enumerate(zip(keys.schema.names, keys.schema.types, strict=True)):
        if pa.types.is_floating(kind):
            zero = pa.scalar(0.0, kind)
            keys = keys.set_column(index, name, pc.add(keys.column(index), zero))
    return keys
