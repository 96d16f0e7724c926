"""The credential of a request: a token, as Bearer or as the password of Basic.

The gateway verifies nothing: it sends the token to the workers, which verify it. No cookie is read
here; the console has sessions.
"""

import base64
import binascii
import re
from collections.abc import Iterable
from dataclasses import dataclass

from drover.errors import Reason, UnauthenticatedError
from drover.rpc import TOKEN_KEY
from drover.security.principal import PRINCIPAL_MAX_CHARS

#: What a caller without a credential sends to the workers. A token takes precedence over a
#: certificate, so a worker that authenticates rejects the call, whatever the grants of the
#: gateway's own certificate are.
ANONYMOUS = "drover-gateway-caller-without-credential"
#: The maximum length of a token; larger than any JSON Web Token that fits in a request's head.
TOKEN_MAX_CHARS = 15_000
#: RFC 6750: the characters of a token.
_TOKEN = re.compile(r"[A-Za-z0-9\-._~+/]+=*")
#: What gRPC's metadata accepts, for passwords that are not tokens in the sense of RFC 6750.
_PRINTABLE = re.compile(r"[!-~](?:[ -~]*[!-~])?")
_MALFORMED = (
    "the Authorization header is malformed: send `Bearer TOKEN`, or `Basic` with any user name and"
    " the token as the password"
)


@dataclass(frozen=True, slots=True)
class Caller:
    """Who makes a request.

    Attributes:
        token: The token that the workers get; empty if the request has no credential.
        author: The author of changes where workers do not authenticate: the user name of Basic, or
            ``rest:`` and the address.
        host: The address of the client.
    """

    token: str
    author: str
    host: str = ""

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """The metadata of calls. It always has a token, so that no certificate counts instead."""
        return ((TOKEN_KEY, f"Bearer {self.token or ANONYMOUS}"),)


def caller_of(headers: Iterable[tuple[bytes, bytes]], host: str) -> Caller:
    """The caller of a request from the address ``host``; header names are in lower case.

    Raises:
        UnauthenticatedError: INVALID_CREDENTIALS: the Authorization header is malformed, or there
            are several.
    """
    values = [value for name, value in headers if name == b"authorization"]
    if not values:
        return Caller("", f"rest:{host}", host)
    if len(values) > 1:
        raise UnauthenticatedError(
            Reason.INVALID_CREDENTIALS, "the request has several Authorization headers: send one"
        )
    scheme, _, credential = values[0].decode("latin-1").strip().partition(" ")
    match scheme.lower():
        case "bearer":
            token = credential.strip()
            if len(token) > TOKEN_MAX_CHARS or not _TOKEN.fullmatch(token):
                raise _malformed()
            return Caller(token, f"rest:{host}", host)
        case "basic":
            user, token = _user_and_password(credential.strip())
            return Caller(token, user or f"rest:{host}", host)
    raise _malformed()


def is_token(text: str) -> bool:
    """Whether a text can be sent as a token."""
    return len(text) <= TOKEN_MAX_CHARS and _PRINTABLE.fullmatch(text) is not None


def _user_and_password(credential: str) -> tuple[str, str]:
    try:
        decoded = base64.b64decode(credential, validate=True).decode("utf-8")
    except (binascii.Error, ValueError):
        raise _malformed() from None
    user, colon, password = decoded.partition(":")
    if not colon or len(password) > TOKEN_MAX_CHARS or not _PRINTABLE.fullmatch(password or "-"):
        raise _malformed()
    shown = "".join(each for each in user.strip() if each.isprintable())
    return shown[:PRINCIPAL_MAX_CHARS], password


def _malformed() -> UnauthenticatedError:
    return UnauthenticatedError(Reason.INVALID_CREDENTIALS, _MALFORMED)
