"""Makes authenticated HTTP requests to allowed hosts, and describes failures."""

import base64
import logging
import re
import ssl
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import httpx

from drover.connector import CredentialsRejectedError
from drover.connectors.http.settings import BASIC, OAUTH2, OWN_HEADER, HttpSettings
from drover.policy.checked_http import restrict_client
from drover.policy.egress import ForbiddenHostError
from drover.policy.foreign_errors import connection_text, response_text, shown_url

_REDIRECTS_MAX = 5
_RETRIED = frozenset({408, 425, 429})
#: Statuses about the server's load or upgrade, not about the request.
_BUSY = frozenset({408, 425, 429, 502, 503, 504})
_WAIT_MAX_S = 300.0
_GZIP = 16 + zlib.MAX_WBITS
#: A token is renewed this long before it expires.
_TOKEN_MARGIN_S = 30.0
_TOKEN_S = 300.0


# they log each request with its query and headers, which may contain secrets
for _name in ("httpx", "httpcore"):
    logging.getLogger(_name).setLevel(logging.WARNING)


class HttpError(Exception):
    """A request that failed permanently; the message has the remedy."""


class PassingHttpError(HttpError):
    """A request that may succeed later; ``wait_s`` is the delay that the server asks for. With
    ``is_busy`` the server rejects requests for the time being.
    """

    def __init__(self, message: str, wait_s: float | None = None, *, is_busy: bool = False) -> None:
        super().__init__(message)
        self.wait_s = wait_s
        self.is_busy = is_busy


class RefusedError(HttpError):
    """The server rejected the request: a status of 400 or above."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class UnauthorizedError(RefusedError, CredentialsRejectedError):
    """The server rejected the credentials, or a right is missing: the status 401, 403 or 407; or a
    token server refused a token.
    """


@dataclass(frozen=True, slots=True)
class Answer:
    """A server's response, and the URL that returned it."""

    url: str
    status: int
    headers: Mapping[str, str]
    body: bytes
    next_link: str | None = None


