"""Finding and killing whole process trees. Standard library only: the guard runs this.

Linux keeps what is needed: a subreaper adopts every orphan below it, so nothing leaves its tree by
double-forking or by a session of its own; a parent-death signal takes a child down with its parent
even if that was killed.
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
#: How often a killed tree is looked at until it is gone.
_CHECK_INTERVAL_S = 0.005

_libc = ctypes.CDLL(None, use_errno=True)


def _prctl(option: int, argument: int) -> None:
    if _libc.prctl(option, argument, 0, 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"prctl({option}): {os.strerror(error)}")


def become_subreaper() -> None:
    """Adopt every orphan below this process."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent() -> None:
    """Be killed when the thread that started this process ends; survives exec, not fork."""
    _prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))


def parents() -> dict[int, int]:
    """The parent of every process there is, zombies included."""
    found = {}
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                # the name in brackets may hold anything; the fields follow its last bracket
                fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
                found[int(entry.name)] = int(fields[1])
    return found


def descendants(root: int) -> set[int]:
    """The processes below ``root``."""
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
    """The other processes of this user whose environment began with ``variable=value``."""
    entry_bytes = f"{variable}={value}".encode()
    found = set()
    for entry in _PROC.iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                if entry_bytes in (entry / "environ").read_bytes().split(b"\0"):
                    found.add(int(entry.name))
    return found


def kill(process_ids: set[int]) -> None:
    """SIGKILL each of them that is still there and ours."""
    for process_id in process_ids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process_id, signal.SIGKILL)


def kill_descendants(limit_s: float) -> bool:
    """Kill everything below this process, which must be a subreaper, and reap it.

    Returns:
        Whether nothing is left; False when ``limit_s`` seconds were not enough.
    """
    deadline = time.monotonic() + limit_s
    while True:
        # once more after each round: a process may have forked before its signal came
        kill(descendants(os.getpid()))
        if not reap():
            return True
        if time.monotonic() >= deadline:
            return False
        select.select([], [], [], _CHECK_INTERVAL_S)


def kill_marked(variable: str, value: str, limit_s: float) -> bool:
    """Kill what carries the mark, wherever it is; as ``kill_descendants``."""
    deadline = time.monotonic() + limit_s
    while left := marked(variable, value):
        kill(left)
        if time.monotonic() >= deadline:
            return False
        select.select([], [], [], _CHECK_INTERVAL_S)
    return True


def reap(statuses: dict[int, int] | None = None) -> bool:
    """Collect the children that ended, with their wait statuses; whether any child is left."""
    while True:
        try:
            process_id, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if process_id == 0:
            return True
        if statuses is not None:
            statuses[process_id] = status
