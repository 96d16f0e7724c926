"""Who asks for a change, as far as it is said: for the history."""

from typing import Any
from urllib.parse import unquote

from drover.rpc import AUTHOR_KEY

AUTHOR_MAX_CHARS = 128


def author_of(context: Any) -> str:
    """What the caller says in its metadata, else the address that it calls from.

    Nobody vouches for either: it tells people whom to ask, it does not protect anything.
    """
    for key, value in context.invocation_metadata() or ():
        if key == AUTHOR_KEY and isinstance(value, str) and value.strip():
            return _shown(value)
    return _shown(_host(context.peer()))


def _host(peer: str) -> str:
    """The host of gRPC's ``ipv4:127.0.0.1:53112``; its port says nothing once the call is over."""
    kind, _, address = unquote(peer).partition(":")
    if kind not in ("ipv4", "ipv6"):
        return unquote(peer)
    return address.rpartition(":")[0].strip("[]")


def _shown(text: str) -> str:
    return "".join(char for char in text.strip() if char.isprintable())[:AUTHOR_MAX_CHARS]
