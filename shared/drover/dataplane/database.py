"""The file ``data.db``: how it is opened, its schema, its transactions, its failures.

SQLite in WAL mode with synchronous=FULL: a transaction that returned survives the loss of power.
Many processes write it (coordinator, engines, Spark executors), each for a short time. Readers
never wait for writers.
"""

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from drover.errors import DataLossError, DroverError, Reason, UnavailableError
from drover.log.lock_holders import write_lock_holders

SCHEMA_VERSION = 2
#: "DRVD", so that another program's SQLite file is not taken for ours.
APPLICATION_ID = 0x44525644
BUSY_TIMEOUT_MS = 10_000
BUSY_ATTEMPTS = 3
#: SQLite looks for a free lock at longer and longer intervals. Writers begin again after this long,
#: else those who have waited longest would be the last to get it.
POLLING_MS = 50
#: Blobs are megabytes: large pages keep their chains short.
PAGE_SIZE_BYTES = 16_384
WAL_CHECKPOINT_PAGES = 2_000
WAL_SIZE_LIMIT_BYTES = 64 * 1024 * 1024

#: Of this version, and what is missing of it in a file of an earlier one.
SCHEMA = """
CREATE TABLE IF NOT EXISTS topics (
    name TEXT PRIMARY KEY, partition_count INTEGER NOT NULL, created_ms INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS partitions (
    topic TEXT NOT NULL, partition INTEGER NOT NULL,
    start_offset INTEGER NOT NULL, end_offset INTEGER NOT NULL,
    PRIMARY KEY (topic, partition)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS batches (
    topic TEXT NOT NULL, partition INTEGER NOT NULL, base_offset INTEGER NOT NULL,
    record_count INTEGER NOT NULL, size_bytes INTEGER NOT NULL, created_ms INTEGER NOT NULL,
    blob_id INTEGER NOT NULL,
    PRIMARY KEY (topic, partition, base_offset)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS batches_by_age ON batches (created_ms);
CREATE TABLE IF NOT EXISTS blobs (blob_id INTEGER PRIMARY KEY AUTOINCREMENT, payload BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS staging (
    blob_id INTEGER PRIMARY KEY, connector TEXT NOT NULL, task INTEGER NOT NULL,
    generation INTEGER NOT NULL, sequence INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS staging_by_task ON staging (connector, task);
CREATE TABLE IF NOT EXISTS claims (
    connector TEXT NOT NULL, task INTEGER NOT NULL,
    generation INTEGER NOT NULL, sequence INTEGER NOT NULL,
    owner TEXT NOT NULL, task_config_generation INTEGER NOT NULL, claimed_ms INTEGER NOT NULL,
    PRIMARY KEY (connector, task)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS claim_requests (
    connector TEXT NOT NULL, task INTEGER NOT NULL, request_id TEXT NOT NULL,
    generation INTEGER NOT NULL, sequence INTEGER NOT NULL,
    PRIMARY KEY (connector, task, request_id)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS last_commits (
    connector TEXT NOT NULL, task INTEGER NOT NULL,
    generation INTEGER NOT NULL, sequence INTEGER NOT NULL, number INTEGER NOT NULL,
    PRIMARY KEY (connector, task)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS offsets (
    connector TEXT NOT NULL, partition_key TEXT NOT NULL, partition_json TEXT NOT NULL,
    offset_json TEXT NOT NULL, metadata TEXT NOT NULL, committed_ms INTEGER NOT NULL,
    PRIMARY KEY (connector, partition_key)
) WITHOUT ROWID;
"""

_CORRUPT_CODES = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT)


