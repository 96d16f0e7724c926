"""A process that plugin code forks leaves the connections of the engine to its JVM open."""

import os
import subprocess
import sys

import pytest

from drover.python_process import python_environment

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
