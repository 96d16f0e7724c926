"""What happens around every call: request id, who may call, deadline, errors, access log, the end
of watches.

It is one interceptor, not four: each call is wrapped once. gRPC's own services (health,
reflection) pass as they are, since their callers set no deadlines; only health watches are ended
when the server drains.
"""

import asyncio
import math
import random
import time
import uuid
from collections.abc import AsyncIterable, Awaitable, Callable, Iterator
from contextlib import contextmanager
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
    Reason,
    ResourceExhaustedError,
    UnavailableError,
)
from drover.rpc import REQUEST_ID_KEY, REQUEST_ID_PATTERN
from drover.rpc.call_metrics import CallFigures, MethodFigures
from drover.rpc.guard import CallGuard
from drover.rpc.status import abort_with, domain_of

ADMIN_DEADLINE_S = 60.0
#: A server-side answer must leave this long before the caller's deadline to still arrive: a
#: twentieth of the time left, within these bounds. A busy machine takes its time over an answer,
#: and a caller whose deadline has passed is not told what its call waited for.
ANSWER_MARGIN_MIN_S, ANSWER_MARGIN_MAX_S = 0.1, 1.0
#: A stream whose client has not taken a message for this long is ended.
WRITE_MAX_S = 10.0
#: How long a failed call waits for its status to be sent. A client that reads again later still
#: gets it; one that never does holds up nothing.
STATUS_MAX_S = 2.0
#: What the requests under way may take together. A call holds its request until it is answered, and
#: a parked one for minutes; small ones, such as heartbeats, are always let in.
REQUESTS_MAX_BYTES = 256 * 1024 * 1024
SMALL_REQUEST_BYTES = 16 * 1024

_FOREIGN_PREFIX = "/grpc."
_LAST_WORD_S = 0.1
_log = structlog.get_logger("drover.rpc")

Context = grpc.aio.ServicerContext[Any, Any]
Decode = Callable[[bytes], Any]
#: Looks at a unary call that was let in: gRPC's name of it, its request's bytes, its metadata.
CheckCall = Callable[[str, bytes, Context], None]
#: How often a stream under way is looked at, whether its caller still has the rights to it.
RIGHTS_CHECK_S = 5.0

#: On the monotonic clock, for calls whose caller set none.
_own_deadline: ContextVar[float] = ContextVar("drover_own_deadline", default=math.inf)
_current_watch: ContextVar["WatchCall | None"] = ContextVar("drover_current_watch", default=None)


def remaining_s(context: Context, margin_s: float | None = None) -> float:
    """How long a handler may still work so that its answer arrives in time; never negative.

    ``margin_s`` is what the answer needs; without it a part of the time left. For an admin call
    without a deadline it is what is left of the default of 60 s; for a stream without one the whole
    default, each time it asks.
    """
    left: float | None = context.time_remaining()
    if left is None:
        left = min(ADMIN_DEADLINE_S, _own_deadline.get() - time.monotonic())
    if margin_s is None:
        margin_s = min(max(left / 20, ANSWER_MARGIN_MIN_S), ANSWER_MARGIN_MAX_S)
    return max(0.0, left - margin_s)


def ended_by_server() -> bool:
    """Whether the Watch call whose handler asks is being ended by this server (drain, maximum age).

    For a ``finally`` that has to tell this from a client that went away.
    """
    watch = _current_watch.get()
    return watch is not None and watch.ended


