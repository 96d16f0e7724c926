"""Requests and responses of the console."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import parse_qsl

from drover_gateway.server import Receive, Scope, Send

YEAR_S = 365 * 24 * 3600
FORM_MAX_BYTES = 1024 * 1024
#: A form with a config of 1 MiB, whose characters may take three bytes each.
CONFIG_MAX_BYTES = 4 * 1024 * 1024
_FIELDS_MAX = 25_000
_FORM_TYPE = "application/x-www-form-urlencoded"
#: No inline script or style, nothing of other hosts, no frame around a page. ``same-origin``, since
#: with ``no-referrer`` browsers send ``Origin: null`` with the page's own forms.
_SECURITY_HEADERS = (
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    ),
    ("x-frame-options", "DENY"),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
)
HTML = "text/html; charset=utf-8"


class PageError(Exception):
    """A request that is not accepted.

    Attributes:
        status: The HTTP status.
        title: What happened, in a few words.
        message: What was wrong, and what to do next.
        links: The pages where that is done: the text and the address of each.
    """

    def __init__(
        self, status: int, title: str, message: str, links: Sequence[tuple[str, str]] = ()
    ) -> None:
        super().__init__(message)
        self.status = status
        self.title = title
        self.message = message
        self.links = links


class ClientGoneError(Exception):
    """The client closed the connection before its request was complete."""


@dataclass(frozen=True, slots=True)
class Response:
    """A response; a body that is an iterator is sent piece by piece."""

    body: bytes | AsyncIterator[bytes] = b""
    status: int = 200
    content_type: str = HTML
    headers: Sequence[tuple[str, str]] = ()
    cache: str = "no-store"


@dataclass(frozen=True, slots=True)
class Form:
    """The fields of a submitted form, or of a query."""

    fields: Sequence[tuple[str, str]] = field(default_factory=tuple)

    def one(self, name: str) -> str:
        """The first value of a field; empty if it has none."""
        return next((value for key, value in self.fields if key == name), "")

    def all(self, name: str) -> list[str]:
        """All values of a field."""
        return [value for key, value in self.fields if key == name]


def query_of(scope: Scope) -> Form:
    """The fields of a request's query."""
    return _parsed(scope.get("query_string", b""))


def cookies_of(headers: Sequence[tuple[bytes, bytes]]) -> Mapping[str, str]:
    """The cookies of a request."""
    found: dict[str, str] = {}
    for name, value in headers:
        if name == b"cookie":
            for each in value.decode("latin-1").split(";"):
                key, equals, content = each.strip().partition("=")
                if equals:
                    found.setdefault(key, content)
    return found


async def form_of(scope: Scope, receive: Receive, max_bytes: int = FORM_MAX_BYTES) -> Form:
    """The fields of a submitted form of at most ``max_bytes``.

    Raises:
        PageError: The body is no form, or too large.
        ClientGoneError: The connection was closed.
    """
    types = [value for name, value in scope["headers"] if name == b"content-type"]
    kinds = [each.decode("latin-1").partition(";")[0].strip().lower() for each in types]
    if kinds != [_FORM_TYPE]:
        raise PageError(415, "Not a form", f"The request's Content-Type must be {_FORM_TYPE}.")
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        body += message.get("body", b"")
        if len(body) > max_bytes:
            text = f"A form may have {max_bytes:,} bytes: use the command line for larger ones."
            raise PageError(413, "The form is too large", text)
        if not message.get("more_body"):
            return _parsed(bytes(body))


async def send_response(response: Response, send: Send, receive: Receive, *, is_head: bool) -> None:
    """Send a response with the headers that all pages have.

    A body in pieces ends when the client closes the connection.
    """
    headers = [
        ("content-type", response.content_type),
        ("cache-control", response.cache),
        *_SECURITY_HEADERS,
        *response.headers,
    ]
    whole = response.body if isinstance(response.body, bytes) else None
    if whole is not None:
        headers.append(("content-length", str(len(whole))))
    await send(
        {
            "type": "http.response.start",
            "status": response.status,
            "headers": [(name.encode("latin-1"), text.encode("latin-1")) for name, text in headers],
        }
    )
    if whole is not None or is_head:
        await send({"type": "http.response.body", "body": b"" if is_head else whole})
        return
    assert not isinstance(response.body, bytes)
    async for piece in response.body:
        await send({"type": "http.response.body", "body": piece, "more_body": True})
        del piece  # not kept while a stream waits for its next one
    await send({"type": "http.response.body", "body": b""})


async def wait_for_disconnect(receive: Receive) -> None:
    """Return when the client has closed the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _parsed(data: bytes) -> Form:
    if data.count(b"&") >= _FIELDS_MAX:
        text = f"It may have {_FIELDS_MAX:,} fields: use the command line for more."
        raise PageError(413, "The form has too many fields", text)
    try:
        fields = parse_qsl(
            data.decode("ascii"),
            keep_blank_values=True,
            errors="strict",
        )
    except ValueError:
        raise PageError(
            400, "The request cannot be read", "A field is not URL-encoded UTF-8."
        ) from None
    return Form(tuple(fields))
