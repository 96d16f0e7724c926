"""Requests to the issuer: bounded in time, size and number, to allowed hosts, without proxies.

The URLs come from a setting and from the issuer's metadata document, so each is checked. Redirects
are errors, because they could lead a code or a secret to another host.
"""

import asyncio
import http.client
import json
import re
import ssl
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import urlencode, urlsplit

from drover.policy.bounded_http import BoundedConnection
from drover.policy.egress import AllowedHosts, ForbiddenHostError, plain_host_of
from drover.policy.foreign_errors import connection_text, response_text, shown_url
from drover.security.hosts import is_loopback_host
from drover.security.own_thread import in_own_thread

#: The time limit of a request, from the connection to the last byte.
REQUEST_MAX_S = 10.0
#: The size limit of a response.
RESPONSE_MAX_BYTES = 1024 * 1024
#: The maximum number of requests in progress, and of requests that wait for a place.
REQUESTS_MAX = 8
WAITING_MAX = 64
_PART_BYTES = 64 * 1024
_URL = re.compile(r"https?://[!-~]+")
_T = TypeVar("_T")


class IssuerUnavailableError(OSError):
    """The issuer gave no usable response; the message has the cause, and nothing that it sent."""


def url_fault(url: str) -> str:
    """Why a URL of an issuer is not accepted; empty if it is."""
    if not _URL.fullmatch(url):
        return "must be a URL such as https://id.example.com/realms/main"
    try:
        host, _ = plain_host_of(url)
    except ValueError as error:
        return str(error)
    parts = urlsplit(url)
    if parts.scheme == "http" and not is_loopback_host(host):
        return "must be an https URL, because secrets are sent to it; http is for loopback only"
    return "must have no fragment" if parts.fragment else ""


class IssuerHttp:
    """Sends requests, each in a thread with a connection.

    Args:
        ca_file: A PEM file with the authorities to trust; empty for the authorities of the system.
        allowed: The hosts that may be called; by default the hosts of ``DROVER_ALLOWED_HOSTS``.

    Raises:
        OSError: The file of the authorities cannot be read.
    """

    def __init__(self, ca_file: str = "", allowed: AllowedHosts | None = None) -> None:
        self._tls = ssl.create_default_context(cafile=ca_file or None)
        self._allowed = allowed or AllowedHosts.of_worker()
        self._places = asyncio.Semaphore(REQUESTS_MAX)
        self._waiting_count = 0

    async def get_json(self, url: str) -> Any:
        """The JSON document at a URL.

        Raises:
            IssuerUnavailableError: There is no such document, or no complete response.
        """
        return await self._in_place(lambda: _json(url, self.get_text(url)))

    async def post_form(
        self, url: str, fields: Mapping[str, str], headers: Mapping[str, str]
    ) -> tuple[int, Any]:
        """Send a form; returns the status and the JSON document of the response.

        Raises:
            IssuerUnavailableError: There is no complete response, or it is not JSON.
        """
        body = urlencode(fields).encode()
        form = {"content-type": "application/x-www-form-urlencoded", **headers}

        def send() -> tuple[int, Any]:
            status, text = self._exchange("POST", url, form, body)
            return status, _json(url, text)

        return await self._in_place(send)

    def get_text(self, url: str) -> str:
        """The document at a URL; blocks.

        Raises:
            IssuerUnavailableError: There is no such document, or no complete response.
        """
        status, text = self._exchange("GET", url, {}, None)
        if status != HTTPStatus.OK:
            raise IssuerUnavailableError(f"GET {shown_url(url)} returned the status {status}")
        return text

    async def _in_place(self, function: Callable[[], _T]) -> _T:
        if self._waiting_count >= WAITING_MAX:
            raise IssuerUnavailableError("too many sign-ins wait for the issuer: retry later")
        self._waiting_count += 1
        try:
            await self._places.acquire()
        finally:
            self._waiting_count -= 1
        # the place is free when the thread has ended, also if no request waits for it
        return await in_own_thread(function, "issuer", self._places.release)

    def _exchange(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None
    ) -> tuple[int, str]:
        what = f"{method} {shown_url(url)}"
        if fault := url_fault(url):
            raise IssuerUnavailableError(f"{what}: the URL {fault}")
        host, port = plain_host_of(url)
        tls = self._tls if url.startswith("https:") else None
        connection = BoundedConnection(host, port, self._allowed, tls)
        try:
            with connection.closed_after(REQUEST_MAX_S):
                return self._exchanged(connection, what, method, url, headers, body)
        except IssuerUnavailableError:
            raise
        except ForbiddenHostError as error:
            raise IssuerUnavailableError(f"{what}: {error}") from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            why = connection_text(error)
            if connection.aborted:
                why = f"no complete response within {REQUEST_MAX_S:g} s"
            raise IssuerUnavailableError(f"{what}: {why}") from None

    @staticmethod
    def _exchanged(
        connection: BoundedConnection,
        what: str,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes | None,
    ) -> tuple[int, str]:
        parts = urlsplit(url)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        sent = {
            "accept": "application/json",
            "accept-encoding": "identity",
            "connection": "close",
            "user-agent": "drover",
            **headers,
        }
        connection.request(method, target, body=body, headers=sent)
        with connection.getresponse() as response:
            if response.status in range(300, 400):
                raise IssuerUnavailableError(
                    f"{what} is redirected, which is not followed: set the final address"
                )
            if response.headers.get("content-encoding", "identity").lower() != "identity":
                raise IssuerUnavailableError(f"{what}: the response is compressed")
            data = bytearray()
            while part := response.read1(_PART_BYTES):
                data += part
                if len(data) > RESPONSE_MAX_BYTES:
                    raise IssuerUnavailableError(
                        f"{what}: the response has more than {RESPONSE_MAX_BYTES} bytes"
                    )
            if response.length:
                raise http.client.IncompleteRead(b"", response.length)
            media_type = response.headers.get("content-type", "")
        if response.status >= 500 or response.status == HTTPStatus.TOO_MANY_REQUESTS:
            shown = response_text(response.status, media_type, len(data))
            raise IssuerUnavailableError(f"{what} returned {shown}")
        return response.status, data.decode("utf-8")


def _json(url: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise IssuerUnavailableError(f"the response of {shown_url(url)} is not JSON") from None
