"""Converts messages of the log to records: an envelope with both versions of a row, or the row
alone.

Runs on executors: the input is picklable, and decodes to the same records in every attempt.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from drover.connector.records import (
    ERROR_COLUMN,
    HEADERS,
    KEY,
    ORIGIN_COLUMN,
    TOPIC,
    VALUE,
    with_identity,
)
from drover.connectors.postgres.pgoutput import (
    BEGIN,
    DELETE,
    EPOCH_US,
    INSERT,
    RELATION,
    TRUNCATE,
    UPDATE,
    Relation,
    Transaction,
    parse_relation,
    truncated_oids,
)
from drover.connectors.postgres.row_columns import (
    NO_ROW,
    RowChanges,
    TextColumn,
    big_endian,
    row_changes,
)
from drover.connectors.postgres.row_faults import unsent_keys, with_keys
from drover.connectors.postgres.row_lookup import RowLookup
from drover.connectors.postgres.settings import (
    CONNECT,
    ENVELOPE,
    FLAT,
    FLAT_WITHOUT_KEY,
    TEXT,
    is_column_wanted,
)
from drover.connectors.postgres.snapshot_point import SnapshotPoint
from drover.connectors.postgres.values import ColumnReader, DatabaseTypes, ValueForms, type_of
from drover.connectors.unavailable import header_column

READ, CREATED, UPDATED, DELETED, TRUNCATED = "r", "c", "u", "d", "t"
#: Marks a record without a value, instead of an operation.
_TOMBSTONE = ""
_SOURCE = pa.struct(
    [
        pa.field("version", pa.string(), nullable=False),
        pa.field("connector", pa.string(), nullable=False),
        pa.field("name", pa.string(), nullable=False),
        pa.field("ts_ms", pa.int64(), nullable=False),
        pa.field("snapshot", pa.string()),
        pa.field("db", pa.string(), nullable=False),
        pa.field("schema", pa.string(), nullable=False),
        pa.field("table", pa.string(), nullable=False),
        pa.field("txId", pa.int64()),
        pa.field("lsn", pa.int64()),
    ]
)


@dataclass(frozen=True, slots=True)
class RecordShape:
    """The form of records.

    Attributes:
        version: The connector's version.
        prefix: The prefix of topics and schema names.
        database: The database's name.
        now_ms: The time of processing.
        layout: One of LAYOUTS.
        decimals: One of DECIMAL_MODES.
        placeholder: Replaces text that was not sent because it is unchanged.
        tombstones: Whether a record without a value follows each deletion.
        skipped: Operations without records.
        types: The types of the database.
        times: One of TIME_MODES.
        intervals: One of INTERVAL_MODES.
        hstores: One of HSTORE_MODES.
        columns_include: Regular expressions for the columns of values; None for all.
        columns_exclude: Regular expressions for columns that values do not have.
        nullable_keys: Whether key columns may be null, because they are not the primary key.
    """

    version: str
    prefix: str
    database: str
    now_ms: int
    layout: str
    decimals: str
    placeholder: str
    tombstones: bool
    skipped: frozenset[str]
    types: DatabaseTypes = field(default_factory=DatabaseTypes)
    times: str = CONNECT
    intervals: str = TEXT
    hstores: str = TEXT
    columns_include: tuple[str, ...] = ()
    columns_exclude: tuple[str, ...] = ()
    nullable_keys: bool = False


@dataclass(frozen=True, slots=True)
class _Events:
    """The events to convert, in order; rows are referenced by their numbers in ``columns``.

    Attributes:
        ops: The operations, as an Arrow array.
        before: The row before the change, or NO_ROW.
        after: The row after the change, or NO_ROW.
        key: The row with the record's key, or NO_ROW.
        lsns: The position of each event in the log.
        moments_ms: The commit time of its transaction.
        xids: The id of its transaction.
        columns: The values of rows.
    """

    ops: pa.Array
    before: Any
    after: Any
    key: Any
    lsns: Any
    moments_ms: Any
    xids: Any
    columns: Sequence[TextColumn]


class TableRecords:
    """Creates the records of one version of a table.

    Args:
        relation: The table.
        key: The columns of the records' keys; empty for records without keys.
        shape: The form of the records.
    """

    def __init__(self, relation: Relation, key: Sequence[str], shape: RecordShape) -> None:
        self.relation = relation
        #: As in Debezium: topic names allow fewer characters than table names.
        self.topic = re.sub(r"[^A-Za-z0-9._-]", "_", f"{shape.prefix}.{relation.name}")
        names = [each.name for each in relation.columns]
        self.key_indices = [names.index(each) for each in key if each in names]
        self._key_names = {number: names[number] for number in self.key_indices}
        self._shape = shape
        self._readers = []
        for column in relation.columns:
            forms = ValueForms(shape.decimals, shape.times, shape.intervals, shape.hstores)
            kind = type_of(column.type_oid, column.type_modifier, forms, shape.types)
            self._readers.append(ColumnReader(column, kind, shape.placeholder))
        fields = [reader.type.field(reader.column.name) for reader in self._readers]
        #: The columns of values; keys are not affected.
        self._shown = [
            number
            for number, name in enumerate(names)
            if is_column_wanted(
                f"{relation.name}.{name}", shape.columns_include, shape.columns_exclude
            )
        ]
        self._row_type = pa.struct([fields[n] for n in self._shown])
        self._key_type = pa.struct(
            [fields[n].with_nullable(shape.nullable_keys) for n in self.key_indices]
        )

    def of_changes(self, events: _Events) -> pa.RecordBatch:
        """The records of events, in order."""
        values: dict[int, pa.Array] = {}
        found: dict[int, dict[int, str]] = {}
        for number in sorted({*self._shown, *self.key_indices}):
            found[number] = {}
            column = events.columns[number]
            values[number] = self._readers[number].from_column(column, found[number].setdefault)
        shown, in_keys = (
            {row: why for number in reversed(numbers) for row, why in found[number].items()}
            for numbers in (self._shown, self.key_indices)
        )
        after = self._rows(values, events.after)
        sources = [(shown, events.after)]
        if self._shape.layout == FLAT:
            value = after
        else:
            before = self._rows(values, events.before)
            sources.append((shown, events.before))
            value = self._envelope(
                events.ops, before, after, events.moments_ms, events.lsns, events.xids, "false"
            )
        key = None
        if self.key_indices:
            unsent = unsent_keys(self._key_names, events.columns)
            sources.append((in_keys | unsent, events.key))
            key = _structs(values, self.key_indices, self._key_type, events.key)
        faults = self._inexpressible(events.ops)
        for faulty, rows in sources:
            for event in np.flatnonzero(np.isin(rows, list(faulty))).tolist():
                faults.setdefault(event, faulty[rows[event]])
        texts = [each.texts for each in events.columns]
        faults = with_keys(faults, self._key_names, texts, events.key)
        headers = self._headers(events.columns, events.after)
        return self._batch(key, value, events.lsns, faults, headers)

    def _headers(self, columns: Sequence[TextColumn], rows: Any) -> pa.Array:
        """The headers of records with the columns that were not sent in their new rows, and of
        records in which a value equals the placeholder; null for the others.
        """
        names: dict[int, set[str]] = {}
        there = rows != NO_ROW
        for number in self._shown:
            name, column = self.relation.columns[number].name, columns[number]
            resembling = self._readers[number].resembling(column.texts)
            for chosen, added in ((column.unchanged, {name}), (resembling, set())):
                if chosen is not None:
                    found = np.zeros(len(rows), np.bool_)
                    found[there] = np.asarray(chosen, np.bool_)[rows[there]]
                    for event in np.flatnonzero(found).tolist():
                        names.setdefault(event, set()).update(added)
        return header_column({event: frozenset(each) for event, each in names.items()}, len(rows))

    def _inexpressible(self, ops: pa.Array) -> dict[int, str]:
        """The events that the layout cannot express, with the reason."""
        if self._shape.layout != FLAT or self.key_indices:
            return {}
        found = pc.is_in(ops, pa.array([UPDATED, _TOMBSTONE])).to_numpy(zero_copy_only=False)
        why = f"table {self.relation.name} has no key, and {FLAT_WITHOUT_KEY}"
        return dict.fromkeys(np.flatnonzero(found).tolist(), why)

    def of_rows(self, columns: Sequence[pa.Array], point: SnapshotPoint) -> pa.RecordBatch:
        """The records of snapshot rows; the columns are text."""
        faults: dict[int, str] = {}
        count = len(columns[0])
        arrays = {
            number: self._readers[number].from_texts(columns[number], faults.setdefault)
            for number in sorted({*self._shown, *self.key_indices})
        }
        everything = np.arange(count)
        rows = self._rows(arrays, everything)
        lsns = np.full(count, point.lsn, np.int64)
        if self._shape.layout == FLAT:
            value = rows
        else:
            nothing = pa.nulls(count, self._row_type)
            moments = np.full(count, self._shape.now_ms, np.int64)
            ops = pa.repeat(pa.scalar(READ), count)
            xids = pa.nulls(count, pa.int64())
            value = self._envelope(ops, nothing, rows, moments, lsns, xids, "true")
        key = None
        if self.key_indices:
            key = _structs(arrays, self.key_indices, self._key_type, everything)
        headers = self._headers([TextColumn(each) for each in columns], everything)
        named = with_keys(faults, self._key_names, columns, everything)
        return self._batch(key, value, lsns, named, headers)

    def _batch(
        self,
        key: pa.Array | None,
        value: pa.Array,
        lsns: Any,
        faults: Mapping[int, str],
        headers: pa.Array,
    ) -> pa.RecordBatch:
        count = len(lsns)
        kind = "Value" if self._shape.layout == FLAT else "Envelope"
        fields = [
            pa.field(TOPIC, pa.string()),
            with_identity(pa.field(VALUE, value.type), name=f"{self.topic}.{kind}"),
            pa.field(ORIGIN_COLUMN, pa.string()),
        ]
        place = pa.scalar(f"{self.relation.name} at ")
        origins = pc.binary_join_element_wise(place, pa.array(lsns).cast(pa.string()), "")
        arrays = [pa.repeat(pa.scalar(self.topic), count), value, origins]
        if key is not None:
            identity = pa.field(KEY, key.type, nullable=False)
            fields.append(with_identity(identity, name=f"{self.topic}.Key"))
            arrays.append(key)
        fields.append(pa.field(HEADERS, headers.type))
        arrays.append(headers)
        if faults:
            fields.append(pa.field(ERROR_COLUMN, pa.string()))
            arrays.append(pa.array([faults.get(n) for n in range(count)], pa.string()))
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))

    def _rows(self, values: Mapping[int, pa.Array], rows: Any) -> pa.Array:
        return _structs(values, self._shown, self._row_type, rows)

    def _envelope(
        self,
        ops: pa.Array,
        before: pa.Array,
        after: pa.Array,
        moments_ms: Any,
        lsns: Any,
        xids: Any,
        snapshot: str,
    ) -> pa.Array:
        count, shape = len(ops), self._shape
        constants = {
            "version": shape.version,
            "connector": "postgresql",
            "name": shape.prefix,
            "snapshot": snapshot,
            "db": shape.database,
            "schema": self.relation.schema,
            "table": self.relation.table,
        }
        columns = {
            "ts_ms": pa.array(moments_ms, pa.int64()),
            "txId": pa.array(xids, pa.int64()),
            "lsn": pa.array(lsns, pa.int64()),
            **{name: pa.repeat(pa.scalar(text), count) for name, text in constants.items()},
        }
        source = pa.StructArray.from_arrays(
            [columns[each.name] for each in _SOURCE], fields=list(_SOURCE)
        )
        row_name = f"{self.topic}.Value"
        fields = [
            with_identity(pa.field("before", self._row_type), name=row_name),
            with_identity(pa.field("after", self._row_type), name=row_name),
            with_identity(
                pa.field("source", _SOURCE, nullable=False),
                name="io.debezium.connector.postgresql.Source",
            ),
            pa.field("op", pa.string(), nullable=False),
            pa.field("ts_ms", pa.int64()),
        ]
        arrays = [
            before,
            after,
            source,
            ops,
            pa.repeat(pa.scalar(shape.now_ms, pa.int64()), count),
        ]
        return pa.StructArray.from_arrays(arrays, fields=fields, mask=pc.equal(ops, _TOMBSTONE))


@dataclass(frozen=True)
class Messages:
    """A run of log messages, in order; picklable.

    Attributes:
        data: Begin, Relation and change messages, concatenated.
        sizes: The size of each in bytes.
        lsns: The position of each in the log.
        transaction: The transaction that is open at the start.
        relations: The Relation messages that the session received before, by oid.
        keys: The columns of the records' keys, by ``schema.table``; other tables are skipped.
        seen: What snapshots have read, by ``schema.table``.
        lookup: Reads the values that changes of keys lack; None to leave them out.
    """

    data: bytes
    sizes: Any
    lsns: Any
    transaction: Transaction | None
    relations: Mapping[int, bytes]
    keys: Mapping[str, Sequence[str]]
    seen: Mapping[str, SnapshotPoint]
    lookup: RowLookup | None = None

    def records(self, shape: RecordShape) -> Iterator[pa.RecordBatch]:
        """The records, in order for each table; one batch per version of a table."""
        log = _Log.of(self)
        for table, changed, truncated in self._tables(log, shape):
            relation = table.relation
            changes = row_changes(
                log.data,
                log.starts[changed],
                len(relation.columns),
                [each.in_identity for each in relation.columns],
            )
            if self.lookup is not None and table.key_indices:
                moved = _moved(changes, table)
                changes = self.lookup.completed(changes, moved, relation, table.key_indices)
            steps = _steps(changes, changed, truncated, table, shape)
            point = self.seen.get(table.relation.name)
            if point is not None:
                steps = steps[:, ~log.seen_by(point)[log.transaction_of(steps[0])]]
            if steps.shape[1]:
                yield table.of_changes(log.events(steps, changes.columns))

    def _tables(self, log: "_Log", shape: RecordShape) -> Iterator[tuple[TableRecords, Any, Any]]:
        """The versions of tables, each with its row messages and truncations."""
        forms: dict[int, list[tuple[int, bytes]]] = {}
        for at in log.of_kinds(RELATION).tolist():
            oid = int(big_endian(log.data, log.starts[at : at + 1] + 1, 4)[0])
            forms.setdefault(oid, []).append((at, log.message(at)))
        messages = log.of_kinds(INSERT, UPDATE, DELETE)
        oids = big_endian(log.data, log.starts[messages] + 1, 4)
        by_table = np.argsort(oids, kind="stable")
        found, firsts = np.unique(oids[by_table], return_index=True)
        ends = [*firsts[1:], len(oids)]
        changed = {
            oid: messages[by_table[first:end]]
            for oid, first, end in zip(found.tolist(), firsts, ends[: len(firsts)], strict=True)
        }
        truncated: dict[int, list[int]] = {}
        for at in log.of_kinds(TRUNCATE).tolist():
            for oid in truncated_oids(log.message(at)):
                truncated.setdefault(oid, []).append(at)
        for oid in dict.fromkeys((*changed, *truncated)):
            known = [(-1, self.relations[oid])] if oid in self.relations else []
            known += [*forms.get(oid, []), (len(log.starts), b"")]
            for (begin, payload), (end, _) in pairwise(known):
                relation = parse_relation(payload)
                key = self.keys.get(relation.name)
                if key is None:
                    continue
                table = TableRecords(relation, key, shape)
                own, emptied = changed.get(oid, ()), truncated.get(oid, ())
                yield table, _between(own, begin, end), _between(emptied, begin, end)


@dataclass(frozen=True)
class _Log:
    """The messages of a part and their transactions, indexed by number."""

    data: Any
    starts: Any
    kinds: Any
    lsns: Any
    sizes: Any
    begins: Any
    commit_lsns: Any
    moments_ms: Any
    xids: Any

    @classmethod
    def of(cls, messages: Messages) -> "_Log":
        data = np.frombuffer(messages.data, np.uint8)
        starts = np.cumsum(messages.sizes) - messages.sizes
        kinds = data[starts]
        begins = np.flatnonzero(kinds == BEGIN)
        at = starts[begins]
        opening = messages.transaction or Transaction(0, 0, 0)
        commit_lsns, moments_us, xids = (
            np.concatenate([[first], rest])
            for first, rest in (
                (opening.commit_lsn, big_endian(data, at + 1, 8)),
                (opening.committed_us, big_endian(data, at + 9, 8) + EPOCH_US),
                (opening.xid, big_endian(data, at + 17, 4)),
            )
        )
        return cls(
            data,
            starts,
            kinds,
            messages.lsns,
            messages.sizes,
            begins,
            commit_lsns,
            moments_us // 1_000,
            xids,
        )

    def of_kinds(self, *kinds: int) -> Any:
        """The messages of these kinds."""
        return np.flatnonzero(np.isin(self.kinds, kinds))

    def message(self, number: int) -> bytes:
        """The bytes of a message."""
        start = self.starts[number]
        found: bytes = self.data[start : start + self.sizes[number]].tobytes()
        return found

    def transaction_of(self, numbers: Any) -> Any:
        """The transaction of each message."""
        return np.searchsorted(self.begins, numbers)

    def seen_by(self, point: SnapshotPoint) -> Any:
        """The transactions that a snapshot has seen."""
        found = np.zeros(len(self.xids), np.bool_)
        for number in np.flatnonzero(self.commit_lsns < point.lsn).tolist():
            xid, commit_lsn = int(self.xids[number]), int(self.commit_lsns[number])
            found[number] = point.has_seen(xid, commit_lsn)
        return found

    def events(self, steps: Any, columns: Sequence[TextColumn]) -> _Events:
        """The events of ``_steps``."""
        at, _, ops, before, after, key = steps
        transactions = self.transaction_of(at)
        return _Events(
            _OPS.take(pa.array(ops)),
            before,
            after,
            key,
            self.lsns[at],
            self.moments_ms[transactions],
            self.xids[transactions],
            columns,
        )


_OPS = pa.array([CREATED, UPDATED, DELETED, TRUNCATED, _TOMBSTONE])
_CREATED, _UPDATED, _DELETED, _TRUNCATED, _GONE = range(len(_OPS))


def _steps(
    changes: RowChanges, changed: Any, truncated: Any, table: TableRecords, shape: RecordShape
) -> Any:
    """The events, in order, as columns of six rows: the message, the index of its event, the
    operation's number in ``_OPS``, and the numbers of the rows before, after, and with the key.
    """
    old, new, nothing = changes.old, changes.new, np.full(len(changed), NO_ROW)
    created, deleted = changes.kinds == INSERT, changes.kinds == DELETE
    # a changed key is a deletion of the old one and a creation of the new one
    moved = _moved(changes, table)
    gone = deleted | moved
    none = np.full(len(truncated), NO_ROW)
    found = []

    def add(which: Any, step: int, op: int, before: Any, after: Any, key: Any) -> None:
        at = changed[which]
        parts = at, np.full(len(at), step), np.full(len(at), op)
        found.append(np.stack([*parts, before[which], after[which], key[which]]))

    if CREATED not in shape.skipped:
        add(created, 0, _CREATED, nothing, new, new)
        add(moved, 2, _CREATED, nothing, new, new)
    if UPDATED not in shape.skipped:
        add(~(created | gone), 0, _UPDATED, old, new, new)
    if DELETED not in shape.skipped:
        if shape.layout == ENVELOPE:
            add(gone, 0, _DELETED, old, nothing, old)
        if shape.tombstones and (table.key_indices or shape.layout == FLAT):
            add(gone, 1, _GONE, nothing, nothing, old)
    if TRUNCATED not in shape.skipped and shape.layout != FLAT:
        zeros, op = np.zeros_like(none), np.full_like(none, _TRUNCATED)
        found.append(np.stack([truncated, zeros, op, none, none, none]))
    filled = [each for each in found if each.shape[1]]
    if len(filled) < 2:
        return filled[0] if filled else np.empty((6, 0), np.int64)
    steps = np.concatenate(filled, axis=1)
    return steps[:, np.lexsort((steps[1], steps[0]))]


def _moved(changes: RowChanges, table: TableRecords) -> Any:
    """The changes that update a row's key."""
    found = np.zeros(len(changes.kinds), np.bool_)
    which = np.flatnonzero((changes.old != NO_ROW) & (changes.new != NO_ROW))
    if not len(which):
        return found
    old, new = changes.old[which], changes.new[which]
    for index in table.key_indices:
        column = changes.columns[index]
        was, now = column.texts.take(pa.array(old)), column.texts.take(pa.array(new))
        differs = pc.fill_null(pc.not_equal(was, now), False)
        differs = pc.or_(differs, pc.xor(was.is_null(), now.is_null()))
        sent = True if column.unchanged is None else ~column.unchanged[new]
        found[which] |= differs.to_numpy(zero_copy_only=False) & sent
    return found


def _between(numbers: Any, begin: int, end: int) -> Any:
    """The ascending numbers within the range."""
    numbers = np.asarray(numbers, np.int64)
    return numbers[np.searchsorted(numbers, begin) : np.searchsorted(numbers, end)]


def _structs(
    values: Mapping[int, pa.Array], columns: Sequence[int], kind: pa.DataType, rows: Any
) -> pa.Array:
    """Structs of the columns' values in these rows; null for NO_ROW."""
    missing = rows == NO_ROW
    if missing.all():
        return pa.nulls(len(rows), kind)
    if not columns:
        return pa.array([None if each else {} for each in missing.tolist()], kind)
    if missing.any():
        numbers = pa.array(rows, mask=missing)
        arrays = [values[each].take(numbers) for each in columns]
        return pa.StructArray.from_arrays(arrays, fields=list(kind), mask=pa.array(missing))
    count = len(values[columns[0]])
    if len(rows) == count and (rows == np.arange(count)).all():
        arrays = [values[each] for each in columns]
    else:
        arrays = [values[each].take(pa.array(rows)) for each in columns]
    return pa.StructArray.from_arrays(arrays, fields=list(kind))
