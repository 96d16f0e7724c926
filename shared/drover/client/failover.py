"""A channel to one of several equal servers, with failover to the next one.

It works for all methods. It retries no call: the caller's retry goes to the next server.
"""

from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any, Self, cast

import grpc
import grpc.aio

from drover.client.secure import Connect, plaintext
from drover.errors import DeadlineExceededError, DroverError, UnavailableError
from drover.rpc.status import from_rpc_error


class FailoverChannel:
    """A channel for generated stubs; connects at the first call.

    All calls go to one server, because it keeps state about its callers. If it is unavailable or
    does not respond in time, all later calls go to the next server.

    Args:
        addresses: host:port of the servers; at least one.
        connect: Opens a channel to a server.
    """

    def __init__(self, addresses: Sequence[str], *, connect: Connect = plaintext) -> None:
        self.addresses = tuple(addresses)
        self._connect = connect
        self._attempt = 0
        self._channels: dict[str, grpc.aio.Channel] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection."""
        channels, self._channels = self._channels, {}
        for each in channels.values():
            await each.close()

    @property
    def address(self) -> str:
        """The address of the current server."""
        return self.addresses[self._attempt % len(self.addresses)]

    def as_channel(self) -> grpc.aio.Channel:
        """This object with the type that clients expect."""
        return cast("grpc.aio.Channel", self)

    def unary_unary(self, method: str, *codecs: Any, **options: Any) -> Callable[..., Any]:
        """A method of the current server; see ``grpc.aio.Channel``."""
        return self._for_one_response(lambda c: c.unary_unary(method, *codecs, **options))

    def stream_unary(self, method: str, *codecs: Any, **options: Any) -> Callable[..., Any]:
        """A method with a stream of requests; see ``grpc.aio.Channel``."""
        return self._for_one_response(lambda c: c.stream_unary(method, *codecs, **options))

    def _for_one_response(
        self, multicallable: Callable[[grpc.aio.Channel], Any]
    ) -> Callable[..., Any]:
        def call(request: Any, *, timeout: float, metadata: Any) -> Coroutine[Any, Any, Any]:
            attempt, start = self._attempt, multicallable(self._current_channel())
            return self._await(attempt, start(request, timeout=timeout, metadata=metadata))

        return call

    def unary_stream(self, method: str, *codecs: Any, **options: Any) -> Callable[..., Any]:
        """A streaming method of the current server; see ``grpc.aio.Channel``."""

        def call(request: Any, *, timeout: float | None, metadata: Any) -> "WatchedStream":
            attempt, channel = self._attempt, self._current_channel()
            start = channel.unary_stream(method, *codecs, **options)
            stream = start(request, timeout=timeout, metadata=metadata)
            return WatchedStream(
                stream, lambda error: self.note_failure(attempt, from_rpc_error(error))
            )

        return call

    def note_failure(self, attempt: int, error: DroverError) -> None:
        """Switch to the next server if the server of ``attempt`` is current and unavailable."""
        is_unavailable = isinstance(error, UnavailableError | DeadlineExceededError)
        if is_unavailable and attempt == self._attempt:
            self._attempt += 1

    def _current_channel(self) -> grpc.aio.Channel:
        if self.address not in self._channels:
            self._channels[self.address] = self._connect(self.address)
        return self._channels[self.address]

    async def _await(self, attempt: int, call: Any) -> Any:
        try:
            return await call
        except grpc.RpcError as error:
            self.note_failure(attempt, from_rpc_error(error))
            raise


class WatchedStream:
    """The part of gRPC's stream that ``drover.client.calls`` uses.

    Args:
        call: The stream.
        on_failure: Called with the error by which the stream ends.
    """

    def __init__(self, call: Any, on_failure: Callable[[grpc.RpcError], None]) -> None:
        self._call = call
        self._on_failure = on_failure

    def cancel(self) -> None:
        """End the stream."""
        self._call.cancel()

    async def __aiter__(self) -> AsyncIterator[Any]:
        try:
            async for message in self._call:
                yield message
        except grpc.RpcError as error:
            self._on_failure(error)
            raise
