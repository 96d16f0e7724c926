"""SQLite files of a cluster: opening, checks, transactions, and SQLite's errors as Drover's.

A ``FileFormat`` describes one kind of file, a ``SqliteFile`` is one file of it. Their users own the
tables; this module owns everything else. Every file is in WAL mode with synchronous=FULL: a
committed transaction survives a loss of power, and readers never wait for a writer.
"""

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from drover.errors import DataLossError, DroverError, Reason, UnavailableError
from drover.private_files import make_private

WAL_SIZE_LIMIT_BYTES = 64 << 20

TransactionKind = Literal["DEFERRED", "IMMEDIATE", "EXCLUSIVE"]

_CORRUPT = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT})
_LOCKED = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_PRIMARY_CODE = 0xFF
_LOCKS = Path("/proc/locks")


@dataclass(frozen=True, slots=True)
class FileFormat:
    """One kind of SQLite file.

    Attributes:
        name: What messages call such a file, with its article: "a Drover log".
        application_id: Stored in the file, so that a file of another program is recognized.
        version: The schema version that is written and the newest that is read.
        oldest_version: The oldest version that is read.
        schema: Statements that create what an empty file, or one of an older version, lacks;
            separated by semicolons, with none inside a statement.
        remedy: What to do about a damaged file, in whole sentences.
        creation_pragmas: Run on an empty file, before anything is written to it.
    """

    name: str
    application_id: int
    version: int
    schema: str
    remedy: str
    oldest_version: int = 1
    creation_pragmas: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SqliteFile:
    """The file at ``path``.

    Attributes:
        lock_timeout_s: How long an operation waits for the locks of other connections.
    """

    path: Path
    format: FileFormat
    lock_timeout_s: float

    # -- opening

    def open_or_create(self, *, check_pages: bool = False) -> sqlite3.Connection:
        """Open the file, create it if it is missing, and bring an older version up to date.

        Several processes may do so at the same time.

        Args:
            check_pages: Look for damage in every page, which takes time in proportion to the size.

        Raises:
            DataLossError: LOG_CORRUPT, the file is damaged, of another program or of a version
                that is not read. It is left as it was.
            UnavailableError: STORAGE_UNAVAILABLE.
        """
        with self.errors():
            connection = self.connect(create=True)
            make_private(self.path)  # before SQLite creates the -wal and -shm files in its mode
            try:
                version = self.read_version(connection)
                if check_pages:
                    self.check_pages(connection)
                if version == 0:
                    for pragma in self.format.creation_pragmas:
                        connection.execute(pragma)
                self.enter_wal_mode(connection)
                if version < self.format.version:
                    self._update_schema(connection)
            except BaseException:
                connection.close()
                raise
        return connection

    def create(self) -> None:
        """Create the file, empty, at a path that only this process uses.

        It is written under another name first: a file at ``path`` is never an unfinished one, and
        an empty one is known to be damaged.

        Raises:
            UnavailableError: STORAGE_UNAVAILABLE.
        """
        unfinished = self.path.with_name(self.path.name + ".new")
        with self.errors():
            with suppress(FileNotFoundError):
                unfinished.unlink()
            connection = sqlite3.connect(unfinished, isolation_level=None)
            make_private(unfinished)
            try:
                self._update_schema(connection)
            finally:
                connection.close()
            unfinished.rename(self.path)
            directory = os.open(self.path.parent, os.O_RDONLY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)

    def connect(self, *, create: bool = False) -> sqlite3.Connection:
        """A connection in autocommit mode, usable from one thread at a time, without any check.

        Raises:
            DataLossError: LOG_CORRUPT.
            UnavailableError: STORAGE_UNAVAILABLE; also if there is no file, unless ``create``.
        """
        with self.errors():
            connection = sqlite3.connect(
                f"{self.path.absolute().as_uri()}?mode={'rwc' if create else 'rw'}",
                uri=True,
                timeout=self.lock_timeout_s,
                isolation_level=None,
                check_same_thread=False,
            )
            try:
                connection.execute("PRAGMA synchronous = FULL")
                connection.execute(f"PRAGMA journal_size_limit = {WAL_SIZE_LIMIT_BYTES}")
            except BaseException:
                connection.close()
                raise
        return connection

    def read_version(self, connection: sqlite3.Connection) -> int:
        """The file's schema version; 0 if it has no tables.

        Raises:
            DataLossError: LOG_CORRUPT, it is damaged, of another program or of a version that is
                not read.
            UnavailableError: STORAGE_UNAVAILABLE.
        """
        with self.errors():
            # first: another process that creates the file commits its tables with the rest
            if not _value(connection, "SELECT count(*) FROM sqlite_schema"):
                return 0
            application_id = _value(connection, "PRAGMA application_id")
            version = _value(connection, "PRAGMA user_version")
        if application_id != self.format.application_id:
            raise DataLossError(
                Reason.LOG_CORRUPT,
                f"{self.path} is a SQLite file, but not {self.format.name}: it may belong to"
                " another program. Move it away, or choose another DROVER_STORAGE_URL",
                metadata={"path": str(self.path)},
            )
        assert isinstance(version, int)
        newest, oldest = self.format.version, self.format.oldest_version
        if version > newest:
            what = (
                f"was written by a newer Drover (format {version}, this one reads up to {newest})"
            )
        elif version < oldest:
            what = f"has format {version}, and this Drover reads from format {oldest} on"
        else:
            return version
        raise DataLossError(
            Reason.LOG_CORRUPT,
            f"{self.path} {what}: use the Drover that wrote it, or choose another"
            " DROVER_STORAGE_URL",
            metadata={"path": str(self.path), "format": str(version)},
        )

    def check_pages(self, connection: sqlite3.Connection) -> None:
        """Read every page.

        Raises:
            DataLossError: LOG_CORRUPT, one is damaged.
            UnavailableError: STORAGE_UNAVAILABLE.
        """
        with self.errors():
            finding = _value(connection, "PRAGMA quick_check(1)")
        if finding != "ok":
            raise self.corrupt(str(finding))

    def enter_wal_mode(self, connection: sqlite3.Connection) -> None:
        """Switch the file to WAL mode, unless it is in it.

        Raises:
            DataLossError: LOG_CORRUPT.
            UnavailableError: STORAGE_UNAVAILABLE.
        """
        deadline_s = time.monotonic() + self.lock_timeout_s
        with self.errors():
            while True:
                try:
                    connection.execute("PRAGMA journal_mode = WAL")
                except sqlite3.OperationalError as error:
                    if not _is_locked(error) or time.monotonic() >= deadline_s:
                        raise
                else:
                    return
                # SQLite does not wait for a writer's lock before the switch, but does here
                with self.transaction(connection, "EXCLUSIVE"):
                    pass

    def _update_schema(self, connection: sqlite3.Connection) -> None:
        with self.transaction(connection):
            # another process may have done it while this one waited for the lock
            if self.read_version(connection) == self.format.version:
                return
            for statement in self.format.schema.split(";"):
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {self.format.application_id}")
            connection.execute(f"PRAGMA user_version = {self.format.version}")

    # -- transactions

    @contextmanager
    def transaction(
        self, connection: sqlite3.Connection, kind: TransactionKind = "IMMEDIATE"
    ) -> Iterator[None]:
        """One transaction on ``connection``: it is committed as a whole, or rolled back.

        IMMEDIATE takes the write lock first, DEFERRED is for reading, EXCLUSIVE waits for readers
        of a file that is not in WAL mode too.

        Raises:
            DataLossError: LOG_CORRUPT.
            UnavailableError: STORAGE_UNAVAILABLE, nothing was written.
        """
        with self.errors():
            try:
                self._begin(connection, kind)
                yield
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    with suppress(sqlite3.Error):
                        connection.execute("ROLLBACK")
                raise

    def _begin(self, connection: sqlite3.Connection, kind: TransactionKind) -> None:
        """Retries, because a connection's own busy timeout may be shorter."""
        deadline_s = time.monotonic() + self.lock_timeout_s
        while True:
            try:
                connection.execute(f"BEGIN {kind}")
            except sqlite3.OperationalError as error:
                if not _is_locked(error) or time.monotonic() >= deadline_s:
                    raise
            else:
                return

    # -- errors

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Raises errors of SQLite and of the file system as Drover's.

        Raises:
            DataLossError: LOG_CORRUPT, the file is damaged.
            UnavailableError: STORAGE_UNAVAILABLE, it is locked, the disk is full or read-only, the
                directory is missing, …
        """
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise self._translated(error) from error

    def corrupt(self, what: str) -> DataLossError:
        """The error for a damaged file."""
        return DataLossError(
            Reason.LOG_CORRUPT,
            f"{self.path} is damaged: {what}. {self.format.remedy}",
            metadata={"path": str(self.path)},
        )

    def _translated(self, error: sqlite3.Error | OSError) -> DroverError:
        code = _primary_code(error)
        if code in _CORRUPT:
            return self.corrupt(str(error))
        if code in _LOCKED:
            message = f"{self.path} stayed locked by another process for {self.lock_timeout_s:g} s"
            if holders := write_lock_holders(self.path):
                now = ", ".join(map(str, holders))
                message += f"; pid {now} has the lock now: if it is suspended, resume or kill it"
        else:
            what = error.strerror if isinstance(error, OSError) else None
            message = (
                f"cannot use {self.path}: {what or error}; nothing was written. Check the disk's"
                " free space and that the directory is writable"
            )
        return UnavailableError(
            Reason.STORAGE_UNAVAILABLE, message, metadata={"path": str(self.path)}
        )


def write_lock_holders(*databases: Path) -> dict[int, Path]:
    """The processes that keep others from writing a database, each with that database.

    Only the list of locks is read: a process that opens and closes a file without SQLite releases
    all locks that SQLite has on it. Empty if the system does not list locks, as only Linux does, or
    if the holder runs in another container.
    """
    files: dict[int, Path] = {}
    for database in databases:
        # in WAL mode the locks are on the shared memory, in all other modes on the file itself
        for file in (database, database.with_name(f"{database.name}-shm")):
            with suppress(OSError):
                files[file.stat().st_ino] = database
    try:
        lines = _LOCKS.read_text().splitlines()
    except OSError:
        return {}
    holders = {}
    for line in lines:
        # 1: POSIX  ADVISORY  WRITE 6454 fe:00:9980379 120 120; one that waits has "->" behind "1:"
        match line.split():
            case [_, "POSIX", _, "WRITE", pid, device_and_inode, _, _]:
                database_held = files.get(int(device_and_inode.rpartition(":")[2]))
                if database_held is not None and int(pid) > 0:
                    holders[int(pid)] = database_held
    return holders


def _value(connection: sqlite3.Connection, sql: str) -> object:
    value: object = connection.execute(sql).fetchone()[0]
    return value


def _primary_code(error: Exception) -> int:
    # errors that the Python module itself raises have no code
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & _PRIMARY_CODE


def _is_locked(error: sqlite3.Error) -> bool:
    return _primary_code(error) in _LOCKED
