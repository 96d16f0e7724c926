"""The calls of all clients: deadline, retries, request id, errors."""

import asyncio
import sys
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing
from typing import Any, Protocol, TypeVar

import grpc
import grpc.aio
from tenacity import (
    AsyncRetrying,
    retry_if_exception_type,
    wait_exponential,
    wait_random,
)

from drover.errors import DeadlineExceededError, InternalError, Reason, UnavailableError
from drover.rpc import AUTHOR_KEY, MESSAGE_MAX_BYTES, REQUEST_ID_KEY, REQUEST_ID_PATTERN
from drover.rpc.status import from_rpc_error

RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")
T = TypeVar("T")


class Chunk(Protocol):
    """A part of a streamed response; the last part is ``complete``."""

    @property
    def complete(self) -> bool:
        """Whether this is the last part."""


ChunkT = TypeVar("ChunkT", bound=Chunk)


class Page(Protocol):
    """One page of a list."""

    @property
    def next_page_token(self) -> str:
        """The token of the next page; empty in the last page."""


PageT = TypeVar("PageT", bound=Page)

#: The default limit of a call between services.
CALL_TIMEOUT_S = 10.0
RETRY_FIRST_S = 0.1
RETRY_MAX_S = 2.0
PAGES_MAX = 100_000

_OPTIONS = (
    # reconnect to a restarted server within a second
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 2_000),  # the time limit of one connection attempt
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # close a connection after 15 s without a response to a ping
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.max_receive_message_length", MESSAGE_MAX_BYTES),
    ("grpc.enable_retries", 0),  # retried below, since only some calls are idempotent
    ("grpc.enable_http_proxy", 0),  # clusters are not behind the proxy for web pages
)


def channel(
    address: str, credentials: grpc.ChannelCredentials | None = None, *, server_name: str = ""
) -> grpc.aio.Channel:
    """Create a channel to host:port. It connects at the first call and reconnects automatically.

    Close it (``async with``) when its clients are no longer used.

    Args:
        address: host:port.
        credentials: The credentials for TLS and the server; None for plaintext.
        server_name: The name in the server's certificate, if it is not the host.
    """
    if credentials is None:
        return grpc.aio.insecure_channel(address, options=_OPTIONS)
    options: list[tuple[str, Any]] = list(_OPTIONS)
    if server_name:
        options.append(("grpc.ssl_target_name_override", server_name))
    return grpc.aio.secure_channel(address, credentials, options=options)


def new_request_id() -> str:
    """A new request id, by which a server recognises a retry."""
    return uuid.uuid4().hex


async def unary(
    method: "grpc.aio.UnaryUnaryMultiCallable[RequestT, ResponseT]",
    request: RequestT,
    *,
    timeout_s: float,
    retry: bool,
    author: str = "",
) -> ResponseT:
    """Call ``method`` once, or with ``retry`` until the server responds.

    Args:
        method: A method of a generated stub.
        request: The request; all attempts send the same one, with the same request id.
        timeout_s: The time limit for all attempts and the pauses between them.
        retry: Whether to retry while the server is unavailable.
        author: The author of a change, in ASCII; if empty, the server uses the caller's address.

    Raises:
        DroverError: The error in the server's response. UnavailableError if the server could not be
            reached in time, DeadlineExceededError if it did not respond in time.
    """
    metadata = _metadata() + (((AUTHOR_KEY, author),) if author else ())
    if not retry:
        return await _attempt(method, request, timeout_s, metadata)
    return await _retry_unavailable(
        timeout_s, lambda left_s: _attempt(method, request, left_s, metadata)
    )


async def client_stream(
    method: "grpc.aio.StreamUnaryMultiCallable[RequestT, ResponseT]",
    requests: Callable[[], Iterator[RequestT]],
    *,
    timeout_s: float,
    retry: bool,
    author: str = "",
) -> ResponseT:
    """As ``unary``, for a stream of requests: each attempt sends a new iterator of them.

    Raises:
        DroverError: As ``unary``.
    """
    metadata = _metadata() + (((AUTHOR_KEY, author),) if author else ())

    async def attempt(left_s: float) -> ResponseT:
        try:
            return _decoded(await method(requests(), timeout=left_s, metadata=metadata))
        except grpc.RpcError as error:
            raise from_rpc_error(error) from None

    if not retry:
        return await attempt(timeout_s)
    return await _retry_unavailable(timeout_s, attempt)


