"""From messages of a log to records: an envelope with both sides of a change, or the row alone.

Runs on executors: what the driver hands over can be pickled, and decodes to the same records
however often it is tried.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa

from drover.connector.records import ERROR_COLUMN, KEY, ORIGIN_COLUMN, TOPIC, VALUE, with_identity
from drover.connectors.postgres.pgoutput import (
    BEGIN,
    CHANGES,
    DELETE,
    INSERT,
    RELATION,
    TRUNCATE,
    UNCHANGED,
    Relation,
    Row,
    Transaction,
    parse_begin,
    parse_change,
    parse_relation,
    relation_oid_of,
    truncated_oids,
)
from drover.connectors.postgres.settings import CONNECT, ENVELOPE, FLAT, is_column_wanted
from drover.connectors.postgres.snapshot_point import SnapshotPoint
from drover.connectors.postgres.values import ColumnReader, column_type

READ, CREATED, UPDATED, DELETED, TRUNCATED = "r", "c", "u", "d", "t"
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
    """What records look like.

    Attributes:
        version: The connector's.
        prefix: What topics and names of schemas begin with.
        database: The database's name.
        now_ms: When the records are made.
        layout: One of LAYOUTS.
        decimals: One of DECIMAL_MODES.
        placeholder: Stands for text that was not sent as it is unchanged.
        tombstones: A record without a value follows each deletion.
        skipped: Operations that are left out.
        domains: The types that domains are of.
        times: One of TIME_MODES.
        columns_include: Regular expressions for the columns of values; all where there are none.
        columns_exclude: Regular expressions for columns that are left out of values.
        nullable_keys: Columns of keys may be null, as they are not those of the primary key.
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
    domains: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    times: str = CONNECT
    columns_include: tuple[str, ...] = ()
    columns_exclude: tuple[str, ...] = ()
    nullable_keys: bool = False


class _Event(NamedTuple):
    """One record to be; ``op`` None is a tombstone."""

    op: str | None
    before: Row | None
    after: Row | None
    key: Row | None
    lsn: int
    transaction: Transaction


