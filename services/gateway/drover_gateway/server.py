"""The HTTP server: uvicorn's protocol with limits of time, size and number, in the process's loop.

uvicorn has no time limit for a request's head or body and no limit of headers, passes no time limit
of the TLS handshake, and takes the process's signals. So this module opens the listening socket and
extends ``HttpToolsProtocol``, which has no stable interface: the package pins uvicorn's minor
version.
"""

import asyncio
import logging
import re
import ssl
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from email.utils import formatdate
from typing import TYPE_CHECKING, Any

import httptools
import structlog
import uvicorn
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

from drover.metrics import table
from drover.metrics.metric import Sample
from drover.rpc.settings import split_address
from drover.security.renewed import Renewed
from drover_gateway.bounds import HttpBounds, Places

if TYPE_CHECKING:  # it loads cryptography, which a gateway without TLS does not need
    from drover.security.certificates import Certificate, TlsFiles

Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]
#: The headers and the body of a response with the status 200.
Answer = tuple[list[tuple[bytes, bytes]], bytes]
AtOnce = Callable[[Scope], Answer | None]

_TLS_SHUTDOWN_S = 5.0
_TICK_S = 1.0
_VERSIONS = ("1.1", "1.0")
#: How long a connection that is over a limit may take to read the response.
_LINGER_S = 2.0
_CLOSE_WAIT_S = 0.05
#: A larger part of a body is not copied to be sent together with the response's head.
_JOINED_MAX_BYTES = 64 * 1024
_CONTINUE = b"HTTP/1.1 100 "
_REASONS = {
    400: b"Bad Request",
    408: b"Request Timeout",
    431: b"Request Header Fields Too Large",
    503: b"Service Unavailable",
}

_log = structlog.get_logger("drover.gateway")


