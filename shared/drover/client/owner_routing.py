"""A channel that routes each call to the coordinator that owns the call's group.

Several coordinators share the groups. A call goes to the known owner of its group. If this
coordinator responds with NOT_COORDINATOR, cannot be reached or does not respond, the channel asks
the others for the current owner. It works for all methods with a ``group_id`` in the request.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Self

import grpc
import grpc.aio

from drover.api.coordinator.v1 import coordinator_service_pb2 as pb
from drover.api.coordinator.v1 import coordinator_service_pb2_grpc as pb_grpc
from drover.backoff import Backoff
from drover.client.secure import Connect, plaintext
from drover.errors import (
    OWNER_KEY,
    DeadlineExceededError,
    DroverError,
    FailedPreconditionError,
    Reason,
    UnavailableError,
)
from drover.rpc.status import from_rpc_error

#: The time limit of a FindCoordinator call.
FIND_TIMEOUT_S = 1.0
#: After this time without a response, ask the others for the owner: the coordinator may be frozen.
PROBE_EVERY_S = 1.0
#: The interval doubles up to this, since each member of a rebalance has a waiting call.
PROBE_MAX_S = 4.0
FOLLOW_FIRST_S = 0.02
FOLLOW_MAX_S = 0.5
GROUPS_MAX = 1_000
CHANNELS_MAX = 64

_END = object()
#: The reasons of errors after which the group probably gets a new owner.
_OWNER_UNAVAILABLE = {
    Reason.SERVICE_UNREACHABLE,
    Reason.DRAINING,
    Reason.COORDINATOR_NOT_AVAILABLE,
}


class OwnerRoutingChannel:
    """A channel for generated stubs; connects at the first call.

    If a group has moved, the call is repeated at the new owner within its deadline. This is safe:
    the previous owner did not execute the call, or its effect was lost with the owner.

    Args:
        addresses: host:port of coordinators that share the groups; at least one. With one address,
            that coordinator is the owner of all groups until it responds with NOT_COORDINATOR.
        connect: Opens a channel to a coordinator.
    """

    def __init__(self, addresses: Sequence[str], *, connect: Connect = plaintext) -> None:
        self.addresses = tuple(addresses)
        self._connect = connect
        self._channels: OrderedDict[str, grpc.aio.Channel] = OrderedDict()
        self._owners: OrderedDict[str, str] = OrderedDict()
        self._moved = asyncio.Event()
        self._shared = len(self.addresses) > 1
        self._background: set[asyncio.Future[None]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection."""
        channels, self._channels = self._channels, OrderedDict()
        for each in channels.values():
            await each.close()

    def direct(self, address: str) -> grpc.aio.Channel:
        """The channel to one coordinator."""
        if address not in self._channels:
            self._channels[address] = self._connect(address)
            if len(self._channels) > CHANNELS_MAX:
                _, oldest = self._channels.popitem(last=False)
                closing = asyncio.ensure_future(oldest.close())
                self._background.add(closing)
                closing.add_done_callback(self._background.discard)
        self._channels.move_to_end(address)
        return self._channels[address]

    def unary_unary(self, method: str, *codecs: Any, **options: Any) -> Callable[..., Any]:
        """A method of the group's owner; see ``grpc.aio.Channel``."""

        def call(request: Any, *, timeout: float, metadata: Any) -> Coroutine[Any, Any, Any]:
            def call_at(address: str, left_s: float) -> Any:
                start = self.direct(address).unary_unary(method, *codecs, **options)
                return start(request, timeout=left_s, metadata=metadata)

            return self._route(request.group_id, timeout, call_at)

        return call

    def unary_stream(self, method: str, *codecs: Any, **options: Any) -> Callable[..., Any]:
        """A stream from the group's owner; it breaks when the owner changes."""

        def call(request: Any, *, timeout: float | None, metadata: Any) -> "_Stream":
            def call_at(address: str) -> Any:
                start = self.direct(address).unary_stream(method, *codecs, **options)
                return start(request, timeout=timeout, metadata=metadata)

            return _Stream(self, request.group_id, call_at)

        return call

    # --- calls -------------------------------------------------------------------------------

    async def _route(
        self, group_id: str, timeout_s: float, call_at: Callable[[str, float], Any]
    ) -> Any:
        """Call the group's owner; follow the group while coordinators say NOT_COORDINATOR."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        backoff = Backoff(FOLLOW_FIRST_S, FOLLOW_MAX_S)
        while True:
            owner = await self.owner(group_id, deadline - loop.time())
            try:
                call = call_at(owner, deadline - loop.time())
                return await self._response(group_id, owner, call)
            except grpc.RpcError as raw:
                error = from_rpc_error(raw)
            except _MovedError as moved:
                error = moved
            self.note_failure(owner, group_id, error)
            left_s = deadline - loop.time()
            if error.reason is not Reason.NOT_COORDINATOR:
                raise error
            pause_s = backoff.next_pause_s()
            if left_s <= pause_s:  # UNAVAILABLE, since no coordinator has executed the call
                raise UnavailableError(
                    Reason.COORDINATOR_NOT_AVAILABLE,
                    f"the owner of group {group_id!r} was not found before the deadline: retry",
                    metadata={"groupId": group_id},
                )
            await asyncio.sleep(pause_s)

    async def _response(self, group_id: str, owner: str, call: Any) -> Any:
        """Wait for the response; until then, ask the others periodically for the owner."""
        response = asyncio.ensure_future(_awaited(call))
        others = [address for address in self.addresses if address != owner]
        probes = Backoff(PROBE_EVERY_S, PROBE_MAX_S)
        try:
            while True:
                await asyncio.wait([response], timeout=probes.next_pause_s() if others else None)
                if response.done():
                    return response.result()
                current_owner = owner
                with suppress(DroverError):
                    current_owner = await self._find(group_id, others, FIND_TIMEOUT_S)
                if current_owner != owner and not response.done():
                    raise _MovedError(current_owner)
        finally:
            response.cancel()

    # --- owners ------------------------------------------------------------------------------

    async def owner(self, group_id: str, timeout_s: float) -> str:
        """The known owner of a group; if unknown, ask the coordinators.

        Raises:
            DroverError: No coordinator returned the owner in time.
        """
        address = self.known_owner(group_id)
        if address is None:
            address = await self._find(group_id, self.addresses, min(FIND_TIMEOUT_S, timeout_s))
            self._set_owner(group_id, address)
        return address

    def known_owner(self, group_id: str) -> str | None:
        """The known owner of a group; None if it is unknown."""
        if group_id in self._owners:
            self._owners.move_to_end(group_id)
            return self._owners[group_id]
        return None if self._shared else self.addresses[0]

    def note_failure(self, owner: str, group_id: str, error: DroverError) -> None:
        """Update the known owner of a group after an error of ``owner``."""
        if error.reason is Reason.NOT_COORDINATOR:
            self._shared = True
            hint = error.metadata.get(OWNER_KEY, "")
            if hint and hint != owner:
                self._set_owner(group_id, hint)
            else:
                self._drop_owner(group_id, owner)
        elif error.reason in _OWNER_UNAVAILABLE or isinstance(error, DeadlineExceededError):
            self._drop_owner(group_id, owner)

    def moved_event(self) -> asyncio.Event:
        """The event that is set when the known owner of any group changes."""
        return self._moved

    def _set_owner(self, group_id: str, owner: str) -> None:
        if self._owners.get(group_id) == owner:
            return
        self._owners[group_id] = owner
        if len(self._owners) > GROUPS_MAX:
            self._owners.popitem(last=False)
        self._moved.set()
        self._moved = asyncio.Event()

    def _drop_owner(self, group_id: str, owner: str) -> None:
        if self._owners.get(group_id) == owner:
            del self._owners[group_id]

    async def _find(self, group_id: str, addresses: Sequence[str], timeout_s: float) -> str:
        """Call FindCoordinator at all addresses concurrently; returns the first result."""
        if timeout_s <= 0:
            raise DeadlineExceededError(Reason.DEADLINE_EXCEEDED, "no response before the deadline")
        lookups = [
            asyncio.ensure_future(self._find_at(address, group_id, timeout_s))
            for address in addresses
        ]
        error: DroverError = UnavailableError(
            Reason.COORDINATOR_NOT_AVAILABLE,
            f"no coordinator knows the owner of group {group_id!r}: retry",
        )
        try:
            for each in asyncio.as_completed(lookups):
                try:
                    return await each
                except DeadlineExceededError:
                    pass  # UNAVAILABLE instead: the caller's deadline may be later, so it may retry
                except DroverError as lookup_error:
                    error = lookup_error
            raise error
        finally:
            for task in lookups:
                task.cancel()
            await asyncio.gather(*lookups, return_exceptions=True)

    async def _find_at(self, address: str, group_id: str, timeout_s: float) -> str:
        stub: Any = pb_grpc.CoordinatorServiceStub(self.direct(address))
        try:
            response = await stub.FindCoordinator(
                pb.FindCoordinatorRequest(group_id=group_id), timeout=timeout_s
            )
        except grpc.RpcError as error:
            raise from_rpc_error(error) from None
        return str(response.address)


class _MovedError(FailedPreconditionError):
    """Another coordinator is the owner of the group now."""

    def __init__(self, owner: str) -> None:
        super().__init__(
            Reason.NOT_COORDINATOR, f"the group has moved to {owner}", metadata={OWNER_KEY: owner}
        )


class _Stream:
    """A stream from a group's owner, with the methods that ``drover.client.calls`` uses."""

    def __init__(
        self, routing: OwnerRoutingChannel, group_id: str, start: Callable[[str], Any]
    ) -> None:
        self._routing = routing
        self._group_id = group_id
        self._start = start
        self._call: Any = None

    def cancel(self) -> None:
        """End the stream."""
        if self._call is not None:
            self._call.cancel()

    async def __aiter__(self) -> AsyncIterator[Any]:
        routing, group_id = self._routing, self._group_id
        owner = await routing.owner(group_id, FIND_TIMEOUT_S)
        self._call = self._start(owner)
        messages = aiter(self._call)
        while True:
            try:
                message = await self._next(messages, owner)
            except grpc.RpcError as error:
                routing.note_failure(owner, group_id, from_rpc_error(error))
                raise
            if message is _END:
                return
            yield message

    async def _next(self, messages: AsyncIterator[Any], owner: str) -> Any:
        routing = self._routing
        message = asyncio.ensure_future(_next(messages))
        try:
            while not message.done():
                if routing.known_owner(self._group_id) not in (owner, None):
                    raise UnavailableError(
                        Reason.SERVICE_UNREACHABLE,
                        f"the group has moved away from the coordinator {owner}: retry",
                    )
                moved = asyncio.ensure_future(routing.moved_event().wait())
                try:
                    await asyncio.wait({message, moved}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    moved.cancel()
            return message.result()
        finally:
            message.cancel()


async def _awaited(call: Any) -> Any:
    return await call


async def _next(messages: AsyncIterator[Any]) -> Any:
    return await anext(messages, _END)
