"""Who keeps others from writing a SQLite file: the locks of processes, as Linux lists them."""

import contextlib
from pathlib import Path

_LOCKS = Path("/proc/locks")


def write_lock_holders(*databases: Path) -> dict[int, Path]:
    """The processes that keep others from writing a database, each with that database.

    The list is read, never the files: a process that opens a file of SQLite beside SQLite and
    closes it again lets go of all its locks. Empty where the system does not tell: not on Linux,
    or when the holder runs in another container.
    """
    files: dict[int, Path] = {}
    for database in databases:
        # in WAL mode the locks are on the shared memory, in all other modes on the file itself
        for file in (database, database.with_name(f"{database.name}-shm")):
            with contextlib.suppress(OSError):
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
