"""Routes a request to the worker that can handle it: this one, the leader or an owner.

If the target is down or has changed, the request is routed again until the caller's deadline, so
that callers need not retry.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import structlog
from google.protobuf.message import DecodeError, Message

from drover.backoff import Backoff
from drover.client.worker import WorkerClient
from drover.errors import (
    DeadlineExceededError,
    DroverError,
    FailedPreconditionError,
    InternalError,
    InvalidArgumentError,
    Reason,
    UnavailableError,
)
from drover_worker.admin.call import AdminCall
from drover_worker.core import requests
from drover_worker.core.requests.pending import HOP_COUNT_MAX
from drover_worker.shell.herder_loop import HerderLoop

_RETRY_FIRST_S = 0.1
_RETRY_MAX_S = 1.0

_log = structlog.get_logger("drover.worker")

RequestT = TypeVar("RequestT", bound=Message)
ResponseT = TypeVar("ResponseT", bound=Message)
AnswerT = TypeVar("AnswerT")

#: Handles a forwarded call: serialized request in, serialized response out.
ServeForwarded = Callable[[bytes, AdminCall], Awaitable[bytes]]


@dataclass(frozen=True, slots=True)
class ForwardedMethod(Generic[RequestT, ResponseT]):
    """A ConnectService call that another worker may have to handle.

    Attributes:
        name: The RPC's name, such as "CreateConnector".
        request_type: The class of its request.
        response_type: The class of its response.
    """

    name: str
    request_type: type[RequestT]
    response_type: type[ResponseT]

    def decode_request(self, data: bytes) -> RequestT:
        """Decode the request from another worker.

        Raises:
            InvalidArgumentError: INVALID_REQUEST.
        """
        try:
            return self.request_type.FromString(data)
        except DecodeError as error:
            text = f"not a request of {self.name}: {error}"
            raise InvalidArgumentError(Reason.INVALID_REQUEST, text) from None

    def decode_response(self, data: bytes) -> ResponseT:
        """Decode the response from another worker.

        Raises:
            InternalError: It is malformed.
        """
        try:
            return self.response_type.FromString(data)
        except DecodeError as error:
            text = f"another worker's response to {self.name} is malformed: {error}"
            raise InternalError(text) from None

    def served_by(
        self, use_case: Callable[[RequestT, AdminCall], Awaitable[ResponseT]]
    ) -> ServeForwarded:
        """The handler of this method's forwarded calls, which runs the use case."""

        async def serve(data: bytes, call: AdminCall) -> bytes:
            response = await use_case(self.decode_request(data), call)
            return response.SerializeToString()

        return serve


class WorkerClients(Protocol):
    """Clients of the other workers."""

    def get(self, address: str) -> WorkerClient:
        """The client for the worker at host:port."""


