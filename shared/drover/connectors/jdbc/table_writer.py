"""Writes records into tables, all records of a batch in one transaction with how far it came."""

import json
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from functools import lru_cache
from itertools import groupby
from typing import Any

import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql, sqlite

from drover.connectors.jdbc.database import DatabaseAddress, DatabaseError, telling
from drover.model.ids import Term
from drover.record.batch import KEY, OFFSET, PARTITION, TOPIC, VALUE, original_topics
from drover.record.schema import is_schemaless

INSERT, UPSERT, UPDATE = "insert", "upsert", "update"
NONE, KAFKA, RECORD_KEY, RECORD_VALUE = "none", "kafka", "record_key", "record_value"
#: The columns of pk.mode=kafka, as Confluent's JDBC sink calls them.
KAFKA_FIELDS = ("__connect_topic", "__connect_partition", "__connect_offset")
#: A text that is part of a primary key needs a length on MySQL.
_KEY_CHARS = 255
_WRITTEN = pa.schema([("rows", pa.int64())])

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class WriteSettings:
    """What a sink's config says of its tables."""

    table_format: str
    insert_mode: str
    pk_mode: str
    pk_fields: tuple[str, ...]
    deletes: bool
    creates: bool
    evolves: bool
    fields: tuple[str, ...] | None
    ledger: str | None

    def table_of(self, topic: str) -> str:
        """The table of a topic, perhaps with its schema before a dot."""
        return self.table_format.replace("${topic}", topic)


@dataclass(frozen=True, slots=True)
class _Change:
    """What one record does to its table: a row to write, or None to delete the one of the key."""

    key: Row
    row: Row | None


