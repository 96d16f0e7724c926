"""``coordinators.db``: the table of leases, and the number of shards.

All coordinators of a directory write this small SQLite file. File locks show whether a
coordinator's process still runs. ``core.ownership.lease_table`` defines the effect of a write.
"""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from urllib.parse import quote

from drover.errors import DataLossError, FailedPreconditionError, Reason
from drover.log.directory import DataDirectory, DirectoryLock
from drover.sqlite import FileFormat, SqliteFile
from drover_coordinator.core.ownership.lease_table import Identity, LeaseTable, apply_writes
from drover_coordinator.core.ownership.machine import Claim, Lease, Peer, Release, TableSeen, Write

FILE_NAME = "coordinators.db"
#: How long a write waits for the lock; a failed write is retried at the next exchange.
LOCK_TIMEOUT_S = 0.5
#: A coordinator that probes the lock of a starting one holds it for a moment, so retry.
LOCK_ATTEMPTS = 20
LOCK_PAUSE_S = 0.05

# version 1 had no lease_ms; every coordinator writes its row again
_SCHEMA = """
    DROP TABLE IF EXISTS coordinator;
    CREATE TABLE IF NOT EXISTS setting (name TEXT PRIMARY KEY, value INTEGER NOT NULL);
    CREATE TABLE IF NOT EXISTS lease (
        shard INTEGER PRIMARY KEY,
        owner TEXT NOT NULL,
        incarnation TEXT NOT NULL,
        epoch INTEGER NOT NULL,
        renewals INTEGER NOT NULL
    );
    CREATE TABLE IF NOT EXISTS coordinator (
        address TEXT PRIMARY KEY,
        incarnation TEXT NOT NULL,
        beats INTEGER NOT NULL,
        lease_ms INTEGER NOT NULL
    );
"""
FORMAT = FileFormat(
    name="Drover's coordinators.db",
    application_id=0x44524F4C,  # "DROL"
    version=2,
    schema=_SCHEMA,
    remedy=(
        "Stop every coordinator and move it away together with its -wal and -shm files: it is made"
        " anew, and no group is lost with it"
    ),
)


class LeaseFile:
    """The file, used from one thread at a time.

    Every method raises DataLossError LOG_CORRUPT if the file is damaged or was removed, and
    UnavailableError STORAGE_UNAVAILABLE if it cannot be used at present.
    """

    def __init__(self, path: Path) -> None:
        """Open the file, creating it if it is missing, and check it."""
        self._file = SqliteFile(path, FORMAT, LOCK_TIMEOUT_S)
        self._connection = self._file.open_or_create(check_pages=True)
        try:
            self._file_id = self._present_file_id()
        except BaseException:
            self._connection.close()
            raise

    @property
    def shard_count(self) -> int | None:
        """How many shards the directory was created with; None if it is new."""
        with self._file.errors():
            row = self._connection.execute(
                "SELECT value FROM setting WHERE name = 'shard_count'"
            ).fetchone()
        return None if row is None else int(row[0])

    def begin(self, shard_count: int) -> None:
        """Store the number of shards, which never changes."""
        with self._file.transaction(self._connection):
            self._connection.execute(
                "INSERT INTO setting (name, value) VALUES ('shard_count', ?)", (shard_count,)
            )
            self._connection.executemany(
                "INSERT OR IGNORE INTO lease VALUES (?, '', '', 0, 0)",
                [(shard,) for shard in range(shard_count)],
            )

    def exchange(self, who: Identity, writes: Sequence[Write]) -> LeaseTable:
        """Apply every write whose condition holds, in one transaction, and read the table.

        Claims and releases are synced to disk when this returns. Renewals need no sync: a power
        failure ends the owner too.
        """
        durable = any(isinstance(write, Claim | Release) for write in writes)
        if self._present_file_id() != self._file_id:
            raise DataLossError(
                Reason.LOG_CORRUPT,
                f"{self._file.path} was removed or replaced while coordinators used it, so their"
                " leases are lost: restart this coordinator",
                metadata={"path": str(self._file.path)},
            )
        with self._file.errors():
            self._connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
        with self._file.transaction(self._connection, "IMMEDIATE" if writes else "DEFERRED"):
            before = self._read()
            table = apply_writes(before, who, writes)
            self._write(table, before)
        return table

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def _present_file_id(self) -> tuple[int, int] | None:
        """The identity of the file at the path; SQLite would continue with a deleted file."""
        with self._file.errors():
            try:
                found = self._file.path.stat()
            except FileNotFoundError:
                return None
        return found.st_dev, found.st_ino

    def _read(self) -> LeaseTable:
        execute = self._connection.execute
        leases = execute("SELECT owner, incarnation, epoch, renewals FROM lease ORDER BY shard")
        peers = execute("SELECT address, incarnation, beats, lease_ms FROM coordinator")
        return LeaseTable(
            tuple(Lease(*row) for row in leases),
            {address: Peer(*row) for address, *row in peers},
        )

    def _write(self, table: LeaseTable, before: LeaseTable) -> None:
        execute = self._connection.execute
        for shard, lease in table.changed_shards(before).items():
            execute(
                "UPDATE lease SET owner = ?, incarnation = ?, epoch = ?, renewals = ?"
                " WHERE shard = ?",
                (lease.owner, lease.incarnation, lease.epoch, lease.renewals, shard),
            )
        for address, peer in table.changed_peers(before).items():
            if peer is None:
                execute("DELETE FROM coordinator WHERE address = ?", (address,))
            else:
                execute(
                    "INSERT OR REPLACE INTO coordinator VALUES (?, ?, ?, ?)",
                    (address, peer.incarnation, peer.beats, peer.lease_ms),
                )


def lock_name(address: str) -> str:
    """The lock that the coordinator at ``address`` holds while it runs."""
    return f"coordinator-{quote(address, safe='')}"


async def lock_address(directory: DataDirectory, address: str) -> DirectoryLock:
    """Take the lock of a coordinator's own address.

    Raises:
        FailedPreconditionError: STORAGE_OWNED, another process runs under this address.
    """
    for attempt in range(1, LOCK_ATTEMPTS + 1):
        try:
            return directory.lock(lock_name(address))
        except FailedPreconditionError:
            if attempt == LOCK_ATTEMPTS:
                raise
            await asyncio.sleep(LOCK_PAUSE_S)
    raise AssertionError("unreachable: the last attempt raises")


class FileLeases:
    """A ``LeaseStore`` on the file: one thread, so that a locked file does not block the loop."""

    def __init__(self, directory: DataDirectory, file: LeaseFile, who: Identity) -> None:
        self._directory = directory
        self._file = file
        self._who = who
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="leases")

    async def exchange(self, writes: Sequence[Write], started_ms: int) -> TableSeen:
        """See ``LeaseStore``."""
        exchange = partial(self._exchange, writes, started_ms)
        return await asyncio.get_running_loop().run_in_executor(self._thread, exchange)

    async def close(self) -> None:
        """Close the file after the exchange in progress."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._file.close)
        self._thread.shutdown()

    def _exchange(self, writes: Sequence[Write], started_ms: int) -> TableSeen:
        table = self._file.exchange(self._who, writes)
        # checked after the read: a row's writer held its lock, so a free lock means that it ended
        ended = frozenset(
            address
            for address in {*table.peers, *(each.owner for each in table.leases if each.owner)}
            if address != self._who.address and not self._directory.is_locked(lock_name(address))
        )
        return TableSeen(started_ms, table.leases, table.peers, ended)
