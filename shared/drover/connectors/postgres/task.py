"""The task of PostgresCdcSource: reads tables completely, then follows their changes."""

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from drover.connector import (
    ArrowRows,
    RetriableError,
    SourceBatch,
    SourceTask,
    SourceTaskContext,
    core_count,
)
from drover.connectors.postgres.heartbeats import Heartbeats
from drover.connectors.postgres.messages_reader import MessagesReader, no_records
from drover.connectors.postgres.publications import (
    create,
    publication_of,
    publish,
    published,
    published_generated,
    unsent_operations,
)
from drover.connectors.postgres.server import (
    ServerError,
    Table,
    log_end,
    lsn_text,
    translated_errors,
)
from drover.connectors.postgres.session import (
    check_what_is_left,
    create_slot,
    session_name,
    slot_fault,
    take_over,
    what_is_lost,
)
from drover.connectors.postgres.settings import (
    ALL_TABLES,
    AUTOCREATE,
    FILTERED,
    INITIAL_ONLY,
    NEVER,
    NO_DATA,
    SKIPPED,
    SNAPSHOT_MODE,
    TOPIC_PREFIX,
    WHEN_NEEDED,
    address_of,
    is_wanted,
    key_columns,
    publication_name,
    slot_name,
    wanted_tables,
    why_left_out,
)
from drover.connectors.postgres.skipped_truncates import SkippedTruncates
from drover.connectors.postgres.snapshot_point import SnapshotPoint, committed_points
from drover.connectors.postgres.snapshot_reports import SnapshotReports
from drover.connectors.postgres.table_choice import divided
from drover.connectors.postgres.table_identities import TableIdentities

if TYPE_CHECKING:
    import psycopg

    from drover.connectors.postgres.change_rows import RecordShape
    from drover.connectors.postgres.pgoutput import Transaction
    from drover.connectors.postgres.snapshot import PagesReader, Snapshot
    from drover.connectors.postgres.stream import ChangeStream
    from drover.connectors.postgres.values import DatabaseTypes

_log = logging.getLogger(__name__)

_LOOK_EVERY_S = 10.0
#: How often the position is committed while the log has no changes of published tables.
_QUIET_COMMIT_EVERY_S = 10.0
#: The least changes for another Spark partition, and the most per partition. Each partition
#: receives the whole batch, so many partitions are slow.
_PART_CHANGES, _PART_CHANGES_MAX = 5_000, 50_000
_PART_BYTES = 16 * 1024 * 1024
#: The approximate size of a record without the change's values: source fields or schema.
_CHANGE_OVERHEAD_BYTES = 512
POSITION = "server"
POSITION_KEYS = frozenset(("lsn", "transaction", "changes"))