class BoundedProtocol(HttpToolsProtocol):
    """One connection, within the bounds."""

    def __init__(
        self, config: uvicorn.Config, state: ServerState, places: Places, at_once: AtOnce
    ) -> None:
        super().__init__(config=config, server_state=state, app_state={})
        self._places = places
        self._at_once = at_once
        #: Whether the next request may be answered at once: one of each read from the socket, so
        #: that other connections get their turn.
        self._may_at_once = False
        #: Whether the request that is parsed was answered at once.
        self._is_answered = False
        #: The end of the last response, on the event loop's clock.
        self._idle_since_s = 0.0
        self._bounds = places.bounds
        self._host = ""
        self._has_place = False
        self._timer: asyncio.TimerHandle | None = None
        #: What the timer limits: head_time, body_time, or nothing.
        self._timed = ""
        self._write_timer: asyncio.TimerHandle | None = None
        #: The reason why nothing more of this connection is read; empty otherwise.
        self._refused = ""
        self._in_head = True
        self._head_bytes = 0
        #: The bytes since the head or the last byte of the body: sizes of chunks, and trailers.
        self._framing_bytes = 0
        self._writer: Any = None

    # asyncio's callbacks

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept the connection if there is a place for it."""
        super().connection_made(transport)
        self._writer = _ResponseWriter(self)
        self._host = self.client[0] if self.client else ""
        self._has_place = self._places.take(self._host)
        if not self._has_place:
            self._refused = "connections"
            if self._places.is_crowded(len(self.connections)):
                transport.abort()
            else:
                self._respond(503, "too many connections: close some, or retry later")
            return
        self._start_timer("head_time")

    def connection_lost(self, exc: Exception | None) -> None:
        """Release the place."""
        self._stop_timer()
        self._stop_write_timer()
        if self._has_place:
            self._has_place = False
            self._places.give_back(self._host)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what has arrived, unless the connection is over a limit."""
        if self._refused:
            return
        if self._in_head and not self._head_bytes:
            self._timed = ""  # a request begins: its head gets the whole time
        if self._in_head:
            self._head_bytes += len(data)
        self._framing_bytes += len(data)
        self._may_at_once = True
        rest: bytes | None = data
        while rest is not None:
            rest = self._parse(rest)
        if self._in_head and self._head_bytes > self._bounds.head_max_bytes:
            self._refuse(431, "head_size", "the request's head is too large")
        if not self._in_head and self._framing_bytes > self._bounds.head_max_bytes:
            self._refuse(431, "head_size", "the request's trailers are too large")
        self._drop_refused_head()
        self._set_timer()

    def pause_writing(self) -> None:
        """The client does not read: wait for it, but not for ever."""
        super().pause_writing()
        self._stop_write_timer()
        loop = asyncio.get_running_loop()
        self._write_timer = loop.call_later(self._bounds.write_max_s, self._abort_writing)

    def resume_writing(self) -> None:
        """The client reads."""
        self._stop_write_timer()
        super().resume_writing()

    # the parser's callbacks

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self._in_head = True

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header, and one more than there may be. Trailers are ignored: a proxy that checked
        the headers has not seen them.
        """
        if self._in_head and len(self.headers) <= self._bounds.headers_max:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Run the application, if the head is within the bounds."""
        if len(self.headers) > self._bounds.headers_max:
            self._refuse(431, "head_size", "the request has too many headers")
        elif not self._head_bytes or self._head_bytes > self._bounds.head_max_bytes:
            # what was counted is more than this head, or nothing: other requests or a body
            size_bytes = len(self.url) + sum(len(name) + len(text) for name, text in self.headers)
            if size_bytes > self._bounds.head_max_bytes:
                self._refuse(431, "head_size", "the request's head is too large")
        if self.parser.get_http_version() not in _VERSIONS:
            self._refuse(400, "malformed", "the request is not HTTP/1.1")
        if self.parser.get_method() == b"CONNECT" or self._is_for_another_host():
            self._refuse(400, "malformed", "the gateway is no proxy")
        if len(self.pipeline) >= self._bounds.pipelined_max:
            self._refuse(503, "pipelined", "too many requests before the first response")
        if self._refused or self.parser.should_upgrade():
            return
        self._in_head = False
        self._head_bytes = self._framing_bytes = 0
        self._timed = ""
        if self._may_at_once and self._responds_at_once():
            return
        self._unset_keepalive_if_required()
        super().on_headers_complete()
        self.cycle.transport = self._writer

    def on_body(self, body: bytes) -> None:
        """A part of the body arrived."""
        self._framing_bytes = 0
        if not self._refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is complete; the next one may begin."""
        if self._refused or self.parser.should_upgrade():
            return
        if self._is_answered:
            self._is_answered = False
        else:
            super().on_message_complete()
        self._in_head = True
        self._head_bytes = 0

    def on_response_complete(self) -> None:
        """The application has written a response."""
        self._writer.end_response()
        self._idle_since_s = self.loop.time()
        super().on_response_complete()

    def timeout_keep_alive_handler(self) -> None:
        """Close the connection, unless a request began after the timer was set."""
        self.timeout_keep_alive_task = None
        if self._refused or self._head_bytes or not self._in_head:
            return
        left_s = self._idle_since_s + self.timeout_keep_alive - self.loop.time()
        if left_s > 0:
            self._start_keep_alive_timer(left_s)
        else:
            super().timeout_keep_alive_handler()

    def _start_keep_alive_timer(self, after_s: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(
            after_s, self.timeout_keep_alive_handler
        )

    def _responds_at_once(self) -> bool:
        """Respond to a request that waits for nothing, in one call of the parser; a task for the
        request would take more CPU than all its work.
        """
        self._may_at_once = False
        is_first = self.cycle is None or self.cycle.response_complete
        if not is_first or self.flow.write_paused or self.transport.is_closing():
            return False
        if not self.parser.should_keep_alive() or self.parser.get_http_version() != "1.1":
            return False
        self.scope["method"] = self.parser.get_method().decode("ascii")
        self.scope["raw_path"] = self.url
        answer = self._at_once(self.scope)
        if answer is None:
            return False
        headers, body = answer
        lines = [STATUS_LINE[200]]
        for name, value in (*self.server_state.default_headers, *headers):
            lines += (name, b": ", value, b"\r\n")
        self.transport.write(b"".join((*lines, b"\r\n", body)))
        self._is_answered = True
        self._idle_since_s = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self._start_keep_alive_timer(self.timeout_keep_alive)
        return True

    def _is_for_another_host(self) -> bool:
        """Whether the request's line has a URL with another host than the Host header."""
        if self.url.startswith(b"/"):
            return False
        host = next((value for name, value in self.headers if name == b"host"), b"")
        authority = re.split(rb"[/?#]", self.url.partition(b"://")[2], maxsplit=1)[0]
        return not authority or authority.lower() != host.strip().lower()

    def _drop_refused_head(self) -> None:
        """Free the headers of a refused request: its connection stays for a moment."""
        if self._refused:
            self.headers = []
            self.scope = {}  # type: ignore[typeddict-item]

    def _set_timer(self) -> None:
        """Limit the time of what has not arrived yet; most requests arrive as a whole."""
        if self._refused or (self._in_head and not self._head_bytes):
            self._stop_timer()
            return
        waits_for = "head_time" if self._in_head else "body_time"
        if waits_for != self._timed:
            self._start_timer(waits_for)

    def _start_timer(self, reason: str) -> None:
        self._stop_timer()
        bounds = self._bounds
        after_s = bounds.head_max_s if reason == "head_time" else bounds.body_max_s
        self._timed = reason
        self._timer = asyncio.get_running_loop().call_later(after_s, self._too_slow, reason)

    def _stop_timer(self) -> None:
        self._timed = ""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_slow(self, reason: str) -> None:
        what = "head" if reason == "head_time" else "body"
        is_silent = reason == "head_time" and not self._head_bytes
        text = "" if is_silent else f"the request's {what} did not arrive in time"
        self._refuse(408, reason, text)

    def _refuse(self, status: int, reason: str, text: str) -> None:
        """Respond unless a response was started, and close the connection."""
        if self._refused:
            return
        self._refused = reason
        self._places.refused[reason] += 1
        self._stop_timer()
        in_progress = self.cycle is not None and not self.cycle.response_complete
        if in_progress:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.pipeline:
            self.transport.abort()
        elif not text or (in_progress and self.cycle.response_started):
            self.transport.close()
        else:
            self._respond(status, text)

    def _respond(self, status: int, text: str) -> None:
        """Write a response without the application, and close the connection."""
        body = b'{"error_code":%d,"message":"%b"}' % (status, text.encode())
        head = [
            b"HTTP/1.1 %d %b" % (status, _REASONS[status]),
            b"content-type: application/json",
            b"content-length: %d" % len(body),
            b"connection: close",
        ]
        if status == 503:
            head.append(b"retry-after: 1")
        self.transport.write(b"\r\n".join((*head, b"", body)))
        self.linger()

    def linger(self) -> None:
        """Close the connection, but read for a moment what the client still sends.

        Otherwise this would reset the connection before the client has read the response.
        """
        self._refused = self._refused or "lingering"
        self._stop_timer()
        if not self.transport.can_write_eof():
            self.transport.close()
            return
        self.transport.write_eof()
        self.flow.resume_reading()
        asyncio.get_running_loop().call_later(_LINGER_S, self.transport.abort)

    def _parse(self, data: bytes) -> bytes | None:
        """Parse bytes; returns the bytes to parse instead of the last ones, if any.

        The parser takes the body of a request that offers another protocol, such as HTTP/2, for
        bytes of that protocol. So such a request is parsed again without the offer.
        """
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            if self._refused:
                return None
            head = [b"%b %b HTTP/1.1" % (self.parser.get_method(), self.url)]
            head += [b"%b: %b" % each for each in self.headers if each[0] != b"upgrade"]
            self.parser = httptools.HttpRequestParser(self)
            return b"\r\n".join((*head, b"", data[offer.args[0] :]))
        except httptools.HttpParserError:
            self._refuse(400, "malformed", "the request is not HTTP/1.1")
        return None

    def _stop_write_timer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def _abort_writing(self) -> None:
        self._places.refused["write_time"] += 1
        self.transport.abort()


