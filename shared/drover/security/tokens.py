"""Verifies JSON Web Tokens with the keys of a JWKS."""

import asyncio
import http.client
import json
import socket
import threading
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any, Protocol
from urllib.parse import urlsplit

import jwt
import structlog

from drover.errors import InvalidArgumentError, Reason
from drover.security.hosts import is_loopback_host
from drover.security.own_thread import in_own_thread
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
#: The time limit of a fetch.
FETCH_TIMEOUT_S = 5.0
#: The maximum time that a call with an unknown key waits for a fetch, and how many calls wait.
WAIT_MAX_S = 3.0
WAITING_MAX = 100
KEYS_MAX_BYTES = 1024 * 1024

_log = structlog.get_logger("drover.security")


class TokenRejectedError(Exception):
    """A token is rejected; the message has the reason and no part of the token."""


class KeysUnavailableError(Exception):
    """The keys that verify a token cannot be fetched now; the call may be retried."""


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
            KeysUnavailableError: The key is unknown, and the keys cannot be fetched now.
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
    """Keys at a URL, fetched at the first use, when they are too old, and for an unknown key id.

    They are fetched in the background, at most once per ``KEYS_MIN_AGE_S``. Only calls whose key is
    unknown wait for it.

    Args:
        url: The URL.
        get: Reads it within a time limit; raises OSError, ValueError or HTTPException.
    """

    def __init__(self, url: str, get: Callable[[str], str] | None = None) -> None:
        self._url = url
        self._get = get or _get
        self._keys: jwt.PyJWKSet | None = None
        self._fetched_s = -KEYS_MAX_AGE_S
        self._tried_s = -KEYS_MAX_AGE_S
        self._fetching: asyncio.Task[None] | None = None
        self._thread_is_running = False
        self._waiting_count = 0

    async def keys(self, key_id: str | None) -> jwt.PyJWKSet:
        """See ``KeySource``; if fetching fails, the previous keys stay."""
        has_key = self._has(key_id)
        if not has_key or time.monotonic() - self._fetched_s >= KEYS_MAX_AGE_S:
            self._start_fetching()
        if not has_key:
            await self._wait()
            has_key = self._has(key_id)
        if self._keys is None or (not has_key and self._fetched_s < self._tried_s):
            raise KeysUnavailableError
        return self._keys

    def _has(self, key_id: str | None) -> bool:
        keys = self._keys.keys if self._keys is not None else []
        return any(key_id is None or each.key_id == key_id for each in keys)

    def _start_fetching(self) -> None:
        now_s = time.monotonic()
        is_due = now_s - self._tried_s >= KEYS_MIN_AGE_S
        if is_due and self._fetching is None and not self._thread_is_running:
            self._tried_s = now_s
            self._fetching = asyncio.create_task(self._fetch())

    async def _wait(self) -> None:
        """Wait for the fetch that is running, if any, unless too many calls do."""
        if self._fetching is None or self._waiting_count >= WAITING_MAX:
            return
        self._waiting_count += 1
        try:
            await asyncio.wait([self._fetching], timeout=WAIT_MAX_S)
        finally:
            self._waiting_count -= 1

    async def _fetch(self) -> None:
        try:
            async with asyncio.timeout(FETCH_TIMEOUT_S):
                self._keys = await self._in_thread()
        except TimeoutError:
            self._warn(f"there was no complete answer within {FETCH_TIMEOUT_S:g} s")
        except (OSError, ValueError, HTTPException, InvalidArgumentError) as error:
            self._warn(str(error))
        else:
            self._fetched_s = time.monotonic()
        finally:
            self._fetching = None

    def _warn(self, why: str) -> None:
        _log.warning("the JWKS cannot be fetched", url=self._url, why=why)

    def _in_thread(self) -> "asyncio.Future[jwt.PyJWKSet]":
        def ended() -> None:
            self._thread_is_running = False

        def fetched() -> jwt.PyJWKSet:
            return _parse_keys(self._url, self._get(self._url))

        self._thread_is_running = True
        return in_own_thread(fetched, "jwks", ended)


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
            KeysUnavailableError: The token cannot be verified now.
        """
        claims = await self.claims(token)
        groups = claims.get(self._rules.groups_claim, ())
        if not isinstance(groups, list | tuple):
            groups = str(groups).split()
        return TokenUser(claims["sub"], tuple(str(group) for group in groups))

    async def claims(self, token: str) -> dict[str, Any]:
        """Verify a token; returns its claims.

        Raises:
            TokenRejectedError: The token is rejected.
            KeysUnavailableError: The token cannot be verified now.
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
            claims: dict[str, Any] = jwt.decode(
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
        return claims


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


class _SecureRedirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects to https only, so the keys cannot be replaced in transit."""

    def redirect_request(
        self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        """See the base class."""
        if urlsplit(newurl).scheme != "https":
            raise OSError("it redirects to a URL that is not https")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


class _Connections(urllib.request.HTTPHandler, urllib.request.HTTPSHandler):
    """Opens connections that ``end`` can end, as a socket's timeout counts for each part only."""

    def __init__(self) -> None:
        super().__init__()
        self._opened: list[http.client.HTTPConnection] = []

    def do_open(self, http_class: Any, req: Any, **arguments: Any) -> Any:
        """See the base class."""

        def opened(*given: Any, **more: Any) -> http.client.HTTPConnection:
            connection: http.client.HTTPConnection = http_class(*given, **more)
            self._opened.append(connection)
            return connection

        return super().do_open(opened, req, **arguments)

    def end(self) -> None:
        """End all connections; who reads from them finds their end."""
        for each in self._opened:
            with suppress(OSError):
                if each.sock is not None:
                    socket.socket.shutdown(each.sock, socket.SHUT_RDWR)


def _get(url: str) -> str:
    """The body of a response that is complete within FETCH_TIMEOUT_S; uses no proxies."""
    deadline_s = time.monotonic() + FETCH_TIMEOUT_S
    connections = _Connections()
    handlers = (urllib.request.ProxyHandler({}), _SecureRedirects(), connections)
    timer = threading.Timer(FETCH_TIMEOUT_S, connections.end)
    timer.daemon = True
    timer.start()
    data = bytearray()
    try:
        with urllib.request.build_opener(*handlers).open(url, timeout=FETCH_TIMEOUT_S) as response:
            # read1 returns what has arrived
            part = b"first"
            while part:
                part = response.read1(KEYS_MAX_BYTES + 1 - len(data))
                data += part
                if len(data) > KEYS_MAX_BYTES:
                    raise OSError(f"it has more than {KEYS_MAX_BYTES} bytes")
                if time.monotonic() >= deadline_s:
                    raise OSError(f"it is not complete after {FETCH_TIMEOUT_S:.0f} s")
    except HTTPException as error:
        raise OSError(f"the response is not HTTP, or incomplete: {type(error).__name__}") from None
    finally:
        timer.cancel()
    return data.decode()


def _unusable(text: str) -> InvalidArgumentError:
    return InvalidArgumentError(Reason.INVALID_CONFIG, text)
