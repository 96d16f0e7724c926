"""The HTTP server that Prometheus asks: a bounded number of connections, each for a while."""

import io
import socket
import threading
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app

#: Connections at a time; others are closed at once. Prometheus needs one.
CONNECTIONS_MAX = 16
#: A client that sends or reads nothing for so long is gone.
IDLE_MAX_S = 15


class _Handler(WSGIRequestHandler):
    timeout = IDLE_MAX_S

    def get_stderr(self) -> Any:
        """Why a scrape fails is in the log, and need not stand beside it once more."""
        return io.StringIO()

    def log_message(self, format: str, *args: Any) -> None:
        """Who asks is nothing to log."""


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def __init__(self, *args: Any, **options: Any) -> None:
        self._places = threading.BoundedSemaphore(CONNECTIONS_MAX)
        super().__init__(*args, **options)

    def process_request(self, request: Any, client_address: Any) -> None:
        """As ThreadingMixIn's, while there is a place."""
        if self._places.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """As ThreadingMixIn's; the place is free afterwards."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away, or said nothing."""

    def server_bind(self) -> None:
        """Without asking for this machine's name, which may take long."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]
        self.setup_environ()


class _ServerOfIpv6(_Server):
    address_family = socket.AF_INET6


def scrape_server(host: str, port: int, registry: CollectorRegistry) -> WSGIServer:
    """A server that listens, and answers once somebody calls its ``serve_forever``.

    Raises:
        OSError: The address cannot be listened on.
    """
    kind = _ServerOfIpv6 if ":" in host else _Server
    return make_server(host, port, make_wsgi_app(registry), kind, _Handler)
