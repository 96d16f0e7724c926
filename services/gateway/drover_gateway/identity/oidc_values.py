"""Values of a sign-in by OpenID Connect."""

import base64
import hashlib
import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

#: How long a user may take at the issuer.
ATTEMPT_S = 600


class Refusal(StrEnum):
    """Why a sign-in or a renewal failed; the sign-in page has a text for each."""

    UNAVAILABLE = "issuer-unavailable"
    DENIED = "issuer-denied"
    ERROR = "issuer-error"
    UNKNOWN_STATE = "unknown-state"
    BAD_TOKEN = "bad-token"
    TOO_LARGE = "token-too-large"
    WORKERS_REFUSED = "workers-refused"
    WORKERS_UNAVAILABLE = "workers-unavailable"
    ENDED = "issuer-ended"


class SignInError(Exception):
    """A sign-in or a renewal failed.

    Attributes:
        refusal: The kind.
    """

    def __init__(self, refusal: Refusal, message: str) -> None:
        super().__init__(message)
        self.refusal = refusal


@dataclass(frozen=True, slots=True)
class Attempt:
    """A sign-in that was started.

    Attributes:
        secret: A random text, from which the other values are made.
        target: The page to open at the end.
        begin_s: When it was started, in seconds since 1970.
    """

    secret: str
    target: str
    begin_s: int

    @classmethod
    def begin(cls, target: str, now_s: float) -> "Attempt":
        """A new one."""
        return cls(secrets.token_urlsafe(32), target, int(now_s))

    @property
    def state(self) -> str:
        """What the issuer returns with the browser."""
        return self._made("state")

    @property
    def nonce(self) -> str:
        """What the ID token must have."""
        return self._made("nonce")

    @property
    def verifier(self) -> str:
        """Proves that the client that exchanges the code has started the sign-in (RFC 7636)."""
        return self._made("verifier")

    @property
    def challenge(self) -> str:
        """The digest of the verifier, method S256."""
        return _base64(hashlib.sha256(self.verifier.encode()).digest())

    def has_expired(self, now_s: float) -> bool:
        """Whether it took too long."""
        return not self.begin_s - 60 <= now_s < self.begin_s + ATTEMPT_S

    def _made(self, purpose: str) -> str:
        return _base64(hmac.digest(self.secret.encode(), purpose.encode(), "sha256"))


@dataclass(frozen=True, slots=True)
class Tokens:
    """What the issuer has returned.

    Attributes:
        token: The token for the workers.
        subject: The user.
        id_token: The ID token.
        refresh_token: Renews the token; empty if there is none.
        renew_s: When the token should be renewed, in seconds since 1970.
        end_s: When it ends, in seconds since 1970.
    """

    token: str
    subject: str
    id_token: str
    refresh_token: str
    renew_s: int
    end_s: int


@dataclass(frozen=True, slots=True)
class OidcClient:
    """The gateway as a client of an issuer.

    Attributes:
        client_id: Its id.
        secret: Returns its secret; empty for a public client.
        scopes: The scopes of a request, with ``openid``.
        token: Whether the workers get the ID token or the access token.
        url: The URL under which browsers reach the gateway; empty for that of each request.
    """

    client_id: str
    secret: Callable[[], str] = lambda: ""
    scopes: str = "openid"
    token: Literal["id", "access"] = "id"
    url: str = ""


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