class RequestForwarder:
    """Submits requests to the herder, and forwards them to the worker that it names."""

    def __init__(self, loop: HerderLoop, workers: WorkerClients) -> None:
        self._loop = loop
        self._workers = workers

    async def answer(
        self,
        method: ForwardedMethod[RequestT, ResponseT],
        message: RequestT,
        request: requests.Request,
        respond: Callable[[requests.Response], ResponseT],
        call: AdminCall,
    ) -> ResponseT:
        """Handle a call on this worker or forward it.

        Args:
            method: The call.
            message: Its request, for forwarding.
            request: Its request, for the herder.
            respond: Turns the herder's response into the call's response.
            call: The principal and the deadline. A client's call is retried until its deadline. A
                forwarded call is tried once, because the first worker retries it.

        Raises:
            DroverError: The error of the call; DEADLINE_EXCEEDED with the worker's stage; DRAINING
                if this worker shuts down; NOT_LEADER or NOT_OWNER after too many hops.
        """
        backoff = Backoff(_RETRY_FIRST_S, _RETRY_MAX_S)
        last_error = ""
        while True:
            if not call.deadline.remaining_s():
                raise self._deadline_error(method.name, last_error)
            try:
                return await self._try(method, message, request, respond, call)
            except DroverError as error:
                ending = self._loop.herder.membership.ending
                if call.hop_count or ending or not _is_retriable(error):
                    raise
                last_error = error.message
                _log.info("a call is routed again", call=method.name, why=last_error)
            await asyncio.sleep(min(backoff.next_pause_s(), call.deadline.remaining_s()))

    async def forward(
        self,
        method: ForwardedMethod[RequestT, ResponseT],
        message: RequestT,
        address: str,
        *,
        author: str,
        hop_count: int,
        timeout_s: float,
    ) -> ResponseT:
        """Forward a call to the worker at ``address``; ``hop_count`` includes this hop.

        It is retried while one of the two workers has not read the session key yet.
        """
        deadline_s = asyncio.get_running_loop().time() + timeout_s
        backoff = Backoff(_RETRY_FIRST_S, _RETRY_MAX_S)
        while True:
            left_s = deadline_s - asyncio.get_running_loop().time()
            try:
                data = await self._workers.get(address).forward(
                    method=method.name,
                    request=message.SerializeToString(),
                    hop_count=hop_count,
                    author=author,
                    retry=False,
                    timeout_s=left_s,
                )
            except UnavailableError as error:
                pause_s = backoff.next_pause_s()
                if error.reason is not Reason.SESSION_KEY_UNKNOWN or pause_s >= left_s:
                    raise
                await asyncio.sleep(pause_s)
            else:
                return method.decode_response(data)

    async def ask(
        self,
        method: ForwardedMethod[RequestT, ResponseT],
        message: RequestT,
        worker_id: str,
        *,
        timeout_s: float,
        hop_count: int = HOP_COUNT_MAX,
    ) -> ResponseT | None:
        """``forward`` a call of this worker itself; None if the other worker does not answer.

        By default the other worker does not forward it again.
        """
        address = self._loop.herder.membership.call_url(worker_id)
        try:
            return await self.forward(
                method, message, address, author="", hop_count=hop_count, timeout_s=timeout_s
            )
        except DroverError:
            return None

    async def _try(
        self,
        method: ForwardedMethod[RequestT, ResponseT],
        message: RequestT,
        request: requests.Request,
        respond: Callable[[requests.Response], ResponseT],
        call: AdminCall,
    ) -> ResponseT:
        answer = await self._loop.request(
            request,
            timeout_s=call.deadline.remaining_s(),
            hop_count=call.hop_count,
            author=call.principal.name,
        )
        if not isinstance(answer, requests.ForwardTo):
            return respond(answer)
        left_s = call.deadline.forwarded_s()
        if left_s <= 0:
            raise self._deadline_error(method.name, "")
        return await self.forward(
            method,
            message,
            answer.worker_url,
            author=call.principal.name,
            hop_count=call.hop_count + 1,
            timeout_s=left_s,
        )

    def _deadline_error(self, name: str, last_error: str) -> DeadlineExceededError:
        error = self._loop.deadline_error(name)
        if not last_error:
            return error
        return DeadlineExceededError(
            Reason.DEADLINE_EXCEEDED, f"{error.message}; last error: {last_error}"
        )


def answer_of(kind: type[AnswerT], answer: requests.Response) -> AnswerT:
    """The herder's response, which has to be of this kind.

    Raises:
        InternalError: It is of another kind, which is a defect.
    """
    if not isinstance(answer, kind):
        raise InternalError(f"the herder returned {type(answer).__name__}, not {kind.__name__}")
    return answer


def _is_retriable(error: DroverError) -> bool:
    """Whether another worker, or the same worker later, may handle the call."""
    if isinstance(error, FailedPreconditionError):
        return error.reason in (Reason.NOT_LEADER, Reason.NOT_OWNER)
    return isinstance(error, UnavailableError)
