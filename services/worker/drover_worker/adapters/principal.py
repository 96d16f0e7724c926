"""Who asks for a change, as gRPC's metadata and the caller's address tell."""

from collections.abc import Iterable
from typing import Protocol
from urllib.parse import unquote

from drover.rpc import AUTHOR_KEY
from drover_worker.admin.call import Principal

PRINCIPAL_MAX_CHARS = 128


class CallOrigin(Protocol):
    """What gRPC's context tells of where a call comes from."""

    def invocation_metadata(self) -> Iterable[tuple[str, str | bytes]] | None:
        """The call's metadata."""

    def peer(self) -> str:
        """The caller's address, in gRPC's form."""


def principal_of(origin: CallOrigin) -> Principal:
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


def _printable(text: str) -> str:
    return "".join(char for char in text.strip() if char.isprintable())[:PRINCIPAL_MAX_CHARS]
