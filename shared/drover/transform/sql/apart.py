"""Queries of the transform Sql in processes without other work: the side that asks.

DuckDB limits neither the memory for texts in expressions nor the time of one function call. The
limits of a process do, but all of its threads share them. An engine has the threads of many
callers, so it asks processes that run nothing else (``serve``).
"""

import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

#: A process that exceeds its time is killed after this long: an interrupt takes effect between
#: calls of functions only.
KILL_AFTER_S = 0.5
_MARGIN_S = 2.0
#: The lengths of a message's two parts.
_LENGTHS = struct.Struct("!QQ")
_PART_BYTES = 1024 * 1024


class QueryProcessEndedError(Exception):
    """The process ended before its answer; ``is_late`` is whether its time was over."""

    def __init__(self, *, is_late: bool) -> None:
        super().__init__(is_late)
        self.is_late = is_late


class QueryProcesses:
    """A process for each thread that asks, which ends with the thread; thread-safe.

    Args:
        start: Starts a process that serves the other end of the connection. Raises OSError.
        limit_ms: The longest time of a query.
        limit_rule: The setting that decides this, and who may change it, for messages.
    """

    def __init__(
        self, start: Callable[[], socket.socket], *, limit_ms: int, limit_rule: str
    ) -> None:
        self.limit_ms, self.limit_rule = limit_ms, limit_rule
        self._start = start
        self._of_thread = threading.local()

    def ask(
        self, request: Mapping[str, Any], table: pa.Table | None = None, *, limit_ms: int
    ) -> tuple[dict[str, Any], pa.Table | None]:
        """Send a request, and wait for the answer.

        Raises:
            QueryProcessEndedError: See there.
            OSError: No process can be started.
        """
        process: socket.socket | None = getattr(self._of_thread, "process", None)
        if process is None:
            process = self._of_thread.process = self._start()
        start_s, limit_s = time.monotonic(), limit_ms / 1000
        try:
            process.settimeout(limit_s + KILL_AFTER_S + _MARGIN_S)
            send(process, {**request, "limit_s": limit_s}, table)
            return receive(process)
        except (EOFError, OSError):
            del self._of_thread.process
            process.close()
            raise QueryProcessEndedError(is_late=time.monotonic() - start_s >= limit_s) from None


_processes: QueryProcesses | None = None


def use_query_processes(processes: QueryProcesses) -> None:
    """Run all queries of this process in these."""
    global _processes
    _processes = processes


def query_processes() -> QueryProcesses | None:
    """The processes for queries; None if this process may limit itself."""
    return _processes


def send(connection: socket.socket, message: Mapping[str, Any], table: pa.Table | None) -> None:
    """Write a message that ``receive`` reads."""
    head, body = json.dumps(message).encode(), b""
    if table is not None:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
        body = sink.getvalue().to_pybytes()
    connection.sendall(_LENGTHS.pack(len(head), len(body)) + head)
    connection.sendall(body)


def receive(connection: socket.socket) -> tuple[dict[str, Any], pa.Table | None]:
    """Read a message.

    Raises:
        EOFError, OSError: The other process has ended.
    """
    head_bytes, body_bytes = _LENGTHS.unpack(_exactly(connection, _LENGTHS.size))
    message: dict[str, Any] = json.loads(_exactly(connection, head_bytes))
    body = _exactly(connection, body_bytes)
    return message, pa.ipc.open_stream(body).read_all() if body else None


def _exactly(connection: socket.socket, size_bytes: int) -> bytes:
    found = bytearray()
    while len(found) < size_bytes:
        part = connection.recv(min(size_bytes - len(found), _PART_BYTES))
        if not part:
            raise EOFError
        found += part
    return bytes(found)