class Database:
    """One process's connections to ``data.db``: one that writes, one that reads; thread-safe."""

    def __init__(self, path: Path, *, busy_timeout_ms: int = BUSY_TIMEOUT_MS) -> None:
        self.path = path
        self._busy_timeout_ms = busy_timeout_ms
        self._patience_s = BUSY_ATTEMPTS * busy_timeout_ms / 1000
        self._write_lock = threading.RLock()
        self._read_lock = threading.RLock()
        with self._failures():
            self._writer = self._connect()
            try:
                self._prepare()
                polling_ms = min(self._busy_timeout_ms, POLLING_MS)
                self._writer.execute(f"PRAGMA busy_timeout = {polling_ms}")
                self._reader = self._connect()
            except BaseException:
                self._writer.close()
                raise

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """One transaction that holds the file's write lock: all of it happens, or nothing.

        Raises:
            UnavailableError: STORAGE_UNAVAILABLE, nothing was written.
            DataLossError: LOG_CORRUPT.
        """
        with self._held(self._write_lock), self._failures():
            self._begin_write()
            try:
                yield self._writer
                self._writer.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    self._writer.execute("ROLLBACK")
                raise

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """A view of one moment; never waits for a writer.

        Raises:
            UnavailableError: STORAGE_UNAVAILABLE.
            DataLossError: LOG_CORRUPT.
        """
        with self._held(self._read_lock), self._failures():
            self._reader.execute("BEGIN")
            try:
                yield self._reader
            finally:
                with suppress(sqlite3.Error):
                    self._reader.execute("COMMIT")

    def data_version(self) -> int:
        """A number that differs when anything was committed since the last call; no disk access."""
        with self._held(self._read_lock), self._failures():
            return int(self._reader.execute("PRAGMA data_version").fetchone()[0])

    def close(self) -> None:
        """Close both connections; idempotent."""
        with self._read_lock:
            self._reader.close()
        with self._write_lock:
            self._writer.close()

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path,
            timeout=self._busy_timeout_ms / 1000,
            isolation_level=None,
            check_same_thread=False,
        )
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA wal_autocheckpoint = {WAL_CHECKPOINT_PAGES}")
        connection.execute(f"PRAGMA journal_size_limit = {WAL_SIZE_LIMIT_BYTES}")
        return connection

    def _begin_write(self) -> None:
        deadline_s = time.monotonic() + self._patience_s
        while True:
            try:
                self._writer.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                if not _is_busy(error) or time.monotonic() >= deadline_s:
                    raise
            else:
                return

    def _prepare(self) -> None:
        version = self._check_identity()
        if version == SCHEMA_VERSION:
            return
        self._enter_wal_mode()
        self._begin_write()
        try:
            if self._check_identity() < SCHEMA_VERSION:
                for statement in SCHEMA.split(";"):
                    self._writer.execute(statement)
                self._writer.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                self._writer.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
            self._writer.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                self._writer.execute("ROLLBACK")
            raise

    def _check_identity(self) -> int:
        """The schema version, 0 for an empty file; refuses what is not ours or is newer."""
        version = int(self._writer.execute("PRAGMA user_version").fetchone()[0])
        identity = int(self._writer.execute("PRAGMA application_id").fetchone()[0])
        tables = int(self._writer.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])
        if tables and identity != APPLICATION_ID:
            raise DataLossError(
                Reason.LOG_CORRUPT,
                f"{self.path} is a SQLite file of another program: choose another directory",
            )
        if version > SCHEMA_VERSION:
            raise DataLossError(
                Reason.LOG_CORRUPT,
                f"{self.path} was written by a newer Drover (schema {version}, this one reads up "
                f"to {SCHEMA_VERSION}): upgrade Drover or choose another directory",
            )
        return version

    def _enter_wal_mode(self) -> None:
        """Several processes may create the file at once; SQLite does not wait here by itself."""
        for attempt in range(BUSY_ATTEMPTS):
            try:
                # takes the write lock, waiting for whoever is creating the file right now
                self._writer.execute(f"PRAGMA page_size = {PAGE_SIZE_BYTES}")
                self._writer.execute("PRAGMA auto_vacuum = INCREMENTAL")
                self._writer.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError as error:
                if not _is_busy(error) or attempt == BUSY_ATTEMPTS - 1:
                    raise
            else:
                return

    @contextmanager
    def _held(self, lock: "threading.RLock") -> Iterator[None]:
        """Threads of this process wait as long for each other as for other processes."""
        if not lock.acquire(timeout=self._patience_s):
            raise UnavailableError(
                Reason.STORAGE_UNAVAILABLE,
                f"{self.path} was in use by other threads of this process for "
                f"{self._patience_s:.0f} s",
            )
        try:
            yield
        finally:
            lock.release()

    @contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise self._explain(error) from error

    def _explain(self, error: sqlite3.Error) -> DroverError:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in _CORRUPT_CODES:
            return DataLossError(
                Reason.LOG_CORRUPT,
                f"{self.path} cannot be read ({error}): restore it from a copy, or move it away to "
                "start empty",
            )
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            waited_s = self._patience_s
            message = f"{self.path} stayed locked by another process for {waited_s:.0f} s"
            if holders := write_lock_holders(self.path):
                now = ", ".join(map(str, holders))
                message += f"; pid {now} has the lock now: if it is suspended, resume or kill it"
        else:
            message = (
                f"cannot use {self.path}: {error}; nothing was written. Check the disk's free "
                "space and that the directory is writable"
            )
        return UnavailableError(Reason.STORAGE_UNAVAILABLE, message)


def _is_busy(error: sqlite3.OperationalError) -> bool:
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
