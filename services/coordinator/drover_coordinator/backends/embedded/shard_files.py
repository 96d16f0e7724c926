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
from drover.private_files import open_private
from drover_coordinator.backends.embedded.lease_file import FILE_NAME, LeaseFile

_SHARD_LOG = re.compile(r"groups-(\d+)\.db")
_SETTING = "DROVER_GROUP_SHARDS"


def shard_path(directory: Path, shard: int) -> Path:
    """The log of a shard."""
    return directory / f"groups-{shard}.db"


async def open_shard_log(directory: Path, clock: Clock, shard: int) -> Log:
    """Open the log of a shard; ``open_shards`` has created it.

    Raises:
        DataLossError: LOG_CORRUPT.
        UnavailableError: STORAGE_UNAVAILABLE.
    """
    return await SqliteLog.open(shard_path(directory, shard), clock)


def open_shards(directory: DataDirectory, shard_count: int) -> LeaseFile:
    """Open the table of leases and create missing logs of shards. Blocks.

    Raises:
        InvalidArgumentError: INVALID_CONFIG, the directory has another number of shards.
        DataLossError: LOG_CORRUPT.
        UnavailableError: STORAGE_UNAVAILABLE.
    """
    path = directory.path
    with _setup_lock(path):
        leases = LeaseFile(path / FILE_NAME)
        try:
            _check_count(path, leases.shard_count, shard_count)
            if leases.shard_count is None:
                # before creating logs: after a crash their number would be taken for the setting
                leases.begin(shard_count)
            _create_missing(path, shard_count)
        except BaseException:
            leases.close()
            raise
    return leases


@contextlib.contextmanager
def _setup_lock(path: Path) -> Iterator[None]:
    """Lock the setup; waits while another process holds the lock."""
    with open_private(path / "coordinator-setup.lock") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _check_count(path: Path, stored_count: int | None, shard_count: int) -> None:
    """Reject another number of shards than at the first start: it decides each group's shard."""
    if stored_count is None:
        shards = [int(m[1]) for each in path.iterdir() if (m := _SHARD_LOG.fullmatch(each.name))]
        stored_count = max(shards) + 1 if shards else None
    if stored_count not in (None, shard_count):
        what = (
            f"must be {stored_count}, not {shard_count}: {path} was created with {stored_count}"
            " shards, and the number decides which shard has a group"
        )
        raise InvalidArgumentError(
            Reason.INVALID_CONFIG, f"{_SETTING} {what}", violations=[Violation(_SETTING, what)]
        )


def _create_missing(path: Path, shard_count: int) -> None:
    """Create missing logs; only here, under the lock, so that one process creates them."""
    for shard in range(shard_count):
        if not shard_path(path, shard).exists():
            sqlite_file.open_log_file(shard_path(path, shard)).close()
