"""The bounds of an HTTP server, and the places of its connections."""

import ipaddress
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

from drover.rpc.open_files import connections_max


@dataclass(frozen=True, slots=True)
class HttpBounds:
    """The bounds of an HTTP server.

    Attributes:
        head_max_bytes: The size of a request's line and headers.
        headers_max: The number of headers.
        pipelined_max: The number of requests that a client may send before it has the response to
            the first one.
        head_max_s: The time from the connection, or the first byte of a further request, to the
            end of the head; also the time of the TLS handshake.
        body_max_s: The time from the end of the head to the end of the body.
        write_max_s: How long a client may not read a response.
        keep_alive_s: The time between two requests of a connection.
        connections_percent: The number of connections, as a share of the process's open files.
        per_host: The number of connections of one address that is no trusted proxy.
    """

    head_max_bytes: int = 16 * 1024
    headers_max: int = 100
    pipelined_max: int = 100
    head_max_s: float = 10.0
    body_max_s: float = 30.0
    write_max_s: float = 30.0
    keep_alive_s: int = 75
    connections_percent: int = 70
    per_host: int = 64


class Places:
    """The connections of a server, and what was refused."""

    def __init__(self, bounds: HttpBounds, proxies: Collection[str]) -> None:
        self.bounds = bounds
        self._max = connections_max(bounds.connections_percent)
        self._proxies = [ipaddress.ip_network(each, strict=False) for each in proxies]
        self._hosts: Counter[str] = Counter()
        self._taken = 0
        self.refused: Counter[str] = Counter()

    @property
    def taken(self) -> int:
        """The number of open connections."""
        return self._taken

    def take(self, host: str) -> bool:
        """Take a place for a connection from ``host``; False if there is none."""
        is_full = self._hosts[host] >= self.bounds.per_host and not self._is_proxy(host)
        if is_full or self._taken >= self._max:
            self.refused["connections"] += 1
            return False
        self._hosts[host] += 1
        self._taken += 1
        return True

    def is_crowded(self, connection_count: int) -> bool:
        """Whether there are too many connections to respond to further ones."""
        return connection_count > self._max

    def _is_proxy(self, host: str) -> bool:
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            return False
        return any(address in each for each in self._proxies)

    def give_back(self, host: str) -> None:
        """Release a place."""
        self._taken -= 1
        self._hosts[host] -= 1
        if not self._hosts[host]:
            del self._hosts[host]
