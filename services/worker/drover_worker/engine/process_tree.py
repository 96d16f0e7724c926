"""Finds and kills process trees. Standard library only, because the guard imports it.

A Linux subreaper adopts every orphaned descendant, so no process leaves the tree by double-forking
or by starting a session. A parent-death signal kills a child when its parent ends, even if the
parent was killed.
"""

import contextlib
import ctypes
import os
import select
import signal
import time
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PROC = Path("/proc")
#: Interval between checks whether a killed tree has ended.
_CHECK_INTERVAL_S = 0.005

_libc = ctypes.CDLL(None, use_errno=True)


def _prctl(option: int, argument: int) -> None:
    if _libc.prctl(option, argument, 0, 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"prctl({option}): {os.strerror(error)}")


def become_subreaper() -> None:
    """Adopt every orphaned descendant of this process."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent() -> None:
    """Get SIGKILL when the thread that started this process ends; survives exec, not fork."""
    _prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))


def parents() -> dict[int, int]:
    """The parent of every running or zombie process."""
    found = {}
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                # the name in brackets may contain anything; the fields follow the last bracket
                fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
                found[int(entry.name)] = int(fields[1])
    return found


def descendants(root: int) -> set[int]:
    """All processes below ``root``."""
    children: dict[int, list[int]] = {}
    for process, parent in parents().items():
        children.setdefault(parent, []).append(process)
    found: set[int] = set()
    ahead = [root]
    while ahead:
        for child in children.get(ahead.pop(), ()):
            if child not in found:
                found.add(child)
                ahead.append(child)
    return found


def marked(variable: str, value: str) -> set[int]:
    """Other processes of this user that were started with ``variable=value`` in the environment."""
    entry_bytes = f"{variable}={value}".encode()
    found = set()
    for entry in _PROC.iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                if entry_bytes in (entry / "environ").read_bytes().split(b"\0"):
                    found.add(int(entry.name))
    return found


def kill(process_ids: set[int]) -> None:
    """Send SIGKILL to each that still exists and belongs to this user."""
    for process_id in process_ids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process_id, signal.SIGKILL)


def kill_descendants(limit_s: float) -> bool:
    """Kill and reap all descendants of this process, which must be a subreaper.

    Returns:
        False when some were still running after ``limit_s`` seconds.
    """
    deadline = time.monotonic() + limit_s
    while True:
        # repeat: a process may have forked before its signal arrived
        kill(descendants(os.getpid()))
        if not reap():
            return True
        if time.monotonic() >= deadline:
            return False
        select.select([], [], [], _CHECK_INTERVAL_S)


def kill_marked(variable: str, value: str, limit_s: float) -> bool:
    """Kill every process with the mark, in any tree; returns as ``kill_descendants``."""
    deadline = time.monotonic() + limit_s
    while left := marked(variable, value):
        kill(left)
        if time.monotonic() >= deadline:
            return False
        select.select([], [], [], _CHECK_INTERVAL_S)
    return True


def reap(statuses: dict[int, int] | None = None) -> bool:
    """Collect ended children and their wait statuses; returns whether any child is left."""
    while True:
        try:
            process_id, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if process_id == 0:
            return True
        if statuses is not None:
            statuses[process_id] = status
