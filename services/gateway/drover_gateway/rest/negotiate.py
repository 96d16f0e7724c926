"""Content types: which bodies are read, and whether the caller accepts JSON.

As in Kafka Connect, whose resources consume and produce ``application/json`` only.
"""

import re

from drover_gateway.rest.errors import RestError

#: A token of a header (RFC 9110).
TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_TYPE = re.compile(rf"\s*({TOKEN})/({TOKEN})\s*(;.*)?", re.DOTALL)
#: A range of types; one without a subtype includes all subtypes, as in Jersey. Java's
#: HttpURLConnection sends ``*; q=.2`` by default.
_RANGE = re.compile(rf"\s*({TOKEN})(?:/({TOKEN}))?\s*(;.*)?", re.DOTALL)
_QUALITY = re.compile(r";\s*q\s*=\s*([0-9.]+)\s*(?:;|\Z)", re.IGNORECASE)
_MATCHING = frozenset({("*", "*"), ("application", "*"), ("application", "json")})


def check_content_type(content_type: str | None, *, has_body: bool) -> None:
    """Reject a body that is not JSON; also on paths that read no body.

    Args:
        content_type: The header; None without one.
        has_body: Whether the request has a body of at least one byte.

    Raises:
        RestError: 415, or 400 for a header that is no media type.
    """
    if content_type is None:
        if has_body:
            raise unsupported_media_type()
        return
    found = _TYPE.fullmatch(content_type)
    if found is None:
        raise RestError(400, "the header Content-Type is not a media type: send application/json")
    if (found[1].lower(), found[2].lower()) != ("application", "json"):
        raise unsupported_media_type()


def unsupported_media_type() -> RestError:
    """The error for a body that is not JSON."""
    return RestError(415, "HTTP 415 Unsupported Media Type")


def check_accept(accept: str | None) -> None:
    """Reject a caller who does not accept JSON.

    Raises:
        RestError: 406.
    """
    if accept is None or not accept.strip():
        return
    if not any(_admits_json(each) for each in accept.split(",")):
        raise RestError(406, "HTTP 406 Not Acceptable")


def _admits_json(entry: str) -> bool:
    found = _RANGE.fullmatch(entry)
    if found is None or (found[1].lower(), (found[2] or "*").lower()) not in _MATCHING:
        return False
    quality = _QUALITY.search(found[3] or "")
    return quality is None or _is_positive(quality[1])


def _is_positive(quality: str) -> bool:
    try:
        return float(quality) > 0
    except ValueError:
        return False
