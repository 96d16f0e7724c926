"""Addresses at which a service of a test can listen, and again after a restart."""

from drover.cli.ports import free_ports

HOST = "127.0.0.1"


def free_addresses(count: int) -> list[str]:
    """Different ones, host:port, where nobody listens."""
    return [f"{HOST}:{port}" for port in free_ports(HOST, count)]


def free_address() -> str:
    """One of them."""
    (address,) = free_addresses(1)
    return address
