"""A connection of the standard library's HTTP client to a server that is not trusted.

The client alone has no limit for a whole response: a server that sends one byte a second keeps it
for ever.
"""

import http.client
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from drover.policy.egress import AllowedHosts

_CONNECT_S = 10.0


class BoundedConnection(http.client.HTTPConnection):
    """A connection to a checked address, without a proxy; another thread can end it.

    Args:
        host: The host, which TLS verifies.
        port: The port.
        allowed: The hosts that may be called.
        tls: How TLS verifies; None for HTTP.
    """

    def __init__(
        self, host: str, port: int, allowed: AllowedHosts, tls: ssl.SSLContext | None
    ) -> None:
        super().__init__(host, port, timeout=_CONNECT_S)
        self.aborted = False
        self._allowed = allowed
        self._tls = tls
        self._open: socket.socket | None = None

    @contextmanager
    def closed_after(self, limit_s: float) -> Iterator[None]:
        """Close the connection at the end of the block, and abort it after ``limit_s``."""
        deadline = threading.Timer(limit_s, self.abort)
        deadline.daemon = True
        deadline.start()
        try:
            yield
            if self.aborted:  # the client may take what has arrived for a whole response
                raise TimeoutError
        finally:
            deadline.cancel()
            self.close()

    def connect(self) -> None:
        """Connect to the first address that accepts the connection."""
        addresses = self._allowed.addresses(self.host, self.port)
        started = time.monotonic()
        failed: OSError | None = None
        for each in addresses:
            if self._is_late() or time.monotonic() > started + _CONNECT_S:
                break
            try:
                connected = socket.create_connection((each, self.port), _CONNECT_S)
            except OSError as error:
                failed = error
                continue
            # the time limit is the timer's: it covers the whole exchange
            connected.settimeout(None)
            if self._tls is not None:
                connected = self._tls.wrap_socket(
                    connected, server_hostname=self.host, do_handshake_on_connect=False
                )
            self._open = connected
            if self._is_late():
                self.abort()
            if isinstance(connected, ssl.SSLSocket):
                connected.do_handshake()
            self.sock = connected
            return
        raise failed or TimeoutError("no address accepted the connection")

    def _is_late(self) -> bool:
        """Whether another thread has ended the exchange."""
        return self.aborted

    def abort(self) -> None:
        """End the exchange, in whatever state it is."""
        self.aborted = True
        opened: Any = self._open
        if opened is not None:
            try:
                # SSLSocket.shutdown() would drop its TLS state under the reading thread
                socket.socket.shutdown(opened, socket.SHUT_RDWR)
            except OSError:
                return
