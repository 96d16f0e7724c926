"""Connections that never complete, from a separate process: ``HOST:PORT KIND COUNT [tls]``.

It opens COUNT connections, then prints their number, acts as KIND defines until the end of its
standard input, and reopens connections that the server closes.

KIND: ``silent`` sends nothing, ``stuck`` half of a first message, ``slow`` one byte at a time.
"""

import resource
import selectors
import socket
import ssl
import sys
from contextlib import suppress

_HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_BYTE_EVERY_S = 1.0
_SPARE_FILES = 32


def first_message(*, tls: bool) -> bytes:
    """A client's first message."""
    if not tls:
        return _HTTP2_PREFACE
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols(["h2"])
    sent = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), sent, server_hostname="localhost")
    with suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return sent.read()


class _Crowd:
    def __init__(self, address: tuple[str, int], text: bytes, kind: str) -> None:
        self._address = address
        self._text = text
        self._kind = kind
        self.opened_count = 0
        self._sent: dict[socket.socket, int] = {}
        self._selector = selectors.DefaultSelector()

    def __len__(self) -> int:
        return len(self._sent)

    def add(self) -> bool:
        """Open one more connection; returns False when the server accepts none."""
        try:
            connection = socket.create_connection(self._address, timeout=5)
        except OSError:
            return False
        self.opened_count += 1
        connection.setblocking(False)
        self._sent[connection] = 0
        self._selector.register(connection, selectors.EVENT_READ)
        if self._kind == "stuck":
            self._send(connection, len(self._text) // 2)
        return True

    def go_on(self) -> None:
        """Send a byte on each slow connection; drop connections that the server has closed."""
        if self._kind == "slow":
            for connection, sent in list(self._sent.items()):
                if sent < len(self._text) - 1:
                    self._send(connection, 1)
        for key, _ in self._selector.select(timeout=0):
            assert isinstance(key.fileobj, socket.socket)
            self._look(key.fileobj)

    def _send(self, connection: socket.socket, count: int) -> None:
        sent = self._sent[connection]
        try:
            self._sent[connection] += connection.send(self._text[sent : sent + count])
        except OSError:
            self._drop(connection)

    def _look(self, connection: socket.socket) -> None:
        try:
            if connection.recv(4096):
                return
        except BlockingIOError:
            return
        except OSError:
            pass
        self._drop(connection)

    def _drop(self, connection: socket.socket) -> None:
        self._selector.unregister(connection)
        del self._sent[connection]
        connection.close()


def main(place: str, kind: str, count: int, *, tls: bool) -> None:
    """Run until standard input ends."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, count + _SPARE_FILES), hard))
    host, _, port = place.rpartition(":")
    crowd = _Crowd((host, int(port)), first_message(tls=tls), kind)
    orders = selectors.DefaultSelector()
    orders.register(sys.stdin, selectors.EVENT_READ)
    told = False
    while not orders.select(timeout=_BYTE_EVERY_S):
        # a limited number per round: rejected connections are retried, but not constantly
        for _ in range(count - len(crowd)):
            if not crowd.add():
                break
        if not told and crowd.opened_count >= count:
            sys.stdout.write(f"{count}\n")
            sys.stdout.flush()
            told = True
        crowd.go_on()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), tls=sys.argv[4:] == ["tls"])
