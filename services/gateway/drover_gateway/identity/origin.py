"""Which web pages may send requests: the Host and Origin headers.

Without an access file every local process may call the workers. A web page in a browser on the same
machine must not be able to: a page of another site can send requests to a loopback address, and by
DNS rebinding under its own host name.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

#: As in the Host header.
LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "[::1]")
ANY = "*"
_READS = ("GET", "HEAD", "OPTIONS")
_FOREIGN_SITES = (b"cross-site", b"same-site")
_PORT = re.compile(r":\d*$")


@dataclass(frozen=True, slots=True)
class OriginRules:
    """The accepted values of the Host and Origin headers.

    Attributes:
        hosts: Hosts in lower case, with or without a port; ``*`` for all.
        origins: The origins whose pages may read responses; ``*`` for all.
    """

    hosts: frozenset[str]
    origins: Sequence[str] = ()

    def host_fault(self, headers: Iterable[tuple[bytes, bytes]]) -> str:
        """Why the Host header is not accepted; empty if it is."""
        if ANY in self.hosts:
            return ""
        values = [value for name, value in headers if name == b"host"]
        if len(values) != 1:
            return "the request needs one Host header"
        host = values[0].decode("latin-1").strip().lower()
        if host in self.hosts or _PORT.sub("", host) in self.hosts:
            return ""
        return (
            f"the gateway is not {host[:100]!r}: an administrator can add this host to"
            " DROVER_GATEWAY_HOSTS"
        )

    def origin_fault(self, method: str, headers: Iterable[tuple[bytes, bytes]]) -> str:
        """Why a request that changes something is not accepted from its page; empty if it is."""
        if method in _READS:
            return ""
        found = _by_name(headers)
        origin = found.get(b"origin")
        if origin is not None and self._is_own(origin, found.get(b"host", b"")):
            return ""
        if origin is not None and self.allows(origin):
            return ""
        if origin is None and found.get(b"sec-fetch-site") not in _FOREIGN_SITES:
            return ""
        return (
            "a page of another site may not change anything here: an administrator can add its"
            " origin to DROVER_GATEWAY_ALLOW_ORIGINS"
        )

    def allows(self, origin: bytes) -> bool:
        """Whether pages of this origin may read responses."""
        text = origin.decode("latin-1").strip()
        return any(each in (ANY, text) for each in self.origins)

    def _is_own(self, origin: bytes, host: bytes) -> bool:
        """Whether a page that the gateway itself serves at this host sent the request."""
        scheme, _, of_page = origin.decode("latin-1").strip().lower().partition("://")
        return scheme in ("http", "https") and of_page == host.decode("latin-1").strip().lower()


def _by_name(headers: Iterable[tuple[bytes, bytes]]) -> Mapping[bytes, bytes]:
    return dict(headers)
