"""GET requests to a server that is not trusted: bounded in time, size and number of headers."""

import http.client
import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus

from drover.policy.bounded_http import BoundedConnection
from drover.policy.egress import AllowedHosts, ForbiddenHostError, host_of
from drover.policy.foreign_errors import connection_text, response_text, shown_url

_PART_BYTES = 64 * 1024
_REDIRECTS = range(300, 400)


class RequestError(Exception):
    """A request failed. The message names the request and the cause, without the response's text.

    Attributes:
        status: The HTTP status; None if there was no usable response.
    """

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Response:
    """A response with status 200."""

    body: bytes
    media_type: str


class Budget:
    """The bytes that all responses together may have; thread-safe."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._used_bytes = 0
        self._lock = threading.Lock()

    def use(self, count: int) -> None:
        """Count received bytes.

        Raises:
            RequestError: All responses together have too many bytes.
        """
        with self._lock:
            self._used_bytes += count
            if self._used_bytes > self._max_bytes:
                raise RequestError(
                    f"the server's responses have more than {self._max_bytes} bytes in all"
                )


class Getter:
    """Sends GET requests to one server; thread-safe. Each has its own connection.

    Args:
        base: The server's URL, http or https, without user info.
        headers: Sent with each request, such as credentials. They are never sent elsewhere:
            redirects are errors.
        ca_file: A PEM file with the authorities to trust; empty for the authorities of the system.
        allowed: The hosts that may be called; by default the hosts of ``DROVER_ALLOWED_HOSTS``.
        request_s: The time limit of a request, from the connection to the last byte.
        max_bytes: The size limit of all responses together.

    Raises:
        ValueError: The URL has another form; the message does not contain it.
        OSError: The file of the authorities cannot be read.
    """

    def __init__(
        self,
        base: str,
        headers: Mapping[str, str],
        *,
        ca_file: str = "",
        allowed: AllowedHosts | None = None,
        request_s: float,
        max_bytes: int,
    ) -> None:
        self._scheme, _, rest = base.partition("://")
        if self._scheme not in ("http", "https") or "@" in rest or "?" in rest or "#" in rest:
            raise ValueError("must be a URL such as http://host:8083, without user and query")
        self._host, self._port = host_of(base)
        self._prefix = f"/{rest.partition('/')[2]}".rstrip("/")
        self._shown = shown_url(base).rstrip("/")
        self._headers = {
            "accept": "application/json",
            "accept-encoding": "identity",
            "connection": "close",
            "user-agent": "drover",
            **headers,
        }
        self._tls = ssl.create_default_context(cafile=ca_file or None)
        self._allowed = allowed or AllowedHosts.of_worker()
        self._request_s = request_s
        self._budget = Budget(max_bytes)

    def get(self, path: str) -> Response:
        """The response to GET ``path``, which is encoded and starts with a slash.

        Raises:
            RequestError: The status is not 200, or the request failed.
        """
        what = f"GET {self._shown}{path.partition('?')[0]}"
        connection = BoundedConnection(self._host, self._port, self._allowed, self._context())
        try:
            with connection.closed_after(self._request_s):
                return self._exchanged(what, path, connection)
        except ForbiddenHostError as error:
            raise RequestError(f"{what}: {error}") from None
        except (OSError, http.client.HTTPException, ValueError, RequestError) as error:
            if connection.aborted:
                text = f"no complete response within {self._request_s:g} s"
                raise RequestError(f"{what}: {text}") from None
            if isinstance(error, RequestError):
                raise
            raise RequestError(f"{what}: {connection_text(error)}") from None

    def _context(self) -> ssl.SSLContext | None:
        return self._tls if self._scheme == "https" else None

    def _exchanged(self, what: str, path: str, connection: BoundedConnection) -> Response:
        connection.request("GET", self._prefix + path, headers=self._headers)
        with connection.getresponse() as response:
            status = response.status
            if status in _REDIRECTS:
                target = shown_url(response.headers.get("location", ""))
                raise RequestError(
                    f"{what} is redirected to {_one_line(target)}, which is not followed: name the "
                    "final address",
                    status,
                )
            if response.headers.get("content-encoding", "identity").lower() != "identity":
                raise RequestError(f"{what}: the response is compressed, which was not asked for")
            body = self._body(response)
            media_type = response.headers.get("content-type", "")
        if status != HTTPStatus.OK:
            raise RequestError(
                f"{what} returned {response_text(status, media_type, len(body))}{_advice(status)}",
                status,
            )
        return Response(body, media_type)

    def _body(self, response: http.client.HTTPResponse) -> bytes:
        body = bytearray()
        while part := response.read1(_PART_BYTES):
            self._budget.use(len(part))
            body += part
        if response.length:
            raise http.client.IncompleteRead(b"", response.length)
        return bytes(body)


def _advice(status: int) -> str:
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return ": give credentials with --user and --password-file, or with --token-file"
    return ""


def _one_line(text: str) -> str:
    return "".join(each if each.isprintable() else "?" for each in text)
