"""Bounds on the calls of a server, so that no caller takes the places of the others."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from drover.errors import Reason, ResourceExhaustedError


@dataclass(frozen=True, slots=True)
class Limit:
    """A maximum of concurrent calls.

    Attributes:
        total: For all callers together.
        per_host: For the callers at one address.
    """

    total: int
    per_host: int


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of a server. A caller is unknown if it has no grant in the access file.

    Attributes:
        streams_per_connection_max: The maximum number of concurrent calls of one connection.
            Clients keep further calls in a queue.
        streams: Health watches and reflection streams of known callers.
        unknown_streams: Health watches and reflection streams of unknown callers.
        unknown_calls: The other calls of unknown callers.
        request_max_s: The time in which the request of a known caller's unary call must arrive.
        unknown_request_max_s: The same for unknown callers, whose requests are small.
    """

    streams_per_connection_max: int = 100
    streams: Limit = Limit(1_000, 100)
    unknown_streams: Limit = Limit(50, 10)
    unknown_calls: Limit = Limit(200, 50)
    request_max_s: float = 30.0
    unknown_request_max_s: float = 10.0


#: Of a port for the services of the cluster. A worker sends all its calls to another service over
#: one connection, and a few thousand may be parked there at a time.
INTERNAL_BOUNDS = Bounds(streams_per_connection_max=2_500)


class Places:
    """The places of one kind of concurrent calls.

    Args:
        limit: The number of places.
        kind: The kind of calls, for messages.
    """

    def __init__(self, limit: Limit, kind: str) -> None:
        self._limit = limit
        self._kind = kind
        self._hosts: Counter[str] = Counter()
        self._taken = 0

    @contextmanager
    def take(self, host: str) -> Iterator[None]:
        """Hold a place for a call from ``host``.

        Raises:
            ResourceExhaustedError: QUEUE_FULL: all places are taken.
        """
        for taken, limit, where in (
            (self._hosts[host], self._limit.per_host, f" from {host}"),
            (self._taken, self._limit.total, ""),
        ):
            if taken >= limit:
                if not self._hosts[host]:
                    del self._hosts[host]
                raise ResourceExhaustedError(
                    Reason.QUEUE_FULL,
                    f"the server has {limit} {self._kind}{where}, the maximum: end some, or retry"
                    " later",
                )
        self._hosts[host] += 1
        self._taken += 1
        try:
            yield
        finally:
            self._taken -= 1
            self._hosts[host] -= 1
            if not self._hosts[host]:
                del self._hosts[host]
