"""The log files of the shards, created at the first start.

Everything here runs under a lock before the coordinator serves, and can be repeated after a crash
at any point.
"""

import contextlib
import fcntl
import re
from collections.abc import Iterator
from pathlib import Path

from drover.clock import Clock
from drover.errors import InvalidArgumentError, Reason, Violation
from drover.log import sqlite_file
from drover.log.directory import DataDirectory
from drover.log.log import Log
from drover.log.sqlite import SqliteLog
from drover_coordinator.backends.embedded.lease_file import FILE_NAME, LeaseFile

_SHARD_LOG = re.compile(r"groups-(\d+)\.db")
_SETTING = "DROVER_GROUP_SHARDS"


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
                # before the logs, whose number would count after a start that was cut short
                leases.begin(shard_count)
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
    if begun_with is None:
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
