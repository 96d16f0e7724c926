"""Keeps processes that plugin code forks from ending the connections of the engine to its JVM."""

import os
import socket

import py4j.clientserver
import py4j.java_gateway


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
