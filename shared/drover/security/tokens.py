"""Verifies JSON Web Tokens with the keys of a JWKS."""

import asyncio
import json
import time
import urllib.request
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urlsplit

import jwt
import structlog

from drover.errors import InvalidArgumentError, Reason
from drover.security.hosts import is_loopback_host
from drover.security.renewed import Renewed

#: Asymmetric algorithms only, so a verification key cannot sign tokens.
ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"]
ALGORITHMS += ["ES256", "ES384", "ES512", "EdDSA"]
#: The tolerated difference between the clocks of the issuer and this process.
LEEWAY_S = 30.0
#: The maximum age of keys from a URL before they are fetched again.
KEYS_MAX_AGE_S = 300.0
#: The minimum interval between two fetches, also for tokens with an unknown key id.
KEYS_MIN_AGE_S = 10.0
FETCH_TIMEOUT_S = 5.0
KEYS_MAX_BYTES = 1024 * 1024

_log = structlog.get_logger("drover.security")


class TokenRejectedError(Exception):
    """A token is rejected; the message has the reason and no part of the token."""


@dataclass(frozen=True, slots=True)
class TokenRules:
    """The required claims of a token.

    Attributes:
        audience: A required value of ``aud``.
        issuer: The required ``iss``; empty to accept all issuers.
        groups_claim: The claim that lists the user's groups.
    """

    audience: str
    issuer: str = ""
    groups_claim: str = "groups"


@dataclass(frozen=True, slots=True)
class TokenUser:
    """The user of a token."""

    subject: str
    groups: tuple[str, ...]


class KeySource(Protocol):
    """A source of verification keys."""

    async def keys(self, key_id: str | None) -> jwt.PyJWKSet:
        """The keys; they may be fetched again if ``key_id`` is unknown.

        Raises:
            TokenRejectedError: There are no keys.
        """


class KeyFile:
    """Keys in a file, reloaded when it changes."""

    def __init__(self, path: str) -> None:
        self._keys = Renewed("JWKS", [path], lambda: _read_keys(path))

    async def keys(self, key_id: str | None) -> jwt.PyJWKSet:
        """See ``KeySource``."""
        del key_id
        return self._keys.present()


class KeyUrl:
    """Keys at a URL, fetched at the first use, when they are too old, and for an unknown key id."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._keys: jwt.PyJWKSet | None = None
        self._fetched_s = -KEYS_MAX_AGE_S
        self._tried_s = -KEYS_MIN_AGE_S
        self._lock = asyncio.Lock()

    async def keys(self, key_id: str | None) -> jwt.PyJWKSet:
        """See ``KeySource``; if fetching fails, the previous keys stay."""
        async with self._lock:
            now_s = time.monotonic()
            has_key = self._keys is not None and any(k.key_id == key_id for k in self._keys.keys)
            is_due = not has_key or now_s - self._fetched_s >= KEYS_MAX_AGE_S
            if is_due and now_s - self._tried_s >= KEYS_MIN_AGE_S:
                self._tried_s = now_s
                await self._fetch()
            if self._keys is None:
                raise TokenRejectedError("the keys that verify tokens cannot be fetched now")
            return self._keys

    async def _fetch(self) -> None:
        try:
            self._keys = _parse_keys(self._url, await asyncio.to_thread(_get, self._url))
        except (OSError, ValueError, InvalidArgumentError) as error:
            _log.warning("the JWKS cannot be fetched", url=self._url, why=str(error))
        else:
            self._fetched_s = time.monotonic()


def key_source(place: str) -> KeySource:
    """The key source for a file or a URL.

    Raises:
        InvalidArgumentError: INVALID_CONFIG: the file cannot be used, or the URL is not https.
    """
    if "://" not in place:
        return KeyFile(place)
    parts = urlsplit(place)
    if parts.scheme == "https" or (
        parts.scheme == "http" and is_loopback_host(parts.hostname or "")
    ):
        return KeyUrl(place)
    raise _unusable(f"{place} must be an https URL, so the keys cannot be replaced in transit")


class TokenVerifier:
    """Verifies tokens."""

    def __init__(self, source: KeySource, rules: TokenRules) -> None:
        self._source = source
        self._rules = rules

    async def user(self, token: str) -> TokenUser:
        """Verify a token; returns its user.

        Raises:
            TokenRejectedError: The token is rejected.
        """
        try:
            header = jwt.get_unverified_header(token)
        except jwt.InvalidTokenError:
            raise TokenRejectedError("it is not a JSON Web Token") from None
        if header.get("alg") not in ALGORITHMS:
            raise TokenRejectedError(
                "it is not signed with a key pair: its alg must be one of " + ", ".join(ALGORITHMS)
            )
        key_id = header.get("kid")
        keys = (await self._source.keys(key_id)).keys
        matching = [key for key in keys if key_id is None or key.key_id == key_id]
        if len(matching) != 1:
            raise TokenRejectedError("its kid is not the id of a key in the JWKS")
        try:
            claims = jwt.decode(
                token,
                matching[0],
                algorithms=ALGORITHMS,
                audience=self._rules.audience,
                issuer=self._rules.issuer or None,
                leeway=LEEWAY_S,
                options={"require": ["exp", "aud", "sub"]},
            )
        except jwt.InvalidTokenError as error:
            raise TokenRejectedError(_why(error)) from None
        groups = claims.get(self._rules.groups_claim, ())
        if not isinstance(groups, list | tuple):
            groups = str(groups).split()
        return TokenUser(claims["sub"], tuple(str(group) for group in groups))


def _why(error: jwt.InvalidTokenError) -> str:
    reasons: list[tuple[type[jwt.InvalidTokenError], str]] = [
        (jwt.ExpiredSignatureError, "it has expired"),
        (jwt.ImmatureSignatureError, "it is not valid yet"),
        (jwt.InvalidAudienceError, "it is for another audience"),
        (jwt.InvalidIssuerError, "it is from another issuer"),
        (jwt.MissingRequiredClaimError, "it lacks one of exp, aud, sub"),
        (jwt.InvalidSignatureError, "its signature is invalid"),
    ]
    for kind, text in reasons:
        if isinstance(error, kind):
            return text
    return "it cannot be verified"


def _read_keys(path: str) -> jwt.PyJWKSet:
    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123 - paths are strings here
            return _parse_keys(path, file.read())
    except (OSError, UnicodeDecodeError) as error:
        raise _unusable(f"{path} cannot be read: {getattr(error, 'strerror', error)}") from None


def _parse_keys(place: str, text: str) -> jwt.PyJWKSet:
    try:
        return jwt.PyJWKSet.from_dict(json.loads(text))
    except (ValueError, TypeError, AttributeError, jwt.PyJWTError):
        raise _unusable(f"{place} is not a JWKS with a usable key") from None


def _get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=FETCH_TIMEOUT_S) as response:
        data: bytes = response.read(KEYS_MAX_BYTES)
    return data.decode()


def _unusable(text: str) -> InvalidArgumentError:
    return InvalidArgumentError(Reason.INVALID_CONFIG, text)
