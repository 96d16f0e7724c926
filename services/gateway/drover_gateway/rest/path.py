"""Paths of requests: split before decoding, so that names may contain any character.

As in Kafka Connect (Jersey and Jetty), except that an encoded slash and an encoded
percent sign are valid here; Kafka Connect rejects both, so connectors with such names are out of
its reach.
"""

import re
from urllib.parse import quote, unquote_to_bytes

from drover_gateway.rest.errors import RestError

_HEX = frozenset(b"0123456789abcdefABCDEF")
#: What a segment of a path must not have unencoded (RFC 3986, pchar): everything but the unreserved
#: characters, the sub-delimiters, ":", "@" and escapes.
_TO_ENCODE = re.compile(r"%(?![0-9A-Fa-f]{2})|[^A-Za-z0-9._~!$&'()*+,;=:@%-]")


def split_path(raw_path: bytes) -> tuple[str, ...]:
    """The decoded segments of a path, without its matrix parameters and a trailing slash.

    Args:
        raw_path: The path as it was sent, without the query.

    Raises:
        RestError: 400: an empty segment, a segment of dots that is encoded, an incomplete escape,
            or bytes that are not UTF-8.
    """
    path = raw_path.removeprefix(b"/")
    path = path.removesuffix(b"/")
    if not path:
        if raw_path not in (b"", b"/"):
            raise RestError(400, "the path has an empty segment")
        return ()
    return tuple(_decoded(segment) for segment in path.split(b"/"))


def encoded_name(name: str) -> str:
    """A name as one segment of a URL, encoded as Kafka Connect does in the header Location.

    So an escape in the name (``%41``) and a semicolon are not encoded, though a request to such a
    URL names another connector. A slash is encoded.
    """
    return _TO_ENCODE.sub(lambda found: quote(found[0], safe="", errors="replace"), name)


def _decoded(segment: bytes) -> str:
    plain, _, _parameters = segment.partition(b";")
    if not plain:
        raise RestError(400, "the path has an empty segment")
    parts = plain.split(b"%")
    if any(len(part) < 2 or not _HEX.issuperset(part[:2]) for part in parts[1:]):
        raise RestError(
            400, "the path has a percent sign that two hexadecimal digits do not follow"
        )
    try:
        text = unquote_to_bytes(plain).decode("utf-8")
    except UnicodeDecodeError:
        raise RestError(400, "the path is not UTF-8") from None
    if text in (".", "..") and len(parts) > 1:
        raise RestError(400, "the path has an encoded segment of dots")
    return text
