"""Frees a cluster's SQLite files from processes that were suspended in the middle of a write.

A process that SIGSTOP suspends keeps its locks, and no other can write until it goes on, which may
be never. SQLite takes back what a killed process has half written, so it is killed.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path

import psutil

from drover.sqlite import write_lock_holders

BETWEEN_LOOKS_S = 4.0


class SuspendedWriters:
    """Looks for them among the processes of a supervisor, and those below them.

    Args:
        directory: Where the files are.
        names: The name of each supervised process, by its pid of now.
        on_event: Hears the name of the process that it was, or was below, and what happened.
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
        self._found: set[psutil.Process] = set()

    async def look_for_ever(self) -> None:
        """Kill those that two looks in turn find; until it is cancelled."""
        while True:
            await asyncio.sleep(BETWEEN_LOOKS_S)
            self.look()

    def look(self) -> None:
        """Kill those that the last look found, if they are there still."""
        found = set()
        for pid, database in write_lock_holders(*self._directory.glob("*.db")).items():
            with contextlib.suppress(psutil.Error):
                process = psutil.Process(pid)
                name = self._name_of(process)
                if name is None or process.status() != psutil.STATUS_STOPPED:
                    continue
                found.add(process)
                if process in self._found:
                    process.kill()
                    self._on_event(
                        name,
                        f"had pid {pid} suspended while it wrote {database.name}, so that nobody "
                        "could: killed",
                    )
        self._found = found

    def _name_of(self, process: psutil.Process) -> str | None:
        names = self._names()
        line = (process, *process.parents())
        return next((names[each.pid] for each in line if each.pid in names), None)
