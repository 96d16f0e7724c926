"""A process that plugin code forks leaves the connections of the engine open, and no zombie."""

import contextlib
import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

import pytest

from drover.python_process import python_environment
from drover_worker.engine.forked_processes import EndedForks

#: A thread has a connection to the JVM when another thread forks; argv[1]: what to call before.
PROGRAM = """
import multiprocessing, os, socket, sys, threading
from collections import deque
from py4j.clientserver import ClientServerConnection, JavaClient, JavaParameters, PythonParameters
from py4j.java_gateway import GatewayProperty, PythonProxyPool
from drover_worker.engine.forked_processes import keep_connections_in_forks

if sys.argv[1] == "kept":
    keep_connections_in_forks()
gateway = GatewayProperty(True, PythonProxyPool())
client = JavaClient(JavaParameters(), PythonParameters(), gateway, deque())
ours, jvm = socket.socketpair()
connected, over = threading.Event(), threading.Event()

def connect():
    connection = ClientServerConnection(
        client.java_parameters, client.python_parameters, gateway, client
    )
    connection.socket, connection.stream = ours, ours.makefile("rb")
    client.set_thread_connection(connection)
    client.deque.append(connection)
    connected.set()
    del connection
    over.wait()

def fork():
    if pid := os.fork():
        os.waitpid(pid, 0)
    else:
        os._exit(0)

def fork_by_multiprocessing():
    process = multiprocessing.get_context("fork").Process(target=int)
    process.start()
    process.join()

threading.Thread(target=connect, daemon=True).start()
assert connected.wait(60)
globals()[sys.argv[2]]()
jvm.setblocking(False)
try:
    print("shut down" if jvm.recv(1) == b"" else "data")
except BlockingIOError:
    print("kept")
over.set()
"""


@pytest.mark.parametrize("fork", ["fork", "fork_by_multiprocessing"])
@pytest.mark.parametrize("expected", ["kept", "shut down"])
def test_a_fork_leaves_the_connections_of_other_threads_open(expected: str, fork: str) -> None:
    """Without the change py4j shuts them down."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", PROGRAM, expected, fork],
        env=python_environment(os.environ),
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    assert done.stdout == f"{expected}\n"


def zombies() -> set[int]:
    """Children of this process that have ended and were not waited for."""
    found = set()
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit():
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if fields[:2] == ["Z", str(os.getpid())]:
                    found.add(int(entry.name))
    return found


def forked() -> int:
    """The id of a forked process that has ended."""
    pid = os.fork()
    if not pid:
        os._exit(7)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    return pid


def test_ended_copies_of_the_engine_are_reaped_after_a_while() -> None:
    forks = EndedForks(patience_s=60)
    pids = {forked() for _ in range(5)}
    assert forks.reap(1_000) == 0
    assert pids <= zombies(), "the code that forked them may still wait for them"
    late = forked()
    assert forks.reap(1_059) == 0
    assert forks.reap(1_060) == 5
    assert not pids & zombies()
    assert os.waitpid(late, 0)[1] >> 8 == 7, "this exit code was not taken"
    assert forks.reap(2_000) == 0


def test_the_exit_codes_of_other_children_are_left_to_the_code_that_waits_for_them() -> None:
    forks = EndedForks(patience_s=0)
    popen = subprocess.Popen(["sh", "-c", "exit 3"])
    unwaited = subprocess.Popen([sys.executable, "-c", "raise SystemExit(4)"])
    process = multiprocessing.get_context("fork").Process(target=os._exit, args=(5,))
    process.start()
    children = {popen.pid, unwaited.pid, process.pid or 0}
    for pid in children:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    copy = forked()
    assert forks.reap(1) == 1
    assert copy not in zombies()
    assert children <= zombies()
    process.join()
    assert (popen.wait(), unwaited.wait(), process.exitcode) == (3, 4, 5)
