"""The interceptor of all calls: request id, authorization, deadline, errors, access log, and the
end of watches.

It is one interceptor, not one per concern, so each call is wrapped once. gRPC's own services
(health, reflection) are open to all callers within bounds, and their callers set no deadlines.

All handlers are wrapped as handlers of a stream of requests, of which most read one: gRPC starts
such a handler before the request has arrived, so the caller is known and the wait has a limit.
"""

import asyncio
import math
import random
import time
import uuid
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from functools import partial
from typing import Any

import grpc
import grpc.aio
import structlog
from google.protobuf.message import DecodeError

from drover.errors import (
    DeadlineExceededError,
    DroverError,
    InternalError,
    InvalidArgumentError,
    PermissionDeniedError,
    Reason,
    ResourceExhaustedError,
    UnavailableError,
)
from drover.rpc import REQUEST_ID_KEY, REQUEST_ID_PATTERN
from drover.rpc.bounds import Bounds, Places
from drover.rpc.call_metrics import CallFigures, MethodFigures
from drover.rpc.callers import host_of
from drover.rpc.guard import CallGuard, current_principal
from drover.rpc.names import CLIENT_SERVICE, trim_names
from drover.rpc.status import abort_with, domain_of

ADMIN_DEADLINE_S = 60.0
#: Bounds of the time that a handler leaves between its response and the caller's deadline, which is
#: a twentieth of the remaining time. A response after the deadline is lost, and with it the reason
#: why the call had to wait.
ANSWER_MARGIN_MIN_S, ANSWER_MARGIN_MAX_S = 0.1, 1.0
#: A stream is ended if its client has read no message for this long.
WRITE_MAX_S = 10.0
#: The maximum wait until a failed call's status is sent; a client that reads later still gets it.
STATUS_MAX_S = 2.0
#: The maximum size of all requests in flight. A call holds its request until its end, for minutes
#: if it is parked. Small requests, such as heartbeats, are always accepted.
REQUESTS_MAX_BYTES = 256 * 1024 * 1024
SMALL_REQUEST_BYTES = 16 * 1024

_FOREIGN_PREFIX = "/grpc."
#: The time for health watchers to receive NOT_SERVING before their streams end.
_LAST_STATUS_S = 0.1
_log = structlog.get_logger("drover.rpc")

Context = grpc.aio.ServicerContext[Any, Any]
Decode = Callable[[bytes], Any]
#: Checks an authorized unary call: gRPC's method name, the request's bytes, and its context.
CheckCall = Callable[[str, bytes, Context], None]
#: How often the rights of an open stream's caller are checked again.
RIGHTS_CHECK_S = 5.0

#: On the monotonic clock, for calls without a deadline of the caller.
_own_deadline: ContextVar[float] = ContextVar("drover_own_deadline", default=math.inf)
_current_watch: ContextVar["WatchCall | None"] = ContextVar("drover_current_watch", default=None)


def remaining_s(context: Context, margin_s: float | None = None) -> float:
    """The time a handler has left if its response must arrive before the deadline; at least 0.

    An admin call without a deadline has the default deadline of 60 s. A stream without a deadline
    always has 60 s left.

    Args:
        context: The call's context.
        margin_s: The time reserved for the response; by default a twentieth of the time left.
    """
    left: float | None = context.time_remaining()
    if left is None:
        left = min(ADMIN_DEADLINE_S, _own_deadline.get() - time.monotonic())
    if margin_s is None:
        margin_s = min(max(left / 20, ANSWER_MARGIN_MIN_S), ANSWER_MARGIN_MAX_S)
    return max(0.0, left - margin_s)


def ended_by_server() -> bool:
    """Whether this server ends the current Watch call (drain, maximum age), not its client."""
    watch = _current_watch.get()
    return watch is not None and watch.ended


