"""Addresses for services of a test, reusable after a restart."""

from drover.local import ports

HOST = "127.0.0.1"
#: Ports already given, also of processes that are down at the moment.
_given: set[int] = set()


def free_ports(count: int) -> list[int]:
    """Different unused ports; no port is returned twice."""
    found: list[int] = []
    while len(found) < count:
        (port,) = ports.free_ports(HOST, 1)
        if port not in _given:
            _given.add(port)
            found.append(port)
    return found


def free_addresses(count: int) -> list[str]:
    """Different unused addresses, host:port."""
    return [f"{HOST}:{port}" for port in free_ports(count)]


def free_address() -> str:
    """An unused address, host:port."""
    (address,) = free_addresses(1)
    return address
