"""A proxy in front of several servers on loopback, as a name that leads to replicas."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

_AT_ONCE_BYTES = 65_536


@dataclass
class Door:
    """``port`` is the proxy's own; new connections go to the server at ``to``."""

    port: int
    to: int


@contextmanager
def changing_door(to: int) -> Iterator[Door]:
    """A proxy to the server at a port, which can be changed."""
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(0.1)
        door = Door(int(listening.getsockname()[1]), to)
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
            threading.Thread(target=_pass_on, args=ends, daemon=True).start()
    for each in opened:
        each.close()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(_AT_ONCE_BYTES):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