class HttpClient:
    """Sends requests of one task, one at a time.

    Credentials and the configured headers go only to the origin of ``home``.
    """

    def __init__(
        self, settings: HttpSettings, home: str, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._settings = settings
        self._home = _origin(httpx.URL(home))
        self._now_s = now_s
        self._token: tuple[str, float] | None = None
        self._client = httpx.Client(
            timeout=settings.timeout_s,
            trust_env=False,
            verify=ssl.create_default_context(),
            headers={"user-agent": "drover", "accept-encoding": "gzip, identity"},
        )
        restrict_client(self._client, settings.allowed)

    def close(self) -> None:
        """Close its connections."""
        self._client.close()

    def send(
        self,
        method: str,
        url: str,
        *,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        max_bytes: int = 64 * 1024 * 1024,
    ) -> Answer:
        """Send one request and follow its redirects.

        Raises:
            PassingHttpError: The request may succeed later.
            RefusedError: The server returned a status of 400 or above.
            HttpError: Any other failure, such as a host that is not allowed.
        """
        renewed = False
        while True:
            try:
                return self._followed(method, url, content, headers or {}, max_bytes)
            except RefusedError as error:
                # the token may have been revoked early
                if renewed or self._token is None or error.status != 401:
                    raise
                self._token, renewed = None, True

    def log_in(self) -> None:
        """Get an access token, if the settings ask for one; raises as ``send``."""
        if self._settings.authorization == OAUTH2:
            self._bearer()

    def _followed(
        self,
        method: str,
        url: str,
        content: bytes | None,
        headers: Mapping[str, str],
        max_bytes: int,
    ) -> Answer:
        target = httpx.URL(url)
        for _ in range(_REDIRECTS_MAX + 1):
            own = {**self._own_headers(target), **headers}
            if _origin(target) == self._home:
                own |= self._authorization()
            answer = self._once(method, str(target), content, own, max_bytes)
            location = answer.headers.get("location")
            if answer.status < 300:
                return answer
            if answer.status not in (301, 302, 303, 307, 308) or not location:
                raise HttpError(
                    f"{method} {shown_url(url)} answers {answer.status} without an address to "
                    "follow: check http.url"
                )
            if method not in ("GET", "HEAD") and answer.status not in (307, 308):
                raise HttpError(
                    f"{method} {shown_url(url)} is redirected with status {answer.status}: use "
                    f"{shown_url(str(target.join(location)))} instead"
                )
            target = target.join(location)
        raise HttpError(f"{method} {shown_url(url)} is redirected more than {_REDIRECTS_MAX} times")

    def _once(
        self,
        method: str,
        url: str,
        content: bytes | None,
        headers: Mapping[str, str],
        max_bytes: int,
    ) -> Answer:
        what = f"{method} {shown_url(url)}"
        try:
            with self._client.stream(method, url, content=content, headers=headers) as response:
                body = _body(what, response, max_bytes)
                link = response.links.get("next", {}).get("url")
                answer = Answer(
                    url,
                    response.status_code,
                    {name.lower(): value for name, value in response.headers.items()},
                    body,
                    str(response.url.join(link)) if link else None,
                )
        except ForbiddenHostError as error:
            raise HttpError(f"{what}: {error}") from error
        except httpx.TimeoutException as error:
            text = f"{what}: no response within {self._settings.timeout_s} s"
            raise PassingHttpError(text) from error
        except httpx.TransportError as error:
            text = f"{what}: {connection_text(error)}"
            kind = HttpError if "CERTIFICATE_VERIFY_FAILED" in text else PassingHttpError
            raise kind(text) from None  # the cause may have parts of the response
        except httpx.InvalidURL:
            raise HttpError(f"{what}: the URL is invalid") from None
        _raise_for(what, answer)
        return answer

    def _own_headers(self, target: httpx.URL) -> dict[str, str]:
        """The configured headers, which may have keys of the API."""
        return dict(self._settings.headers) if _origin(target) == self._home else {}

    def _authorization(self) -> dict[str, str]:
        settings = self._settings
        if settings.authorization == OWN_HEADER:
            return {"authorization": settings.header or ""}
        if settings.authorization == BASIC:
            return {"authorization": _basic(settings.user, settings.password)}
        if settings.authorization == OAUTH2:
            return {"authorization": f"Bearer {self._bearer()}"}
        return {}

    def _bearer(self) -> str:
        if self._token is not None and self._token[1] > self._now_s():
            return self._token[0]
        settings = self._settings
        form = {"grant_type": "client_credentials"}
        if settings.scope:
            form["scope"] = settings.scope
        headers = {"content-type": "application/x-www-form-urlencoded"}
        if settings.client_in_body:
            form |= {
                "client_id": settings.client_id or "",
                "client_secret": settings.client_secret or "",
            }
        else:
            headers["authorization"] = _basic(settings.client_id, settings.client_secret)
        url = settings.token_url or ""
        headers = {**self._own_headers(httpx.URL(url)), **headers}
        body = str(httpx.QueryParams(form)).encode()
        try:
            answer = self._once("POST", url, body, headers, 1024 * 1024)
            found: Any = httpx.Response(200, content=answer.body).json()
            token, seconds = str(found["access_token"]), float(found.get("expires_in", _TOKEN_S))
        except RefusedError as error:
            text = f"no access token: {error}: check oauth2.client.id and .secret"
            # RFC 6749: a token server answers 400 or 401 to credentials that it rejects
            rejected = error.status in (400, 401, 403, 407)
            raise (UnauthorizedError if rejected else HttpError)(text) from error
        except (ValueError, KeyError, TypeError) as error:
            raise HttpError(f"POST {shown_url(url)} returned no access_token") from error
        self._token = token, self._now_s() + max(0.0, seconds - _TOKEN_MARGIN_S)
        return token


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


def _body(what: str, response: httpx.Response, max_bytes: int) -> bytes:
    """The body, unpacked within the limit; the library would unpack each chunk as a whole."""
    encoding = response.headers.get("content-encoding", "").strip().lower()
    if encoding not in ("", "identity", "gzip", "x-gzip"):
        raise HttpError(f"{what}: the response is encoded other than by gzip, which was asked for")
    body = bytearray()
    unpacking = zlib.decompressobj(_GZIP) if encoding.endswith("gzip") else None
    try:
        for chunk in response.iter_raw():
            rest = chunk
            while rest:
                if unpacking is None:
                    body += rest
                    rest = b""
                else:
                    body += unpacking.decompress(rest, max_bytes + 1 - len(body))
                    rest = unpacking.unconsumed_tail or unpacking.unused_data
                    if unpacking.eof and rest:
                        unpacking = zlib.decompressobj(_GZIP)
                if len(body) > max_bytes:
                    raise HttpError(f"{what}: the response exceeds {max_bytes} bytes")
    except zlib.error:
        raise HttpError(f"{what}: the response is not compressed by gzip, as it claims") from None
    if body and unpacking is not None and not unpacking.eof:
        raise PassingHttpError(f"{what}: the compressed response is incomplete")
    return bytes(body)


def _raise_for(what: str, answer: Answer) -> None:
    status = answer.status
    if status < 400:
        return
    told = response_text(status, answer.headers.get("content-type"), len(answer.body))
    text = f"{what} answers {told}"
    if status in _RETRIED or status >= 500:
        wait_s = wait_of(answer.headers.get("retry-after"))
        raise PassingHttpError(text, wait_s, is_busy=status in _BUSY)
    if status not in (401, 403, 407):
        raise RefusedError(text, status)
    raise UnauthorizedError(f"{text} (check http.authorization.type and its settings)", status)


def wait_of(text: str | None, now: datetime | None = None) -> float | None:
    """The seconds to wait in a Retry-After header (RFC 9110), at most five minutes.

    None without one, or in another form than seconds or a date; a date without a zone is in UTC.
    """
    if text is None:
        return None
    if re.fullmatch(r"\d{1,300}(\.\d+)?", text.strip(), re.ASCII):
        return min(float(text), _WAIT_MAX_S)
    moment = _moment_of(text.strip())
    if moment is None:
        return None
    moment = moment.replace(tzinfo=moment.tzinfo or UTC)
    return min(max(0.0, (moment - (now or datetime.now(UTC))).total_seconds()), _WAIT_MAX_S)


def _moment_of(text: str) -> datetime | None:
    for parse in (parsedate_to_datetime, datetime.fromisoformat):
        try:
            return parse(text)
        except (ValueError, TypeError, IndexError, OverflowError):
            continue
    return None


def pause_s(settings: HttpSettings, attempt: int, wait_s: float | None) -> float:
    """How long to wait after attempt ``attempt`` (from 1)."""
    if wait_s is not None:
        return wait_s
    return min(float(settings.backoff_ms * 2 ** (attempt - 1)) / 1_000, _WAIT_MAX_S)


def _basic(user: str | None, password: str | None) -> str:
    text = f"{user or ''}:{password or ''}"
    return f"Basic {base64.b64encode(text.encode()).decode()}"
