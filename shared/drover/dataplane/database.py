"""The file ``data.db``: its schema and its transactions.

Many processes write it (coordinator, engines, Spark executors), each briefly.
"""

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from drover.errors import Reason, UnavailableError
from drover.sqlite import FileFormat, SqliteFile

#: How long a transaction waits for transactions of other processes and threads.
LOCK_TIMEOUT_MS = 30_000
#: SQLite polls a lock at increasing intervals. Writers restart polling after this time, otherwise
#: the longest waiters would get the lock last.
POLLING_MS = 50
#: Blobs are megabytes: large pages keep their overflow chains short.
PAGE_SIZE_BYTES = 16_384
WAL_CHECKPOINT_PAGES = 2_000

#: The current schema; creates what a file of an earlier version lacks.
SCHEMA = """
CREATE TABLE IF NOT EXISTS topics (
    name TEXT PRIMARY KEY, partition_count INTEGER NOT NULL, created_ms INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS topic_ids (
    topic TEXT PRIMARY KEY, created_ms INTEGER NOT NULL, topic_id TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS topic_settings (
    topic TEXT NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL,
    PRIMARY KEY (topic, name)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS default_topic_settings (
    name TEXT PRIMARY KEY, value TEXT NOT NULL
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
CREATE TABLE IF NOT EXISTS compacted_blobs (
    blob_id INTEGER PRIMARY KEY, record_count INTEGER NOT NULL, tombstone_ms INTEGER
);
CREATE TABLE IF NOT EXISTS compactions (
    topic TEXT NOT NULL, partition INTEGER NOT NULL, clean_offset INTEGER NOT NULL,
    PRIMARY KEY (topic, partition)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS turns (
    work TEXT PRIMARY KEY, holder TEXT NOT NULL, until_ms INTEGER NOT NULL
) WITHOUT ROWID;
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
CREATE TABLE IF NOT EXISTS offset_marks (
    connector TEXT NOT NULL, partition_key TEXT NOT NULL, partition_json TEXT NOT NULL,
    mark TEXT NOT NULL,
    PRIMARY KEY (connector, partition_key)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS appends (
    topic TEXT NOT NULL, request_id TEXT NOT NULL,
    record_count INTEGER NOT NULL, appended_ms INTEGER NOT NULL,
    PRIMARY KEY (topic, request_id)
) WITHOUT ROWID;
"""

FORMAT = FileFormat(
    name="Drover's data.db",
    application_id=0x44525644,  # "DRVD"
    version=4,
    schema=SCHEMA,
    remedy=(
        "Restore it from a backup, or move it away together with its -wal and -shm files to start"
        " empty"
    ),
    creation_pragmas=(
        f"PRAGMA page_size = {PAGE_SIZE_BYTES}",
        "PRAGMA auto_vacuum = INCREMENTAL",
    ),
)


class Database:
    """A process's two connections to ``data.db``, for writing and for reading; thread-safe."""

    def __init__(self, path: Path, *, lock_timeout_ms: int = LOCK_TIMEOUT_MS) -> None:
        self._file = SqliteFile(path, FORMAT, lock_timeout_ms / 1000)
        self._write_lock = threading.RLock()
        self._read_lock = threading.RLock()
        self._writer = self._file.open_or_create()
        try:
            polling_ms = min(lock_timeout_ms, POLLING_MS)
            self._writer.execute(f"PRAGMA busy_timeout = {polling_ms}")
            self._writer.execute(f"PRAGMA wal_autocheckpoint = {WAL_CHECKPOINT_PAGES}")
            self._reader = self._file.connect()
        except BaseException:
            self._writer.close()
            raise

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """A transaction that holds the file's write lock and is committed or rolled back as a
        whole.

        Raises:
            UnavailableError: STORAGE_UNAVAILABLE, nothing was written.
            DataLossError: LOG_CORRUPT.
        """
        with self._held(self._write_lock), self._file.transaction(self._writer):
            yield self._writer

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """A consistent snapshot; never waits for a writer.

        Raises:
            UnavailableError: STORAGE_UNAVAILABLE.
            DataLossError: LOG_CORRUPT.
        """
        with self._held(self._read_lock), self._file.transaction(self._reader, "DEFERRED"):
            yield self._reader

    def data_version(self) -> int:
        """A number that changes with each commit of any process; no disk access."""
        with self._held(self._read_lock), self._file.errors():
            return int(self._reader.execute("PRAGMA data_version").fetchone()[0])

    def close(self) -> None:
        """Close both connections; idempotent."""
        with self._read_lock:
            self._reader.close()
        with self._write_lock:
            self._writer.close()

    @contextmanager
    def _held(self, lock: "threading.RLock") -> Iterator[None]:
        """Threads of this process wait as long for each other as for other processes."""
        if not lock.acquire(timeout=self._file.lock_timeout_s):
            raise UnavailableError(
                Reason.STORAGE_UNAVAILABLE,
                f"{self._file.path} was in use by other threads of this process for "
                f"{self._file.lock_timeout_s:g} s",
            )
        try:
            yield
        finally:
            lock.release()
