"""The log files of the shards: created at the first start, or from the log of an earlier version.

Everything here runs under a lock before the coordinator serves, and can be repeated after a crash
at any point.
"""

import contextlib
import fcntl
import os
import re
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path

import structlog
from google.protobuf.message import DecodeError

from drover.api.storage.v1 import group_record_pb2 as pb
from drover.clock import Clock
from drover.errors import DataLossError, InvalidArgumentError, Reason, Violation
from drover.log import sqlite_file
from drover.log.directory import DataDirectory
from drover.log.end_mark import mark_path
from drover.log.log import Log
from drover.log.sqlite import SqliteLog
from drover.model.group import shard_of
from drover_coordinator.backends.embedded.lease_file import FILE_NAME, LeaseFile

#: The single log of earlier versions, and its name after it was migrated.
OLD_LOG = "groups.db"
OLD_LOG_TAKEN = "groups.db.taken-over"
_SHARD_LOG = re.compile(r"groups-(\d+)\.db")
_SETTING = "DROVER_GROUP_SHARDS"
_COLUMNS = "offset, timestamp_ms, key, value, request_id, author, checksum, previous"
_INSERT = f"INSERT INTO record ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
_SELECT = f"SELECT {_COLUMNS} FROM record ORDER BY offset"

_log = structlog.get_logger("drover.coordinator")


def shard_path(directory: Path, shard: int) -> Path:
    """The log of a shard."""
    return directory / f"groups-{shard}.db"


async def open_shard_log(directory: Path, clock: Clock, shard: int) -> Log:
    """The log of a shard, which ``open_shards`` has made.

    Raises:
        DataLossError: LOG_CORRUPT.
        UnavailableError: STORAGE_UNAVAILABLE.
    """
    return await SqliteLog.open(shard_path(directory, shard), clock)


def open_shards(directory: DataDirectory, shard_count: int) -> LeaseFile:
    """Open the table of leases and create missing logs of shards. Blocks.

    Raises:
        InvalidArgumentError: INVALID_CONFIG, the directory was created with another number.
        DataLossError: LOG_CORRUPT.
        UnavailableError: STORAGE_UNAVAILABLE.
    """
    path = directory.path
    with _setup_lock(path):
        leases = LeaseFile(path / FILE_NAME)
        try:
            _check_count(path, leases.shard_count, shard_count)
            if leases.shard_count is None:
                if (path / OLD_LOG).exists() and not (path / OLD_LOG_TAKEN).exists():
                    _take_over(path, shard_count)
                _make_missing(path, shard_count)
                leases.begin(shard_count)
            _put_away(path)
            _make_missing(path, shard_count)
        except BaseException:
            leases.close()
            raise
    return leases


@contextlib.contextmanager
def _setup_lock(path: Path) -> Iterator[None]:
    """Locks the setup for one process at a time, and waits for the others."""
    with (path / "coordinator-setup.lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _check_count(path: Path, begun_with: int | None, wanted: int) -> None:
    """Refuse another number of shards than at the first start: groups hash to shards by it."""
    if begun_with is None and not (path / OLD_LOG).exists():
        found = [int(m[1]) for each in path.iterdir() if (m := _SHARD_LOG.fullmatch(each.name))]
        begun_with = max(found) + 1 if found else None
    if begun_with not in (None, wanted):
        what = (
            f"must be {begun_with}, not {wanted}: {path} was begun with {begun_with} shards, and"
            " where its groups are depends on it"
        )
        raise InvalidArgumentError(
            Reason.INVALID_CONFIG, f"{_SETTING} {what}", violations=[Violation(_SETTING, what)]
        )


def _make_missing(path: Path, shard_count: int) -> None:
    """Create missing logs. Only here, under the lock, so that no two processes create one."""
    for shard in range(shard_count):
        if not shard_path(path, shard).exists():
            sqlite_file.open_log_file(shard_path(path, shard)).close()


def _take_over(path: Path, shard_count: int) -> None:
    """Copy the records of the old log, in order, to the logs of their shards."""
    old = sqlite_file.open_log_file(path / OLD_LOG)
    with contextlib.closing(old):
        unfinished = [path / f"groups-{shard}.db.taking-over" for shard in range(shard_count)]
        for each in unfinished:
            for suffix in ("", "-wal", "-shm"):
                each.with_name(each.name + suffix).unlink(missing_ok=True)
        with contextlib.ExitStack() as stack:
            targets = [
                stack.enter_context(contextlib.closing(sqlite_file.open_log_file(each)))
                for each in unfinished
            ]
            record_count = _distribute(path / OLD_LOG, old, targets)
            for target in targets:
                target.execute("COMMIT")
                target.execute("PRAGMA journal_mode = DELETE")  # one file, to be renamed
    for shard, each in enumerate(unfinished):
        each.replace(shard_path(path, shard))
    _sync(path)
    _log.info("took over the log of an earlier version", records=record_count, shards=shard_count)


def _distribute(path: Path, old: sqlite3.Connection, targets: list[sqlite3.Connection]) -> int:
    end_offsets = [0] * len(targets)
    for target in targets:
        target.execute("BEGIN IMMEDIATE")
    record_count = 0
    for stored in sqlite_file.from_rows(old.execute(_SELECT), sqlite_file.NO_RECORD, path):
        try:
            key = pb.GroupMetadataKey.FromString(stored.record.key)
        except DecodeError as error:
            raise DataLossError(
                Reason.LOG_CORRUPT,
                f"{path} holds no group record at offset {stored.offset} ({error}); restore it"
                " from a backup",
            ) from error
        for shard in _shards_of(key, len(targets)):
            new_row = sqlite_file.to_row(end_offsets[shard], stored.timestamp_ms, stored.record)
            targets[shard].execute(_INSERT, new_row)
            end_offsets[shard] += 1
        record_count += 1
    return record_count


def _shards_of(key: pb.GroupMetadataKey, shard_count: int) -> Iterable[int]:
    """The shards of a record; the generation floor holds for groups of all shards."""
    if key.HasField("generation_floor"):
        return range(shard_count)
    group_id = key.offset.group_id if key.HasField("offset") else key.group_id
    return [shard_of(group_id, shard_count)]


def _put_away(path: Path) -> None:
    """Rename the old log, which is not read again, unless a renamed one exists."""
    old, taken = path / OLD_LOG, path / OLD_LOG_TAKEN
    if not old.exists():
        return
    if taken.exists():
        _log.warning("a log of an earlier version is not read", path=str(old))
        return
    with contextlib.closing(sqlite_file.open_log_file(old)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")  # one file, to be renamed
    mark_path(old).unlink(missing_ok=True)
    old.rename(taken)
    _sync(path)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
