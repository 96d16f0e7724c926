"""The hosts that connectors may connect to. Standard library only.

Connectors run in the worker's network on behalf of every user who may create them, so the worker
restricts the hosts. The check applies to the resolved address, not to the name, and to each
protocol.
"""

import os
import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from urllib.parse import urlsplit

#: The environment variable of workers with the allowed hosts, comma-separated.
HOSTS_VARIABLE = "DROVER_ALLOWED_HOSTS"
#: Variables that send the requests of many libraries through a proxy, which no check sees.
PROXY_VARIABLES = frozenset(
    each
    for name in ("http_proxy", "https_proxy", "all_proxy", "ftp_proxy", "no_proxy")
    for each in (name, name.upper())
)

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

#: Link-local addresses, and the services of clouds that return a machine's credentials.
_NEVER_BY_DEFAULT: tuple[Network, ...] = tuple(
    ip_network(each)
    for each in (
        "169.254.0.0/16",  # AWS, Azure, Google, Oracle and most others; containers of AWS
        "168.63.129.16/32",  # Azure's host
        "100.100.100.200/32",  # Alibaba
        "192.0.0.192/32",  # Oracle
        "fe80::/10",
        "fd00:ec2::/32",  # AWS
        "fd20:ce::254/128",  # Google
        "fd00:42::42/128",  # Scaleway
        "fd00:a9fe:a9fe::1/128",  # Linode
    )
)
#: IPv6 prefixes whose last 32 bits are the IPv4 address of the same host.
_SAME_HOST = tuple(ip_network(each) for each in ("::ffff:0:0/96", "64:ff9b::/96"))
#: Prefixes of addresses with an IPv4 address, and the number of bits after that.
_EMBEDDED: tuple[tuple[Network, int], ...] = tuple(
    (ip_network(prefix), end)
    for prefix, end in (
        ("::/96", 0),  # compatible
        ("::ffff:0:0/96", 0),  # mapped
        ("::ffff:0:0:0/96", 0),  # translated
        ("64:ff9b::/96", 0),  # NAT64
        ("64:ff9b:1::/48", 0),  # NAT64 of one network
        ("2002::/16", 80),  # 6to4
        ("2001::/32", 64),  # the server of Teredo
    )
)
_NAT64 = ip_network("64:ff9b:1::/48")
_TEREDO = ip_network("2001::/32")
_ISATAP = (0x00005EFE, 0x02005EFE)
_PORTS = {"http": 80, "https": 443}
#: What parsers of URLs read differently: control characters, and before the path white space,
#: backslashes and encoded characters. One parser can find another host than the next one.
_AMBIGUOUS = re.compile(r"[\x00-\x1f\x7f]|^[^/?#]*//[^/?#]*[ \xa0\\]|^[^/?#]*//[^/?#\[]*%")
_USER_INFO = re.compile(r"^[^/?#]*//[^/?#]*@")
_CAUSES_MAX = 20
_READ_DIFFERENTLY = (
    "must be a URL without user info, spaces, backslashes, control and encoded characters in its "
    "host: clients read different hosts in such a URL, and connectors may only call hosts that an "
    f"operator of the worker allows ({HOSTS_VARIABLE})"
)


class ForbiddenHostError(PermissionError):
    """A host that connectors may not connect to."""


