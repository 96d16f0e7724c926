"""Which hosts only this machine reaches."""

import ipaddress


def is_loopback_host(host: str) -> bool:
    """Whether only processes on this machine reach a host: an address, or ``localhost``."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
