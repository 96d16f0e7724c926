"""A channel that leads each call to the coordinator that owns its group, and follows when it moves.

Several coordinators share the groups. A call goes to the owner that is known of its group; when
that one says NOT_COORDINATOR, cannot be reached or does not answer, the others are asked who owns
it now. Nothing here knows single calls: whatever has a ``group_id`` is led.
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
    DeadlineExceededError,
    DroverError,
    FailedPreconditionError,
    Reason,
    UnavailableError,
)
from drover.rpc.status import from_rpc_error

#: How long a coordinator may take to say who owns a group.
FIND_TIMEOUT_S = 1.0
#: A call that is not answered for so long may wait at one that is frozen: the others are asked.
PROBE_EVERY_S = 1.0
#: The pause doubles up to this: of all members of a rebalance each has a call that waits.
PROBE_MAX_S = 4.0
FOLLOW_FIRST_S = 0.02
FOLLOW_MAX_S = 0.5
GROUPS_MAX = 1_000
CHANNELS_MAX = 64

#: NOT_COORDINATOR names the owner under this key, if it is known.
OWNER_KEY = "coordinator"
_END = object()
#: What an owner says that is about to be none.
_LEAVING = {Reason.SERVICE_UNREACHABLE, Reason.DRAINING, Reason.COORDINATOR_NOT_AVAILABLE}


class OwnerRoutingChannel:
    """What a generated stub needs of a channel; connects with the first call.

    A call that another coordinator has to answer is repeated there within its deadline: the first
    one did nothing with it, or what it did is gone with it.

    Args:
        addresses: host:port of coordinators that share the groups; at least one. Of one that is
            alone nobody asks who owns a group.
        connect: Opens a channel to one of them.
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
        """A led call; see ``grpc.aio.Channel``."""

        def call(request: Any, *, timeout: float, metadata: Any) -> Coroutine[Any, Any, Any]:
            def at(address: str, left_s: float) -> Any:
                begin = self.direct(address).unary_unary(method, *codecs, **options)
                return begin(request, timeout=left_s, metadata=metadata)

            return self._lead(request.group_id, timeout, at)

        return call

    def unary_stream(self, method: str, *codecs: Any, **options: Any) -> Callable[..., Any]:
        """A stream from the owner; it breaks when the owner is another one."""

        def call(request: Any, *, timeout: float | None, metadata: Any) -> "_Stream":
            def at(address: str) -> Any:
                begin = self.direct(address).unary_stream(method, *codecs, **options)
                return begin(request, timeout=timeout, metadata=metadata)

            return _Stream(self, request.group_id, at)

        return call

    # --- calls -------------------------------------------------------------------------------

    async def _lead(self, group_id: str, timeout_s: float, at: Callable[[str, float], Any]) -> Any:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        backoff = Backoff(FOLLOW_FIRST_S, FOLLOW_MAX_S)
        while True:
            owner = await self.owner(group_id, deadline - loop.time())
            try:
                return await self._answer(group_id, owner, at(owner, deadline - loop.time()))
            except grpc.RpcError as raw:
                error = from_rpc_error(raw)
            except _MovedError as moved:
                error = moved
            self.failed_at(owner, group_id, error)
            left_s = deadline - loop.time()
            if error.reason is not Reason.NOT_COORDINATOR:
                raise error
            pause_s = backoff.next_pause_s()
            if left_s <= pause_s:  # which is no verdict on the call: it was not looked at
                raise UnavailableError(
                    Reason.COORDINATOR_NOT_AVAILABLE,
                    f"no coordinator that serves group {group_id!r} was found in time: retry",
                    metadata={"groupId": group_id},
                )
            await asyncio.sleep(pause_s)

    async def _answer(self, group_id: str, owner: str, call: Any) -> Any:
        """Wait for the answer; while there is none, ask the others whether the owner changed."""
        answer = asyncio.ensure_future(_awaited(call))
        others = [address for address in self.addresses if address != owner]
        probes = Backoff(PROBE_EVERY_S, PROBE_MAX_S)
        try:
            while True:
                await asyncio.wait([answer], timeout=probes.next_pause_s() if others else None)
                if answer.done():
                    return answer.result()
                found = owner
                with suppress(DroverError):
                    found = await self._find(group_id, others, FIND_TIMEOUT_S)
                if found != owner and not answer.done():
                    raise _MovedError(found)
        finally:
            answer.cancel()

    # --- owners ------------------------------------------------------------------------------

    async def owner(self, group_id: str, timeout_s: float) -> str:
        """The owner that is known of a group, or else whoever a coordinator says it is.

        Raises:
            DroverError: None of them knows in time.
        """
        known = self.known_owner(group_id)
        if known is None:
            known = await self._find(group_id, self.addresses, min(FIND_TIMEOUT_S, timeout_s))
            self._learn(group_id, known)
        return known

    def known_owner(self, group_id: str) -> str | None:
        """Where calls of a group go at present; None when it has to be found first."""
        if group_id in self._owners:
            self._owners.move_to_end(group_id)
            return self._owners[group_id]
        return None if self._shared else self.addresses[0]

    def failed_at(self, owner: str, group_id: str, error: DroverError) -> None:
        """Draw the consequence of an error that ``owner`` answered."""
        if error.reason is Reason.NOT_COORDINATOR:
            self._shared = True
            hint = error.metadata.get(OWNER_KEY, "")
            if hint and hint != owner:
                self._learn(group_id, hint)
            else:
                self._forget(group_id, owner)
        elif error.reason in _LEAVING or isinstance(error, DeadlineExceededError):
            self._forget(group_id, owner)

    def moved_event(self) -> asyncio.Event:
        """Set when the owner of some group has changed."""
        return self._moved

    def _learn(self, group_id: str, owner: str) -> None:
        if self._owners.get(group_id) == owner:
            return
        self._owners[group_id] = owner
        if len(self._owners) > GROUPS_MAX:
            self._owners.popitem(last=False)
        self._moved.set()
        self._moved = asyncio.Event()

    def _forget(self, group_id: str, owner: str) -> None:
        if self._owners.get(group_id) == owner:
            del self._owners[group_id]

    async def _find(self, group_id: str, addresses: Sequence[str], timeout_s: float) -> str:
        """Ask all at once; the first who knows is believed."""
        if timeout_s <= 0:
            raise DeadlineExceededError(Reason.DEADLINE_EXCEEDED, "no answer in time")
        asked = [
            asyncio.ensure_future(self._ask(address, group_id, timeout_s)) for address in addresses
        ]
        error: DroverError = UnavailableError(
            Reason.COORDINATOR_NOT_AVAILABLE, f"nobody knows who owns group {group_id!r}: retry"
        )
        try:
            for each in asyncio.as_completed(asked):
                try:
                    return await each
                except DeadlineExceededError:
                    pass  # the call itself may have time left: it has to be repeatable
                except DroverError as refused:
                    error = refused
            raise error
        finally:
            for task in asked:
                task.cancel()
            await asyncio.gather(*asked, return_exceptions=True)

    async def _ask(self, address: str, group_id: str, timeout_s: float) -> str:
        stub: Any = pb_grpc.CoordinatorServiceStub(self.direct(address))
        try:
            answer = await stub.FindCoordinator(
                pb.FindCoordinatorRequest(group_id=group_id), timeout=timeout_s
            )
        except grpc.RpcError as error:
            raise from_rpc_error(error) from None
        return str(answer.address)