class _ResponseWriter:
    """The transport of responses: it sends a head together with the beginning of its body.

    A second system call for each response would take a fifth of the CPU of a small one.
    """

    def __init__(self, protocol: BoundedProtocol) -> None:
        self._protocol = protocol
        self._transport = protocol.transport
        self._has_head = False
        #: A head that waits for its body.
        self._head = b""
        self.is_closing = protocol.transport.is_closing

    def write(self, data: bytes) -> None:
        """Write a head, a part of a body, or the interim response 100."""
        if not self._has_head and not data.startswith(_CONTINUE):
            self._has_head = True
            self._head = data
            # the application may write the body later
            asyncio.get_running_loop().call_soon(self._flush)
        elif self._head and len(data) <= _JOINED_MAX_BYTES:
            head, self._head = self._head, b""
            self._transport.write(head + data)
        else:
            self._flush()
            self._transport.write(data)

    def end_response(self) -> None:
        """The next bytes belong to the next response."""
        self._flush()
        self._has_head = False

    def close(self) -> None:
        """Close the connection."""
        self._flush()
        if self._protocol.cycle.more_body:
            self._protocol.linger()
        else:
            self._transport.close()

    def _flush(self) -> None:
        if self._head:
            head, self._head = self._head, b""
            self._transport.write(head)


