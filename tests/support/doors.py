"""Proxies in front of servers on loopback: slow ones, and one name for several servers."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

_AT_ONCE_BYTES = 65_536
_SLOW_BYTES, _SLOW_PAUSE_S = 1024, 0.002


@dataclass
class Door:
    """``port`` is the proxy's own; new connections go to the server at ``to``.

    A connection passes ``at_once_bytes`` in each direction, then waits ``pause_s``.
    """

    port: int
    to: int
    at_once_bytes: int = _AT_ONCE_BYTES
    pause_s: float = 0


@contextmanager
def slow_door(port: int) -> Iterator[int]:
    """The port of a proxy that passes at most half a MB a second, per direction and connection."""
    with changing_door(port, at_once_bytes=_SLOW_BYTES, pause_s=_SLOW_PAUSE_S) as door:
        yield door.port


@contextmanager
def changing_door(
    to: int, *, at_once_bytes: int = _AT_ONCE_BYTES, pause_s: float = 0
) -> Iterator[Door]:
    """A proxy to the server at a port, which can be changed."""
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(0.1)
        door = Door(int(listening.getsockname()[1]), to, at_once_bytes, pause_s)
        thread = threading.Thread(target=_serve, args=(listening, door, ended), daemon=True)
        thread.start()
        try:
            yield door
        finally:
            ended.set()
            thread.join()


def _serve(listening: socket.socket, door: Door, ended: threading.Event) -> None:
    opened: list[socket.socket] = []
    while not ended.is_set():
        try:
            client, _ = listening.accept()
        except TimeoutError:
            continue
        server = socket.create_connection(("127.0.0.1", door.to))
        opened += [client, server]
        for ends in ((client, server), (server, client)):
            threading.Thread(target=_pass_on, args=(*ends, door, ended), daemon=True).start()
    for each in opened:
        each.close()


def _pass_on(
    source: socket.socket, target: socket.socket, door: Door, ended: threading.Event
) -> None:
    with suppress(OSError):
        while data := source.recv(door.at_once_bytes):
            target.sendall(data)
            ended.wait(door.pause_s)
        target.shutdown(socket.SHUT_WR)
