"""Makes sessions of requests connect to checked addresses only, without proxies."""

import os
from typing import Any

from requests import PreparedRequest, Response, Session
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import NameResolutionError, NewConnectionError

from drover.policy.egress import AllowedHosts, ForbiddenHostError
from drover.policy.foreign_errors import shown_url

#: The maximum size of an unpacked response.
RESPONSE_MAX_BYTES = 64 * 1024 * 1024
_PART_BYTES = 64 * 1024
_CA_VARIABLES = ("CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE")


class _Checked:
    """Connects to the checked addresses of a host; TLS still verifies the host's name."""

    _dns_host: str
    port: int

    def _new_conn(self) -> Any:
        host = self._dns_host
        try:
            addresses = AllowedHosts.of_worker().addresses(host, self.port)
        except ForbiddenHostError:
            raise
        except OSError as error:
            raise NameResolutionError(host, self, error) from error  # type: ignore[arg-type]
        try:
            for each in addresses[:-1]:
                self._dns_host = each
                try:
                    return super()._new_conn()  # type: ignore[misc]
                except NewConnectionError:
                    continue
            self._dns_host = addresses[-1]
            return super()._new_conn()  # type: ignore[misc]
        finally:
            self._dns_host = host


class _CheckedHttp(_Checked, HTTPConnection):
    pass


class _CheckedHttps(_Checked, HTTPSConnection):
    pass


class _HttpPool(HTTPConnectionPool):
    ConnectionCls = _CheckedHttp


class _HttpsPool(HTTPSConnectionPool):
    ConnectionCls = _CheckedHttps


def restrict_session(session: Session) -> None:
    """Restrict a session and its adapters, including adapters that sign requests.

    Redirects to another host are rejected, because its headers and body have credentials. A
    rejected host is the cause of the session's error (``egress.forbidden_host``). A response of
    more than ``RESPONSE_MAX_BYTES``, unpacked, is a ConnectionError.
    """
    session.trust_env = False
    for name in _CA_VARIABLES:  # the session reads them only with trust_env
        session.verify = os.environ.get(name) or session.verify

    def same_host(prepared_request: PreparedRequest, response: Response) -> None:
        target = prepared_request.url or ""
        if session.should_strip_auth(response.request.url or "", target):
            raise ForbiddenHostError(
                f"the server redirects to another host ({shown_url(target)}): name the final "
                "address"
            )

    session.rebuild_auth = same_host  # type: ignore[method-assign]
    if _read_bounded not in session.hooks["response"]:
        session.hooks["response"].append(_read_bounded)
    for each in session.adapters.values():
        each.poolmanager.pool_classes_by_scheme = {  # type: ignore[attr-defined]
            "http": _HttpPool,
            "https": _HttpsPool,
        }


def _read_bounded(response: Response, *_more: Any, **_options: Any) -> None:
    """Read the body before the session does, which has no limit."""
    body = bytearray()
    for part in response.iter_content(_PART_BYTES):
        body += part
        if len(body) > RESPONSE_MAX_BYTES:
            response.close()
            raise ConnectionError(f"the response has more than {RESPONSE_MAX_BYTES} bytes")
    response._content, response._content_consumed = bytes(body), True