class HttpServer:
    """Serves an ASGI application at one or more addresses.

    Args:
        application: Serves scopes of type http.
        certificate: The certificate for HTTPS; None for HTTP.
        files: The files of ``certificate``.
        trusted_proxies: Addresses or networks whose X-Forwarded-For header is believed.
        bounds: The bounds.
        at_once: Responds to a request without a body that waits for nothing; None for all others,
            which ``application`` serves.
    """

    def __init__(
        self,
        application: Application,
        *,
        certificate: "Renewed[Certificate] | None" = None,
        files: "TlsFiles | None" = None,
        trusted_proxies: Collection[str] = (),
        bounds: HttpBounds | None = None,
        at_once: AtOnce = lambda _scope: None,
    ) -> None:
        self._bounds = bounds or HttpBounds()
        self._at_once = at_once
        self._places = Places(self._bounds, trusted_proxies)
        self._certificate = certificate
        self._files = files
        self._loaded = None if certificate is None else certificate.present()
        self._context = None if files is None else _tls_context(files)
        self._state = ServerState()
        self._servers: list[asyncio.Server] = []
        self._ticking: asyncio.Task[None] | None = None
        # it logs a warning for each malformed request
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
        self._config = uvicorn.Config(
            application,
            http=HttpToolsProtocol,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=bool(trusted_proxies),
            forwarded_allow_ips=list(trusted_proxies),
            timeout_keep_alive=self._bounds.keep_alive_s,
        )
        self._config.load()

    async def listen(self, address: str) -> str:
        """Accept connections at host:port; returns the bound host:port.

        Raises:
            OSError: The address cannot be bound; the message names it.
        """
        host, port = split_address(address)
        loop = asyncio.get_running_loop()
        if self._ticking is None:
            self._tick()
            self._ticking = asyncio.create_task(self._keep_ticking(), name="http ticks")
        uses_tls = self._context is not None
        try:
            server = await loop.create_server(
                lambda: BoundedProtocol(self._config, self._state, self._places, self._at_once),
                host,
                port,
                backlog=2_048,
                ssl=self._context,
                ssl_handshake_timeout=self._bounds.head_max_s if uses_tls else None,
                ssl_shutdown_timeout=_TLS_SHUTDOWN_S if uses_tls else None,
            )
        except OSError as error:
            why = error.strerror or str(error)
            raise OSError(error.errno, f"cannot listen on {address}: {why}") from error
        self._servers.append(server)
        bound = server.sockets[0].getsockname()[1]
        return f"{address.rpartition(':')[0]}:{bound}"

    async def close(self, grace_s: float) -> None:
        """Accept no connection, let requests in progress finish, then close all connections."""
        for server in self._servers:
            server.close()
        for connection in list(self._state.connections):
            connection.shutdown()
        loop = asyncio.get_running_loop()
        end_s = loop.time() + grace_s
        while self._state.tasks and loop.time() < end_s:
            await asyncio.wait(list(self._state.tasks), timeout=_CLOSE_WAIT_S)
        for task in list(self._state.tasks):
            task.cancel()
        await asyncio.gather(*self._state.tasks, return_exceptions=True)
        for connection in list(self._state.connections):
            connection.transport.abort()
        if self._ticking is not None:
            self._ticking.cancel()
            await asyncio.gather(self._ticking, return_exceptions=True)

    def samples(self) -> list[Sample]:
        """The metrics of the connections and of the certificate."""
        found = [table.HTTP_CONNECTIONS.at(self._places.taken)]
        for reason, count in self._places.refused.items():
            found.append(table.HTTP_REFUSED.at(count, reason))
        if self._loaded is not None and self._loaded.ends is not None:
            found.append(table.CERTIFICATE_END.at(self._loaded.ends.timestamp()))
        return found

    async def _keep_ticking(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            self._tick()

    def _tick(self) -> None:
        """Update the Date header, and load a renewed certificate for new connections."""
        self._state.default_headers = [(b"date", formatdate(time.time(), usegmt=True).encode())]
        if self._certificate is None or self._context is None or self._files is None:
            return
        present = self._certificate.present()
        if present is not self._loaded:
            self._loaded = present
            try:
                self._context.load_cert_chain(self._files.cert, self._files.key)
            except (OSError, ssl.SSLError) as error:
                _log.warning(
                    "the renewed certificate for HTTPS cannot be used: the previous one stays",
                    why=str(error),
                )


def _tls_context(files: "TlsFiles") -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(files.cert, files.key)
    context.set_alpn_protocols(["http/1.1"])
    return context