class _MovedError(FailedPreconditionError):
    """Another coordinator says that the group is not at the one that was called."""

    def __init__(self, owner: str) -> None:
        super().__init__(
            Reason.NOT_COORDINATOR, f"the group moved to {owner}", metadata={OWNER_KEY: owner}
        )


class _Stream:
    """A stream from a group's owner, as far as ``drover.client.calls`` uses one."""

    def __init__(
        self, following: OwnerRoutingChannel, group_id: str, begin: Callable[[str], Any]
    ) -> None:
        self._following = following
        self._group_id = group_id
        self._begin = begin
        self._call: Any = None

    def cancel(self) -> None:
        """End it."""
        if self._call is not None:
            self._call.cancel()

    async def __aiter__(self) -> AsyncIterator[Any]:
        following, group_id = self._following, self._group_id
        owner = await following.owner(group_id, FIND_TIMEOUT_S)
        self._call = self._begin(owner)
        messages = aiter(self._call)
        while True:
            try:
                message = await self._next(messages, owner)
            except grpc.RpcError as error:
                following.failed_at(owner, group_id, from_rpc_error(error))
                raise
            if message is _END:
                return
            yield message

    async def _next(self, messages: AsyncIterator[Any], owner: str) -> Any:
        following = self._following
        message = asyncio.ensure_future(_next(messages))
        try:
            while not message.done():
                if following.known_owner(self._group_id) not in (owner, None):
                    raise UnavailableError(
                        Reason.SERVICE_UNREACHABLE, f"the group is not at {owner} any more"
                    )
                moved = asyncio.ensure_future(following.moved_event().wait())
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