class TableRecords:
    """Makes records of one table, as it was at one time.

    Args:
        relation: The table.
        key: The columns of the records' keys; none for records without.
        shape: What they look like.
    """

    def __init__(self, relation: Relation, key: Sequence[str], shape: RecordShape) -> None:
        self.relation = relation
        #: As Debezium does: a topic's name has fewer characters than a table's.
        self.topic = re.sub(r"[^A-Za-z0-9._-]", "_", f"{shape.prefix}.{relation.name}")
        names = [each.name for each in relation.columns]
        self.key_indices = [names.index(each) for each in key if each in names]
        self._shape = shape
        self._readers = []
        for column in relation.columns:
            oid, modifier = shape.domains.get(
                column.type_oid, (column.type_oid, column.type_modifier)
            )
            kind = column_type(oid, modifier, shape.decimals, shape.times)
            self._readers.append(ColumnReader(column, kind, shape.placeholder))
        fields = [reader.type.field(reader.column.name) for reader in self._readers]
        #: Which columns are in values; keys have theirs all the same.
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

    def of_changes(self, events: Sequence[_Event]) -> pa.RecordBatch:
        """Records of events, in order."""
        faults: dict[int, str] = {}
        after = self._rows([each.after for each in events], faults)
        ops = [each.op for each in events]
        moments = [each.transaction.committed_us // 1_000 for each in events]
        lsns = [each.lsn for each in events]
        if self._shape.layout == FLAT:
            value = after
        else:
            before = self._rows([each.before for each in events], faults)
            xids = [each.transaction.xid for each in events]
            value = self._envelope(ops, before, after, moments, lsns, xids, snapshot="false")
        key = self._key([each.key for each in events], faults)
        return self._batch(key, value, lsns, faults)

    def of_rows(self, columns: Sequence[pa.Array], point: SnapshotPoint) -> pa.RecordBatch:
        """Records of rows that a snapshot found; the columns are text."""
        faults: dict[int, str] = {}
        count = len(columns[0])
        arrays = {
            number: self._readers[number].from_texts(columns[number], faults.setdefault)
            for number in sorted({*self._shown, *self.key_indices})
        }
        rows = self._structs([arrays[number] for number in self._shown], pa.array([False] * count))
        lsns = [point.lsn] * count
        if self._shape.layout == FLAT:
            value = rows
        else:
            nothing = pa.nulls(count, self._row_type)
            moments, xids = [self._shape.now_ms] * count, [None] * count
            ops = [READ] * count
            value = self._envelope(ops, nothing, rows, moments, lsns, xids, snapshot="true")
        key = (
            pa.StructArray.from_arrays(
                [arrays[each] for each in self.key_indices], fields=list(self._key_type)
            )
            if self.key_indices
            else None
        )
        return self._batch(key, value, lsns, faults)

    def _batch(
        self,
        key: pa.Array | None,
        value: pa.Array,
        lsns: Sequence[int],
        faults: Mapping[int, str],
    ) -> pa.RecordBatch:
        count = len(lsns)
        kind = "Value" if self._shape.layout == FLAT else "Envelope"
        fields = [
            pa.field(TOPIC, pa.string()),
            with_identity(pa.field(VALUE, value.type), name=f"{self.topic}.{kind}"),
            pa.field(ORIGIN_COLUMN, pa.string()),
        ]
        origins = [f"{self.relation.name} at {each}" for each in lsns]
        arrays = [pa.array([self.topic] * count), value, pa.array(origins)]
        if key is not None:
            identity = pa.field(KEY, key.type, nullable=False)
            fields.append(with_identity(identity, name=f"{self.topic}.Key"))
            arrays.append(key)
        if faults:
            fields.append(pa.field(ERROR_COLUMN, pa.string()))
            arrays.append(pa.array([faults.get(n) for n in range(count)], pa.string()))
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))

    def _rows(self, rows: Sequence[Row | None], faults: dict[int, str]) -> pa.Array:
        if not any(row is not None for row in rows):
            return pa.nulls(len(rows), self._row_type)
        absent: Row = [None] * len(self._readers)
        columns = list(zip(*(row or absent for row in rows), strict=True))
        arrays = [
            self._readers[number].from_values(columns[number], faults.setdefault)
            for number in self._shown
        ]
        return self._structs(arrays, pa.array([row is None for row in rows]))

    def _structs(self, arrays: Sequence[pa.Array], missing: pa.Array) -> pa.Array:
        if not arrays:
            return pa.array([None if each else {} for each in missing.to_pylist()], self._row_type)
        return pa.StructArray.from_arrays(arrays, fields=list(self._row_type), mask=missing)

    def _key(self, rows: Sequence[Row | None], faults: dict[int, str]) -> pa.Array | None:
        if not self.key_indices:
            return None
        arrays = [
            self._readers[index].from_values(
                [None if row is None else row[index] for row in rows], faults.setdefault
            )
            for index in self.key_indices
        ]
        missing = pa.array([row is None for row in rows])
        return pa.StructArray.from_arrays(arrays, fields=list(self._key_type), mask=missing)

    def _envelope(
        self,
        ops: Sequence[str | None],
        before: pa.Array,
        after: pa.Array,
        moments_ms: Sequence[int],
        lsns: Sequence[int],
        xids: Sequence[int | None],
        *,
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
            pa.array([each or "" for each in ops]),
            pa.repeat(pa.scalar(shape.now_ms, pa.int64()), count),
        ]
        tombstones = pa.array([each is None for each in ops])
        return pa.StructArray.from_arrays(arrays, fields=fields, mask=tombstones)


