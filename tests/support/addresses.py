"""Addresses at which a service of a test can listen, and again after a restart."""

from drover.local import ports

HOST = "127.0.0.1"
#: Of processes that may be down just now, and come back.
_given: set[int] = set()


def free_ports(count: int) -> list[int]:
    """Different ports where nobody listens; none is given twice."""
    found: list[int] = []
    while len(found) < count:
        (port,) = ports.free_ports(HOST, 1)
        if port not in _given:
            _given.add(port)
            found.append(port)
    return found


def free_addresses(count: int) -> list[str]:
    """Different ones, host:port, where nobody listens."""
    return [f"{HOST}:{port}" for port in free_ports(count)]


def free_address() -> str:
    """One of them."""
    (address,) = free_addresses(1)
    return address
