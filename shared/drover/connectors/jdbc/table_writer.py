"""Writes records into tables: all records of a batch and their offsets in one transaction."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa

from drover.connector import Term, TopicPartition
from drover.connector.records import TOPIC
from drover.connectors.jdbc.changes import (
    Change,
    Place,
    changes_of,
    column_changes,
    places_of,
    unavailable_in,
)
from drover.connectors.jdbc.column_types import UnwritableRecordError
from drover.connectors.jdbc.coming_batches import ComingBatches
from drover.connectors.jdbc.database import (
    DatabaseAddress,
    is_of_a_row,
    reason_of,
    savepoint,
    translated_errors,
)
from drover.connectors.jdbc.exact_values import MYSQL
from drover.connectors.jdbc.ledger import Ledger
from drover.connectors.jdbc.tables import (
    Tables,
    is_only_mysql_key,
    write_rows,
)
from drover.connectors.jdbc.write_settings import UPSERT, WriteSettings
from drover.connectors.refused_records import RefusedRecord, answer

if TYPE_CHECKING:
    from drover.connectors.jdbc.postgres_bulk import BulkPlan, BulkTable

    #: The changes of some records: for a bulk write, or one by one; None to retry with smaller
    #: batches.
    _Made = BulkPlan | list[Change] | None

#: The most records per write: their changes take several times their memory.
_CHUNK_ROWS = 32_000
_CHUNK_BYTES = 16 << 20
#: How many chunks are prepared: the one to write next, and its successor.
_MADE_AHEAD = 2
#: The most records that are written one by one when a bulk write is impossible.
_SINGLE_ROWS = 100
#: The size of a statement without its values.
_STATEMENT_BYTES = 64 << 10


@dataclass(frozen=True)
class TableWriter:
    """Writes a batch; picklable, and receives all records in one call.

    The table of offsets has the next offset of each topic partition, written in the same
    transaction: records before it are skipped, and a task with an older claim than the last writer
    fails.

    Records that cannot be written are returned, at most ``refused_max``, and nothing is written
    then. Records in ``left_out`` are skipped.
    """

    address: DatabaseAddress
    connector: str
    claim: Term
    settings: WriteSettings
    refused_max: int = 1
    left_out: frozenset[Place] = field(default=frozenset(), repr=False)
    output_ids: Mapping[TopicPartition, str] = field(default_factory=dict)

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield the number of rows written, which are durable then; or a row with the reason for
        each refused record.
        """
        with (
            ComingBatches(batches) as coming,
            translated_errors(self.address, "writing"),
            self.address.connected() as connection,
        ):
            _set_up(connection, self.settings)
            connection.commit()
            written = self._written(connection, coming)
            if written.refused:
                connection.rollback()
                found = (RefusedRecord(*place, reason) for place, reason in written.refused)
                answered = answer(0, found)
            else:
                connection.commit()
                answered = answer(written.row_count, ())
        yield answered

    def tried(self, batches: Iterable[pa.RecordBatch]) -> dict[Place, str]:
        """The refused records with the reasons; the rows are rolled back. For settings that create
        and extend no tables.
        """
        with (
            ComingBatches(batches) as coming,
            translated_errors(self.address, "trying to write"),
            self.address.connected() as connection,
        ):
            _set_up(connection, self.settings)
            connection.commit()
            found = dict(self._written(connection, coming).refused)
            connection.rollback()
        return found

    def _written(self, connection: "sa.Connection", coming: ComingBatches) -> "_Writing":
        """Write all batches as they arrive, without committing."""
        tables = Tables(connection, self.settings)
        writing: _Writing | None = None
        came: list[pa.RecordBatch] = []
        with ThreadPoolExecutor(1, "changes") as thread:
            begin = partial(_Writing, connection, self, tables, thread)
            while (taken := coming.take(waits=writing is None or not writing.has_more)) is not None:
                fresh = [each for each in taken if each.num_rows]
                if tables.may_change:
                    came += fresh
                if writing is None or any(map(tables.lack, fresh)):
                    # a DDL statement ends the transaction: repeat what was written in it
                    connection.rollback()
                    fresh = came or fresh
                    _prepare(connection, tables, fresh)
                    writing = begin()
                writing.add(fresh)
                writing.write_next()
            writing = writing or begin()
            writing.end()
        return writing


@dataclass(slots=True)
class _Chunk:
    """Records of one table; ``made`` is the future of their changes."""

    table: str
    batch: pa.RecordBatch
    made: "Future[_Made] | None" = None


