"""Who calls: by token, by certificate, or as it says itself."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Protocol
from urllib.parse import unquote

from drover.errors import Reason, UnauthenticatedError
from drover.rpc import AUTHOR_KEY
from drover.security.grants import Grants
from drover.security.principal import Principal
from drover.security.renewed import Renewed
from drover.security.tokens import TokenRejectedError, TokenVerifier

PRINCIPAL_MAX_CHARS = 128
_TOKEN_KEY = "authorization"
_SCHEME = "bearer "


class CallOrigin(Protocol):
    """What gRPC's context tells of where a call comes from."""

    def invocation_metadata(self) -> Iterable[tuple[str, str | bytes]] | None:
        """The call's metadata."""

    def peer(self) -> str:
        """The caller's address, in gRPC's form."""


class Caller(CallOrigin, Protocol):
    """What gRPC's context tells of who calls."""

    def auth_context(self) -> Mapping[str, Iterable[bytes]]:
        """What TLS knows of the caller."""


class Callers:
    """Knows callers by their tokens and certificates.

    Args:
        grants: What the access file says.
        verifier: Checks JSON Web Tokens; None if none are accepted.
    """

    def __init__(self, grants: Renewed[Grants], verifier: TokenVerifier | None = None) -> None:
        self._grants = grants
        self._verifier = verifier

    async def identify(self, context: Caller) -> Principal:
        """Who calls; a token counts more than a certificate.

        Raises:
            UnauthenticatedError: MISSING_CREDENTIALS, INVALID_CREDENTIALS.
        """
        found = await self._find(context)
        return replace(found, name=_printable(found.name))

    async def _find(self, context: Caller) -> Principal:
        token = _token_of(context)
        if token:
            return await self._of_token(token)
        names = _certificate_names(context)
        if not names:
            raise UnauthenticatedError(
                Reason.MISSING_CREDENTIALS,
                "who calls is not known: send a token (authorization: Bearer ...) or show a"
                " client's certificate",
            )
        return self._grants.present().of_certificate(names) or Principal(names[0], ())

    async def _of_token(self, token: str) -> Principal:
        grants = self._grants.present()
        known = grants.of_token(token)
        if known is not None:
            return known
        why = "it is not in the access file"
        if self._verifier is not None and token.count(".") == 2:
            try:
                user = await self._verifier.user(token)
                return grants.of_user(user.subject, user.groups)
            except TokenRejectedError as error:
                why = str(error)
        raise UnauthenticatedError(Reason.INVALID_CREDENTIALS, f"the token is refused: {why}")


def said_principal(origin: CallOrigin) -> Principal:
    """Who the caller says it is in its metadata, else the address that it calls from."""
    for key, value in origin.invocation_metadata() or ():
        if key == AUTHOR_KEY and isinstance(value, str) and value.strip():
            return Principal(_printable(value))
    return Principal(_printable(_host(origin.peer())))


def _host(peer: str) -> str:
    """The host of gRPC's ``ipv4:127.0.0.1:53112``; its port says nothing once the call is over."""
    kind, _, address = unquote(peer).partition(":")
    if kind not in ("ipv4", "ipv6"):
        return unquote(peer)
    return address.rpartition(":")[0].strip("[]")


def _token_of(context: CallOrigin) -> str:
    for key, value in context.invocation_metadata() or ():
        if key == _TOKEN_KEY and isinstance(value, str) and value.lower().startswith(_SCHEME):
            return value[len(_SCHEME) :].strip()
    return ""


def _certificate_names(context: Caller) -> list[str]:
    shown = context.auth_context()
    found = [
        *shown.get("x509_subject_alternative_name", ()),
        *shown.get("x509_common_name", ()),
    ]
    names = [name.decode("utf-8", "replace") for name in found]
    return list(dict.fromkeys(name for name in names if name))


def _printable(text: str) -> str:
    return "".join(char for char in text.strip() if char.isprintable())[:PRINCIPAL_MAX_CHARS]
