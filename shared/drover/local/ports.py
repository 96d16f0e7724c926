"""Free TCP ports."""

import random
import socket
from pathlib import Path

from drover.local.state import ClusterError

_EPHEMERAL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST = 10_240
_ATTEMPTS = 1_000


def is_free(host: str, port: int) -> bool:
    """Whether a server could listen on the port now."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # as servers set it too, a port in TIME_WAIT counts as free
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def free_ports(host: str, count: int) -> list[int]:
    """Distinct free ports below the range that outgoing connections use.

    No outgoing connection can take such a port while a server restarts.

    Raises:
        ClusterError: Not enough ports are free.
    """
    try:
        highest = int(_EPHEMERAL_RANGE.read_text(encoding="ascii").split()[0]) - 1
    except (OSError, ValueError, IndexError):
        highest = 32_767
    if highest - _LOWEST < count * 10:
        highest = 65_535
    free: list[int] = []
    for _ in range(_ATTEMPTS):
        if len(free) == count:
            return free
        port = random.randint(_LOWEST, highest)
        if port not in free and is_free(host, port):
            free.append(port)
    raise ClusterError(f"no {count} free ports on {host}")
