"""A slow proxy in front of a server on loopback."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_AT_ONCE_BYTES = 1024
_PAUSE_S = 0.002


@contextmanager
def slow_door(port: int) -> Iterator[int]:
    """The port of a proxy that passes at most half a MB a second, per direction and connection."""
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as door:
        door.settimeout(0.1)
        thread = threading.Thread(target=_serve, args=(door, port, ended), daemon=True)
        thread.start()
        try:
            yield int(door.getsockname()[1])
        finally:
            ended.set()
            thread.join()


def _serve(door: socket.socket, port: int, ended: threading.Event) -> None:
    opened: list[socket.socket] = []
    while not ended.is_set():
        try:
            client, _ = door.accept()
        except TimeoutError:
            continue
        server = socket.create_connection(("127.0.0.1", port))
        opened += [client, server]
        for ends in ((client, server), (server, client)):
            threading.Thread(target=_pass_on, args=(*ends, ended), daemon=True).start()
    for each in opened:
        each.close()


def _pass_on(source: socket.socket, target: socket.socket, ended: threading.Event) -> None:
    with suppress(OSError):
        while data := source.recv(_AT_ONCE_BYTES):
            target.sendall(data)
            ended.wait(_PAUSE_S)
        target.shutdown(socket.SHUT_WR)
