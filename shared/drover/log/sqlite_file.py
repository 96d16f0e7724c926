"""The file of a ``SqliteLog``: schema, integrity checks, rows. Synchronous."""

import sqlite3
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from drover.errors import DataLossError, Reason
from drover.log.claims import WriterClaim
from drover.log.end_mark import End, mark_path, read_mark
from drover.log.log import LogRecord, StoredRecord
from drover.model.ids import Term
from drover.sqlite import FileFormat, SqliteFile

BUSY_TIMEOUT_S = 5.0

_SCHEMA = """
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
"""
FORMAT = FileFormat(
    name="a Drover log",
    application_id=0x44524F56,  # "DROV"
    version=3,
    oldest_version=3,
    schema=_SCHEMA,
    remedy=(
        "Restore it from a backup, or move it away together with its -wal, -shm and -end files to"
        " start with an empty log"
    ),
)

_LENGTHS = struct.Struct("<qqqq").pack

#: The ``previous`` of a log's first record.
NO_RECORD = -1

Row = tuple[int, int, bytes, bytes | None, str, str, int, int]


def log_file(path: Path) -> SqliteFile:
    """The file of the log at ``path``."""
    return SqliteFile(path, FORMAT, BUSY_TIMEOUT_S)


def open_log_file(path: Path) -> sqlite3.Connection:
    """Open the log at ``path``, creating it if it is missing, and check it.

    Raises:
        DataLossError: LOG_CORRUPT, the file is damaged, is no log, or has another format.
        UnavailableError: STORAGE_UNAVAILABLE.
    """
    file = log_file(path)
    with file.errors():
        mark = read_mark(path)
        if not path.exists():
            if mark is not None:
                raise file.corrupt(f"it is missing, but had records up to offset {mark.offset}")
            file.create()
        # after a crash the end of the file may still be in the WAL
        is_whole = not path.with_name(path.name + "-wal").exists()
        connection = file.connect()
        try:
            _check(connection, file, is_whole=is_whole)
            file.enter_wal_mode(connection)
            # this read opens the WAL and keeps it open, so that no closing reader removes it
            end = read_end(connection)
            if mark is not None and (end.offset < mark.offset or end.epoch < mark.epoch):
                raise _cut_short(path, end, mark)
        except BaseException:
            connection.close()
            raise
    return connection


def _check(connection: sqlite3.Connection, file: SqliteFile, *, is_whole: bool) -> None:
    if file.read_version(connection) == 0:
        raise file.corrupt("it is empty")
    (page_count,) = connection.execute("PRAGMA page_count").fetchone()
    (page_bytes,) = connection.execute("PRAGMA page_size").fetchone()
    if is_whole and file.path.stat().st_size < page_count * page_bytes:
        raise file.corrupt("its end was cut off")
    file.check_pages(connection)


def _cut_short(path: Path, end: End, mark: End) -> DataLossError:
    lost = (
        f"at offset {end.offset}, though records up to offset {mark.offset} were acknowledged"
        if end.offset < mark.offset
        else f"with claim {end.epoch}, though claim {mark.epoch} was acknowledged"
    )
    return DataLossError(
        Reason.LOG_CORRUPT,
        f"{path} ends {lost}: its -wal file was lost or truncated. Restore that file or a backup;"
        f" to continue without the lost records remove {mark_path(path)}",
        metadata={"path": str(path), "offset": str(end.offset)},
    )


def checksum(
    offset: int,
    timestamp_ms: int,
    key: bytes,
    value: bytes | None,
    request_id: str,
    author: str,
) -> int:
    """A CRC-32 over all fields of a record, to detect flipped bits."""
    lengths = _LENGTHS(offset, timestamp_ms, len(key), -1 if value is None else len(value))
    # one call of crc32 is faster than several, which matters when a log is loaded
    content = lengths + key + (value or b"") + request_id.encode("utf-8", "surrogatepass")
    if author:
        content += b"\0" + author.encode("utf-8", "surrogatepass")
    return zlib.crc32(content)


def to_row(offset: int, timestamp_ms: int, record: LogRecord) -> Row:
    """The table row of an appended record."""
    key, value, request_id, author = record.key, record.value, record.request_id, record.author
    crc = checksum(offset, timestamp_ms, key, value, request_id, author)
    return offset, timestamp_ms, key, value, request_id, author, crc, offset - 1


def from_rows(rows: Iterable[Row], before: int | None, path: Path) -> Iterator[StoredRecord]:
    """Convert table rows into records and check them.

    Args:
        rows: The rows in order of offset.
        before: The offset of the record before the first row; None if unknown.
        path: The log's file, for errors.

    Raises:
        DataLossError: LOG_CORRUPT, a checksum is wrong, or a record is missing.
    """
    for offset, timestamp_ms, key, value, request_id, author, crc, previous in rows:
        try:
            intact = checksum(offset, timestamp_ms, key, value, request_id, author) == crc
        except (TypeError, AttributeError, struct.error):  # a flipped bit changed a column's type
            intact = False
        if not intact:
            raise log_file(path).corrupt(f"the checksum of the record at offset {offset} is wrong")
        if previous != before and before is not None:
            raise _records_missing(path, before, offset)
        before = offset
        yield StoredRecord(offset, timestamp_ms, LogRecord(key, value, request_id, author))


def _records_missing(path: Path, before: int, offset: int) -> DataLossError:
    where = f"before offset {offset}"
    if before != NO_RECORD:
        where = f"between the offsets {before} and {offset}"
    return log_file(path).corrupt(f"records are missing {where}")


def delete_records(connection: sqlite3.Connection, offsets: Sequence[int]) -> None:
    """Remove records, given in order, and link the remaining ones."""
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
    """The log's end."""
    return End(read_end_offset(connection), read_claim(connection).epoch)


def read_end_offset(connection: sqlite3.Connection) -> int:
    """The last offset + 1."""
    row = connection.execute("SELECT max(offset) FROM record").fetchone()
    last: int | None = row[0]
    return 0 if last is None else last + 1


def read_claim(connection: sqlite3.Connection) -> WriterClaim:
    """The current claim."""
    row = connection.execute("SELECT owner, generation, sequence, epoch FROM claim").fetchone()
    if row is None:
        return WriterClaim()
    owner, generation, sequence, epoch = row
    return WriterClaim(owner, Term(generation, sequence), epoch)


def write_claim(connection: sqlite3.Connection, claim: WriterClaim) -> None:
    """Replace the current claim."""
    connection.execute(
        "INSERT OR REPLACE INTO claim (id, owner, generation, sequence, epoch)"
        " VALUES (0, ?, ?, ?, ?)",
        (claim.owner, claim.term.generation, claim.term.sequence, claim.epoch),
    )
