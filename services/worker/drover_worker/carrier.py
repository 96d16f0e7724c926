"""Gets a call answered by the worker that can: here, or carried to the leader or an owner.

The caller never hears "try again": a target that is gone or no longer the right one is looked for
anew until the caller's deadline.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import grpc.aio
import structlog
from google.protobuf.message import DecodeError, Message

from drover.client.calls import channel
from drover.client.worker import WorkerClient
from drover.errors import (
    DeadlineExceededError,
    DroverError,
    FailedPreconditionError,
    InvalidArgumentError,
    Reason,
    UnavailableError,
)
from drover_worker.core import requests
from drover_worker.core.requests.pending import HOP_COUNT_MAX
from drover_worker.herder_loop import HerderLoop

_RETRY_FIRST_S = 0.1
_RETRY_MAX_S = 1.0
#: What a carried call leaves for the way back.
_HOP_MARGIN_S = 0.1

_log = structlog.get_logger("drover.worker")

#: Makes the herder's request of a call, after checking its fields.
ToRequest = Callable[[Any], requests.Request]
#: Makes the call's response of the herder's answer.
ToResponse = Callable[[Any, Any], Any]


@dataclass(frozen=True, slots=True)
class CarriedMethod:
    """A ConnectService call that may have to be answered elsewhere."""

    name: str
    request_type: type[Message]
    response_type: type[Message]
    to_request: ToRequest
    to_response: ToResponse


class WorkerChannels:
    """One channel to each other worker, opened when first needed."""

    def __init__(self) -> None:
        self._channels: dict[str, grpc.aio.Channel] = {}

    def get(self, address: str) -> WorkerClient:
        """The client for the worker at host:port."""
        if address not in self._channels:
            self._channels[address] = channel(address)
        return WorkerClient(self._channels[address])

    async def close(self) -> None:
        """Close every channel."""
        for opened in self._channels.values():
            await opened.close()
        self._channels.clear()


class Carrier:
    """Answers carried methods, its own callers' and those of other workers."""

    def __init__(self, loop: HerderLoop, workers: WorkerChannels) -> None:
        self._loop = loop
        self._workers = workers
        self._methods: dict[str, CarriedMethod] = {}
        self._local: dict[str, Callable[[], Message]] = {}

    def add(self, method: CarriedMethod) -> None:
        """Make a method known."""
        self._methods[method.name] = method

    def add_local(self, name: str, answer: Callable[[], Message]) -> None:
        """Make a call known that other workers ask and that is answered here, whatever it says."""
        self._local[name] = answer

    async def ask(self, address: str, name: str, request: Message, *, timeout_s: float) -> bytes:
        """Ask another worker for its answer to a local call; the serialized response."""
        return await self._workers.get(address).forward(
            method=name,
            request=request.SerializeToString(),
            hop_count=HOP_COUNT_MAX,
            retry=False,
            timeout_s=timeout_s,
        )

    async def call(self, name: str, message: Message, *, timeout_s: float, author: str) -> Any:
        """Answer ``author``'s call, wherever that has to happen.

        Raises:
            DroverError: The call's own; DEADLINE_EXCEEDED with the stage when time ran out;
                DRAINING when this worker shuts down.
        """
        method = self._methods[name]
        clock = asyncio.get_running_loop()
        deadline = clock.time() + timeout_s
        pause_s = _RETRY_FIRST_S
        last_error = ""
        while True:
            left_s = deadline - clock.time()
            if left_s <= 0:
                raise self._too_late(name, last_error)
            try:
                return await self._answer(method, message, left_s, hop_count=0, author=author)
            except DroverError as error:
                if not _elsewhere(error) or self._loop.herder.membership.ending:
                    raise
                last_error = error.message
                _log.info("a call looks for its worker again", call=name, why=error.message)
            await asyncio.sleep(min(pause_s, max(deadline - clock.time(), 0)))
            pause_s = min(pause_s * 2, _RETRY_MAX_S)

    async def forwarded(
        self, name: str, data: bytes, *, hop_count: int, timeout_s: float, author: str
    ) -> bytes:
        """Answer a call that another worker carried here.

        Raises:
            InvalidArgumentError: INVALID_REQUEST, no such method or not its request.
            DroverError: The call's own; NOT_LEADER or NOT_OWNER after too many hops.
        """
        if name in self._local:
            return self._local[name]().SerializeToString()
        method = self._methods.get(name)
        if method is None:
            raise InvalidArgumentError(Reason.INVALID_REQUEST, f"{name!r} is not carried")
        try:
            message = method.request_type.FromString(data)
        except DecodeError as error:
            text = f"not a request of {name}: {error}"
            raise InvalidArgumentError(Reason.INVALID_REQUEST, text) from None
        response: Message = await self._answer(
            method, message, timeout_s, hop_count=hop_count, author=author
        )
        return response.SerializeToString()

    async def _answer(
        self,
        method: CarriedMethod,
        message: Message,
        timeout_s: float,
        *,
        hop_count: int,
        author: str,
    ) -> Any:
        deadline = asyncio.get_running_loop().time() + timeout_s
        answer = await self._loop.request(
            method.to_request(message), timeout_s=timeout_s, hop_count=hop_count, author=author
        )
        if not isinstance(answer, requests.ForwardTo):
            return method.to_response(message, answer)
        left_s = deadline - asyncio.get_running_loop().time() - _HOP_MARGIN_S
        if left_s <= 0:
            raise self._too_late(method.name, "")
        data = await self._workers.get(answer.worker_url).forward(
            method=method.name,
            request=message.SerializeToString(),
            hop_count=hop_count + 1,
            author=author,
            retry=False,
            timeout_s=left_s,
        )
        return method.response_type.FromString(data)

    def _too_late(self, name: str, last_error: str) -> DeadlineExceededError:
        error = self._loop.deadline_error(name)
        if not last_error:
            return error
        return DeadlineExceededError(
            Reason.DEADLINE_EXCEEDED, f"{error.message}; last error: {last_error}"
        )


def _elsewhere(error: DroverError) -> bool:
    """Whether another worker, or the same one a little later, can answer."""
    if isinstance(error, FailedPreconditionError):
        return error.reason in (Reason.NOT_LEADER, Reason.NOT_OWNER)
    return isinstance(error, UnavailableError)