@dataclass(frozen=True, slots=True)
class AllowedHosts:
    """Hosts as ``name``, ``*.suffix``, ``name:port``, addresses and networks; picklable.

    None allows every host. Link-local addresses and cloud metadata services are allowed only if an
    address in the list, or a network that has no other addresses, names them.
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
        found = _parsed(address)
        if found is None:  # a name
            if not self._allows_name(host, port):
                raise ForbiddenHostError(self._not_listed(host, port))
            return
        inner = embedded_addresses(found)
        same = [found, *(inner if _is_same_host(found) else ())]
        networks = self._networks()
        is_listed = any(each in listed for each in same for listed in networks)
        if any(each in never for each in (found, *inner) for never in _NEVER_BY_DEFAULT):
            if any(each in listed for each in same for listed in networks if _within(listed)):
                return
            raise ForbiddenHostError(
                f"{host} is {address}, which connectors must not call: an operator of the worker "
                f"can name this address in {HOSTS_VARIABLE}"
            )
        if not is_listed and not self._allows_name(host, port):
            raise ForbiddenHostError(self._not_listed(host, port))

    def addresses(self, host: str, port: int) -> Sequence[str]:
        """The addresses of a host, all of them allowed.

        Raises:
            ForbiddenHostError: One of them is not allowed.
            OSError: The host name cannot be resolved.
        """
        found = _resolved(host, port)
        for each in found:
            self.check(host, port, each)
        return found

    def fault(self, host: str, port: int) -> str | None:
        """Why a host must not be connected to, without resolving its name; None if it is unknown.

        An address is checked in each form that the system or a client accepts, such as
        ``0xA9FEA9FE``, or with a dot at the end.
        """
        try:
            for each in _resolved(host.rstrip("."), port, socket.AI_NUMERICHOST):
                self.check(host, port, each)
        except ForbiddenHostError as error:
            return str(error)
        except OSError:
            # a name may resolve to an address of a listed network
            if not self._networks() and not self._allows_name(host, port):
                return self._not_listed(host, port)
        return None

    def _allows_name(self, host: str, port: int) -> bool:
        patterns = self.patterns
        return patterns is None or any(self._names(each, host, port) for each in patterns)

    def _not_listed(self, host: str, port: int) -> str:
        return (
            f"{host}:{port} is not a host that connectors may call ({HOSTS_VARIABLE} of the "
            f"worker: {', '.join(self.patterns or ()) or 'none'}): an operator of the worker can "
            "add it"
        )

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
        if colon and wanted.isdecimal() and (":" not in name or name.endswith("]")):
            if int(wanted) != port:
                return False
            pattern = name
        host, pattern = host.lower().rstrip(".").strip("[]"), pattern.strip("[]")
        if pattern.startswith("*."):
            return host.endswith(pattern[1:])
        return host == pattern


def url_fault(url: str, allowed: AllowedHosts | None = None) -> str | None:
    """Why a URL must not be called, without resolving its host; None if nothing is known."""
    try:
        host, port = host_of(url)
    except ValueError as error:
        return str(error)
    return (allowed or AllowedHosts.of_worker()).fault(host, port)


def hosts_fault(
    text: str, default_port: int = 0, allowed: AllowedHosts | None = None
) -> str | None:
    """Why one of a list of ``host:port``, comma-separated, must not be connected to, or None."""
    hosts = allowed or AllowedHosts.of_worker()
    try:
        pairs = split_hosts(text, default_port)
    except ValueError as error:
        return str(error)
    return next((fault for each in pairs if (fault := hosts.fault(*each)) is not None), None)


def check_url(url: str, allowed: AllowedHosts | None = None) -> None:
    """Resolve the host of a URL that a library is about to call, and check its addresses.

    Raises:
        ForbiddenHostError: It is not allowed.
        OSError: The host name cannot be resolved.
        ValueError: The URL has no host.
    """
    (allowed or AllowedHosts.of_worker()).addresses(*host_of(url))


def host_of(url: str) -> tuple[str, int]:
    """The host and port of an http or https URL.

    Raises:
        ValueError: It has none, or parsers read it differently; the message does not contain the
            URL.
    """
    if _AMBIGUOUS.search(url.strip()):
        raise ValueError(_READ_DIFFERENTLY)
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        raise ValueError("must be a URL such as https://host:8443") from None
    if not host or port is None:
        raise ValueError("must be a URL such as https://host:8443")
    return host, port


def plain_host_of(url: str) -> tuple[str, int]:
    """As ``host_of``, for clients that read the URL themselves: it must not have user info, before
    or after which they look for the host.

    Raises:
        ValueError: As ``host_of``.
    """
    if _USER_INFO.search(url):
        raise ValueError(_READ_DIFFERENTLY)
    return host_of(url)


def split_hosts(text: str, default_port: int = 0) -> list[tuple[str, int]]:
    """The pairs of a comma-separated list of ``host:port``, each perhaps with a protocol before it.

    Raises:
        ValueError: An item has another form.
    """
    found = []
    for each in text.split(","):
        item = each.strip()
        if not item:
            continue
        plain = item.rpartition("://")[2]
        try:
            parts = urlsplit(f"//{plain}")
            host, port = parts.hostname, parts.port or default_port
        except ValueError:
            host, port = None, 0
        if not host or parts.path or parts.query or parts.fragment or parts.username:
            raise ValueError("must list host:port, comma-separated")
        found.append((host, port))
    return found


def forbidden_host(error: BaseException) -> ForbiddenHostError | None:
    """The rejection of a host that a library wrapped into its error, or None."""
    cause: BaseException | None = error
    for _ in range(_CAUSES_MAX):
        if cause is None or isinstance(cause, ForbiddenHostError):
            return cause
        cause = cause.__cause__ or cause.__context__
    return None


def embedded_addresses(address: Address) -> list[IPv4Address]:
    """The IPv4 addresses in an IPv6 address, in each form of translation and tunnels."""
    if isinstance(address, IPv4Address):
        return []
    number = int(address)
    found = [_ipv4(number >> end) for prefix, end in _EMBEDDED if address in prefix]
    if address in _NAT64:
        # with shorter prefixes the address is around bits 64 to 71, which are zero (RFC 6052)
        found += [_ipv4(_without_octet(number) >> end) for end in (16, 24, 32, 40)]
    if address in _TEREDO:
        found.append(_ipv4(number ^ 0xFFFFFFFF))
    if number >> 32 & 0xFFFFFFFF in _ISATAP:
        found.append(_ipv4(number))
    return found


def _ipv4(number: int) -> IPv4Address:
    return IPv4Address(number & 0xFFFFFFFF)


def _without_octet(number: int) -> int:
    """The 120 bits of an address without bits 64 to 71."""
    low = (1 << 56) - 1
    return number >> 64 << 56 | number & low


def _is_same_host(address: Address) -> bool:
    return any(address in each for each in _SAME_HOST)


def _within(listed: Network) -> bool:
    """Whether a listed network names addresses that need to be named, and no others."""
    return listed.num_addresses == 1 or any(
        listed.version == never.version and listed.subnet_of(never)  # type: ignore[arg-type]
        for never in _NEVER_BY_DEFAULT
    )


def _resolved(host: str, port: int, flags: int = 0) -> list[str]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    except UnicodeError as error:
        raise OSError(f"it is no host name: {error}") from None
    return list(dict.fromkeys(str(each[4][0]) for each in found))


def _parsed(text: str) -> Address | None:
    try:
        return ip_address(text.partition("%")[0])
    except ValueError:
        return None
