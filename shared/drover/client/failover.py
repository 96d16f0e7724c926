"""A channel to one of several servers that are equal, and to the next one when that one is away.

Nothing here knows single calls, and nothing is repeated here: whoever calls, or watches, again is
led to the server that has the turn.
"""

from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any, Self, cast

import grpc
import grpc.aio

from drover.client.secure import Connect, plaintext
from drover.errors import DeadlineExceededError, DroverError, UnavailableError
from drover.rpc.status import from_rpc_error


class FailoverChannel:
    """What a generated stub needs of a channel; connects with the first call.

    All calls go to one server, so that what it knows of its callers stays in one place. When it
    cannot answer (UNAVAILABLE, or in time), the next one has the turn, for everybody.

    Args:
        addresses: host:port of servers; at least one.
        connect: Opens a channel to one of them.
    """

    def __init__(self, addresses: Sequence[str], *, connect: Connect = plaintext) -> None:
        self.addresses = tuple(addresses)
        self._connect = connect
        self._turn = 0
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
        """The server that has the turn."""
        return self.addresses[self._turn % len(self.addresses)]

    def as_channel(self) -> grpc.aio.Channel:
        """Itself, as the clients' types have it."""
        return cast("grpc.aio.Channel", self)

    def unary_unary(self, method: str, *codecs: Any, **options: Any) -> Callable[..., Any]:
        """A call of the server that has the turn; see ``grpc.aio.Channel``."""

        def call(request: Any, *, timeout: float, metadata: Any) -> Coroutine[Any, Any, Any]:
            turn, here = self._turn, self._here()
            begin = here.unary_unary(method, *codecs, **options)
            return self._answer(turn, begin(request, timeout=timeout, metadata=metadata))

        return call

    def unary_stream(self, method: str, *codecs: Any, **options: Any) -> Callable[..., Any]:
        """A stream from the server that has the turn; see ``grpc.aio.Channel``."""

        def call(request: Any, *, timeout: float | None, metadata: Any) -> "_Stream":
            turn, here = self._turn, self._here()
            begin = here.unary_stream(method, *codecs, **options)
            return _Stream(self, turn, begin(request, timeout=timeout, metadata=metadata))

        return call

    def failed(self, turn: int, error: DroverError) -> None:
        """Whoever had the turn as number ``turn`` answered with ``error``."""
        away = isinstance(error, UnavailableError | DeadlineExceededError)
        if away and turn == self._turn:
            self._turn += 1

    def _here(self) -> grpc.aio.Channel:
        if self.address not in self._channels:
            self._channels[self.address] = self._connect(self.address)
        return self._channels[self.address]

    async def _answer(self, turn: int, call: Any) -> Any:
        try:
            return await call
        except grpc.RpcError as error:
            self.failed(turn, from_rpc_error(error))
            raise


class _Stream:
    """A stream, as far as ``drover.client.calls`` uses one."""

    def __init__(self, replicas: FailoverChannel, turn: int, call: Any) -> None:
        self._replicas = replicas
        self._turn = turn
        self._call = call

    def cancel(self) -> None:
        """End it."""
        self._call.cancel()

    async def __aiter__(self) -> AsyncIterator[Any]:
        try:
            async for message in self._call:
                yield message
        except grpc.RpcError as error:
            self._replicas.failed(self._turn, from_rpc_error(error))
            raise
