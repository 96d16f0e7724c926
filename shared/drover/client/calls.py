"""How every client calls: deadline, retries, request id, errors."""

import asyncio
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, Protocol, TypeVar

import grpc
import grpc.aio
from tenacity import (
    AsyncRetrying,
    retry_if_exception_type,
    stop_before_delay,
    wait_exponential,
    wait_random,
)

from drover.errors import DeadlineExceededError, InternalError, Reason, UnavailableError
from drover.rpc import AUTHOR_KEY, MESSAGE_MAX_BYTES, REQUEST_ID_KEY, REQUEST_ID_PATTERN
from drover.rpc.logs import current_request_id
from drover.rpc.status import from_rpc_error

RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")
T = TypeVar("T")


class Chunk(Protocol):
    """A part of a streamed answer; the last one is ``complete``."""

    @property
    def complete(self) -> bool:
        """Whether the answer ends here."""


ChunkT = TypeVar("ChunkT", bound=Chunk)


class Page(Protocol):
    """A part of a list that is asked for bit by bit."""

    @property
    def next_page_token(self) -> str:
        """Asks for the part that follows; empty in the last one."""


PageT = TypeVar("PageT", bound=Page)

#: The default limit of a call between services.
CALL_TIMEOUT_S = 10.0
RETRY_FIRST_S = 0.1
RETRY_MAX_S = 2.0
PAGES_MAX = 100_000

_OPTIONS = (
    # a server that comes back is found again within a second
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 2_000),  # how long one attempt to connect may take
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # a peer behind a silent network is given up after 15 s
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.max_receive_message_length", MESSAGE_MAX_BYTES),
    ("grpc.enable_retries", 0),  # retries are decided below, by what each call allows
    ("grpc.enable_http_proxy", 0),  # a proxy for web pages is no way to a cluster
)


def channel(
    address: str, credentials: grpc.ChannelCredentials | None = None, *, server_name: str = ""
) -> grpc.aio.Channel:
    """A channel to host:port; it connects with the first call and reconnects by itself.

    Close it (``async with``) when its clients are no longer used.

    Args:
        address: host:port.
        credentials: What TLS and the server need; None for plaintext.
        server_name: What the server's certificate is for, where that is not the host.
    """
    if credentials is None:
        return grpc.aio.insecure_channel(address, options=_OPTIONS)
    options: list[tuple[str, Any]] = list(_OPTIONS)
    if server_name:
        options.append(("grpc.ssl_target_name_override", server_name))
    return grpc.aio.secure_channel(address, credentials, options=options)


def new_request_id() -> str:
    """An id by which a server recognises a repeated request."""
    return uuid.uuid4().hex


async def unary(
    method: "grpc.aio.UnaryUnaryMultiCallable[RequestT, ResponseT]",
    request: RequestT,
    *,
    timeout_s: float,
    retry: bool,
    author: str = "",
) -> ResponseT:
    """Call ``method`` once, or until it is answered if ``retry``.

    Args:
        method: Of a generated stub.
        request: Sent unchanged by every attempt, so a request id in it stays the same.
        timeout_s: For all attempts and the pauses between them.
        retry: Whether a call that the server did not answer may be repeated.
        author: Who asks for a change, in ASCII; empty to have the server take the address.

    Raises:
        DroverError: What the server answered; UnavailableError when it could not be reached in
            time, DeadlineExceededError when it did not answer in time.
    """
    metadata = _metadata() + (((AUTHOR_KEY, author),) if author else ())
    if not retry:
        return await _attempt(method, request, timeout_s, metadata)
    return await _until_answered(
        timeout_s, lambda left_s: _attempt(method, request, left_s, metadata)
    )


def server_stream(
    method: "grpc.aio.UnaryStreamMultiCallable[RequestT, ResponseT]",
    request: RequestT,
) -> AsyncGenerator[ResponseT, None]:
    """The messages of a stream without a deadline, until it breaks; closing the iterator ends the
    call.

    Raises:
        DroverError: How the stream broke.
    """
    return _stream(method, request, None, _metadata())


async def snapshot(
    method: "grpc.aio.UnaryStreamMultiCallable[RequestT, ChunkT]",
    request: RequestT,
    *,
    timeout_s: float,
) -> list[ChunkT]:
    """All chunks of a streamed answer; begun again when it breaks off before the complete one.

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
        raise UnavailableError(Reason.SERVICE_UNREACHABLE, "the answer broke off")

    return await _until_answered(timeout_s, read)


async def pages(fetch: Callable[[str], Awaitable[PageT]]) -> AsyncIterator[PageT]:
    """Every page of a list; ``fetch`` gets the page of a token, "" for the first.

    Raises:
        InternalError: The server gives pages without end, such as the same one again and again.
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
    raise InternalError(f"the server's list does not end: page token {token!r} after {len(seen)}")


async def _attempt(
    method: "grpc.aio.UnaryUnaryMultiCallable[RequestT, ResponseT]",
    request: RequestT,
    timeout_s: float,
    metadata: tuple[tuple[str, str], ...],
) -> ResponseT:
    try:
        return _whole(await method(request, timeout=timeout_s, metadata=metadata))
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
            yield _whole(message)
    except grpc.RpcError as error:
        raise from_rpc_error(error) from None
    finally:
        call.cancel()


def _whole(message: ResponseT | None) -> ResponseT:
    """GRPC gives None for bytes that it could not decode."""
    if message is None:
        raise InternalError("the server's answer cannot be decoded: it is of another version")
    return message


async def _until_answered(timeout_s: float, call: Callable[[float], Awaitable[T]]) -> T:
    """Call, with the seconds that are left, until the answer is another than "unavailable"."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    unavailable: UnavailableError | None = None
    retrying = AsyncRetrying(
        retry=retry_if_exception_type(UnavailableError),
        stop=stop_before_delay(timeout_s),
        wait=wait_exponential(multiplier=RETRY_FIRST_S, max=RETRY_MAX_S)
        + wait_random(0, RETRY_FIRST_S),
        reraise=True,
    )
    async for attempt in retrying:
        with attempt:
            try:
                left_s = deadline - loop.time()
                if left_s <= 0:
                    raise DeadlineExceededError(Reason.DEADLINE_EXCEEDED, "no answer in time")
                return await call(left_s)
            except UnavailableError as error:
                unavailable = error
                raise
            except DeadlineExceededError as error:
                if unavailable is None:
                    raise
                # what keeps the server from answering, as far as it said so
                why = f"{error.message}; the answer before: {unavailable.message}"
                raise DeadlineExceededError(error.reason, why, metadata=error.metadata) from None
    raise AssertionError("unreachable: the last attempt raises")


def _metadata() -> tuple[tuple[str, str], ...]:
    """The request id under which the caller itself works goes on to whom it calls."""
    current = current_request_id()
    return (
        (REQUEST_ID_KEY, current if REQUEST_ID_PATTERN.fullmatch(current) else new_request_id()),
    )