class WatchCall:
    """An open Watch stream, which the server can end at any time."""

    def __init__(self) -> None:
        self._task = asyncio.current_task()
        self._writing = False
        self.ended = False
        #: The error if the caller has lost its rights; None while it has them.
        self.rights_error: DroverError | None = None

    def end(self) -> None:
        """End the stream as soon as no message is being written."""
        if not self.ended:
            self.ended = True
            if not self._writing and self._task is not None:
                self._task.cancel()

    async def send(self, responses: AsyncIterable[Any], context: Context) -> None:
        """Write the handler's responses until the handler or the server ends the stream."""
        try:
            async for response in responses:
                self._writing = True
                await _write(context, response)
                self._writing = False
                if self.ended:
                    break
        except asyncio.CancelledError:
            if not self.ended or context.cancelled():
                raise
            if self._task is not None:
                self._task.uncancel()
        except ResourceExhaustedError:
            self.ended = True
            raise
        finally:
            close = getattr(responses, "aclose", None)
            if close is not None:
                await close()


class CallInterceptor(grpc.aio.ServerInterceptor):
    """Wraps every handler of a server.

    Args:
        internal: Whether to reject unary calls without a deadline; otherwise they get 60 s.
        watch_max_age_s: The maximum age of Watch streams, +/- 10 %. Clients reconnect after it,
            which spreads them over the servers again.
        guard: Authenticates and authorizes calls.
        bounds: The bounds on calls.
    """

    def __init__(
        self, *, internal: bool, watch_max_age_s: float, guard: CallGuard, bounds: Bounds
    ) -> None:
        self._guard = guard
        self._bounds = bounds
        self._streams = Places(bounds.streams, "health watches and reflection streams")
        self._unknown_streams = Places(
            bounds.unknown_streams, "health watches and reflection streams without credentials"
        )
        self._unknown_calls = Places(bounds.unknown_calls, "calls of callers without a grant")
        self._internal = internal
        self._watch_max_age_s = watch_max_age_s
        self._watches: set[WatchCall] = set()
        self._foreign_streams: set[WatchCall] = set()
        self._wrapped: dict[str, Any] = {}
        self._requests_bytes = 0
        self.draining = False
        self.figures = CallFigures()
        #: A further check of authorized unary calls; raises a DroverError to reject the call.
        self.check: CheckCall | None = None

    def end_watches(self) -> None:
        """End every open and future Watch stream with UNAVAILABLE (DRAINING)."""
        self.draining = True
        for watch in list(self._watches):
            watch.end()
        for watch in self._foreign_streams:
            asyncio.get_running_loop().call_later(_LAST_STATUS_S, watch.end)

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Return the wrapped handler of the called method."""
        method = handler_call_details.method
        wrapped = self._wrapped.get(method)
        if wrapped is None:
            handler = await continuation(handler_call_details)
            if handler is None:
                return None
            wrapped = self._wrapped[method] = self._wrap(handler, method)
        return wrapped

    def _wrap(self, handler: Any, method: str) -> Any:
        foreign = method.startswith(_FOREIGN_PREFIX)
        if handler.request_streaming and foreign:  # of the reflection service only
            return grpc.stream_stream_rpc_method_handler(
                self._wrap_foreign_stream(handler.stream_stream, None, method),
                request_deserializer=handler.request_deserializer,
                response_serializer=handler.response_serializer,
            )
        # requests are decoded here: gRPC reports a decoding error as an internal error
        decode = _decoder(handler.request_deserializer, method)
        if handler.response_streaming:
            wrap_stream = self._wrap_foreign_stream if foreign else self._wrap_stream
            return grpc.stream_stream_rpc_method_handler(
                wrap_stream(handler.unary_stream, decode, method),
                response_serializer=handler.response_serializer,
            )
        if handler.request_streaming:
            wrapped = self._wrap_unary(handler.stream_unary, decode, method, many=True)
        else:
            wrap_unary = self._wrap_foreign_unary if foreign else self._wrap_unary
            wrapped = wrap_unary(handler.unary_unary, decode, method)
        return grpc.stream_unary_rpc_method_handler(
            wrapped, response_serializer=handler.response_serializer
        )

    def _wrap_unary(
        self,
        behavior: Callable[..., Awaitable[Any]],
        decode: Decode,
        method: str,
        *,
        many: bool = False,
    ) -> Any:
        """``many``: the handler takes a stream of requests. The caller is authorized, and the call
        is audited, with the first one.
        """
        figures = self.figures.of(method, streams=False)

        async def handle(_requests: Any, context: Context) -> Any:
            async def call() -> Any:
                await self._guard.identify(method, context)
                with self._place(context):
                    data = await self._receive(method, context)
                    with self._reserved_bytes(len(data)):
                        return await serve(data)

            async def serve(data: bytes) -> Any:
                request = self._guard.admit(method, context, lambda: decode(data))
                with self._guard.audited(method, context, request):
                    if self.check is not None:
                        self.check(method, data, context)
                    taken = self._messages(request, decode, method, context) if many else request
                    return await self._in_time(behavior, taken, method, context)

            return await _guarded(call, method, context, figures)

        return handle

    async def _messages(
        self, first: Any, decode: Decode, method: str, context: Context
    ) -> AsyncIterator[Any]:
        """The messages of a client's stream; each is dropped before the next one is read."""
        yield first
        while (data := await self._read(method, context)) is not None:
            with self._reserved_bytes(len(data)):
                yield decode(data)

    async def _in_time(
        self, behavior: Callable[..., Awaitable[Any]], request: Any, method: str, context: Context
    ) -> Any:
        """Run a handler; without a deadline of the caller within the server's."""
        if context.time_remaining() is not None:
            return await behavior(request, context)
        if self._internal:
            raise InvalidArgumentError(
                Reason.MISSING_DEADLINE,
                f"{_short(method)} needs a deadline: set a timeout on the call",
            )
        _own_deadline.set(time.monotonic() + ADMIN_DEADLINE_S)
        try:
            async with asyncio.timeout(ADMIN_DEADLINE_S) as limit:
                return await behavior(request, context)
        except TimeoutError:
            if not limit.expired():
                raise
            raise DeadlineExceededError(
                Reason.DEADLINE_EXCEEDED,
                f"{_short(method)} did not finish within {ADMIN_DEADLINE_S:.0f} s; "
                "it may still finish",
            ) from None

    def _wrap_stream(
        self, behavior: Callable[..., AsyncIterable[Any]], decode: Decode, method: str
    ) -> Any:
        watching = _short(method).startswith("Watch")
        figures = self.figures.of(method, streams=True)

        async def handle(_requests: Any, context: Context) -> None:
            async def call() -> None:
                await self._guard.identify(method, context)
                with self._place(context):
                    data = await self._receive(method, context)
                    with self._reserved_bytes(len(data)):
                        await serve(data)

            async def serve(data: bytes) -> None:
                request = self._guard.admit(method, context, lambda: decode(data))
                with self._guard.audited(method, context, request, stream=True):
                    await send(request)

            async def send(request: Any) -> None:
                if watching:
                    has_same_rights = partial(self._guard.has_same_rights, method, context, request)
                    await self._watch(behavior(request, context), context, has_same_rights)
                else:
                    async for response in behavior(request, context):
                        await _write(context, response)

            await _guarded(call, method, context, figures)

        return handle

    @contextmanager
    def _reserved_bytes(self, size_bytes: int) -> Iterator[None]:
        total_bytes = self._requests_bytes + size_bytes
        if size_bytes > SMALL_REQUEST_BYTES and total_bytes > REQUESTS_MAX_BYTES:
            raise ResourceExhaustedError(
                Reason.QUEUE_FULL,
                f"the server has no room for a request of {size_bytes} bytes:"
                f" {self._requests_bytes} bytes of requests are in flight, the maximum is"
                f" {REQUESTS_MAX_BYTES}. Retry later",
            )
        self._requests_bytes = total_bytes
        try:
            yield
        finally:
            self._requests_bytes -= size_bytes

    def _place(self, context: Context) -> AbstractContextManager[None]:
        """A place for a call of the current principal; callers with a grant need none."""
        if current_principal().grants:
            return nullcontext()
        return self._unknown_calls.take(host_of(context.peer()))

    async def _receive(self, method: str, context: Context) -> bytes:
        """The request's bytes; see ``_read``.

        Raises:
            InvalidArgumentError: INVALID_REQUEST, there is none.
        """
        data = await self._read(method, context)
        if data is None:
            raise InvalidArgumentError(
                Reason.INVALID_REQUEST, f"the call of {_short(method)} has no request message"
            )
        return data

    async def _read(self, method: str, context: Context) -> bytes | None:
        """The bytes of the next message; None after the last one.

        If they do not arrive in time, the call is aborted while this waits, because gRPC's read
        must not be cancelled for that: a cancelled call gets no status.
        """
        bounds = self._bounds
        max_s = bounds.request_max_s if current_principal().grants else bounds.unknown_request_max_s
        aborting: list[asyncio.Task[None]] = []

        def end() -> None:
            aborting.append(asyncio.create_task(_end_without_request(context, method, max_s)))

        timer = asyncio.get_running_loop().call_later(max_s, end)
        try:
            data = await context.read()
        finally:
            timer.cancel()
            if aborting:
                await asyncio.wait(aborting)
        return None if data is grpc.aio.EOF else bytes(data)

    def _wrap_foreign_unary(
        self, behavior: Callable[..., Awaitable[Any]], decode: Decode, method: str
    ) -> Any:
        figures = MethodFigures(streams=True)  # not reported: probes are not calls of Drover

        async def handle(_requests: Any, context: Context) -> Any:
            async def call() -> Any:
                await self._guard.recognize(context)
                with self._place(context):
                    return await behavior(decode(await self._receive(method, context)), context)

            return await _guarded(call, method, context, figures)

        return handle

    def _wrap_foreign_stream(
        self, behavior: Callable[..., AsyncIterable[Any]], decode: Decode | None, method: str
    ) -> Any:
        figures = MethodFigures(streams=True)  # as above

        async def handle(requests: Any, context: Context) -> None:
            async def call() -> None:
                await self._guard.recognize(context)
                with self._foreign_place(method, context):
                    argument = requests
                    if decode is not None:
                        argument = decode(await self._receive(method, context))
                    await self._serve_foreign(behavior(argument, context), context)

            await _guarded(call, method, context, figures)

        return handle

    def _foreign_place(self, method: str, context: Context) -> AbstractContextManager[None]:
        principal, host = current_principal(), host_of(context.peer())
        if principal.grants:
            return self._streams.take(host)
        if self._internal:
            error = PermissionDeniedError(
                Reason.MISSING_ROLE,
                f"{_short(method)} needs a role at this port, and {principal.name!r} has none: ask"
                " an administrator to grant one in the access file. Health's Check needs none",
                metadata={"principal": principal.name},
            )
            self._guard.audit_rejection(method, context, error)
            raise error
        return self._unknown_streams.take(host)

    async def _serve_foreign(self, responses: AsyncIterable[Any], context: Context) -> None:
        watch = WatchCall()
        self._foreign_streams.add(watch)
        loop = asyncio.get_running_loop()
        age_s = self._watch_max_age_s * random.uniform(0.9, 1.1)
        timer = loop.call_later(_LAST_STATUS_S if self.draining else age_s, watch.end)
        try:
            await watch.send(responses, context)
        finally:
            timer.cancel()
            self._foreign_streams.discard(watch)
        if watch.ended:
            why = "is shutting down" if self.draining else "ended the stream at its maximum age"
            raise UnavailableError(Reason.DRAINING, f"the server {why}: open the stream again")

    async def _watch(
        self,
        responses: AsyncIterable[Any],
        context: Context,
        has_same_rights: Callable[[], Awaitable[bool]],
    ) -> None:
        watch = WatchCall()
        _current_watch.set(watch)
        if not self.draining:
            self._watches.add(watch)
            age_s = self._watch_max_age_s * random.uniform(0.9, 1.1)
            timer = asyncio.get_running_loop().call_later(age_s, watch.end)
            rights_check = None
            if not self._guard.allows_all:
                rights_check = asyncio.create_task(_end_without_rights(watch, has_same_rights))
            try:
                await watch.send(responses, context)
            finally:
                timer.cancel()
                if rights_check is not None:
                    rights_check.cancel()
                self._watches.discard(watch)
        if watch.rights_error is not None:
            raise watch.rights_error
        if self.draining:
            raise UnavailableError(
                Reason.DRAINING, "the server is shutting down: watch again from the last offset"
            )


