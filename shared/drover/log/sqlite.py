"""The embedded log: one SQLite file and one writer thread; concurrent appends share an fsync."""

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

from drover.clock import Clock
from drover.errors import (
    DroverError,
    FailedPreconditionError,
    InternalError,
)
from drover.log import sqlite_file as file
from drover.log.batching_queue import BatchingQueue, WaitingJob, complete
from drover.log.claims import check_epoch, next_claim
from drover.log.end_mark import EndMark
from drover.log.log import KEPT_RECORD_COUNT, LogRecord, StoredRecord, closed_error
from drover.model.ids import Term

READ_BATCH_RECORDS = 500
READ_BATCH_BYTES = 1 << 20
DELETE_BATCH_RECORDS = 1_000
READER_THREADS = 2

_COLUMNS = "offset, timestamp_ms, key, value, request_id, author, checksum, previous"
#: The indexes of key and value in a row; rows of other queries are shorter.
_KEY_AND_VALUE = slice(2, 4)
_INSERT = f"INSERT INTO record ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
_SELECT_FROM = f"SELECT {_COLUMNS} FROM record WHERE offset >= ? ORDER BY offset"
_SELECT_END = "SELECT coalesce(max(offset) + 1, 0) FROM record"
_SELECT_SUPERSEDED = """
    SELECT offset, successor IS NULL FROM (
        SELECT
            offset,
            value IS NULL AS tombstone,
            lead(offset) OVER (PARTITION BY key ORDER BY offset) AS successor
        FROM record
        WHERE offset < ?
    )
    WHERE (tombstone OR successor IS NOT NULL)
        AND offset <= (SELECT max(offset) FROM record) - ?
    ORDER BY offset
"""

#: SQLite's largest integer
_ABOVE_ALL_OFFSETS = 2**63 - 1

_Result = int | DroverError


@dataclass(slots=True, eq=False)
class _Job(WaitingJob[int]):
    """An atomic change, which the writer thread makes in a transaction."""

    change: Callable[[sqlite3.Connection], int]


class _Writer:
    """The thread that owns the writing connection.

    Jobs that are queued during a commit share the next transaction. If it fails, each job is
    retried alone, so that none fails because of another.
    """

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self._file = file.log_file(path)
        self._mark = EndMark(path)
        self._jobs: BatchingQueue[_Job] = BatchingQueue(str(path))
        self._thread = threading.Thread(
            target=self._run, name=f"log writer {path.name}", daemon=True
        )
        self._thread.start()

    async def do(self, change: Callable[[sqlite3.Connection], int]) -> int:
        """Make ``change`` atomically and durably; returns its result.

        ``change`` may raise a FailedPreconditionError before it writes anything.
        """
        loop = asyncio.get_running_loop()
        job = _Job(loop, loop.create_future(), change)
        self._jobs.put(job)
        return await job.done

    def stop(self) -> None:
        """Reject new jobs, finish the queued ones, close the connection; idempotent."""
        self._jobs.stop()
        self._thread.join()

    def _run(self) -> None:
        while jobs := self._jobs.next_group():
            results = self._commit(jobs)
            if isinstance(results, DroverError):
                singly = [self._commit([job]) for job in jobs] if len(jobs) > 1 else [results]
                results = [each if isinstance(each, DroverError) else each[0] for each in singly]
            complete(zip(jobs, results, strict=True))
        self._connection.close()
        wal = self._file.path.with_name(self._file.path.name + "-wal")
        self._mark.close(remove=not wal.exists())

    def _commit(self, jobs: Sequence[_Job]) -> "list[_Result] | DroverError":
        """Commit ``jobs`` in one transaction: a result for each, or the error of all."""
        results: list[_Result] = []
        try:
            with self._file.transaction(self._connection):
                for job in jobs:
                    try:
                        results.append(job.change(self._connection))
                    except FailedPreconditionError as refusal:
                        results.append(refusal)
                end = file.read_end(self._connection)
            self._mark.write(end)
        except DroverError as error:
            return error
        except Exception as error:  # noqa: BLE001 the thread must not end before the log
            return InternalError(f"the records cannot be stored: {error}")
        return results


class _Query:
    """A running SELECT on its own connection, which reads a snapshot of the log."""

    def __init__(self, path: Path, sql: str, parameters: Sequence[int] = ()) -> None:
        self._file = file.log_file(path)
        self._sql = sql
        self._parameters = parameters
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._cursor: sqlite3.Cursor | None = None
        self._closed = False

    def fetch(self, max_rows: int, max_bytes: int) -> list[tuple[Any, ...]]:
        """The next rows; empty at the end."""
        with self._lock:
            if self._closed:
                raise closed_error()
            with self._file.errors():
                if self._cursor is None:
                    self._connection = self._file.connect()
                    self._cursor = self._connection.execute(self._sql, self._parameters)
                rows: list[tuple[Any, ...]] = []
                size_bytes = 0
                for row in self._cursor:
                    rows.append(row)
                    for cell in row[_KEY_AND_VALUE]:
                        if type(cell) is bytes:  # a damaged cell may have any type
                            size_bytes += len(cell)
                    if len(rows) >= max_rows or size_bytes >= max_bytes:
                        break
            return rows

    def close(self) -> None:
        """End the query after the fetch in progress."""
        with self._lock:
            self._closed = True
            if self._cursor is not None:
                self._cursor.close()  # an open statement would keep the closed file open
            if self._connection is not None:
                self._connection.close()


