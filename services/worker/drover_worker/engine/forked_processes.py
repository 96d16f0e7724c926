"""Keeps processes that plugin code forks from harming the engine."""

import contextlib
import multiprocessing.process
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import py4j.clientserver
import py4j.java_gateway

_PROC = Path("/proc")
#: Fields of /proc/PID/stat after the name in brackets, from 0.
_STATE, _PARENT, _FLAGS, _START = 0, 1, 6, 19
#: A flag of the kernel (PF_FORKNOEXEC).
_FORKED_WITHOUT_EXEC = 0x40
#: How long the code that forked a process may wait for it after its end.
_PATIENCE_S = 60.0
_REAP_EVERY_S = 30.0


def keep_connections_in_forks() -> None:
    """Make only this process shut down its connections of py4j.

    A fork destroys the data of all other threads in the new process, with their connections to the
    JVM. py4j shuts a connection down when it is destroyed, and the forked process shares it: the
    call that a thread of this process is waiting for would fail.
    """
    engine = os.getpid()
    shut_down = py4j.java_gateway.quiet_shutdown

    def shut_down_here(connection: socket.socket) -> None:
        if os.getpid() == engine:
            shut_down(connection)

    for module in (py4j.clientserver, py4j.java_gateway):
        module.quiet_shutdown = shut_down_here


class EndedForks:
    """Removes the entries of ended forked processes from the kernel's table of processes.

    Plugin code that forks in each call otherwise uses up the table. Only processes that executed no
    other program are reaped, some time after their end: ``subprocess`` waits for its processes, and
    their exit codes would be lost. ``multiprocessing`` waits for its own as well.
    """

    def __init__(self, patience_s: float = _PATIENCE_S) -> None:
        """A process is reaped if it ended at least ``patience_s`` before."""
        self._patience_s = patience_s
        #: Since when each process is known to have ended, by process id and start time.
        self._since_s: dict[tuple[int, str], float] = {}

    def reap(self, now_s: float) -> int:
        """Reap ended forked processes; returns how many.

        Args:
            now_s: A monotonic time, in seconds.
        """
        ended = set(_ended_forks())
        self._since_s = {each: self._since_s.get(each, now_s) for each in ended}
        count = 0
        for process, since_s in list(self._since_s.items()):
            if now_s - since_s >= self._patience_s:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(process[0], os.WNOHANG)
                    count += 1
        return count

    def reap_until(self, closed: threading.Event) -> None:
        """Reap repeatedly; for a thread."""
        while not closed.wait(_REAP_EVERY_S):
            self.reap(time.monotonic())


def _ended_forks() -> Iterator[tuple[int, str]]:
    """The process id and the start time of each ended child that executed no other program."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return
    parent, awaited = str(os.getpid()), _awaited()
    for entry in _PROC.iterdir():
        if not entry.name.isdigit() or int(entry.name) in awaited:
            continue
        try:
            # the name in brackets may contain anything; the fields follow the last bracket
            fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        has_ended = fields[_STATE] == "Z" and fields[_PARENT] == parent
        if has_ended and int(fields[_FLAGS]) & _FORKED_WITHOUT_EXEC:
            yield int(entry.name), fields[_START]


def _awaited() -> set[int]:
    """The processes of ``multiprocessing`` that were not joined yet."""
    processes = getattr(multiprocessing.process, "_children", ())
    return {each.pid for each in tuple(processes) if each.pid is not None}
