"""Ports that stay free while the process that had one is being restarted."""

import random
import socket

LOOPBACK = "127.0.0.1"
#: Below the ports that systems hand out by themselves: a client that keeps connecting to a dead
#: process at such a port can end up connected to itself, and then the process cannot come back.
_FIRST, _LAST = 20_000, 32_000
_TRIES = 200
#: Of processes that may be down just now, and come back.
_given: set[int] = set()


def free_ports(count: int) -> list[int]:
    """Different ports of the loopback interface that nobody listens on; none is given twice."""
    ports: list[int] = []
    for port in random.SystemRandom().sample(range(_FIRST, _LAST), _TRIES):
        if len(ports) == count:
            return ports
        if port not in _given and is_free(port):
            _given.add(port)
            ports.append(port)
    raise OSError(f"{count} free ports were not found among {_TRIES} from {_FIRST} to {_LAST}")


def is_free(port: int) -> bool:
    """Whether a server could listen on it now, as Java does, with SO_REUSEADDR."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def is_listening(port: int) -> bool:
    """Whether somebody accepts connections there."""
    try:
        with socket.create_connection((LOOPBACK, port), timeout=1):
            return True
    except OSError:
        return False
