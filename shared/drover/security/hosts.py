"""Detects loopback hosts."""

import ipaddress


def is_loopback_host(host: str) -> bool:
    """Whether a host, an address or a name, is a loopback address or ``localhost``."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