class _Writing:
    """One transaction.

    ``thread`` computes the changes of a chunk while the server writes the previous one.
    """

    def __init__(
        self,
        connection: "sa.Connection",
        writer: TableWriter,
        tables: Tables,
        thread: ThreadPoolExecutor,
    ) -> None:
        self._connection = connection
        self._writer = writer
        self._settings = writer.settings
        self._tables = tables
        self._thread = thread
        self._chunks: deque[_Chunk] = deque()
        self._bulk: dict[str, BulkTable] = {}
        #: By table and key columns: whether MySQL's table has no other unique key.
        self._only_keys: dict[tuple[str, tuple[str, ...]], bool] = {}
        name = self._settings.ledger
        self._ledger = (
            Ledger(connection, name, writer.connector, writer.claim, writer.output_ids)
            if name
            else None
        )
        self.row_count = 0
        self.refused: list[tuple[Place, str]] = []

    @property
    def has_more(self) -> bool:
        """Whether chunks wait to be written."""
        return bool(self._chunks)

    def add(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Queue batches."""
        ledger = self._ledger
        by_table: dict[str, list[pa.RecordBatch]] = {}
        for batch in batches:
            fresh = batch if ledger is None else ledger.unwritten(batch)
            for table, part in _by_table(_without(fresh, self._writer.left_out), self._settings):
                by_table.setdefault(table, []).append(part)
        for table, parts in by_table.items():
            self._chunks += (_Chunk(table, each) for each in _chunks(parts))

    def write_next(self) -> None:
        """Write the oldest chunk, if there is one."""
        if self._is_full:
            self._chunks.clear()
        for chunk in islice(self._chunks, _MADE_AHEAD):
            if chunk.made is None:
                make = self._making(chunk.table, chunk.batch)
                chunk.made = self._thread.submit(make)
        if self._chunks:
            chunk = self._chunks.popleft()
            assert chunk.made is not None
            self._write(chunk.table, chunk.batch, chunk.made.result)

    def end(self) -> None:
        """Write the remaining chunks and the offsets."""
        while self._chunks:
            self.write_next()
        if self._ledger is not None:
            self._ledger.save()

    @property
    def _is_full(self) -> bool:
        """Whether enough records were refused."""
        return len(self.refused) >= self._writer.refused_max

    def _write(self, table: str, batch: pa.RecordBatch, made: "Callable[[], _Made]") -> None:
        """Write records of one table; refused records are located by halving."""
        try:
            with savepoint(self._connection):
                count = self._write_at_once(table, batch, made())
        except UnwritableRecordError as error:
            reason = str(error)
        except sa.exc.StatementError as error:
            if not is_of_a_row(error):
                raise
            reason = f"table {table!r}: {reason_of(error)}"
            self._only_keys.clear()  # the rollback has unlocked the tables' definitions
        else:
            if count is None:
                self._write_halves(table, batch)
            else:
                self.row_count += count
            return
        if batch.num_rows > 1:
            self._write_halves(table, batch)
        else:
            self.refused.append((places_of(batch)[0], reason))

    def _write_halves(self, table: str, batch: pa.RecordBatch) -> None:
        middle = batch.num_rows // 2
        for half in (batch.slice(0, middle), batch.slice(middle)):
            if not self._is_full:
                self._write(table, half, self._making(table, half))

    def _making(self, table: str, batch: pa.RecordBatch) -> "Callable[[], _Made]":
        """A function that computes the changes without using the connection."""
        # a missing table is an error only for records that change it
        is_bulk = self._connection.dialect.name == "postgresql" and self._tables.has(table)
        return partial(_made, batch, self._settings, self._bulk_table(table) if is_bulk else None)

    def _write_at_once(self, name: str, batch: pa.RecordBatch, made: "_Made") -> int | None:
        """The number of rows written; None to retry with smaller batches."""
        if made is not None and not isinstance(made, list):
            if self._bulk_table(name).write(made):
                return made.record_count
            made = _few(batch, self._settings)
        if made is None:
            return None
        if self._packet_bytes and batch.nbytes * 2 > self._packet_bytes:
            if batch.num_rows > 1:
                return None
            self._require_packet(made)
        if made:
            table, keys = self._tables.table(name), {tuple(each.key) for each in made if each.row}
            only = {self._is_only_key(name, each) for each in keys} <= {True}
            write_rows(self._connection, table, self._settings, made, is_only_key=only)
        return len(made)

    def _is_only_key(self, name: str, keys: tuple[str, ...]) -> bool:
        """Whether an upsert can find only the row of its key.

        Raises:
            DatabaseError: The table has no unique key on these columns.
        """
        if self._settings.insert_mode != UPSERT or self._connection.dialect.name not in MYSQL:
            return True  # the statement names the key
        found = self._only_keys.get((name, keys))
        if found is None:
            found = is_only_mysql_key(self._connection, self._tables.table(name), keys)
            self._only_keys[name, keys] = found
        return found

    @cached_property
    def _packet_bytes(self) -> int:
        """MySQL's limit for the packet with a row, beyond which it closes the connection; 0 for no
        limit.
        """
        if self._connection.dialect.name not in MYSQL:
            return 0
        found = self._connection.exec_driver_sql("SELECT @@max_allowed_packet")
        return int(found.scalar_one())

    def _require_packet(self, changes: Sequence[Change]) -> None:
        driver: Any = self._connection.connection.driver_connection
        values = [each for change in changes for each in (change.row or change.key).values()]
        texts = (driver.escape(each) for each in values if isinstance(each, str | bytes))
        size_bytes = sum(len(text.encode(errors="surrogateescape")) for text in texts)
        if size_bytes + _STATEMENT_BYTES > self._packet_bytes:
            raise UnwritableRecordError(
                f"its statement has {size_bytes} bytes, the server's limit is"
                f" {self._packet_bytes} (max_allowed_packet)"
            )

    def _bulk_table(self, name: str) -> "BulkTable":
        if name not in self._bulk:
            from drover.connectors.jdbc.postgres_bulk import BulkTable  # its driver may be missing

            self._bulk[name] = BulkTable(self._connection, self._tables.table(name))
        return self._bulk[name]


def _made(batch: pa.RecordBatch, settings: WriteSettings, bulk: "BulkTable | None") -> "_Made":
    """The changes of records for a table that supports bulk writes.

    Raises:
        UnwritableRecordError: A record has no key, or no fields.
        DatabaseError: The table lacks a column.
    """
    if bulk is not None and unavailable_in(batch, settings) is not None:
        return _few(batch, settings)
    columns = None if bulk is None else column_changes(batch, settings)
    if bulk is None or columns is None:
        return changes_of(batch, settings)
    if not columns.rows.num_rows:
        return []
    return bulk.plan(columns, settings.insert_mode) or _few(batch, settings)


def _few(batch: pa.RecordBatch, settings: WriteSettings) -> list[Change] | None:
    """The changes of records that must be written one by one."""
    return None if batch.num_rows > _SINGLE_ROWS else changes_of(batch, settings)


def _prepare(
    connection: "sa.Connection", tables: Tables, batches: Sequence[pa.RecordBatch]
) -> None:
    """Create or extend the tables for batches, and start a transaction."""
    for each in batches:
        tables.prepare(each)
    connection.commit()
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql(
            "BEGIN IMMEDIATE"
        )  # otherwise the first savepoint would start it


def _set_up(connection: "sa.Connection", settings: WriteSettings) -> None:
    """Use UTC for times without a zone, limit waits for locks, and refuse unfit values."""
    timeout_ms = settings.lock_timeout_ms
    match connection.dialect.name:
        case "postgresql":
            connection.exec_driver_sql(f"SET lock_timeout = {timeout_ms}")
            connection.exec_driver_sql("SET TIME ZONE 'UTC'")
        case "mysql" | "mariadb":
            seconds = max(1, timeout_ms // 1_000)
            connection.exec_driver_sql(
                f"SET time_zone = '+00:00', innodb_lock_wait_timeout = {seconds},"
                f" lock_wait_timeout = {seconds},"
                # otherwise the server may cut a value to what its column can hold
                " sql_mode = concat(@@sql_mode, ',STRICT_ALL_TABLES')"
            )
        case _:
            connection.exec_driver_sql(f"PRAGMA busy_timeout = {timeout_ms}")


def _without(batch: pa.RecordBatch, left_out: frozenset[Place]) -> pa.RecordBatch:
    if not left_out:
        return batch
    return batch.filter(pa.array([place not in left_out for place in places_of(batch)]))


def _by_table(
    batch: pa.RecordBatch, settings: WriteSettings
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The records per table, in order."""
    tables: dict[str, list[str]] = {}
    for topic in batch.column(TOPIC).unique().to_pylist():
        tables.setdefault(settings.table_of(topic), []).append(topic)
    for table, topics in tables.items():
        if len(tables) == 1:
            yield table, batch
        else:
            own = pc.is_in(batch.column(TOPIC), value_set=pa.array(topics))
            yield table, batch.filter(own)


def _chunks(parts: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Records with the same schema, in chunks of limited size, in order."""
    held: list[pa.RecordBatch] = []
    for piece in (piece for part in parts for piece in _pieces(part)):
        if held and not _fit(held, piece):
            yield pa.concat_batches(held)
            held = []
        held.append(piece)
    if held:
        yield pa.concat_batches(held)


def _fit(held: Sequence[pa.RecordBatch], more: pa.RecordBatch) -> bool:
    together = [*held, more]
    same = held[0].schema.equals(more.schema, check_metadata=True)
    row_count = sum(each.num_rows for each in together)
    size_bytes = sum(each.nbytes for each in together)
    return bool(same and row_count <= _CHUNK_ROWS and size_bytes <= _CHUNK_BYTES)


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """A batch cut to the size of chunks."""
    parts = max(-(-batch.num_rows // _CHUNK_ROWS), -(-batch.nbytes // _CHUNK_BYTES), 1)
    size = max(1, -(-batch.num_rows // parts))
    for start in range(0, batch.num_rows, size):
        yield batch.slice(start, size)
