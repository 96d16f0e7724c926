"""Kills processes of a cluster that were suspended while they hold a SQLite write lock.

A process suspended by SIGSTOP keeps its file locks, so no other process can write until it
continues. Killing it releases the locks, and SQLite rolls back its unfinished transaction.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path

import psutil

from drover.sqlite import write_lock_holders

CHECK_INTERVAL_S = 4.0


class SuspendedWriters:
    """Finds and kills suspended lock holders among a supervisor's processes and their children.

    Args:
        directory: The directory of the SQLite files.
        names: Returns the name of each supervised process by its present pid.
        on_event: Called after a kill with the name of the supervised process and a description.
    """

    def __init__(
        self,
        directory: Path,
        names: Callable[[], Mapping[int, str]],
        on_event: Callable[[str, str], None],
    ) -> None:
        self._directory = directory
        self._names = names
        self._on_event = on_event
        self._suspended: set[psutil.Process] = set()

    async def run(self) -> None:
        """Check periodically until cancelled."""
        while True:
            await asyncio.sleep(CHECK_INTERVAL_S)
            self.check()

    def check(self) -> None:
        """Kill the processes that two consecutive checks found suspended with a write lock."""
        suspended = set()
        for pid, database in write_lock_holders(*self._directory.glob("*.db")).items():
            with contextlib.suppress(psutil.Error):
                process = psutil.Process(pid)
                name = self._name_of(process)
                if name is None or process.status() != psutil.STATUS_STOPPED:
                    continue
                suspended.add(process)
                if process in self._suspended:
                    process.kill()
                    self._on_event(
                        name,
                        f"pid {pid} was suspended while it held the write lock of {database.name}:"
                        " killed",
                    )
        self._suspended = suspended

    def _name_of(self, process: psutil.Process) -> str | None:
        names = self._names()
        ancestry = (process, *process.parents())
        return next((names[each.pid] for each in ancestry if each.pid in names), None)
