"""JSON Web Tokens: signed by a key of a JWKS, for this cluster, and not expired."""

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

#: Signatures by a key pair: what verifies a token cannot make one.
ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"]
ALGORITHMS += ["ES256", "ES384", "ES512", "EdDSA"]
#: How far the clocks of those who issue and check tokens may be apart.
LEEWAY_S = 30.0
#: How long keys from a URL are used before they are asked for again.
KEYS_MAX_AGE_S = 300.0
#: An unknown key may be a new one, but is asked for no more often than this.
KEYS_MIN_AGE_S = 10.0
FETCH_TIMEOUT_S = 5.0
KEYS_MAX_BYTES = 1024 * 1024

_log = structlog.get_logger("drover.security")


class TokenRefusedError(Exception):
    """A token is not accepted; the message says why and holds nothing of it."""


@dataclass(frozen=True, slots=True)
class TokenRules:
    """What a token must be.

    Attributes:
        audience: One of its ``aud``.
        issuer: Its ``iss``; empty for any.
        groups_claim: The claim that lists the user's groups.
    """

    audience: str
    issuer: str = ""
    groups_claim: str = "groups"


@dataclass(frozen=True, slots=True)
class TokenUser:
    """Who a token is of."""

    subject: str
    groups: tuple[str, ...]


class KeySource(Protocol):
    """Where the keys come from."""

    async def keys(self, key_id: str | None) -> jwt.PyJWKSet:
        """The keys, read again if that may bring the one of this id; TokenRefusedError if none."""


class KeyFile:
    """Keys in a file, which may change at any time."""

    def __init__(self, path: str) -> None:
        self._keys = Renewed("JWKS", [path], lambda: _read_keys(path))

    async def keys(self, key_id: str | None) -> jwt.PyJWKSet:
        """The keys."""
        del key_id
        return self._keys.present()


class KeyUrl:
    """Keys behind a URL, asked for when they are first needed, grown old, or miss one."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._keys: jwt.PyJWKSet | None = None
        self._fetched_s = -KEYS_MAX_AGE_S
        self._tried_s = -KEYS_MIN_AGE_S
        self._lock = asyncio.Lock()

    async def keys(self, key_id: str | None) -> jwt.PyJWKSet:
        """The keys; those before while there are no new ones."""
        async with self._lock:
            now_s = time.monotonic()
            known = self._keys is not None and any(k.key_id == key_id for k in self._keys.keys)
            wanted = not known or now_s - self._fetched_s >= KEYS_MAX_AGE_S
            if wanted and now_s - self._tried_s >= KEYS_MIN_AGE_S:
                self._tried_s = now_s
                await self._fetch()
            if self._keys is None:
                raise TokenRefusedError("the keys that tokens are checked by cannot be fetched now")
            return self._keys

    async def _fetch(self) -> None:
        try:
            self._keys = _parse_keys(self._url, await asyncio.to_thread(_get, self._url))
        except (OSError, ValueError, InvalidArgumentError) as error:
            _log.warning("the JWKS cannot be fetched", url=self._url, why=str(error))
        else:
            self._fetched_s = time.monotonic()


def key_source(place: str) -> KeySource:
    """The keys in a file or behind a URL.

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
    raise _unusable(f"{place} must be https: who changes the keys on the way makes tokens")


class TokenVerifier:
    """Tells who a token is of."""

    def __init__(self, source: KeySource, rules: TokenRules) -> None:
        self._source = source
        self._rules = rules

    async def user(self, token: str) -> TokenUser:
        """Check a token.

        Raises:
            TokenRefusedError: It is not accepted.
        """
        try:
            header = jwt.get_unverified_header(token)
        except jwt.InvalidTokenError:
            raise TokenRefusedError("it is no JSON Web Token") from None
        if header.get("alg") not in ALGORITHMS:
            raise TokenRefusedError("it is not signed by a key pair (its alg is none of those)")
        key_id = header.get("kid")
        keys = (await self._source.keys(key_id)).keys
        found = [key for key in keys if key_id is None or key.key_id == key_id]
        if len(found) != 1:
            raise TokenRefusedError("its kid names no key of the JWKS")
        try:
            claims = jwt.decode(
                token,
                found[0],
                algorithms=ALGORITHMS,
                audience=self._rules.audience,
                issuer=self._rules.issuer or None,
                leeway=LEEWAY_S,
                options={"require": ["exp", "aud", "sub"]},
            )
        except jwt.InvalidTokenError as error:
            raise TokenRefusedError(_why(error)) from None
        groups = claims.get(self._rules.groups_claim, ())
        if not isinstance(groups, list | tuple):
            groups = str(groups).split()
        return TokenUser(claims["sub"], tuple(str(group) for group in groups))


def _why(error: jwt.InvalidTokenError) -> str:
    reasons: list[tuple[type[jwt.InvalidTokenError], str]] = [
        (jwt.ExpiredSignatureError, "it has expired"),
        (jwt.ImmatureSignatureError, "it is not valid yet"),
        (jwt.InvalidAudienceError, "it is for another audience"),
        (jwt.InvalidIssuerError, "it is of another issuer"),
        (jwt.MissingRequiredClaimError, "it lacks one of exp, aud, sub"),
        (jwt.InvalidSignatureError, "its signature is wrong"),
    ]
    for kind, text in reasons:
        if isinstance(error, kind):
            return text
    return "it cannot be verified"


def _read_keys(path: str) -> jwt.PyJWKSet:
    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123 - as the other files are named
            return _parse_keys(path, file.read())
    except (OSError, UnicodeDecodeError) as error:
        raise _unusable(f"{path} cannot be read: {getattr(error, 'strerror', error)}") from None


def _parse_keys(place: str, text: str) -> jwt.PyJWKSet:
    try:
        return jwt.PyJWKSet.from_dict(json.loads(text))
    except (ValueError, TypeError, AttributeError, jwt.PyJWTError):
        raise _unusable(f"{place} is no JWKS with a key that can be used") from None


def _get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=FETCH_TIMEOUT_S) as answer:
        data: bytes = answer.read(KEYS_MAX_BYTES)
    return data.decode()


def _unusable(text: str) -> InvalidArgumentError:
    return InvalidArgumentError(Reason.INVALID_CONFIG, text)