async def _end_without_rights(
    watch: WatchCall, has_same_rights: Callable[[], Awaitable[bool]]
) -> None:
    """End the stream when the rights of its caller differ from its rights at the start."""
    is_unchanged = True
    while is_unchanged and not watch.ended:
        await asyncio.sleep(RIGHTS_CHECK_S)
        try:
            is_unchanged = await has_same_rights()
        except DroverError as error:
            watch.rights_error, is_unchanged = error, False
    watch.end()


async def _write(context: Context, response: Any) -> None:
    try:
        async with asyncio.timeout(WRITE_MAX_S) as limit:
            await context.write(response)
    except TimeoutError:
        if not limit.expired():
            raise
        raise ResourceExhaustedError(
            Reason.QUEUE_FULL,
            f"the client did not read a message of this stream within {WRITE_MAX_S:g} s:"
            " read a snapshot and watch again from its end",
        ) from None


async def _end_without_request(context: Context, method: str, max_s: float) -> None:
    late = DeadlineExceededError(
        Reason.DEADLINE_EXCEEDED,
        f"the request of {_short(method)} did not arrive within {max_s:g} s: retry",
    )
    with suppress(grpc.aio.AbortError, asyncio.CancelledError):
        await _abort(context, late, method, ((REQUEST_ID_KEY, _request_id(context)),))


