"""A relay between clients and a broker that drops requests and responses."""

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import Enum, auto
from random import Random
from typing import Final

from tests.support.addresses import HOST

#: API keys of Kafka's requests.
PRODUCE: Final = 0
LIST_OFFSETS: Final = 2
ADD_PARTITIONS_TO_TXN: Final = 24

_SIZE: Final = struct.Struct(">i")
#: start of each request: api key, version, correlation id
_HEAD: Final = struct.Struct(">hhi")
_CORRELATION_ID: Final = struct.Struct(">i")


class Fate(Enum):
    """The fate of a request; if the request or its response is lost, its connection breaks too."""

    ANSWERED = auto()
    LOST = auto()
    ANSWER_LOST = auto()


def all_answered(_api_key: int) -> Fate:
    """A network without faults."""
    return Fate.ANSWERED


class Outages:
    """Drops requests of one kind, or their responses, several times in a row.

    Args:
        rng: Decides everything except the order of requests.
        chance: The probability that a request starts an outage.
        max_lost: The maximum number of dropped requests in an outage.
    """

    def __init__(self, rng: Random, chance: float, max_lost: int) -> None:
        self.lost_count = 0
        self._rng = rng
        self._chance = chance
        self._max_lost = max_lost
        self._left: dict[int, int] = {}
        self._lock = threading.Lock()

    def __call__(self, api_key: int) -> Fate:
        with self._lock:
            left = self._left.get(api_key, 0)
            if not left and self._rng.random() < self._chance:
                left = self._rng.randint(1, self._max_lost)
            self._left[api_key] = max(0, left - 1)
            if not left:
                return Fate.ANSWERED
            self.lost_count += 1
            return self._rng.choice([Fate.LOST, Fate.ANSWER_LOST])


class Relay:
    """Listens on the broker's advertised port and forwards both directions.

    Args:
        port: Its port: the one that the broker advertises.
        broker_port: The broker's own port.

    Attributes:
        bootstrap: The address for clients.
        fate_of: Called for each request with its api key, from any thread.
    """

    def __init__(self, port: int, broker_port: int) -> None:
        self.bootstrap = f"{HOST}:{port}"
        self.fate_of: Callable[[int], Fate] = all_answered
        self._broker_port = broker_port
        self._server = socket.create_server((HOST, port))
        self._connections: set[_Connection] = set()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._accept, name="relay", daemon=True)
        self._thread.start()

    @contextmanager
    def losing(self, fate_of: Callable[[int], Fate]) -> Iterator[None]:
        """Apply this fate to requests for the block; no faults afterwards."""
        self.fate_of = fate_of
        try:
            yield
        finally:
            self.fate_of = all_answered

    def close(self) -> None:
        """Cut all connections."""
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._thread.join()
        with self._lock:
            connections = list(self._connections)
        for each in connections:
            each.cut()
        for each in connections:
            each.end()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            try:
                broker = socket.create_connection((HOST, self._broker_port))
            except OSError:
                client.close()
                continue
            with self._lock:
                for each in [each for each in self._connections if not each.is_alive()]:
                    each.end()
                    self._connections.discard(each)
                self._connections.add(_Connection(self, client, broker))


class _Connection:
    def __init__(self, relay: Relay, client: socket.socket, broker: socket.socket) -> None:
        self._relay = relay
        self._client = client
        self._broker = broker
        self._answers_lost: set[int] = set()
        ways = (self._pass_requests, self._pass_answers)
        self._threads = [
            threading.Thread(target=self._run, args=[way], daemon=True) for way in ways
        ]
        for thread in self._threads:
            thread.start()

    def is_alive(self) -> bool:
        return any(thread.is_alive() for thread in self._threads)

    def cut(self) -> None:
        for end in (self._client, self._broker):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def end(self) -> None:
        """Join the threads and close both connections, after ``cut``."""
        for thread in self._threads:
            thread.join()
        self._client.close()
        self._broker.close()

    def _run(self, way: Callable[[], None]) -> None:
        try:
            with suppress(OSError, EOFError):
                way()
        finally:
            self.cut()

    def _pass_requests(self) -> None:
        while True:
            request = _read_message(self._client)
            api_key, _, correlation_id = _HEAD.unpack_from(request)
            fate = self._relay.fate_of(api_key)
            if fate is Fate.LOST:
                return
            if fate is Fate.ANSWER_LOST:
                self._answers_lost.add(correlation_id)
            _send_message(self._broker, request)

    def _pass_answers(self) -> None:
        while True:
            answer = _read_message(self._broker)
            (correlation_id,) = _CORRELATION_ID.unpack_from(answer)
            if correlation_id in self._answers_lost:
                return
            _send_message(self._client, answer)


def _read_message(source: socket.socket) -> bytes:
    (size,) = _SIZE.unpack(_read(source, _SIZE.size))
    return _read(source, size)


def _read(source: socket.socket, count: int) -> bytes:
    found = bytearray()
    while len(found) < count:
        part = source.recv(count - len(found))
        if not part:
            raise EOFError
        found += part
    return bytes(found)


def _send_message(target: socket.socket, message: bytes) -> None:
    target.sendall(_SIZE.pack(len(message)) + message)