class WatchCall:
    """A Watch stream under way, which the server can end at any moment."""

    def __init__(self) -> None:
        self._task = asyncio.current_task()
        self._writing = False
        self.ended = False
        #: Why its caller may not go on with it; None while it may.
        self.refusal: DroverError | None = None

    def end(self) -> None:
        """End the stream as soon as no message is being written."""
        if not self.ended:
            self.ended = True
            if not self._writing and self._task is not None:
                self._task.cancel()

    async def send(self, responses: AsyncIterable[Any], context: Context) -> None:
        """Write the handler's responses until it or the server ends the stream."""
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
        internal: Whether unary calls without a deadline are refused; else they get 60 s.
        watch_max_age_s: Watch streams are ended after this long, give or take a tenth, so that
            clients spread over the servers again.
        guard: Lets calls in.
    """

    def __init__(self, *, internal: bool, watch_max_age_s: float, guard: CallGuard) -> None:
        self._guard = guard
        self._internal = internal
        self._watch_max_age_s = watch_max_age_s
        self._watches: set[WatchCall] = set()
        self._foreign_streams: set[asyncio.Task[Any]] = set()
        self._wrapped: dict[str, Any] = {}
        self._requests_bytes = 0
        self.draining = False
        self.figures = CallFigures()
        #: Raises a DroverError for a unary call that is refused all the same.
        self.check: CheckCall | None = None

    def end_watches(self) -> None:
        """End every Watch stream with UNAVAILABLE (DRAINING), and those that still come."""
        self.draining = True
        for watch in list(self._watches):
            watch.end()
        for task in self._foreign_streams:
            # health watchers shall still hear NOT_SERVING
            asyncio.get_running_loop().call_later(_LAST_WORD_S, task.cancel)

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Give gRPC the wrapped handler of the method that is called."""
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
        if handler.request_streaming or (foreign and not handler.response_streaming):
            return handler  # no RPC of Drover's streams its requests
        if foreign:
            return grpc.unary_stream_rpc_method_handler(
                self._wrap_foreign_stream(handler.unary_stream, method),
                request_deserializer=handler.request_deserializer,
                response_serializer=handler.response_serializer,
            )
        # the requests come as bytes: what gRPC cannot decode it takes for a defect of the server
        decode = _decoder(handler.request_deserializer, method)
        if handler.response_streaming:
            return grpc.unary_stream_rpc_method_handler(
                self._wrap_stream(handler.unary_stream, decode, method),
                response_serializer=handler.response_serializer,
            )
        return grpc.unary_unary_rpc_method_handler(
            self._wrap_unary(handler.unary_unary, decode, method),
            response_serializer=handler.response_serializer,
        )

    def _wrap_unary(
        self, behavior: Callable[..., Awaitable[Any]], decode: Decode, method: str
    ) -> Any:
        figures = self.figures.of(method, streams=False)

        async def handle(data: bytes, context: Context) -> Any:
            async def call() -> Any:
                with self._let_in(len(data)):
                    return await serve()

            async def serve() -> Any:
                request = await self._guard.let_in(method, context, lambda: decode(data))
                with self._guard.recorded(method, context, request):
                    if self.check is not None:
                        self.check(method, data, context)
                    return await work(request)

            async def work(request: Any) -> Any:
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

            return await _guarded(call, method, context, figures)

        return handle

    def _wrap_stream(
        self, behavior: Callable[..., AsyncIterable[Any]], decode: Decode, method: str
    ) -> Any:
        watching = _short(method).startswith("Watch")
        figures = self.figures.of(method, streams=True)

        async def handle(data: bytes, context: Context) -> None:
            async def call() -> None:
                with self._let_in(len(data)):
                    request = await self._guard.let_in(method, context, lambda: decode(data))
                    if watching:
                        still = partial(self._guard.still, method, context, request)
                        await self._watch(behavior(request, context), context, still)
                    else:
                        async for response in behavior(request, context):
                            await _write(context, response)

            await _guarded(call, method, context, figures)

        return handle

    @contextmanager
    def _let_in(self, size_bytes: int) -> Iterator[None]:
        in_all = self._requests_bytes + size_bytes
        if size_bytes > SMALL_REQUEST_BYTES and in_all > REQUESTS_MAX_BYTES:
            raise ResourceExhaustedError(
                Reason.QUEUE_FULL,
                f"{self._requests_bytes} bytes of requests are under way, {REQUESTS_MAX_BYTES} is"
                f" the limit: one of {size_bytes} bytes has to wait; try again later",
            )
        self._requests_bytes = in_all
        try:
            yield
        finally:
            self._requests_bytes -= size_bytes

    def _wrap_foreign_stream(self, behavior: Callable[..., Awaitable[Any]], _method: str) -> Any:
        async def handle(request: Any, context: Context) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._foreign_streams.add(task)
            try:
                await behavior(request, context)
            except asyncio.CancelledError:
                # gRPC sends no status for a handler that ends so, unless its client cancelled
                if not self.draining or context.cancelled():
                    raise
                task.uncancel()
            finally:
                self._foreign_streams.discard(task)

        return handle

    async def _watch(
        self,
        responses: AsyncIterable[Any],
        context: Context,
        still: Callable[[], Awaitable[bool]],
    ) -> None:
        watch = WatchCall()
        _current_watch.set(watch)
        if not self.draining:
            self._watches.add(watch)
            age_s = self._watch_max_age_s * random.uniform(0.9, 1.1)
            timer = asyncio.get_running_loop().call_later(age_s, watch.end)
            rights = None
            if not self._guard.lets_everybody_in:
                rights = asyncio.create_task(_end_without_rights(watch, still))
            try:
                await watch.send(responses, context)
            finally:
                timer.cancel()
                if rights is not None:
                    rights.cancel()
                self._watches.discard(watch)
        if watch.refusal is not None:
            raise watch.refusal
        if self.draining:
            raise UnavailableError(
                Reason.DRAINING, "the server is shutting down: watch again from the last offset"
            )


