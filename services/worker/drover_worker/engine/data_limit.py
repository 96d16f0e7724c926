"""A limit for the data of this Python process, where no control group limits the engine.

RLIMIT_DATA counts the memory that a process may write and shares with no other. RLIMIT_AS would
also count address space that is only reserved, of which a JVM and allocators have many times their
memory. The JVM has no such limit: its heap has one.

A process at its limit cannot even start a thread, whose stack counts. So a plugin's MemoryError
raises the limit by a reserve, with which the engine reports the error and stops the task. If one of
the engine's own threads finds no memory all the same, the engine ends, and its worker says why.
"""

import os
import resource
import threading
from pathlib import Path

from drover_worker.engine.process_constants import DATA_LIMIT_VARIABLE, ExitCode

#: What a process at its limit gets to report the error and to stop the task.
RESERVE_BYTES = 64 << 20


def limit_data() -> None:
    """Apply the limit of the environment, if there is one: exceeding it raises MemoryError."""
    limit_bytes = _limit_bytes()
    if limit_bytes is not None:
        _set_limit(limit_bytes)


def grant_reserve() -> None:
    """Raise the limit, if there is one, until ``withdraw_reserve``."""
    limit_bytes = _limit_bytes()
    if limit_bytes is not None:
        _set_limit(limit_bytes + RESERVE_BYTES)


def withdraw_reserve() -> None:
    """Apply the limit again once a reserve is free below it."""
    limit_bytes = _limit_bytes()
    if limit_bytes is None or resource.getrlimit(resource.RLIMIT_DATA)[0] <= limit_bytes:
        return
    if _data_bytes() + RESERVE_BYTES <= limit_bytes:
        _set_limit(limit_bytes)


def without_reserve() -> tuple[int, int]:
    """The soft and the hard limit of this process, as if no reserve were granted."""
    soft, most = resource.getrlimit(resource.RLIMIT_DATA)
    limit_bytes = _limit_bytes()
    # a hard limit may allow only a part of the reserve
    if limit_bytes is not None and limit_bytes < soft <= limit_bytes + RESERVE_BYTES:
        return limit_bytes, most
    return soft, most


def end_without_memory() -> None:
    """From now on, a thread without memory ends this process, if it has a limit."""
    if _limit_bytes() is None:
        return
    report = threading.excepthook

    def end(args: threading.ExceptHookArgs) -> None:
        if issubclass(args.exc_type, MemoryError):
            os._exit(ExitCode.MEMORY_USED_UP)
        report(args)

    threading.excepthook = end


def unlimit_data() -> None:
    """Lift the limit, for a program that this process becomes."""
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def _limit_bytes() -> int | None:
    """The limit of the environment; None without one."""
    text = os.environ.get(DATA_LIMIT_VARIABLE, "")
    return int(text) if text else None


def _set_limit(limit_bytes: int) -> None:
    """Set the limit, at most to what the process may have."""
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    soft = limit_bytes if most == resource.RLIM_INFINITY else min(limit_bytes, most)
    resource.setrlimit(resource.RLIMIT_DATA, (soft, most))


def _data_bytes() -> int:
    """The memory that counts."""
    with Path("/proc/self/status").open() as status:
        line = next(each for each in status if each.startswith("VmData:"))
    return int(line.split()[1]) * 1024
