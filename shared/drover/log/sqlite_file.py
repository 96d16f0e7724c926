"""The file of a ``SqliteLog``: schema, checks, and SQLite's errors in our terms. Synchronous."""

import contextlib
import os
import sqlite3
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from drover.errors import DataLossError, DroverError, Reason, UnavailableError
from drover.log.claims import WriterClaim
from drover.log.end_mark import End, mark_path, read_mark
from drover.log.log import LogRecord, StoredRecord
from drover.model.ids import Term

SCHEMA_VERSION = 3
APPLICATION_ID = 0x44524F56  # "DROV", so that another program's database is not taken for a log
BUSY_TIMEOUT_S = 5.0
WAL_SIZE_LIMIT_BYTES = 64 << 20

_SCHEMA = f"""
    CREATE TABLE record (
        offset INTEGER PRIMARY KEY,
        timestamp_ms INTEGER NOT NULL,
        key BLOB NOT NULL,
        value BLOB,
        request_id TEXT NOT NULL,
        checksum INTEGER NOT NULL,
        previous INTEGER NOT NULL,
        author TEXT NOT NULL DEFAULT ''
    );
    CREATE TABLE claim (
        id INTEGER PRIMARY KEY CHECK (id = 0),
        owner TEXT NOT NULL,
        generation INTEGER NOT NULL,
        sequence INTEGER NOT NULL,
        epoch INTEGER NOT NULL
    );
    PRAGMA application_id = {APPLICATION_ID};
    PRAGMA user_version = {SCHEMA_VERSION};
"""

_CORRUPT = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT}
_PRIMARY_CODE = 0xFF

_LENGTHS = struct.Struct("<qqqq").pack

#: The ``previous`` of a log's first record.
NO_RECORD = -1

Row = tuple[int, int, bytes, bytes | None, str, str, int, int]


def open_log_file(path: Path) -> sqlite3.Connection:
    """Open the log at ``path``, making a new one if nothing is there, and check it.

    Raises:
        DataLossError: LOG_CORRUPT, the file is damaged, is no log, or has another format.
        UnavailableError: STORAGE_UNAVAILABLE.
    """
    try:
        mark = read_mark(path)
        if not path.exists():
            if mark is not None:
                raise corrupt(path, f"it is missing, though it went up to offset {mark.offset}")
            _create(path)
        # a crash may leave the end of the file to be written again from the WAL
        is_whole = not path.with_name(path.name + "-wal").exists()
        connection = connect(path)
        try:
            _check(connection, path, is_whole=is_whole)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute(f"PRAGMA journal_size_limit = {WAL_SIZE_LIMIT_BYTES}")
            # opens the WAL now and keeps it: no reader is ever the last one, who would remove it
            end = read_end(connection)
            if mark is not None and (end.offset < mark.offset or end.epoch < mark.epoch):
                raise _cut_short(path, end, mark)
        except BaseException:
            connection.close()
            raise
    except (sqlite3.Error, OSError) as error:
        raise translated(error, path) from error
    return connection


def connect(path: Path) -> sqlite3.Connection:
    """A connection to an existing file, in autocommit mode, usable from any one thread."""
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=rw",
        uri=True,
        timeout=BUSY_TIMEOUT_S,
        isolation_level=None,
        check_same_thread=False,
    )