async def _abort(
    context: Context, error: DroverError, method: str, trailers: tuple[tuple[str, str], ...]
) -> None:
    """End the call with ``error``; always raises, as gRPC's ``abort`` does."""
    try:
        async with asyncio.timeout(STATUS_MAX_S):
            await abort_with(context, error, domain_of(method), trailers)
    except (TimeoutError, grpc.aio.InternalError):  # the client does not read, or has disconnected
        raise asyncio.CancelledError from None


async def _guarded(
    call: Callable[[], Awaitable[Any]], method: str, context: Context, figures: MethodFigures
) -> Any:
    """Run a call under its request id, convert its exception to a status, log and count it."""
    request_id = _request_id(context)
    structlog.contextvars.bind_contextvars(request_id=request_id)
    trailers = ((REQUEST_ID_KEY, request_id),)
    context.set_trailing_metadata(trailers)
    started = time.perf_counter()
    code = "OK"
    figures.in_flight += 1
    try:
        return await call()
    except asyncio.CancelledError:
        code = "CANCELLED"
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        # an awaitable in the handler was cancelled, not the call: gRPC would send no status
        cancelled = UnavailableError(
            Reason.DRAINING, f"{_short(method)} was cancelled by the server: retry"
        )
        await _abort(context, cancelled, method, trailers)
    except DroverError as error:
        code = error.code
        if isinstance(error, InternalError):
            _log.error("a call failed", method=method, exc_info=True)
        await _abort(context, error, method, trailers)
    except grpc.aio.AbortError:  # the handler's own abort
        code = "ABORTED_BY_HANDLER"
        raise
    except grpc.aio.InternalError:  # a message could not be sent: the client has disconnected
        code = "CANCELLED"
        raise asyncio.CancelledError from None
    except Exception:  # noqa: BLE001 - a client must not get the traceback of a defect
        code = "INTERNAL"
        _log.exception("a call failed by a defect", method=method)
        defect = InternalError(
            f"{_short(method)} failed by a defect of the server: see the traceback in its log under"
            f" request id {request_id}"
        )
        await _abort(context, defect, method, trailers)
    finally:
        duration_s = time.perf_counter() - started
        figures.in_flight -= 1
        figures.ended(code, duration_s)
        _log.debug("call", method=method, code=code, duration_ms=round(duration_s * 1000, 1))
    raise AssertionError("unreachable")


def _decoder(deserialize: Decode, method: str) -> Decode:
    def decode(data: bytes) -> Any:
        try:
            request = deserialize(data)
        except DecodeError as error:
            raise InvalidArgumentError(
                Reason.INVALID_REQUEST,
                f"the message to {_short(method)} is not a valid request: {error}",
            ) from error
        if method.startswith(CLIENT_SERVICE):
            trim_names(request)
        return request

    return decode


def _request_id(context: Context) -> str:
    for key, value in context.invocation_metadata() or ():
        if key == REQUEST_ID_KEY and isinstance(value, str) and REQUEST_ID_PATTERN.fullmatch(value):
            return value
    return uuid.uuid4().hex


def _short(method: str) -> str:
    return method.rpartition("/")[2]
