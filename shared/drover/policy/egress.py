"""The hosts that connectors may call over HTTP. Standard library only.

Connectors run in the worker's network on behalf of every user who may create them, so the worker
restricts the hosts. The check applies to the resolved address, not to the name.
"""

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

#: The environment variable of workers with the allowed hosts, comma-separated.
HOSTS_VARIABLE = "DROVER_HTTP_ALLOWED_HOSTS"
#: Cloud metadata services, which return a machine's credentials, and link-local addresses.
_NEVER_BY_DEFAULT = tuple(
    ip_network(each)
    for each in (
        "169.254.0.0/16",
        "fe80::/10",
        "fd00:ec2::254/128",
        "100.100.100.200/32",
        "192.0.0.192/32",
    )
)

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


class ForbiddenHostError(PermissionError):
    """A host that connectors may not call."""


@dataclass(frozen=True, slots=True)
class AllowedHosts:
    """Hosts as ``name``, ``*.suffix``, ``name:port``, addresses and networks; picklable.

    None allows every host. Link-local addresses and cloud metadata services are allowed only if an
    address or network in the list names them.
    """

    patterns: tuple[str, ...] | None = None

    @classmethod
    def of_worker(cls, environment: Mapping[str, str] = os.environ) -> "AllowedHosts":
        """The allowed hosts in the worker's environment."""
        text = environment.get(HOSTS_VARIABLE)
        if text is None:
            return cls()
        return cls(tuple(each.strip().lower() for each in text.split(",") if each.strip()))

    def check(self, host: str, port: int, address: str) -> None:
        """Check a host that was resolved to ``address``.

        Raises:
            ForbiddenHostError: The host is not allowed.
        """
        found = _address(address)
        if found is not None and any(found in each for each in self._networks()):
            return
        if found is not None and any(found in each for each in _NEVER_BY_DEFAULT):
            raise ForbiddenHostError(
                f"{host} is {address}, which connectors must not call: name this address "
                f"in {HOSTS_VARIABLE} of the worker to allow it"
            )
        patterns = self.patterns
        if patterns is not None and not any(self._names(each, host, port) for each in patterns):
            raise ForbiddenHostError(
                f"{host}:{port} is not a host that connectors may call "
                f"({HOSTS_VARIABLE} of the worker: {', '.join(patterns) or 'none'})"
            )

    def addresses(self, host: str, port: int) -> Sequence[str]:
        """The addresses of a host, all of them allowed.

        Raises:
            ForbiddenHostError: One of them is not allowed.
            OSError: The host name cannot be resolved.
        """
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        addresses = list(dict.fromkeys(str(each[4][0]) for each in found))
        for each in addresses:
            self.check(host, port, each)
        return addresses

    def _networks(self) -> list[Network]:
        networks = []
        for each in self.patterns or ():
            try:
                networks.append(ip_network(each, strict=False))
            except ValueError:
                continue
        return networks

    @staticmethod
    def _names(pattern: str, host: str, port: int) -> bool:
        name, colon, wanted = pattern.rpartition(":")
        if colon and wanted.isdecimal() and ":" not in name:
            if int(wanted) != port:
                return False
            pattern = name
        host = host.lower().rstrip(".")
        if pattern.startswith("*."):
            return host.endswith(pattern[1:])
        return host == pattern


def _address(text: str) -> Address | None:
    try:
        found = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    if isinstance(found, IPv6Address) and found.ipv4_mapped is not None:
        return found.ipv4_mapped
    return found
