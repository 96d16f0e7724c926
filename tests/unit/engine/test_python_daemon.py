"""Spark's Python workers whose connection Spark has closed."""

import socket

import pytest

from drover_worker.engine.python_daemon import ending_with_its_connection


def flush(connection: socket.socket, _authenticated: bool) -> int:
    with connection.makefile("wb") as output:
        output.write(b"x")
        output.flush()
    return 0


def test_an_idle_worker_that_spark_ends_leaves_no_traceback() -> None:
    ours, sparks = socket.socketpair()
    with ours:
        assert ending_with_its_connection(flush)(ours, True) == 0
        sparks.close()
        assert ending_with_its_connection(flush)(ours, True) != 0, "the worker is not used again"


def test_another_reason_why_output_is_lost_is_raised() -> None:
    def fail(_connection: socket.socket, _authenticated: bool) -> int:
        raise MemoryError

    ours, sparks = socket.socketpair()
    with ours, sparks, pytest.raises(MemoryError):
        ending_with_its_connection(fail)(ours, True)