@dataclass(frozen=True)
class TableWriter:
    """Writes a batch; may be pickled, and gets all of its records in one call.

    The ledger has, for each topic partition, the offset behind what was written, in the same
    transaction: records that come again are left out, and a task whose claim is older than the one
    that wrote last is refused.
    """

    address: DatabaseAddress
    connector: str
    claim: Term
    settings: WriteSettings

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yields one row, with how many were written; they are durable then."""
        held = [batch for batch in batches if batch.num_rows]
        with telling(self.address, "writing"), self.address.connected() as connection:
            tables = _Tables(connection, self.settings)
            for batch in held:
                tables.prepare(batch)
            connection.commit()
            written = self._write(connection, tables, held)
            connection.commit()
        yield pa.RecordBatch.from_pylist([{"rows": written}], schema=_WRITTEN)

    def _write(
        self, connection: "sa.Connection", tables: "_Tables", batches: Sequence[pa.RecordBatch]
    ) -> int:
        ledger = _Ledger(connection, self) if self.settings.ledger else None
        written = 0
        for batch in batches:
            for topic, changes in self._changes(batch, ledger):
                written += tables.apply(topic, changes)
        if ledger is not None:
            ledger.save()
        return written

    def _changes(
        self, batch: pa.RecordBatch, ledger: "_Ledger | None"
    ) -> Iterator[tuple[str, list[_Change]]]:
        """What new records do, in order, by runs of a topic."""
        places = zip(
            original_topics(batch).to_pylist(),
            batch.column(PARTITION).to_pylist(),
            batch.column(OFFSET).to_pylist(),
            strict=True,
        )
        keys = _values(batch, KEY)
        values = _values(batch, VALUE)
        rows = zip(batch.column(TOPIC).to_pylist(), places, keys, values, strict=True)
        for topic, run in groupby(rows, key=lambda each: each[0]):
            changes = []
            for _, place, key, value in run:
                if ledger is not None and not ledger.is_new(*place):
                    continue
                change = self._change(place, key, value)
                if change is not None:
                    changes.append(change)
            if changes:
                yield topic, changes

    def _change(self, place: tuple[str, int, int], key: Any, value: Any) -> _Change | None:
        settings = self.settings
        if value is None:
            if not settings.deletes or key is None:
                return None
            return _Change(self._key(place, key, value), None)
        if not isinstance(value, dict):
            raise DatabaseError(f"{_told(place)} has no fields: set a converter that gives some")
        own = self._key(place, key, value)
        fields = settings.fields
        row = {name: each for name, each in value.items() if fields is None or name in fields}
        return _Change(own, {**row, **own})

    def _key(self, place: tuple[str, int, int], key: Any, value: Any) -> Row:
        settings = self.settings
        names = settings.pk_fields
        match settings.pk_mode:
            case mode if mode == NONE:
                return {}
            case mode if mode == KAFKA:
                return dict(zip(names or KAFKA_FIELDS, place, strict=True))
            case mode if mode == RECORD_VALUE:
                source = value
            case _:
                if not isinstance(key, dict):
                    if key is None or len(names) != 1:
                        raise DatabaseError(f"the key of {_told(place)} has not the fields {names}")
                    return {names[0]: key}
                source = key
        wanted = names or tuple(source)
        missing = [name for name in wanted if source.get(name) is None]
        if missing:
            where = "value" if settings.pk_mode == RECORD_VALUE else "key"
            raise DatabaseError(f"the {where} of {_told(place)} has no {missing[0]!r} (pk.fields)")
        return {name: source[name] for name in wanted}


def _told(place: tuple[str, int, int]) -> str:
    topic, partition, offset = place
    return f"record {topic}-{partition}@{offset}"


def _values(batch: pa.RecordBatch, name: str) -> list[Any]:
    """Keys or values as Python has them; JSON of values without a schema is parsed."""
    field = batch.schema.field(name)
    values: list[Any] = batch.column(name).to_pylist()
    if is_schemaless(field):
        return [None if each is None else json.loads(each) for each in values]
    return values


class _Tables:
    """The tables of a batch: made, extended and written to."""

    def __init__(self, connection: "sa.Connection", settings: WriteSettings) -> None:
        self._connection = connection
        self._settings = settings
        self._known: dict[str, sa.Table] = {}

    def prepare(self, batch: pa.RecordBatch) -> None:
        """Have every table that a batch needs, with its columns."""
        key_fields, fields = _fields_of(batch, self._settings)
        for topic in batch.column(TOPIC).unique().to_pylist():
            table = self._table(topic)
            if table is None:
                self._create(topic, fields, key_fields)
            elif self._settings.evolves:
                self._extend(topic, table, fields)

    def apply(self, topic: str, changes: Sequence[_Change]) -> int:
        """Write what records do to their table, in order; how many rows that were."""
        table = self._table(topic)
        if table is None:
            raise DatabaseError(
                f"there is no table {self._settings.table_of(topic)!r}: create it, or set "
                "auto.create"
            )
        for shape, run in groupby(changes, key=_shape):
            rows = list(run)
            if shape is None:
                self._connection.execute(
                    _statement(
                        self._connection.dialect.name,
                        *(table, self._settings, (), tuple(rows[0].key)),
                        deletes=True,
                    ),
                    [_bound(table, each.key, "key_") for each in rows],
                )
            else:
                self._write_rows(table, rows)
        return len(changes)

    def _write_rows(self, table: "sa.Table", changes: Sequence[_Change]) -> None:
        first = changes[0]
        assert first.row is not None
        unknown = [name for name in first.row if name not in table.c]
        if unknown:
            raise DatabaseError(
                f"table {table.name!r} has no column {unknown[0]!r}: add it, set auto.evolve, or "
                "name the fields to write in fields.whitelist"
            )
        statement = _statement(
            self._connection.dialect.name,
            *(table, self._settings, tuple(first.row), tuple(first.key)),
            deletes=False,
        )
        rows = []
        for each in changes:
            row = _bound(table, each.row or {}, "")
            if self._settings.insert_mode == UPDATE:
                row |= _bound(table, each.key, "key_")
            rows.append(row)
        self._connection.execute(statement, rows)

    def _table(self, topic: str) -> "sa.Table | None":
        found = self._known.get(topic)
        if found is None:
            schema, name = _split(self._settings.table_of(topic))
            try:
                found = sa.Table(name, sa.MetaData(), schema=schema, autoload_with=self._connection)
            except sa.exc.NoSuchTableError:
                return None
            self._known[topic] = found
        return found

    def _create(self, topic: str, fields: Mapping[str, pa.Field], keys: Collection[str]) -> None:
        if not self._settings.creates or not fields:
            return
        schema, name = _split(self._settings.table_of(topic))
        columns = [
            sa.Column(
                each,
                _sql_type(field.type, key=each in keys),
                primary_key=each in keys,
                autoincrement=False,
                nullable=each not in keys,
            )
            for each, field in fields.items()
        ]
        table = sa.Table(name, sa.MetaData(), *columns, schema=schema)
        with self._connection.begin_nested():  # another task may be faster
            table.create(self._connection, checkfirst=True)

    def _extend(self, topic: str, table: "sa.Table", fields: Mapping[str, pa.Field]) -> None:
        missing = [name for name in fields if name not in table.c]
        if not missing:
            return
        preparer = self._connection.dialect.identifier_preparer
        for name in missing:
            kind = _sql_type(fields[name].type, key=False).compile(self._connection.dialect)
            added = f"{preparer.quote(name)} {kind}"
            statement = f"ALTER TABLE {preparer.format_table(table)} ADD COLUMN {added}"
            self._connection.execute(sa.text(statement.replace(":", "\\:")))
        del self._known[topic]


class _Ledger:
    """How far each topic partition has come, kept beside the tables."""

    def __init__(self, connection: "sa.Connection", writer: TableWriter) -> None:
        self._connection = connection
        self._writer = writer
        self._table = ledger_table(writer.settings.ledger or "")
        self._next: dict[tuple[str, int], int] = {}

    def is_new(self, topic: str, partition: int, offset: int) -> bool:
        """Whether a record was not written yet; it counts as written from now on."""
        place = (topic, partition)
        if place not in self._next:
            self._next[place] = self._load(*place)
        if offset < self._next[place]:
            return False
        self._next[place] = offset + 1
        return True

    def save(self) -> None:
        """Write how far they have come."""
        claim = self._writer.claim
        for (topic, partition), offset in self._next.items():
            self._connection.execute(
                self._table.update()
                .where(*self._of(topic, partition))
                .values(next_offset=offset, generation=claim.generation, sequence=claim.sequence)
            )

    def _load(self, topic: str, partition: int) -> int:
        """The offset of the next record, with the row locked until the end of the transaction.

        Raises:
            DatabaseError: a later owner has written.
        """
        found = self._connection.execute(
            sa.select(self._table).where(*self._of(topic, partition)).with_for_update()
        ).one_or_none()
        if found is None:
            self._connection.execute(
                self._table.insert().values(
                    connector=self._writer.connector,
                    topic=topic,
                    partition=partition,
                    next_offset=0,
                    generation=0,
                    sequence=0,
                )
            )
            return 0
        if Term(found.generation, found.sequence) > self._writer.claim:
            raise DatabaseError(f"{topic}-{partition} was taken over by another worker")
        return int(found.next_offset)

    def _of(self, topic: str, partition: int) -> "list[sa.ColumnElement[bool]]":
        columns = self._table.c
        return [
            columns.connector == self._writer.connector,
            columns.topic == topic,
            columns.partition == partition,
        ]


@lru_cache(maxsize=16)
def ledger_table(name: str) -> "sa.Table":
    """The table of offsets."""
    schema, own = _split(name)
    return sa.Table(
        own,
        sa.MetaData(),
        sa.Column("connector", sa.String(_KEY_CHARS), primary_key=True),
        sa.Column("topic", sa.String(249), primary_key=True),
        sa.Column("partition", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("next_offset", sa.BigInteger, nullable=False),
        sa.Column("generation", sa.BigInteger, nullable=False),
        sa.Column("sequence", sa.BigInteger, nullable=False),
        schema=schema,
    )


def _split(name: str) -> tuple[str | None, str]:
    schema, _, own = name.rpartition(".")
    return schema or None, own


def _shape(change: _Change) -> tuple[str, ...] | None:
    """Changes that one statement can make have the same; None for deletions."""
    return None if change.row is None else tuple(change.row)


def _statement(
    dialect: str,
    table: "sa.Table",
    settings: WriteSettings,
    names: tuple[str, ...],
    keys: tuple[str, ...],
    *,
    deletes: bool,
) -> Any:
    of_key = [
        table.c[name] == sa.bindparam(f"key_{name}", type_=table.c[name].type) for name in keys
    ]
    if deletes:
        return table.delete().where(*of_key)
    others = [name for name in names if name not in keys]
    if settings.insert_mode == UPDATE:
        bound = {name: sa.bindparam(name, type_=table.c[name].type) for name in others}
        return table.update().where(*of_key).values(bound)
    bound = {name: sa.bindparam(name, type_=table.c[name].type) for name in names}
    if settings.insert_mode == INSERT:
        return table.insert().values(bound)
    return _upsert(dialect, table, bound, keys, others)


def _upsert(
    dialect: str,
    table: "sa.Table",
    bound: Mapping[str, Any],
    keys: Sequence[str],
    others: Sequence[str],
) -> Any:
    """An insert that updates the row of its key, in the words of each database."""
    if dialect == "mysql":
        insert = mysql.insert(table).values(bound)
        # of a row that has nothing but its key, the key stays as it is
        changed = others or keys
        return insert.on_duplicate_key_update({each: insert.inserted[each] for each in changed})
    make = postgresql.insert if dialect == "postgresql" else sqlite.insert
    statement: Any = make(table).values(bound)
    if not others:
        return statement.on_conflict_do_nothing(index_elements=list(keys))
    return statement.on_conflict_do_update(
        index_elements=list(keys), set_={each: statement.excluded[each] for each in others}
    )


def _fields_of(
    batch: pa.RecordBatch, settings: WriteSettings
) -> tuple[Collection[str], dict[str, pa.Field]]:
    """The columns of a batch's keys, and all that its rows have, with their types; of values
    without a schema there are none.
    """
    value, key = batch.schema.field(VALUE), batch.schema.field(KEY)
    in_value = {}
    if pa.types.is_struct(value.type):
        in_value = {
            each.name: each
            for each in value.type
            if settings.fields is None or each.name in settings.fields
        }
    match settings.pk_mode:
        case mode if mode == KAFKA:
            kinds = (pa.string(), pa.int32(), pa.int64())
            names = settings.pk_fields or KAFKA_FIELDS
            keys = {n: pa.field(n, kind) for n, kind in zip(names, kinds, strict=True)}
        case mode if mode == RECORD_KEY and pa.types.is_struct(key.type):
            wanted = settings.pk_fields or [each.name for each in key.type]
            keys = {each.name: each for each in key.type if each.name in wanted}
        case mode if mode == RECORD_KEY and len(settings.pk_fields) == 1:
            name = settings.pk_fields[0]
            keys = {} if is_schemaless(key) else {name: pa.field(name, key.type)}
        case mode if mode == RECORD_VALUE and pa.types.is_struct(value.type):
            wanted = settings.pk_fields or [each.name for each in value.type]
            keys = {each.name: each for each in value.type if each.name in wanted}
        case _:
            keys = {}
    return keys.keys(), {**keys, **{n: f for n, f in in_value.items() if n not in keys}}


def _sql_type(kind: pa.DataType, *, key: bool) -> "sa.types.TypeEngine[Any]":
    """The column of a new table for an Arrow type."""
    types = pa.types
    if types.is_boolean(kind):
        return sa.Boolean()
    if types.is_integer(kind):
        if kind.bit_width <= 16:
            return sa.SmallInteger()
        return sa.Integer() if kind.bit_width == 32 else sa.BigInteger()
    if types.is_floating(kind):
        return sa.REAL() if kind.bit_width == 32 else sa.Double()
    if types.is_decimal(kind):
        return sa.Numeric(kind.precision, kind.scale)
    if types.is_date(kind):
        return sa.Date()
    if types.is_time(kind):
        return sa.Time()
    if types.is_timestamp(kind):
        precise = mysql.DATETIME(fsp=6)
        return sa.DateTime(timezone=kind.tz is not None).with_variant(precise, "mysql")
    if types.is_binary(kind) or types.is_large_binary(kind):
        return sa.LargeBinary()
    if types.is_nested(kind):
        return sa.JSON().with_variant(postgresql.JSONB(), "postgresql")
    return sa.String(_KEY_CHARS) if key else sa.Text()


def _bound(table: "sa.Table", row: Row, prefix: str) -> Row:
    """A row as its statement takes it."""
    return {
        f"{prefix}{name}": None if value is None else _stored(table.c[name].type, value)
        for name, value in row.items()
    }


def _stored(kind: "sa.types.TypeEngine[Any]", value: Any) -> Any:
    """A value as a column takes it: texts of values without a schema become what they say."""
    match kind:
        case sa.JSON():
            return json.loads(value) if isinstance(value, str) else _plain(value)
        case sa.Uuid():
            return uuid.UUID(value) if isinstance(value, str) else value
        case sa.DateTime() if isinstance(value, str):
            return datetime.fromisoformat(value)
        case sa.DateTime() if value.tzinfo is not None and not kind.timezone:
            return value.replace(tzinfo=None)
        case sa.Date() if isinstance(value, str):
            return date.fromisoformat(value)
        case sa.Time() if isinstance(value, str):
            return time.fromisoformat(value)
        case sa.Numeric() if isinstance(value, str):
            return Decimal(value)
        case sa.ARRAY():
            return value
        case sa.String() if isinstance(value, dict | list):
            return json.dumps(_plain(value), ensure_ascii=False, separators=(",", ":"))
        case _:
            return value


def _plain(value: Any) -> Any:
    """A value as JSON can say it."""
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)
