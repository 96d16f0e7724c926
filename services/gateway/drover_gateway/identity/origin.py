"""Which web pages may send requests: the Host and Origin headers.

Without an access file every local process may call the workers. A web page in a browser on the same
machine must not be able to: a page of another site can send requests to a loopback address, and by
DNS rebinding under its own host name.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

#: As in the Host header.
LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "[::1]")
ANY = "*"
_READS = ("GET", "HEAD", "OPTIONS")
_FOREIGN_SITES = frozenset({b"cross-site", b"same-site"})
_PORT = re.compile(r":\d*$")
_HOST = re.compile(rb"[A-Za-z0-9._~%!$&'()*+;=:\[\]-]+")


@dataclass(frozen=True, slots=True)
class HostFault:
    """A Host header that is not accepted: the status and the text of the response."""

    status: int
    text: str


@dataclass(frozen=True, slots=True)
class OriginRules:
    """The accepted values of the Host and Origin headers.

    Attributes:
        hosts: Hosts in lower case, with or without a port; ``*`` for all.
        origins: The origins whose pages may read responses; ``*`` for all.
    """

    hosts: frozenset[str]
    origins: Sequence[str] = ()

    def host_fault(
        self, headers: Iterable[tuple[bytes, bytes]], server: str = ""
    ) -> HostFault | None:
        """Why the Host header is not accepted; None if it is.

        Args:
            headers: The headers, with names in lower case.
            server: The address at which the connection arrived. It is accepted as well: DNS
                rebinding needs a name.
        """
        values = [value.strip() for name, value in headers if name == b"host"]
        if len(values) != 1 or not _HOST.fullmatch(values[0]):
            return HostFault(400, "the request needs one valid Host header")
        host = values[0].decode("ascii").lower()
        plain = _PORT.sub("", host)
        if ANY in self.hosts or host in self.hosts or plain in self.hosts:
            return None
        if server and plain in (server, f"[{server}]"):
            return None
        return HostFault(
            421,
            f"the gateway is not {host[:100]!r}: an administrator can add this host to"
            " DROVER_GATEWAY_HOSTS",
        )

    def origin_fault(self, method: str, headers: Iterable[tuple[bytes, bytes]]) -> str:
        """Why a request that changes something is not accepted from its page; empty if it is."""
        if method in _READS:
            return ""
        found: dict[bytes, list[bytes]] = {}
        for name, value in headers:
            found.setdefault(name, []).append(value)
        origins, hosts = found.get(b"origin", []), found.get(b"host", [b""])
        if len(origins) == 1 and (self._is_own(origins[0], hosts[0]) or self.allows(origins[0])):
            return ""
        if not origins and not set(found.get(b"sec-fetch-site", ())) & _FOREIGN_SITES:
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
