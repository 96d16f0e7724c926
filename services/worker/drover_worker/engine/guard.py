"""The guard: a small process between the herder and the engine that ends the engine's process tree.

    herder ── guard ── engine ── JVM ── pyspark daemon ── Python workers

It runs a single thread and only the standard library. It joins the control groups of its engine.
When the herder ends or closes the lifeline, or the engine ends, the guard kills every descendant
process, in any session, and exits with the engine's exit code. It forwards SIGTERM to the engine,
which then stops gracefully.

The guard itself may be killed as well: the engine, the JVM and the Python workers each have a
parent-death signal, and the herder kills every process that carries the tree's mark.
"""

import contextlib
import fcntl
import os
import select
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from drover_worker.engine import process_tree
from drover_worker.engine.process_constants import (
    DIRECTORY_PREFIX,
    DIRECTORY_VARIABLE,
    GROUPS_VARIABLE,
    ExitCode,
)

_KILL_LIMIT_S = 5.0
_LEFTOVER_AGE_S = 60.0
_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def main(arguments: Sequence[str]) -> int:
    """Run ``arguments[3:]`` as the engine; returns the exit code for this process.

    Args:
        arguments: The herder's process id, the descriptor of the lifeline's read end, the
            descriptor that the engine inherits, then the engine's command line.
    """
    herder_pid, lifeline, inherited = (int(argument) for argument in arguments[:3])
    os.set_inheritable(lifeline, False)
    process_tree.become_subreaper()
    wakeup = _catch_signals()
    try:
        herder = os.pidfd_open(herder_pid)
    except ProcessLookupError:
        return ExitCode.ORPHANED
    if os.getppid() != herder_pid:
        return ExitCode.ORPHANED
    command = list(arguments[3:])
    directory = Path(os.environ[DIRECTORY_VARIABLE])
    _hold(directory)
    _join_groups(os.environ.get(GROUPS_VARIABLE, ""))
    remove_leftovers(directory.parent)
    engine = os.posix_spawn(
        command[0],
        command,
        {**os.environ, "TMPDIR": str(directory)},
        setsigdef=[*_FORWARDED, signal.SIGCHLD],
    )
    os.close(inherited)
    code = _watch(engine, herder, lifeline, wakeup)
    process_tree.kill_descendants(_KILL_LIMIT_S)
    shutil.rmtree(directory, ignore_errors=True)
    return code


def _catch_signals() -> int:
    """Make every signal write its number to a pipe; returns the read end."""
    readable, writable = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
    for number in (*_FORWARDED, signal.SIGCHLD):
        signal.signal(number, lambda _number, _frame: None)
    return readable


def _watch(engine: int, herder: int, lifeline: int, wakeup: int) -> int:
    """Wait until the engine or the herder ends; returns the exit code."""
    poller = select.poll()
    for descriptor in (herder, lifeline, wakeup):
        poller.register(descriptor, select.POLLIN)
    while True:
        ready = {descriptor for descriptor, _ in poller.poll()}
        if herder in ready or lifeline in ready:
            return ExitCode.ORPHANED
        if wakeup in ready and any(number in _FORWARDED for number in os.read(wakeup, 4096)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(engine, signal.SIGTERM)
        ended: dict[int, int] = {}
        process_tree.reap(ended)
        if engine in ended:
            return shell_exit_code(ended[engine])


def _hold(directory: Path) -> None:
    """Create the directory for temporary files and lock it for the lifetime of this process."""
    directory.mkdir(mode=0o700)
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    fcntl.flock(descriptor, fcntl.LOCK_EX)


def _join_groups(files: str) -> None:
    """Join the engine's control groups; every process that this one starts belongs to them too."""
    for file in filter(None, files.split(os.pathsep)):
        Path(file).write_text(str(os.getpid()))


def remove_leftovers(parent: Path) -> None:
    """Remove directories of engines for which guard and herder were killed together."""
    newest_s = time.time() - _LEFTOVER_AGE_S
    for directory in parent.glob(f"{DIRECTORY_PREFIX}*"):
        with contextlib.suppress(OSError):
            if directory.stat().st_mtime > newest_s:
                continue  # its guard may not have locked it yet
            descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(directory, ignore_errors=True)
            finally:
                os.close(descriptor)


def shell_exit_code(wait_status: int) -> int:
    """The exit code as shells report it: 128 + N for a process that signal N killed."""
    code = os.waitstatus_to_exitcode(wait_status)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
