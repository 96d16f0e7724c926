"""Texts for errors of client libraries, without text that a server sent.

A connector can be pointed at any allowed address, so a message with a response would show its
creator what that address returns. Standard library only.
"""

import re
import ssl
from collections.abc import Iterator
from socket import gaierror
from urllib.parse import urlsplit

from drover.policy.egress import forbidden_host

_CAUSES_MAX = 20
_SHOWN_MAX_CHARS = 300
_MEDIA_TYPE = re.compile(r"[\w.+-]{1,40}/[\w.+-]{1,40}")
#: Names of libraries' errors, or parts of them, with their meaning.
_MEANINGS = (
    ("Timeout", "the request timed out"),
    ("UnsupportedProtocol", "the URL is not one of http or https"),
    ("Protocol", "the server disconnected, or does not speak HTTP"),
    ("IncompleteRead", "the server disconnected within the response"),
    ("ChunkedEncoding", "the server disconnected within the response"),
    ("JSONDecode", "the response is not JSON"),
    ("ValidationError", "the response has other fields than expected"),
    ("Decod", "the response is not encoded as it claims"),
    ("Connect", "no connection"),
)


def shown_url(url: str) -> str:
    """A URL without its query and user info, which may contain secrets."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "the URL"
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}"[:_SHOWN_MAX_CHARS]


def causes_of(error: BaseException) -> Iterator[BaseException]:
    """The error, and the errors that caused it."""
    cause: BaseException | None = error
    for _ in range(_CAUSES_MAX):
        if cause is None:
            return
        yield cause
        cause = cause.__cause__ or cause.__context__


def connection_text(error: BaseException) -> str:
    """Why a request failed: a rejected host, or an error of the network, of TLS or of HTTP."""
    forbidden = forbidden_host(error)
    if forbidden is not None:
        return str(forbidden)
    for cause in causes_of(error):
        if isinstance(cause, gaierror):
            return f"the host name cannot be resolved: {cause.strerror}"
        if isinstance(cause, ssl.SSLError):  # the local library wrote its text
            return str(cause)[:_SHOWN_MAX_CHARS]
        if isinstance(cause, TimeoutError):
            return "the request timed out"
        if isinstance(cause, OSError) and isinstance(cause.errno, int):
            return cause.strerror or type(cause).__name__
    for cause in causes_of(error):
        name = type(cause).__name__
        meaning = next((text for part, text in _MEANINGS if part in name), None)
        if meaning is not None:
            return meaning
    return type(error).__name__


def response_text(status: int, media_type: str | None, length: int) -> str:
    """A response by its status, its media type and the length of its body."""
    kind = _MEDIA_TYPE.match(media_type or "")
    return f"{status} ({f'{kind[0]}, ' if kind else ''}{length} bytes)"