async def _end_without_rights(watch: WatchCall, still: Callable[[], Awaitable[bool]]) -> None:
    """End the stream once its caller has not the rights that it began with."""
    same = True
    while same and not watch.ended:
        await asyncio.sleep(RIGHTS_CHECK_S)
        try:
            same = await still()
        except DroverError as error:
            watch.refusal, same = error, False
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
            f"a message of this stream was not read within {WRITE_MAX_S:g} s:"
            " take a snapshot and watch again from there",
        ) from None


async def _abort(
    context: Context, error: DroverError, method: str, trailers: tuple[tuple[str, str], ...]
) -> None:
    """End the call with ``error``; raises, as gRPC's own abort does."""
    try:
        async with asyncio.timeout(STATUS_MAX_S):
            await abort_with(context, error, domain_of(method), trailers)
    except TimeoutError:
        raise asyncio.CancelledError from None


async def _guarded(
    call: Callable[[], Awaitable[Any]], method: str, context: Context, figures: MethodFigures
) -> Any:
    """Run a call under its request id, turn what it raises into a status, log and count it."""
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
        # something that the handler waited for was cancelled; gRPC would leave the caller waiting
        gone = UnavailableError(Reason.DRAINING, f"{_short(method)} was given up by the server")
        await _abort(context, gone, method, trailers)
    except DroverError as error:
        code = error.code
        if isinstance(error, InternalError):
            _log.error("a call failed", method=method, exc_info=True)
        await _abort(context, error, method, trailers)
    except grpc.aio.AbortError:  # the handler's own abort
        code = "ABORTED_BY_HANDLER"
        raise
    except grpc.aio.InternalError:  # a message could not be sent: the client has gone
        code = "CANCELLED"
        raise asyncio.CancelledError from None
    except Exception:  # noqa: BLE001 - no defect's trace may reach a client
        code = "INTERNAL"
        _log.exception("a call failed by a defect", method=method)
        defect = InternalError(
            f"{_short(method)} failed by a defect of the server; "
            f"its log holds the trace under request id {request_id}"
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
            return deserialize(data)
        except DecodeError as error:
            raise InvalidArgumentError(
                Reason.INVALID_REQUEST,
                f"what was sent to {_short(method)} is not its request: {error}",
            ) from error

    return decode


def _request_id(context: Context) -> str:
    for key, value in context.invocation_metadata() or ():
        if key == REQUEST_ID_KEY and isinstance(value, str) and REQUEST_ID_PATTERN.fullmatch(value):
            return value
    return uuid.uuid4().hex


def _short(method: str) -> str:
    return method.rpartition("/")[2]
