"""Addresses at which a service of a test can listen, and again after a restart."""

from drover.cli.ports import free_ports

HOST = "127.0.0.1"
#: Of services that may be down just now, and come back.
_given: set[int] = set()


def free_addresses(count: int) -> list[str]:
    """Different ones, host:port, where nobody listens; none is given twice."""
    ports: list[int] = []
    while len(ports) < count:
        ports += [port for port in free_ports(HOST, count - len(ports)) if port not in _given]
        _given.update(ports)
    return [f"{HOST}:{port}" for port in ports]


def free_address() -> str:
    """One of them."""
    (address,) = free_addresses(1)
    return address
