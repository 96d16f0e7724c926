"""The HTTP server for Prometheus' scrapes, with limits on connections and idle time."""

import io
import socket
import threading
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app

#: The maximum number of open connections; further connections are closed. Prometheus needs one.
CONNECTIONS_MAX = 16
#: A client that neither sends nor reads for this time is disconnected.
IDLE_MAX_S = 15


class _Handler(WSGIRequestHandler):
    timeout = IDLE_MAX_S

    def get_stderr(self) -> Any:
        """Discard the output: the cause of a failed scrape is in the log already."""
        return io.StringIO()

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not logged."""


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def __init__(self, *args: Any, **options: Any) -> None:
        self._places = threading.BoundedSemaphore(CONNECTIONS_MAX)
        super().__init__(*args, **options)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Process the request in a thread, if the limit of connections is not reached."""
        if self._places.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Process the request, then release its connection slot."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that disconnect or send nothing."""

    def server_bind(self) -> None:
        """Bind without resolving this machine's name, which may take long."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]
        self.setup_environ()


class _ServerOfIpv6(_Server):
    address_family = socket.AF_INET6


def scrape_server(host: str, port: int, registry: CollectorRegistry) -> WSGIServer:
    """A server that listens, and responds after ``serve_forever`` is called.

    Raises:
        OSError: The address cannot be bound.
    """
    kind = _ServerOfIpv6 if ":" in host else _Server
    return make_server(host, port, make_wsgi_app(registry), kind, _Handler)