class PostgresCdcSourceTask(SourceTask):
    """Reads the slot; new tables are read completely before their first change."""

    # the slot is acknowledged up to the committed, not the polled position
    reads_ahead: ClassVar[bool] = True
    _stream: "ChangeStream | None" = None
    _types: "DatabaseTypes | None" = None
    _snapshot: "Snapshot | None" = None

    def start(self, context: SourceTaskContext) -> None:
        """Find or create publication and slot, and find the start position."""
        config = context.config
        self._context = context
        self._address = address_of(config)
        self._name = session_name(context)
        self._server = {POSITION: config[TOPIC_PREFIX]}
        self._slot, self._publication = slot_name(config), publication_name(config)
        self._seen: dict[str, SnapshotPoint | None] = {}
        self._identities = TableIdentities(config)
        #: The snapshots of tables that were read in part: later changes undo rows that are deleted
        #: before the table has been read completely.
        self._begun: dict[str, SnapshotPoint] = {}
        self._keys: dict[str, tuple[str, ...]] = {}
        self._relations: dict[int, bytes] = {}
        self._transaction: Transaction | None = None
        #: The number of changes of the open transaction that were delivered or skipped.
        self._ordinal = 0
        self._tables: dict[str, Table] = {}
        #: The tables that are not captured, with the reason.
        self._left_out: dict[str, str] = {}
        #: The tables among them of which the stream has changes.
        self._passed_over: set[str] = set()
        self._refused: dict[str, str] = {}
        self._truncates = SkippedTruncates(config, context.report)
        self._reports = SnapshotReports(context.report_snapshot)
        self._snapshot_batches: Iterator[tuple[Table, PagesReader | None]] = iter(())
        self._looked_s = 0.0
        self._position = 0
        self._done = False
        self._heartbeats, self._beaten = Heartbeats(config, self._address), False
        position = dict(context.offset(self._server) or {})
        if position.keys() - POSITION_KEYS:
            raise ServerError(
                f"the offset of {self._server} was written by another connector: drover connector "
                "offsets NAME --reset reads all tables again"
            )
        points, self._begun = committed_points(context.offsets(), self._server[POSITION])
        with translated_errors(self._address, "preparing"), self._address.connected() as connection:
            position, points = self._prepare(connection, position, points)
            self._generated = published_generated(connection, self._publication)
            self._identities.points = dict(points)
            self._look_for_tables(connection)
            self._report_lag(connection)
            self._log_end = log_end(connection)
        #: A partially delivered transaction, and the number of its delivered changes.
        self._resumed = (position.get("transaction"), position.get("changes", 0))
        self._committed = self._position
        #: The position of the last batch, and its time.
        self._moved, self._moved_s = self._position, time.monotonic()

    def poll(self) -> SourceBatch | None:
        """The next rows of a snapshot, else the next changes."""
        from drover.connectors.postgres.stream import ChangeStream, StreamLostError

        if self._done:
            return None
        self._look_again()
        wanting = self._wanting()
        self._context.report("tables_to_read_count", len(wanting))
        if wanting:
            return self._snapshot_batch()
        if self._snapshot is not None:
            self._snapshot.close()
            self._snapshot = None
        if self._context.config[SNAPSHOT_MODE] == INITIAL_ONLY:
            self._done = True
            return None
        if self._stream is None:
            self._stream = ChangeStream(
                self._address,
                self._slot,
                self._publication,
                self._position,
                self._name,
                acknowledged=self._committed,
                end=self._log_end,
            )
            self._reports.streaming(self._slot, lsn_text(self._position))
        before = self._position, self._transaction, self._ordinal
        try:
            # heartbeats and changes alternate, even if the interval is short
            beat = None if self._beaten else self._heartbeat()
            self._beaten = beat is not None
            return beat or self._changes() or self._quiet()
        except RetriableError:
            self._position, self._transaction, self._ordinal = before
            self._forget_stream()
            raise
        except StreamLostError as error:
            self._forget_stream()
            check_what_is_left(
                self._address, self._slot, self._position, error, self._how_to_read_again()
            )
            told = f"the stream of slot {self._slot!r} at {self._address} ended: {error}"
            raise RetriableError(told) from None

    def committed(
        self, offsets: Sequence[tuple[Mapping[str, Any], Mapping[str, Any] | None]]
    ) -> None:
        """Acknowledge committed positions to the server."""
        for partition, offset in offsets:
            if offset is not None and partition == self._server:
                self._committed = max(self._committed, int(offset["lsn"]))
        if self._stream is not None:
            self._stream.acknowledge(self._committed)

    def stop(self) -> None:
        """Close the stream and the snapshot."""
        if self._stream is not None:
            self._stream.close()
        if self._snapshot is not None:
            self._snapshot.close()

    def _prepare(
        self,
        connection: "psycopg.Connection[tuple[Any, ...]]",
        position: dict[str, Any],
        points: "dict[str, SnapshotPoint | None]",
    ) -> "tuple[dict[str, Any], dict[str, SnapshotPoint | None]]":
        """The start position, and the tables that were read; creates the slot if there is none."""
        from drover.connectors.postgres.server import slot_of

        mode = self._context.config[SNAPSHOT_MODE]
        if mode == INITIAL_ONLY:
            return position, points
        self._publish(connection)
        found = publication_of(connection, self._publication)
        unsent = unsent_operations(found, self._context.config[SKIPPED]) if found else None
        if unsent is not None:
            _log.warning("%s", unsent)
        slot = slot_of(connection, self._slot)
        if slot is not None and (fault := slot_fault(slot, self._slot, self._address.database)):
            raise ServerError(fault)
        known = {**points, **self._begun}
        lost = what_is_lost(self._slot, slot, position, known, log_end(connection))
        if lost is not None:
            if mode != WHEN_NEEDED:
                raise ServerError(f"{lost}. {self._how_to_read_again()}")
            position, points, self._begun = {}, {}, {}
        if slot is not None and slot.lost:
            connection.execute("SELECT pg_drop_replication_slot(%s)", (self._slot,))
            slot = None
        if slot is None:
            create_slot(connection, self._address, self._slot)
            slot = slot_of(connection, self._slot)
            assert slot is not None
        if slot.active_pid is not None:
            take_over(connection, self._slot, self._name, self._context.stopping)
        self._position = int(position.get("lsn", slot.confirmed_lsn or 0))
        return position, points

    def _how_to_read_again(self) -> str:
        return (
            "To read all tables again: drover connector offsets NAME --reset, or "
            f"{SNAPSHOT_MODE}={WHEN_NEEDED}"
        )

    def _publish(self, connection: "psycopg.Connection[tuple[Any, ...]]") -> None:
        config = self._context.config
        if config[AUTOCREATE] == ALL_TABLES and not publication_of(connection, self._publication):
            create(connection, self._address, self._publication, all_tables=True)
        if config[AUTOCREATE] == FILTERED:
            tables = [
                each
                for each in wanted_tables(connection, config)
                if why_left_out(each, config, read=each.id in self._seen) is None
            ]
            self._refused = publish(connection, self._address, self._publication, tables)

    def _look_for_tables(self, connection: "psycopg.Connection[tuple[Any, ...]]") -> None:
        """Find the tables to read, and the tables already read.

        A table is known by its name and its number: another table of the same name is a new one.
        """
        config = self._context.config
        tables = {each.id: each for each in wanted_tables(connection, config)}
        for name, table in tables.items():
            if self._identities.is_replaced(table, self._begun):
                _log.warning("table %s was replaced by another table of this name", name)
                self._seen.pop(name, None)
                self._identities.points.pop(name, None)
                self._begun.pop(name, None)
        known = published(connection, self._publication)
        self._tables, left_out = divided(
            connection, config, tables, self._is_read, self._refused, known
        )
        for name, table in self._tables.items():
            self._identities.captured[name] = table
            if name in self._seen:
                continue
            if name in self._identities.points:
                self._seen[name] = self._identities.points[name]
            elif config[SNAPSHOT_MODE] in (NO_DATA, NEVER):
                self._seen[name] = None
        for name in self._identities.with_attached(connection, self._tables, self._seen):
            _log.warning("table %s has a new partition with rows: it is read again", name)
            del self._seen[name]
            self._identities.points.pop(name, None)
        self._tell_left_out(left_out)
        self._looked_s = time.monotonic()

    def _is_read(self, table: Table) -> bool:
        return table.id in self._seen or table.id in self._identities.points

    def _tell_left_out(self, left_out: dict[str, str]) -> None:
        for name, why in sorted(left_out.items()):
            if self._left_out.get(name) != why:
                _log.warning("table %s is not captured: it %s", name, why)
        self._left_out = left_out
        self._context.report("tables_left_out_count", len(left_out))

    def _look_again(self) -> None:
        """Periodically add new tables, and report the lag of the slot."""
        if time.monotonic() - self._looked_s < _LOOK_EVERY_S:
            return
        with (
            translated_errors(self._address, "checking for tables"),
            self._address.connected() as connection,
        ):
            if self._snapshot is None:
                if self._context.config[SNAPSHOT_MODE] != INITIAL_ONLY:
                    self._publish(connection)
                self._look_for_tables(connection)
            self._report_lag(connection)
        self._looked_s = time.monotonic()

    def _report_lag(self, connection: "psycopg.Connection[tuple[Any, ...]]") -> None:
        from drover.connectors.postgres.server import lag_of

        if self._context.config[SNAPSHOT_MODE] != INITIAL_ONLY:
            unread, kept = lag_of(connection, self._slot)
            self._context.report("slot_lag_bytes", unread)
            self._context.report("slot_kept_bytes", kept)

    def _wanting(self) -> "list[Table]":
        return [each for name, each in self._tables.items() if name not in self._seen]

    def _snapshot_batch(self) -> SourceBatch:
        from drover.connectors.postgres.snapshot import Snapshot

        spark = self._context.spark
        if self._snapshot is None:
            parallel = core_count(spark.sparkContext)
            wanting = self._wanting()
            names = {each.id for each in wanting}
            if self._stream is not None and names & self._passed_over:
                self._forget_stream()  # a new stream names the tables again
            self._passed_over -= names
            try:
                self._snapshot = Snapshot(
                    self._address,
                    wanting,
                    self._name,
                    partial(key_columns, self._context.config),
                    part_bytes=self._context.config["batch.max.bytes"] // parallel,
                    generated=self._generated,
                )
            except RetriableError:
                self._looked_s = -_LOOK_EVERY_S  # the tables may have changed
                raise
            self._snapshot_batches = self._snapshot.batches(self._shape(), parallel)
            point = self._snapshot.point
            self._reports.began(wanting, self._snapshot.estimated_rows(), lsn_text(point.lsn))
            fresh = {
                each.id: replace(point, oid=each.oid)
                for each in wanting
                if each.id not in self._begun
            }
            if fresh:
                self._begun |= fresh
                return self._without_records(
                    *((self._of_table(name), p.offset(complete=False)) for name, p in fresh.items())
                )
        table, reader = next(self._snapshot_batches)
        if reader is not None:
            self._reports.reading(table)
            return SourceBatch(ArrowRows(spark, reader, len(reader.parts), None), [])
        self._reports.read(table)
        point = self._begun.pop(table.id)
        self._seen[table.id] = self._identities.points[table.id] = point
        return self._without_records((self._of_table(table.id), point.offset()))

    def _of_table(self, name: str) -> dict[str, Any]:
        return {**self._server, "table": name}

    def _changes(self) -> SourceBatch | None:
        import numpy as np

        from drover.connectors.postgres.change_rows import Messages
        from drover.connectors.postgres.pgoutput import (
            BEGIN,
            CHANGES,
            COMMIT,
            RELATION,
            TRUNCATE,
            end_lsn_of,
            parse_begin,
            relation_oid_of,
        )
        from drover.connectors.postgres.row_lookup import RowLookup

        assert self._stream is not None
        config = self._context.config
        taken = self._stream.take(
            config["batch.max.records"],
            config["batch.max.bytes"],
            overhead_bytes=_CHANGE_OVERHEAD_BYTES,
        )
        parallel = max(1, core_count(self._context.spark.sparkContext)) if taken else 1
        part_changes = min(max(len(taken) // parallel + 1, _PART_CHANGES), _PART_CHANGES_MAX)
        parts: list[Messages] = []
        payloads: list[bytes] = []
        lsns: list[int] = []
        opening, relations = self._transaction, dict(self._relations)
        self._truncates.forget()
        count = total = moment_us = size = 0

        def cut() -> None:
            nonlocal payloads, lsns, opening, relations, count, size
            if count:
                parts.append(
                    Messages(
                        b"".join(payloads),
                        np.fromiter(map(len, payloads), np.int64),
                        np.array(lsns, np.int64),
                        opening,
                        relations,
                        self._keys,
                        self._points(),
                        RowLookup(self._address),
                    )
                )
            payloads, lsns, count, size = [], [], 0, 0
            opening, relations = self._transaction, dict(self._relations)

        for number, (lsn, payload) in enumerate(taken):
            kind = payload[0]
            if kind == COMMIT:
                assert self._transaction is not None, "the end of a transaction without its begin"
                moment_us = self._transaction.committed_us
                self._transaction, self._ordinal = None, 0
                self._position = end_lsn_of(payload)
                continue
            if kind == BEGIN:
                self._transaction = parse_begin(payload)
            elif kind == RELATION:
                known = self._known(payload)
                if known is None:
                    self._stream.give_back(taken[number:])
                    break
                payload = known
                self._relations[relation_oid_of(payload)] = payload
            elif kind in CHANGES:
                assert self._transaction is not None, "a change outside of a transaction"
                self._ordinal += 1
                commit_lsn, delivered = self._resumed
                if self._transaction.commit_lsn == commit_lsn and self._ordinal <= delivered:
                    continue
                if kind == TRUNCATE:
                    self._truncates.see(
                        *(payload, lsn, self._transaction, self._relations, self._keys, self._seen)
                    )
                count += 1
                total += 1
            else:
                continue
            payloads.append(payload)
            lsns.append(lsn)
            size += len(payload)
            if count >= part_changes or size >= _PART_BYTES:
                cut()
        cut()
        self._truncates.add()
        if not total:
            return None
        if moment_us:
            self._context.report("behind_ms", max(0, time.time_ns() // 1_000 - moment_us) // 1_000)
        rows = ArrowRows(
            self._context.spark, MessagesReader(tuple(parts), self._shape()), len(parts), None
        )
        return SourceBatch(rows, [self._move()])

    def _heartbeat(self) -> SourceBatch | None:
        record = self._heartbeats.beat()
        return None if record is None else SourceBatch(record, [self._move()])

    def _quiet(self) -> SourceBatch | None:
        """Advance the position over a log without changes, so that the server may discard it.

        The position is committed before it is acknowledged: a slot ahead of the committed position
        was moved by another session.
        """
        assert self._stream is not None
        if "transaction" in self._offset():
            return None
        self._context.report("behind_ms", 0)
        self._position = max(self._position, self._stream.quiet_lsn())
        due = time.monotonic() - self._moved_s >= _QUIET_COMMIT_EVERY_S
        is_ahead = self._position > self._moved
        return self._without_records(self._move()) if due and is_ahead else None

    def _move(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The position for a batch that will be committed."""
        self._moved, self._moved_s = self._position, time.monotonic()
        return self._server, self._offset()

    def _known(self, payload: bytes) -> bytes | None:
        """Look up a table's key.

        Returns:
            The Relation message with the table's name in topics; None if the table has to be read
            completely first.

        Raises:
            ServerError: The records' key cannot be known.
        """
        from drover.connectors.postgres.pgoutput import parse_relation, renamed
        from drover.connectors.postgres.server import key_of

        config = self._context.config
        relation = parse_relation(payload)
        self._types = None  # its types may be new as well
        former = self._identities.former_name(relation)
        if former is None and not is_wanted(relation.schema, relation.name, config):
            return payload
        with (
            translated_errors(self._address, "inspecting a table"),
            self._address.connected() as connection,
        ):
            if former is not None and self._identities.keeps_name(connection, relation, former):
                payload = renamed(payload, former.schema, former.name)
                relation = parse_relation(payload)
            if not is_wanted(relation.schema, relation.name, config):
                return payload
            captured = self._identities.captured.get(relation.name)
            is_current = captured is not None and captured.oid == relation.oid
            if relation.name not in self._seen or not is_current:
                self._look_for_tables(connection)
                if relation.name in self._tables and relation.name not in self._seen:
                    return None
            if relation.name in self._left_out:
                self._passed_over.add(relation.name)
                self._keys = {n: key for n, key in self._keys.items() if n != relation.name}
                return payload
            asked_for = key_columns(config, relation.name)
            key = tuple(key_of(connection, relation, asked_for))
            self._keys = {**self._keys, relation.name: key}
        return payload

    def _points(self) -> "dict[str, SnapshotPoint]":
        return {name: point for name, point in self._seen.items() if point is not None}

    def _offset(self) -> dict[str, Any]:
        commit_lsn, changes = self._resumed
        if self._transaction is not None:
            if self._transaction.commit_lsn != commit_lsn:
                changes = 0
            commit_lsn, changes = self._transaction.commit_lsn, max(changes, self._ordinal)
        elif commit_lsn is None or commit_lsn < self._position:
            return {"lsn": self._position}
        return {"lsn": self._position, "transaction": commit_lsn, "changes": changes}

    def _without_records(
        self, *offsets: tuple[Mapping[str, Any], Mapping[str, Any]]
    ) -> SourceBatch:
        nothing = ArrowRows(self._context.spark, no_records, 1, None)
        return SourceBatch(nothing, list(offsets))

    def _shape(self) -> "RecordShape":
        from drover.connectors.postgres.record_shapes import record_shape
        from drover.connectors.postgres.server import types_of

        config = self._context.config
        if self._types is None:
            with (
                translated_errors(self._address, "looking at types"),
                self._address.connected() as connection,
            ):
                self._types = types_of(connection)
        return record_shape(config, self._types)

    def _forget_stream(self) -> None:
        """Close the stream; the next poll opens another one at the last committed position."""
        assert self._stream is not None
        self._stream.close()
        self._stream = None
        offset = self._offset()
        self._resumed = (offset.get("transaction"), offset.get("changes", 0))
        self._transaction, self._ordinal, self._relations = None, 0, {}
