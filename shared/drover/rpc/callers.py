"""Identifies callers by token or certificate, or by an unverified name."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Protocol
from urllib.parse import unquote

from drover.errors import Reason, UnauthenticatedError, UnavailableError
from drover.rpc import AUTHOR_KEY, TOKEN_KEY
from drover.security.certificates import Certificate, is_issued_by
from drover.security.grants import Grants
from drover.security.principal import PRINCIPAL_MAX_CHARS, Principal
from drover.security.renewed import Renewed
from drover.security.tokens import KeysUnavailableError, TokenRejectedError, TokenVerifier

_SCHEME = "bearer "
#: The kinds of a certificate's names, by their prefix in the access file.
_KINDS = {
    "cn": "x509_common_name",
    "dns": "peer_dns",
    "email": "peer_email",
    "ip": "peer_ip",
    "uri": "peer_uri",
}


class CallOrigin(Protocol):
    """The part of gRPC's context with the metadata and the address of the caller."""

    def invocation_metadata(self) -> Iterable[tuple[str, str | bytes]] | None:
        """The call's metadata."""

    def peer(self) -> str:
        """The caller's address, in gRPC's form."""


class Caller(CallOrigin, Protocol):
    """The part of gRPC's context that identifies the caller."""

    def auth_context(self) -> Mapping[str, Iterable[bytes]]:
        """The caller's TLS identity."""


class Callers:
    """Identifies callers by their tokens and certificates.

    Args:
        grants: The contents of the access file.
        verifier: Verifies JSON Web Tokens; None if they are not accepted.
        own: The process's certificate, with the authorities of services and of users; None if there
            is one authority for both.
    """

    def __init__(
        self,
        grants: Renewed[Grants],
        verifier: TokenVerifier | None = None,
        own: Renewed[Certificate] | None = None,
    ) -> None:
        self._grants = grants
        self._verifier = verifier
        self._own = own

    async def identify(self, context: Caller) -> Principal:
        """The caller's principal; a token takes precedence over a certificate.

        Raises:
            UnauthenticatedError: MISSING_CREDENTIALS, INVALID_CREDENTIALS.
            UnavailableError: SERVICE_UNREACHABLE: the keys of tokens cannot be fetched now.
        """
        principal = await self._find(context)
        return replace(principal, name=_printable(principal.name))

    async def _find(self, context: Caller) -> Principal:
        token = _token_of(context)
        if token:
            return await self._of_token(token)
        names = _certificate_names(context)
        if not names:
            raise UnauthenticatedError(
                Reason.MISSING_CREDENTIALS,
                "the call has no credentials: send a token (authorization: Bearer ...) or use a"
                " client certificate",
            )
        grants = self._grants.present()
        of_user = self._is_of_user(context)
        return grants.of_certificate(names, of_user=of_user) or Principal(names[0], ())

    def _is_of_user(self, context: Caller) -> bool:
        """Whether no authority of services has signed the caller's certificate."""
        own = None if self._own is None else self._own.present()
        if own is None or not own.client_ca_pem:
            return False
        pems = list(context.auth_context().get("x509_pem_cert", ()))
        return not (pems and is_issued_by(pems[0], own.ca_pem))

    async def _of_token(self, token: str) -> Principal:
        grants = self._grants.present()
        granted = grants.of_token(token)
        if granted is not None:
            return granted
        why = "it is not in the access file"
        if self._verifier is not None and token.count(".") == 2:
            try:
                user = await self._verifier.user(token)
                return grants.of_user(user.subject, user.groups)
            except TokenRejectedError as error:
                why = str(error)
            except KeysUnavailableError:
                raise UnavailableError(
                    Reason.SERVICE_UNREACHABLE,
                    "the token cannot be verified: the keys at DROVER_JWKS cannot be fetched now."
                    " Retry",
                ) from None
        raise UnauthenticatedError(Reason.INVALID_CREDENTIALS, f"the token is rejected: {why}")


def unverified_principal(origin: CallOrigin) -> Principal:
    """The author in the call's metadata, or the caller's address; neither is verified."""
    for key, value in origin.invocation_metadata() or ():
        if key == AUTHOR_KEY and isinstance(value, str) and value.strip():
            return Principal(_printable(value))
    return Principal(_printable(host_of(origin.peer())))


def host_of(peer: str) -> str:
    """The host of gRPC's ``ipv4:127.0.0.1:53112``, without the client's ephemeral port."""
    kind, _, address = unquote(peer).partition(":")
    if kind not in ("ipv4", "ipv6"):
        return unquote(peer)
    return address.rpartition(":")[0].strip("[]")


def _token_of(context: CallOrigin) -> str:
    for key, value in context.invocation_metadata() or ():
        if key == TOKEN_KEY and isinstance(value, str) and value.lower().startswith(_SCHEME):
            return value[len(_SCHEME) :].strip()
    return ""


def _certificate_names(context: Caller) -> list[str]:
    identity = context.auth_context()
    raw_names = [
        *identity.get("x509_subject_alternative_name", ()),
        *identity.get("x509_common_name", ()),
    ]
    names = [name.decode("utf-8", "replace") for name in raw_names]
    # a name that looks like one with a kind must not be taken for it
    plain = [name for name in names if name and name.partition(":")[0] not in _KINDS]
    of_kinds = [
        f"{kind}:{name.decode('utf-8', 'replace')}"
        for kind, key in _KINDS.items()
        for name in identity.get(key, ())
    ]
    return list(dict.fromkeys((*plain, *of_kinds)))


def _printable(text: str) -> str:
    return "".join(char for char in text.strip() if char.isprintable())[:PRINCIPAL_MAX_CHARS]
