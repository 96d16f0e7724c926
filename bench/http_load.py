"""A load of HTTP callers that wait for each response, each over its own connection.

One thread serves all connections and reads only the necessary part of a response, so that the
client takes less CPU than the servers that it measures.
"""

import re
import selectors
import socket
import time
from contextlib import ExitStack
from dataclasses import dataclass

from bench.figure import percentile
from drover.rpc.settings import split_address

TIMEOUT_S = 60.0
_READ_BYTES = 256 * 1024
_HEAD_END = b"\r\n\r\n"
_CHUNKS_END = b"\r\n0\r\n\r\n"
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Load:
    """One measurement.

    Attributes:
        count: The number of requests.
        seconds: Its duration.
        p99_ms: The duration that 99 % of the requests do not exceed.
    """

    count: int
    seconds: float
    p99_ms: float


class Connection:
    """A connection that is kept open.

    Args:
        address: host:port.
        path: The path of its GET requests.
    """

    def __init__(self, address: str, path: str) -> None:
        self._path = path
        self._request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n".encode()
        self.socket = socket.create_connection(split_address(address), TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = bytearray()
        #: The size of the current response; 0 before its head, -1 if the head does not state it.
        self._size_bytes = 0
        self.sent_s = 0.0

    def close(self) -> None:
        """Close it."""
        self.socket.close()

    def send(self) -> None:
        """Send a request."""
        self._received.clear()
        self._size_bytes = 0
        self.sent_s = time.perf_counter()
        self.socket.sendall(self._request)

    def receive(self) -> bool:
        """Read what has arrived; returns whether the response is complete.

        Raises:
            RuntimeError: The response is not 200, or the server closed the connection.
        """
        data = self.socket.recv(_READ_BYTES)
        if not data:
            raise RuntimeError(f"the server closed a connection during {self._path}")
        self._received += data
        if not self._size_bytes:
            self._read_head()
        if self._size_bytes > 0:
            return len(self._received) >= self._size_bytes
        return self._size_bytes < 0 and self._received.endswith(_CHUNKS_END)

    def _read_head(self) -> None:
        end = self._received.find(_HEAD_END)
        if end < 0:
            return
        if self._received[9:12] != b"200":
            line = bytes(self._received).partition(b"\r\n")[0].decode("latin-1")
            raise RuntimeError(f"GET {self._path}: {line}")
        length = _LENGTH.search(self._received, 0, end)
        self._size_bytes = -1 if length is None else end + len(_HEAD_END) + int(length[1])


def load(address: str, path: str, *, callers: int, seconds: float) -> Load:
    """GET a path by several callers for a time.

    Raises:
        RuntimeError: A response is not 200.
        TimeoutError: The server does not respond.
    """
    durations_ms: list[float] = []
    with ExitStack() as stack:
        poll = stack.enter_context(selectors.DefaultSelector())
        started_s = time.perf_counter()
        end_s = started_s + seconds
        for _ in range(callers):
            connection = Connection(address, path)
            stack.callback(connection.close)
            poll.register(connection.socket, selectors.EVENT_READ, connection)
            connection.send()
        in_progress = callers
        while in_progress:
            events = poll.select(TIMEOUT_S)
            if not events:
                raise TimeoutError(f"{address}{path}: no response for {TIMEOUT_S:g} s")
            for key, _ in events:
                if key.data.receive():
                    now_s = time.perf_counter()
                    durations_ms.append((now_s - key.data.sent_s) * 1000)
                    if now_s < end_s:
                        key.data.send()
                    else:
                        in_progress -= 1
        elapsed_s = time.perf_counter() - started_s
    return Load(len(durations_ms), elapsed_s, percentile(durations_ms, 0.99))


def response_ms(address: str, path: str) -> float:
    """The milliseconds of one request on a new connection.

    Raises:
        RuntimeError: The response is not 200.
    """
    started_s = time.perf_counter()
    connection = Connection(address, path)
    try:
        connection.send()
        while not connection.receive():
            pass
        return (time.perf_counter() - started_s) * 1000
    finally:
        connection.close()