@dataclass(frozen=True)
class Messages:
    """A run of a log's messages, in order; may be pickled.

    Attributes:
        payloads: Begin, Relation and change messages.
        lsns: Where each is in the log.
        transaction: The one that is open at the beginning.
        relations: The tables that the session knows there, by oid: their Relation messages.
        keys: The columns of the records' keys, by ``schema.table``; tables that are not there are
            left out.
        seen: What snapshots have read already, by ``schema.table``.
    """

    payloads: Sequence[bytes]
    lsns: Sequence[int]
    transaction: Transaction | None
    relations: Mapping[int, bytes]
    keys: Mapping[str, Sequence[str]]
    seen: Mapping[str, SnapshotPoint]

    def records(self, shape: RecordShape) -> Iterator[pa.RecordBatch]:
        """Records, those of each table in order; one batch for each form that a table has."""
        tables = {oid: self._table(payload, shape) for oid, payload in self.relations.items()}
        events: dict[TableRecords, list[_Event]] = {}
        transaction = self.transaction
        points = {each: self.seen.get(each.relation.name) for each in tables.values() if each}
        for payload, lsn in zip(self.payloads, self.lsns, strict=True):
            kind = payload[0]
            if kind == BEGIN:
                transaction = parse_begin(payload)
            elif kind == RELATION:
                table = tables[relation_oid_of(payload)] = self._table(payload, shape)
                if table is not None:
                    points[table] = self.seen.get(table.relation.name)
            elif kind in CHANGES:
                assert transaction is not None, "a change outside of a transaction"
                for table, event in _events(payload, lsn, transaction, tables, shape):
                    point = points[table]
                    if point is None or not point.has_seen(transaction.xid, transaction.commit_lsn):
                        events.setdefault(table, []).append(event)
        for table, found in events.items():
            yield table.of_changes(found)

    def _table(self, payload: bytes, shape: RecordShape) -> TableRecords | None:
        relation = parse_relation(payload)
        key = self.keys.get(relation.name)
        return None if key is None else TableRecords(relation, key, shape)


def _events(
    payload: bytes,
    lsn: int,
    transaction: Transaction,
    tables: Mapping[int, TableRecords | None],
    shape: RecordShape,
) -> Iterator[tuple[TableRecords, _Event]]:
    """The records that a message of a change becomes."""
    if payload[0] == TRUNCATE:
        if TRUNCATED in shape.skipped or shape.layout == FLAT:
            return
        for oid in truncated_oids(payload):
            table = tables.get(oid)
            if table is not None:
                yield table, _Event(TRUNCATED, None, None, None, lsn, transaction)
        return
    change = parse_change(payload)
    table = tables.get(change.relation_oid)
    if table is None:
        return
    old, new = change.old, change.new
    if change.kind == INSERT:
        if CREATED not in shape.skipped:
            yield table, _Event(CREATED, None, new, new, lsn, transaction)
    elif change.kind == DELETE:
        yield from _deleted(table, old, lsn, transaction, shape)
    else:
        assert new is not None, "an update without its row"
        if old is not None and not change.old_is_key:
            new = [o if n is UNCHANGED else n for o, n in zip(old, new, strict=True)]
        moved = old is not None and any(
            new[each] is not UNCHANGED and old[each] != new[each] for each in table.key_indices
        )
        if moved:  # the record of the old key goes, that of the new one comes
            yield from _deleted(table, old, lsn, transaction, shape)
            if CREATED not in shape.skipped:
                yield table, _Event(CREATED, None, new, new, lsn, transaction)
        elif UPDATED not in shape.skipped:
            yield table, _Event(UPDATED, old, new, new, lsn, transaction)


def _deleted(
    table: TableRecords,
    old: Row | None,
    lsn: int,
    transaction: Transaction,
    shape: RecordShape,
) -> Iterator[tuple[TableRecords, _Event]]:
    if DELETED in shape.skipped:
        return
    if shape.layout == ENVELOPE:
        yield table, _Event(DELETED, old, None, old, lsn, transaction)
    if shape.tombstones and table.key_indices:
        yield table, _Event(None, None, None, old, lsn, transaction)
