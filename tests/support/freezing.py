"""Processes that a test pauses at a chosen moment."""

import os
import signal
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from drover.sqlite import write_lock_holders
from tests.support.waiting import wait_until, wait_until_async

_STILL = (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)


async def freeze(
    pids: Callable[[], Sequence[int]], data_directory: Path, *, in_a_write: bool = False
) -> list[int]:
    """Pause processes with SIGSTOP, all together, and return them.

    With ``in_a_write``, pause while one of them holds the write lock of a SQLite file in the
    directory; otherwise while none does, because a paused process keeps its locks.
    """

    def frozen() -> list[int]:
        chosen = list(pids())
        _signal(chosen, signal.SIGSTOP)
        wait_until(lambda: all(map(_stands_still, chosen)), describe=f"{chosen} are stopped")
        holders = write_lock_holders(*data_directory.glob("*.db"))
        if in_a_write == any(pid in holders for pid in chosen):
            return chosen
        thaw(chosen)
        return []

    return await wait_until_async(frozen, describe="the moment to freeze")


def suspend(pid: int) -> None:
    """SIGSTOP, and wait until all threads have stopped: they stop one after another."""
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: _stands_still(pid), describe=f"{pid} is stopped")


def thaw(pids: Iterable[int]) -> None:
    """Resume processes with SIGCONT."""
    _signal(pids, signal.SIGCONT)


def _stands_still(pid: int) -> bool:
    try:
        threads = [psutil.Process(thread.id) for thread in psutil.Process(pid).threads()]
        return all(thread.status() in _STILL for thread in threads)
    except psutil.NoSuchProcess:
        return not psutil.pid_exists(pid)


def _signal(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        # a Spark Python worker may have ended during the pause
        with suppress(ProcessLookupError):
            os.kill(pid, number)
