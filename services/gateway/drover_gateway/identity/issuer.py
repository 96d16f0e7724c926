"""The issuer of tokens: its metadata document (OpenID Connect Discovery 1.0) and its keys."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from drover.security.tokens import KeyUrl, TokenRules, TokenVerifier
from drover_gateway.identity.issuer_http import IssuerHttp, IssuerUnavailableError, url_fault

#: The age at which the document is fetched again.
MAX_AGE_S = 3600.0
#: Before a browser is sent to the issuer, the issuer has answered within this time.
ANSWERED_WITHIN_S = 60.0
#: The minimum interval between two fetches.
MIN_INTERVAL_S = 10.0
_ENDPOINTS = ("authorization_endpoint", "token_endpoint", "jwks_uri")

_log = structlog.get_logger("drover.gateway")


@dataclass(frozen=True, slots=True)
class Metadata:
    """The document of an issuer.

    Attributes:
        issuer: Its name, as in the claim ``iss``.
        authorization_endpoint: Where users sign in.
        token_endpoint: Where a code is exchanged for tokens.
        jwks_uri: Its keys.
        end_session_endpoint: Where users sign out; empty if it has none.
        sends_iss: Whether each of its redirects names it, in the parameter ``iss`` (RFC 9207).
        client_methods: How clients prove who they are to the token endpoint.
    """

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    end_session_endpoint: str = ""
    sends_iss: bool = False
    client_methods: tuple[str, ...] = ("client_secret_basic",)


def document_url(issuer: str) -> str:
    """Where the document of an issuer is."""
    return f"{issuer.rstrip('/')}/.well-known/openid-configuration"


def metadata_of(document: Any, issuer: str) -> Metadata:
    """The metadata in a document.

    Raises:
        ValueError: It is not usable; the message has the reason.
    """
    if not isinstance(document, Mapping):
        raise ValueError("it is not a JSON object")
    if document.get("issuer") != issuer:
        raise ValueError(
            f"its issuer is {str(document.get('issuer'))[:200]!r}, not {issuer!r}: both must be"
            " equal, with or without a slash at the end"
        )
    found = {}
    for name in (*_ENDPOINTS, "end_session_endpoint"):
        url = document.get(name, "")
        if not url and name not in _ENDPOINTS:
            continue
        if not isinstance(url, str) or not url:
            raise ValueError(f"it has no {name}")
        fault = url_fault(url)
        if not fault and url.startswith("http:") and issuer.startswith("https:"):
            fault = "must be an https URL"
        if fault:
            raise ValueError(f"its {name} {fault}")
        found[name] = url
    methods = document.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
    return Metadata(
        issuer=issuer,
        sends_iss=document.get("authorization_response_iss_parameter_supported") is True,
        client_methods=tuple(str(each) for each in methods) if isinstance(methods, list) else (),
        **found,
    )


class Issuer:
    """An issuer, whose document and keys are fetched when they are needed.

    Args:
        name: Its name, an https URL.
        client_id: The audience of its ID tokens.
        http: Sends the requests.
    """

    def __init__(self, name: str, client_id: str, http: IssuerHttp) -> None:
        self.name = name
        self._client_id = client_id
        self._http = http
        self._metadata: Metadata | None = None
        self._verifier: TokenVerifier | None = None
        self._fetching: asyncio.Task[None] | None = None
        self._tried_s = self._answered_s = float("-inf")
        self._failure = ""

    async def metadata(self) -> Metadata:
        """The document; an old one if the issuer does not answer now.

        Raises:
            IssuerUnavailableError: It has never been read.
        """
        if time.monotonic() - self._answered_s >= MAX_AGE_S:
            self._start_fetching()
        if self._metadata is None:
            await self._fetched()
        if self._metadata is None:
            raise IssuerUnavailableError(self._failure)
        return self._metadata

    async def answering(self) -> Metadata:
        """The document of an issuer that answers now.

        Raises:
            IssuerUnavailableError: It does not.
        """
        if time.monotonic() - self._answered_s >= ANSWERED_WITHIN_S:
            self._start_fetching()
            await self._fetched()
        if self._metadata is None or self._answered_s < self._tried_s:
            raise IssuerUnavailableError(self._failure)
        return self._metadata

    async def verifier(self) -> TokenVerifier:
        """Verifies ID tokens.

        Raises:
            IssuerUnavailableError: The document has never been read.
        """
        await self.metadata()
        assert self._verifier is not None
        return self._verifier

    def _start_fetching(self) -> None:
        now_s = time.monotonic()
        if self._fetching is None and now_s - self._tried_s >= MIN_INTERVAL_S:
            self._tried_s = now_s
            self._fetching = asyncio.create_task(self._fetch(), name="issuer")

    async def _fetched(self) -> None:
        if self._fetching is not None:
            await asyncio.wait([self._fetching])

    async def _fetch(self) -> None:
        try:
            document = await self._http.get_json(document_url(self.name))
            found = metadata_of(document, self.name)
        except (IssuerUnavailableError, ValueError) as error:
            self._failure = str(error)
            if not isinstance(error, IssuerUnavailableError):
                self._failure = f"the document of the issuer cannot be used: {error}"
            _log.warning("the issuer is not available", issuer=self.name, why=self._failure)
        else:
            if self._metadata is None or self._metadata.jwks_uri != found.jwks_uri:
                rules = TokenRules(self._client_id, issuer=self.name)
                self._verifier = TokenVerifier(KeyUrl(found.jwks_uri, self._http.get_text), rules)
            self._metadata = found
            self._answered_s = time.monotonic()
        finally:
            self._fetching = None