def server_stream(
    method: "grpc.aio.UnaryStreamMultiCallable[RequestT, ResponseT]",
    request: RequestT,
) -> AsyncGenerator[ResponseT, None]:
    """Yield the messages of a stream without a deadline. Closing the iterator ends the call.

    Raises:
        DroverError: The error that ended the stream.
    """
    return _stream(method, request, None, _metadata())


async def snapshot(
    method: "grpc.aio.UnaryStreamMultiCallable[RequestT, ChunkT]",
    request: RequestT,
    *,
    timeout_s: float,
) -> list[ChunkT]:
    """All chunks of a streamed response; it is retried if it ends before the complete chunk.

    Raises:
        DroverError: As ``unary``.
    """
    metadata = _metadata()

    async def read(left_s: float) -> list[ChunkT]:
        chunks: list[ChunkT] = []
        async with aclosing(_stream(method, request, left_s, metadata)) as stream:
            async for chunk in stream:
                chunks.append(chunk)
                if chunk.complete:
                    return chunks
        raise UnavailableError(
            Reason.SERVICE_UNREACHABLE, "the server ended the snapshot before its last chunk"
        )

    return await _retry_unavailable(timeout_s, read)


async def pages(fetch: Callable[[str], Awaitable[PageT]]) -> AsyncIterator[PageT]:
    """Yield all pages of a list; ``fetch`` returns the page of a token, "" for the first page.

    Raises:
        InternalError: The server repeats a page token, or returns too many pages.
    """
    token = ""
    seen = {token}
    while len(seen) <= PAGES_MAX:
        page = await fetch(token)
        yield page
        token = page.next_page_token
        if not token:
            return
        if token in seen:
            break
        seen.add(token)
    raise InternalError(
        f"the list of the server does not end: it returned page token {token!r} after"
        f" {len(seen)} pages"
    )


async def _attempt(
    method: "grpc.aio.UnaryUnaryMultiCallable[RequestT, ResponseT]",
    request: RequestT,
    timeout_s: float,
    metadata: tuple[tuple[str, str], ...],
) -> ResponseT:
    try:
        return _decoded(await method(request, timeout=timeout_s, metadata=metadata))
    except grpc.RpcError as error:
        raise from_rpc_error(error) from None


async def _stream(
    method: "grpc.aio.UnaryStreamMultiCallable[RequestT, ResponseT]",
    request: RequestT,
    timeout_s: float | None,
    metadata: tuple[tuple[str, str], ...],
) -> AsyncGenerator[ResponseT, None]:
    call = method(request, timeout=timeout_s, metadata=metadata)
    try:
        async for message in call:
            yield _decoded(message)
    except grpc.RpcError as error:
        raise from_rpc_error(error) from None
    finally:
        call.cancel()


def _decoded(message: ResponseT | None) -> ResponseT:
    """Check the response: gRPC returns None for bytes that it cannot decode."""
    if message is None:
        raise InternalError(
            "the response cannot be decoded: check that client and server have the same version"
        )
    return message


async def _retry_unavailable(timeout_s: float, call: Callable[[float], Awaitable[T]]) -> T:
    """Retry while the server is unavailable; ``call`` gets the seconds left."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    unavailable: UnavailableError | None = None
    retrying = AsyncRetrying(
        retry=retry_if_exception_type(UnavailableError),
        # by the loop's clock, which may be simulated
        stop=lambda state: loop.time() + state.upcoming_sleep >= deadline,
        wait=wait_exponential(multiplier=RETRY_FIRST_S, max=RETRY_MAX_S)
        + wait_random(0, RETRY_FIRST_S),
        reraise=True,
    )
    async for attempt in retrying:
        with attempt:
            try:
                left_s = deadline - loop.time()
                if left_s <= 0:
                    raise DeadlineExceededError(
                        Reason.DEADLINE_EXCEEDED, "no response before the deadline"
                    )
                return await call(left_s)
            except UnavailableError as error:
                unavailable = error
                raise
            except DeadlineExceededError as error:
                if unavailable is None:
                    raise
                # the earlier error usually has the reason why the server does not respond
                why = f"{error.message}; the previous attempt failed: {unavailable.message}"
                raise DeadlineExceededError(error.reason, why, metadata=error.metadata) from None
    raise AssertionError("unreachable: the last attempt raises")


def _metadata() -> tuple[tuple[str, str], ...]:
    """The metadata of a call: it propagates the request id of the current call."""
    # a process that has not loaded the module of logs serves no calls, and need not load it here
    logs = sys.modules.get("drover.rpc.logs")
    current = logs.current_request_id() if logs else ""
    return (
        (REQUEST_ID_KEY, current if REQUEST_ID_PATTERN.fullmatch(current) else new_request_id()),
    )