class SqliteLog:
    """A ``Log`` in one SQLite file; create it with ``open``.

    One process at a time may use a file, which ``DataDirectory.lock`` ensures. In it any number of
    tasks may append, read and compact concurrently.
    """

    def __init__(self, path: Path, clock: Clock, connection: sqlite3.Connection) -> None:
        self._path: Final = path
        self._clock = clock
        self._writer = _Writer(connection, path)
        self._readers = ThreadPoolExecutor(READER_THREADS, thread_name_prefix=f"log {path.name}")
        self._compacting = asyncio.Lock()
        self._queries: set[_Query] = set()
        self._closed = False

    @classmethod
    async def open(cls, path: Path, clock: Clock) -> "SqliteLog":
        """Open the log at ``path``, creating it if it is missing.

        Raises:
            DataLossError: LOG_CORRUPT, the file is damaged, is no log, or was written by a newer
                Drover; the message has the file and the remedy.
            UnavailableError: STORAGE_UNAVAILABLE.
        """
        connection = await asyncio.to_thread(file.open_log_file, path)
        with file.log_file(path).errors():
            try:
                return cls(path, clock, connection)
            except OSError:  # the end mark cannot be opened
                connection.close()
                raise

    @property
    def log_id(self) -> str:
        """Always empty: a file is one sequence."""
        return ""

    async def append(self, records: Sequence[LogRecord], epoch: int | None = None) -> int:
        """Append all records or none; durable when it returns the end offset.

        If the caller is cancelled, the records may or may not be written.
        """

        def change(connection: sqlite3.Connection) -> int:
            if epoch is not None:
                check_epoch(file.read_claim(connection), epoch)
            first = file.read_end_offset(connection)
            now_ms = self._clock.now_ms()
            connection.executemany(
                _INSERT,
                [
                    file.to_row(
                        offset,
                        now_ms if record.timestamp_ms is None else record.timestamp_ms,
                        record,
                    )
                    for offset, record in enumerate(records, first)
                ],
            )
            return first + len(records)

        return await self._writer.do(change)

    async def read(self, start_offset: int = 0) -> AsyncIterator[Sequence[StoredRecord]]:
        """The records from ``start_offset`` to the present end, from a snapshot.

        Concurrent appends and compactions have no effect on it.
        """
        query = _Query(self._path, _SELECT_FROM, (start_offset,))
        before = file.NO_RECORD if start_offset <= 0 else None
        async with aclosing(self._rows(query, READ_BATCH_RECORDS)) as batches:
            async for rows in batches:
                batch = list(file.from_rows(cast("list[file.Row]", rows), before, self._path))
                before = batch[-1].offset
                yield batch

    async def end_offset(self) -> int:
        """The last record's offset + 1."""
        async with aclosing(self._rows(_Query(self._path, _SELECT_END), 1)) as batches:
            end_offset: int = (await anext(batches))[0][0]
            return end_offset

    async def claim(self, owner: str, term: Term) -> int:
        """Make ``owner`` the privileged writer; returns its epoch."""

        def change(connection: sqlite3.Connection) -> int:
            current = file.read_claim(connection)
            claim = next_claim(current, owner, term)
            if claim != current:
                file.write_claim(connection, claim)
            return claim.epoch

        return await self._writer.do(change)

    async def compact(
        self, *, keep_offsets: Collection[int] = (), below_offset: int | None = None
    ) -> int:
        """Remove superseded records and old tombstones, in batches between appends.

        The oldest are removed first: if it is interrupted, no tombstone is removed before the
        records that it covers. Reads in progress keep their snapshot.
        """
        removed = 0
        spared = frozenset(keep_offsets)
        # a tombstone may cover a spared record
        oldest_spared = min(spared, default=_ABOVE_ALL_OFFSETS)
        below = _ABOVE_ALL_OFFSETS if below_offset is None else below_offset
        query = _Query(self._path, _SELECT_SUPERSEDED, (below, KEPT_RECORD_COUNT))
        async with self._compacting, aclosing(self._rows(query, DELETE_BATCH_RECORDS)) as batches:
            async for rows in batches:
                removable = [
                    offset
                    for offset, is_last_tombstone in rows
                    if offset not in spared and not (is_last_tombstone and offset > oldest_spared)
                ]
                removed += await self._writer.do(partial(_delete, removable))
        return removed

    async def close(self) -> None:
        """Finish the appends in flight and close the file; idempotent."""
        self._closed = True
        await asyncio.to_thread(self._release)

    def _release(self) -> None:
        for query in list(self._queries):
            query.close()
        self._readers.shutdown()
        self._writer.stop()

    async def _rows(
        self, query: _Query, max_rows: int
    ) -> AsyncGenerator[list[tuple[Any, ...]], None]:
        loop = asyncio.get_running_loop()
        self._queries.add(query)
        try:
            while not self._closed:
                rows = await loop.run_in_executor(
                    self._readers, query.fetch, max_rows, READ_BATCH_BYTES
                )
                if not rows:
                    return
                yield rows
            raise closed_error()
        finally:
            self._queries.discard(query)
            with contextlib.suppress(RuntimeError):  # the log is closed, and so is the query
                self._readers.submit(query.close)  # in a thread, because it may wait for a fetch


def _delete(offsets: Sequence[int], connection: sqlite3.Connection) -> int:
    file.delete_records(connection, offsets)
    return len(offsets)
