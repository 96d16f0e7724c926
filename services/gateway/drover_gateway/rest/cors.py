"""Headers for other web sites (CORS), and headers that an operator adds to all responses.

Both behave as in Kafka Connect: ``access.control.allow.origin``, ``access.control.allow.methods``
and ``response.http.headers.config``.
"""

import csv
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from email.utils import formatdate

from drover_gateway.rest.negotiate import TOKEN

Headers = list[tuple[str, str]]

_RULE = re.compile(rf"\s*(set|add|setDate|addDate)\s+({TOKEN})\s*:\s*(.*?)\s*", re.DOTALL)
_ORIGIN = re.compile(r"[!-~]{1,1000}")
_DEFAULT_METHODS = ("GET", "POST", "HEAD")
#: The order of a recorded answer; it has no meaning.
_METHOD_ORDER = ("PUT", "DELETE", "GET", "POST", "PATCH", "HEAD", "OPTIONS")
_PREFLIGHT_MAX_AGE_S = 60
_ALLOWED_HEADERS = "Content-Type"
#: Headers that delimit a response: with another value clients would misread it.
_FRAMING = frozenset({"connection", "content-length", "trailer", "transfer-encoding", "upgrade"})


@dataclass(frozen=True, slots=True)
class HeaderRule:
    """A header of all responses.

    Attributes:
        name: Its name.
        value: Its value; for a date the milliseconds from the response to it.
        replaces: Whether it replaces headers of this name.
        is_date: Whether the value is a date.
    """

    name: str
    value: str
    replaces: bool
    is_date: bool = False

    def text(self, now_s: float) -> str:
        """The value in a response at a time, in seconds since 1970."""
        return (
            formatdate(now_s + int(self.value) / 1000, usegmt=True) if self.is_date else self.value
        )


def parse_header_rules(text: str) -> tuple[HeaderRule, ...]:
    """Rules in the syntax of Kafka Connect's ``response.http.headers.config``.

    The rules are separated by commas, and one with a comma in it is in double quotes:
    ``set X-Frame-Options: DENY, "add Cache-Control: no-cache, no-store"``.

    Raises:
        ValueError: A rule is malformed; the message has the rule and what is valid.
    """
    rules = []
    try:
        found_rules = next(csv.reader([text], skipinitialspace=True, strict=True), [])
    except csv.Error as error:
        raise ValueError(f"the rules to set and add headers are malformed: {error}") from None
    for rule in found_rules:
        if not rule.strip():
            continue
        found = _RULE.fullmatch(rule)
        if found is None:
            raise ValueError(
                f"{rule.strip()!r} is not ACTION NAME: VALUE with set, add, setDate or addDate"
            )
        action, name, value = found.groups()
        if name.lower() in _FRAMING:
            raise ValueError(f"{rule.strip()!r} has a header that only the server can set")
        is_date = action.endswith("Date")
        if is_date and not re.fullmatch(r"-?\d{1,15}", value):
            raise ValueError(f"{rule.strip()!r} needs a number of milliseconds as its value")
        if not value.isascii() or not value.isprintable():
            raise ValueError(
                f"{rule.strip()!r} has a value with characters that no header can have"
            )
        rules.append(HeaderRule(name, value, action.startswith("set"), is_date))
    return tuple(rules)


class Cors:
    """Adds the headers of other web sites; without allowed origins it adds none.

    Credentials of browsers are never allowed: a caller sends the header Authorization.
    """

    def __init__(self, origins: Sequence[str], methods: Sequence[str] = ()) -> None:
        self._origins = frozenset(origins)
        self._methods = sorted(
            {each.upper() for each in methods} or _DEFAULT_METHODS,
            key=lambda each: (each not in _METHOD_ORDER, (*_METHOD_ORDER, each).index(each)),
        )

    def allows(self, origin: str | None) -> bool:
        """Whether a web site may read answers."""
        if origin is None or not _ORIGIN.fullmatch(origin):
            return False
        return origin in self._origins or "*" in self._origins

    def headers(self, origin: str | None, *, is_preflight: bool) -> Headers:
        """The headers of a response to a request from a web site, or from no web site."""
        if not self._origins:
            return []
        found = [("vary", "Origin")]
        if origin is not None and self.allows(origin):
            found.append(("access-control-allow-origin", origin))
            if is_preflight:
                found += [
                    ("access-control-allow-methods", ",".join(self._methods)),
                    ("access-control-allow-headers", _ALLOWED_HEADERS),
                    ("access-control-max-age", str(_PREFLIGHT_MAX_AGE_S)),
                ]
        return found


def with_rules(
    headers: Headers, rules: Sequence[HeaderRule], now_s: float | None = None
) -> Headers:
    """The headers of a response, with the headers of an operator."""
    now_s = time.time() if now_s is None else now_s
    for rule in rules:
        name = rule.name.lower()
        if rule.replaces:
            headers = [each for each in headers if each[0] != name]
        headers = [*headers, (name, rule.text(now_s))]
    return headers
