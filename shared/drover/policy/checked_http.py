"""Makes HTTP clients connect to checked addresses only, without proxies.

For clients of httpx and httpx2; ``checked_requests`` is for requests. A name cannot resolve to
another address after the check, because the client connects to the checked one; redirects are
checked likewise.
"""

import sys
from collections.abc import Iterator
from typing import Any

from drover.policy.egress import AllowedHosts, ForbiddenHostError


class CheckedBackend:
    """A network backend of httpcore or httpcore2, which is ``core``."""

    def __init__(self, core: Any, allowed: AllowedHosts | None) -> None:
        self._core = core
        self._inner = core.SyncBackend()
        self._allowed = allowed

    def connect_tcp(self, host: str, port: int, *more: Any, **options: Any) -> Any:
        """Connect to the first checked address that accepts the connection."""
        failed = (self._core.ConnectError, self._core.ConnectTimeout)
        try:
            addresses = (self._allowed or AllowedHosts.of_worker()).addresses(host, port)
        except ForbiddenHostError:
            raise
        except OSError as error:
            raise self._core.ConnectError("the host name cannot be resolved") from error
        for each in addresses[:-1]:
            try:
                return self._inner.connect_tcp(each, port, *more, **options)
            except failed:
                continue
        return self._inner.connect_tcp(addresses[-1], port, *more, **options)

    def connect_unix_socket(self, path: str, *more: Any, **options: Any) -> Any:
        """Never: a socket is a service of the worker's machine."""
        raise ForbiddenHostError(f"{path} is a local socket, which connectors must not call")

    def sleep(self, seconds: float) -> None:
        """See the library."""
        self._inner.sleep(seconds)


def restrict_client(client: Any, allowed: AllowedHosts | None = None) -> None:
    """Restrict a client of httpx or httpx2; ``allowed`` is by default the worker's setting.

    The libraries have no setting for this.
    """
    pool = client._transport._pool
    core = sys.modules[type(pool).__module__.partition(".")[0]]
    pool._network_backend = CheckedBackend(core, allowed)
    client._mounts.clear()  # proxies


def bound_responses(client: Any, max_bytes: int) -> None:
    """Make a client reject responses of more than ``max_bytes``, and compressed ones: it would
    unpack them without a limit.
    """
    client.headers["accept-encoding"] = "identity"

    def bound(response: Any) -> None:
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            response.close()
            raise ConnectionError("the response is compressed although that was not asked for")
        response.stream = _BoundedStream.of(response.stream, max_bytes)

    client.event_hooks["response"].append(bound)


class _BoundedStream:
    """The body of a response, up to a limit."""

    _inner: Any
    _max_bytes: int

    @classmethod
    def of(cls, inner: Any, max_bytes: int) -> Any:
        """A stream of the library's type: the client checks it."""
        library = sys.modules[type(inner).__module__.partition(".")[0]]
        stream = type("BoundedStream", (cls, library.SyncByteStream), {})()
        stream._inner, stream._max_bytes = inner, max_bytes
        return stream

    def __iter__(self) -> Iterator[bytes]:
        count = 0
        for part in self._inner:
            count += len(part)
            if count > self._max_bytes:
                raise ConnectionError(f"the response has more than {self._max_bytes} bytes")
            yield part

    def close(self) -> None:
        """See the library."""
        self._inner.close()
