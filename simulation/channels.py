"""Channels to simulated coordinators, for the production client that follows a group's owner."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Sequence
from types import SimpleNamespace
from typing import Any, cast

import grpc
import grpc.aio
from grpc_status import rpc_status

from drover.client.calls import server_stream, unary
from drover.client.owner_routing import OwnerRoutingChannel
from drover.errors import DroverError
from drover.rpc.status import to_rpc_status
from drover_coordinator.core.groups.events import CommitGroupOffsets
from simulation.network import Call, Heard, Network, Stream
from simulation.process import Process
from simulation.shard_manager import FindCoordinator
from simulation.waits import asked, messages


class Routing:
    """A process's calls to the owners of groups; a crash clears the known owners."""

    def __init__(self, network: Network, process: Process, addresses: Sequence[str]) -> None:
        self._process = process

        def connect(address: str) -> grpc.aio.Channel:
            return cast("grpc.aio.Channel", _Channel(network, process, address))

        self._channel: Any = OwnerRoutingChannel(addresses, connect=connect)

    async def ask(self, request: object, *, timeout_s: float, retry: bool = True) -> Any:
        """Call the owner of the request's group.

        Raises:
            DroverError: Its error.
        """
        method = self._channel.unary_unary(f"/{type(request).__name__}")
        return await unary(method, request, timeout_s=timeout_s, retry=retry)

    def call(self, request: object, heard: Heard, *, timeout_ms: int, retry: bool = True) -> None:
        """As ``ask``; ``heard`` gets the response or the error."""

        async def answer() -> None:
            try:
                heard(await self.ask(request, timeout_s=timeout_ms / 1000, retry=retry))
            except DroverError as error:
                heard(error)

        self._process.spawn(answer())

    def stream(self, request: object) -> AsyncGenerator[Any, None]:
        """The messages of a stream from the owner of the request's group."""
        return server_stream(self._channel.unary_stream(f"/{type(request).__name__}"), request)


class _Channel:
    """A channel to one coordinator, with the methods that the production client uses."""

    def __init__(self, network: Network, process: Process, address: str) -> None:
        self._network = network
        self._process = process
        self._address = address

    def unary_unary(self, method: str, *codecs: Any, **options: Any) -> Callable[..., Any]:
        """A method."""

        def call(
            request: Any, *, timeout: float, metadata: object = None
        ) -> Coroutine[Any, Any, Any]:
            if method.endswith("/FindCoordinator"):
                return self._find(request.group_id, timeout)
            return self._ask(request, timeout)

        return call

    def unary_stream(self, method: str, *codecs: Any, **options: Any) -> Callable[..., Any]:
        """A stream."""
        return lambda request, *, timeout, metadata: _Messages(
            lambda heard, ended: Stream(
                self._network, self._process, self._address, request, heard, ended
            )
        )

    def stream_unary(self, method: str, *codecs: Any, **options: Any) -> Callable[..., Any]:
        """Not used."""
        raise NotImplementedError

    async def close(self) -> None:
        """Nothing is held."""

    async def _find(self, group_id: str, timeout_s: float) -> Any:
        return SimpleNamespace(address=await self._ask(FindCoordinator(group_id), timeout_s))

    async def _ask(self, request: object, timeout_s: float) -> Any:
        try:
            return await asked(
                lambda heard: Call(
                    self._network,
                    self._process,
                    self._address,
                    request,
                    heard,
                    timeout_ms=max(int(timeout_s * 1000), 1),
                    retry=False,
                    # plain commits of a group have no numbers, as on one TCP connection
                    in_order=isinstance(request, CommitGroupOffsets),
                )
            )
        except DroverError as error:
            raise _rpc_error(error) from None


class _Messages:
    """A stream as gRPC's client shows it."""

    def __init__(self, start: Callable[..., Stream]) -> None:
        self._messages = messages(start)

    async def __aiter__(self) -> AsyncIterator[Any]:
        try:
            async for message in self._messages:
                yield message
        except DroverError as error:
            raise _rpc_error(error) from None

    def cancel(self) -> None:
        """The stream ends when its reader does."""


def _rpc_error(error: DroverError) -> grpc.aio.AioRpcError:
    status = rpc_status.to_status(to_rpc_status(error, "simulation"))
    return grpc.aio.AioRpcError(
        status.code,
        grpc.aio.Metadata(),
        grpc.aio.Metadata(*status.trailing_metadata),
        details=status.details,
    )
