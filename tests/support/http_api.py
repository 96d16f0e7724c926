"""A real HTTP server on loopback with scripted responses."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit


@dataclass(frozen=True)
class Request:
    """A received request."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True)
class Reply:
    """A response; a value that is not bytes is sent as JSON."""

    body: Any = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class Api:
    """A running server: ``answer`` computes its responses, ``requests`` has all requests."""

    url: str
    answer: Callable[[Request], Reply]
    requests: list[Request] = field(default_factory=list)

    def proxied_to(self, target: "Api") -> list[Request]:
        """The requests for another server that came here, as to a proxy.

        Kafka clients that earlier tests left in this process may renew their tokens through any
        proxy of the environment: their requests do not count.
        """
        host = urlsplit(target.url).netloc
        return [each for each in self.requests if each.headers.get("host") == host]


@contextmanager
def running_api(answer: Callable[[Request], Reply], port: int = 0) -> Iterator[Api]:
    """A server for a while."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _do(self) -> None:
            parts = urlsplit(self.path)
            request = Request(
                self.command,
                parts.path,
                dict(parse_qsl(parts.query, keep_blank_values=True)),
                {name.lower(): value for name, value in self.headers.items()},
                self.rfile.read(int(self.headers.get("content-length", 0))),
            )
            api.requests.append(request)
            reply = api.answer(request)
            if reply.status == 0:  # as when the server crashes
                self.close_connection = True
                return
            body = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _do  # noqa: N815

        def log_message(self, *args: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    api = Api(f"http://127.0.0.1:{server.server_port}", answer)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield api
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
