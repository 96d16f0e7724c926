"""A proxy in front of an HTTP server that can respond in its place, or drop its responses."""

import http.client
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

#: The server gets the request, and its response is lost.
LOST = 0
#: The server gets the request twice, as from a proxy that retries after a lost response.
TWICE = -1
_HOP_BY_HOP = ("connection", "keep-alive", "transfer-encoding", "content-length")


@dataclass(frozen=True, slots=True)
class Request:
    """A client's request, without its body."""

    method: str
    path: str
    headers: dict[str, str]


#: The proxy's own status, LOST or TWICE; None forwards the request to the server.
Rule = Callable[[Request], int | None]


class HttpGate:
    """A running proxy; ``rule`` may be changed at any time, ``seen`` has all requests."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.rule: Rule = lambda _: None
        self.seen: list[Request] = []

    def once(self, status: int, method: str, ending: str) -> None:
        """Apply ``status`` to the next request with this method and end of path (without query)."""
        left = [status]

        def rule(request: Request) -> int | None:
            fits = request.method == method and request.path.partition("?")[0].endswith(ending)
            return left.pop() if left and fits else None

        self.rule = rule


@contextmanager
def http_gate(port: int, tls: ssl.SSLContext | None = None) -> Iterator[HttpGate]:
    """A proxy in front of the server on this loopback port, optionally with TLS."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _pass(self) -> None:
            request = Request(self.command, self.path, dict(self.headers.items()))
            gate.seen.append(request)
            body = self._body()
            status = gate.rule(request)
            if status is not None and status > 0:
                self._answer(status, [], b"")
                return
            try:
                found, data = self._forwarded(request, body)
                if status == TWICE:
                    found, data = self._forwarded(request, body)
            except (OSError, http.client.HTTPException):
                self.close_connection = True
                return
            if status == LOST:
                self.close_connection = True
                return
            self._answer(found.status, found.getheaders(), data)

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _pass  # noqa: N815

        def _forwarded(
            self, request: Request, body: bytes
        ) -> tuple[http.client.HTTPResponse, bytes]:
            with closing(http.client.HTTPConnection("127.0.0.1", port)) as server:
                server.request(request.method, request.path, body, request.headers)
                with server.getresponse() as found:
                    return found, found.read()

        def _body(self) -> bytes:
            if "chunked" not in self.headers.get("transfer-encoding", ""):
                return self.rfile.read(int(self.headers.get("content-length", 0)))
            found, size = b"", 1  # as it came: it is passed on with the same header
            while size:
                line = self.rfile.readline()
                size = int(line.split(b";")[0], 16)
                found += line + self.rfile.read(size + len(b"\r\n"))
            return found

        def _answer(self, status: int, headers: list[tuple[str, str]], data: bytes) -> None:
            length = str(len(data))
            self.send_response_only(status)
            for name, value in headers:
                if name.lower() == "content-length" and self.command == "HEAD":
                    length = value  # of what GET would get
                elif name.lower() not in _HOP_BY_HOP:
                    self.send_header(name, value)
            self.send_header("content-length", length)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    gate = HttpGate(f"http{'s' if tls else ''}://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield gate
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