def _create(path: Path) -> None:
    """Make an empty log under another name first, so that ``path`` is never an unfinished file and
    an empty one is known to be damaged.
    """
    unfinished = path.with_name(path.name + ".new")
    with contextlib.suppress(FileNotFoundError):
        unfinished.unlink()
    connection = sqlite3.connect(unfinished, isolation_level=None)
    try:
        connection.executescript(f"BEGIN; {_SCHEMA} COMMIT;")
    finally:
        connection.close()
    unfinished.rename(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _check(connection: sqlite3.Connection, path: Path, *, is_whole: bool) -> None:
    if path.stat().st_size == 0:
        raise corrupt(path, "it is empty")
    application_id = _pragma(connection, "application_id")
    if application_id != APPLICATION_ID:
        raise corrupt(path, "it is a database, but not a log of Drover's")
    version = _pragma(connection, "user_version")
    if version != SCHEMA_VERSION:
        raise DataLossError(
            Reason.LOG_CORRUPT,
            f"{path} has format {version}, and this Drover reads format {SCHEMA_VERSION} only: use"
            " the Drover that wrote it, or choose another DROVER_STORAGE_URL",
            metadata={"path": str(path), "format": str(version)},
        )
    page_count, page_bytes = _pragma(connection, "page_count"), _pragma(connection, "page_size")
    assert isinstance(page_count, int)
    assert isinstance(page_bytes, int)
    if is_whole and path.stat().st_size < page_count * page_bytes:
        raise corrupt(path, "its end was cut off")
    finding = _pragma(connection, "quick_check(1)")
    if finding != "ok":
        raise corrupt(path, str(finding))


def _pragma(connection: sqlite3.Connection, pragma: str) -> object:
    row = connection.execute(f"PRAGMA {pragma}").fetchone()
    value: object = row[0]
    return value


def corrupt(path: Path, what: str) -> DataLossError:
    """The error for a damaged file."""
    return DataLossError(
        Reason.LOG_CORRUPT,
        f"{path} is damaged: {what}. Restore it from a backup, or move it away together with its"
        " -wal, -shm and -end files to start with an empty log",
        metadata={"path": str(path)},
    )


def _cut_short(path: Path, end: End, mark: End) -> DataLossError:
    lost = (
        f"at offset {end.offset}, though records up to offset {mark.offset} were acknowledged"
        if end.offset < mark.offset
        else f"with claim {end.epoch}, though claim {mark.epoch} was acknowledged"
    )
    return DataLossError(
        Reason.LOG_CORRUPT,
        f"{path} ends {lost}: its -wal file was lost or cut short. Bring that file back, or restore"
        f" a backup; to go on without what is missing remove {mark_path(path)}",
        metadata={"path": str(path), "offset": str(end.offset)},
    )


def translated(error: sqlite3.Error | OSError, path: Path) -> DroverError:
    """What ``error`` means for a caller of the log."""
    if isinstance(error, sqlite3.Error):
        # the attribute is missing on errors that the Python module itself raises
        code = getattr(error, "sqlite_errorcode", 0) & _PRIMARY_CODE
        if code in _CORRUPT:
            return corrupt(path, str(error))
    what = error.strerror if isinstance(error, OSError) else None
    return UnavailableError(
        Reason.STORAGE_UNAVAILABLE,
        f"cannot use {path}: {what or error}; nothing was written. Check the disk's free space and"
        " that the directory is writable",
        metadata={"path": str(path)},
    )


def checksum(
    offset: int,
    timestamp_ms: int,
    key: bytes,
    value: bytes | None,
    request_id: str,
    author: str,
) -> int:
    """A CRC-32 over all of a record, so that a flipped bit anywhere in it is found."""
    lengths = _LENGTHS(offset, timestamp_ms, len(key), -1 if value is None else len(value))
    # in one piece: a log is read at every start
    content = lengths + key + (value or b"") + request_id.encode("utf-8", "surrogatepass")
    if author:
        content += b"\0" + author.encode("utf-8", "surrogatepass")
    return zlib.crc32(content)


def to_row(offset: int, timestamp_ms: int, record: LogRecord) -> Row:
    """A record as the table keeps it, when it is appended."""
    key, value, request_id, author = record.key, record.value, record.request_id, record.author
    crc = checksum(offset, timestamp_ms, key, value, request_id, author)
    return offset, timestamp_ms, key, value, request_id, author, crc, offset - 1


def from_rows(rows: Iterable[Row], before: int | None, path: Path) -> Iterator[StoredRecord]:
    """Records from the table, the first of which follows the one at offset ``before``; None if that
    is not known.

    Raises:
        DataLossError: LOG_CORRUPT, a checksum is wrong, or a record is missing.
    """
    for offset, timestamp_ms, key, value, request_id, author, crc, previous in rows:
        try:
            intact = checksum(offset, timestamp_ms, key, value, request_id, author) == crc
        except (TypeError, AttributeError, struct.error):  # a flipped bit changed a column's type
            intact = False
        if not intact:
            raise corrupt(path, f"the checksum of the record at offset {offset} is wrong")
        if previous != before and before is not None:
            raise _records_missing(path, before, offset)
        before = offset
        yield StoredRecord(offset, timestamp_ms, LogRecord(key, value, request_id, author))


def _records_missing(path: Path, before: int, offset: int) -> DataLossError:
    where = f"before offset {offset}"
    if before != NO_RECORD:
        where = f"between the offsets {before} and {offset}"
    return corrupt(path, f"records are missing {where}")


def delete_records(connection: sqlite3.Connection, offsets: Sequence[int]) -> None:
    """Remove records, given in order, and link those that stay."""
    connection.executemany("DELETE FROM record WHERE offset = ?", [(each,) for each in offsets])
    linked = NO_RECORD
    for offset in offsets:
        if offset < linked:
            continue
        follower = connection.execute(
            "SELECT offset FROM record WHERE offset > ? ORDER BY offset LIMIT 1", (offset,)
        ).fetchone()
        if follower is None:
            return
        (linked,) = follower
        connection.execute(
            "UPDATE record SET previous = coalesce("
            "(SELECT max(offset) FROM record WHERE offset < ?1), ?2) WHERE offset = ?1",
            (linked, NO_RECORD),
        )


def read_end(connection: sqlite3.Connection) -> End:
    """How far the log goes."""
    return End(read_end_offset(connection), read_claim(connection).epoch)


def read_end_offset(connection: sqlite3.Connection) -> int:
    """The last offset + 1."""
    row = connection.execute("SELECT max(offset) FROM record").fetchone()
    last: int | None = row[0]
    return 0 if last is None else last + 1


def read_claim(connection: sqlite3.Connection) -> WriterClaim:
    """The standing claim."""
    row = connection.execute("SELECT owner, generation, sequence, epoch FROM claim").fetchone()
    if row is None:
        return WriterClaim()
    owner, generation, sequence, epoch = row
    return WriterClaim(owner, Term(generation, sequence), epoch)


def write_claim(connection: sqlite3.Connection, claim: WriterClaim) -> None:
    """Replace the standing claim."""
    connection.execute(
        "INSERT OR REPLACE INTO claim (id, owner, generation, sequence, epoch)"
        " VALUES (0, ?, ?, ?, ?)",
        (claim.owner, claim.term.generation, claim.term.sequence, claim.epoch),
    )
