"""Sets of task configs, which may be larger than a message: sent in parts, taken as one.

``drover.rpc.multipart`` puts them together.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

import grpc.aio

from drover.client.calls import unary
from drover.errors import AbortedError, Reason

#: A set goes in messages of about this size.
PART_MAX_BYTES = 2 * 1024 * 1024
#: How often a set is sent again whose earlier parts the server has lost.
PARTS_ATTEMPTS = 3


class Entry(Protocol):
    """One of a set."""

    def ByteSize(self) -> int:  # noqa: N802
        """How large it is in a message."""


class Part(Protocol):
    """A message with some of a set."""

    part: int
    more: bool


EntryT = TypeVar("EntryT", bound=Entry)
RequestT = TypeVar("RequestT", bound=Part)
ResponseT = TypeVar("ResponseT")


def _in_parts(entries: Sequence[EntryT]) -> Iterator[list[EntryT]]:
    """At least one part; each within the limit unless one entry is larger alone."""
    part: list[EntryT] = []
    size = 0
    for entry in entries:
        entry_size = entry.ByteSize() + 8
        if part and size + entry_size > PART_MAX_BYTES:
            yield part
            part, size = [], 0
        part.append(entry)
        size += entry_size
    yield part


async def put_parts(
    method: "grpc.aio.UnaryUnaryMultiCallable[RequestT, ResponseT]",
    entries: Sequence[EntryT],
    request_of: Callable[[list[EntryT]], RequestT],
    *,
    timeout_s: float,
) -> ResponseT:
    """Send a set in as many messages as it takes; returns the answer to the last one.

    The whole set is sent again when the server has lost what came before a part: when it was
    started anew, or the answer to the last part did not arrive.

    Args:
        method: The call.
        entries: The set.
        request_of: Makes the message for some of them; it is numbered here. All have one request
            id.
        timeout_s: For all of it.

    Raises:
        AbortedError: PART_MISSING, it lost them again and again.
        DroverError: As ``unary``.
    """
    requests = [request_of(part) for part in _in_parts(entries)]
    for index, request in enumerate(requests):
        request.part, request.more = index, index + 1 < len(requests)
    deadline = asyncio.get_running_loop().time() + timeout_s
    for _ in range(PARTS_ATTEMPTS - 1):
        try:
            return await _put_once(method, requests, deadline)
        except AbortedError as error:
            if error.reason is not Reason.PART_MISSING:
                raise
    return await _put_once(method, requests, deadline)


async def _put_once(
    method: "grpc.aio.UnaryUnaryMultiCallable[RequestT, ResponseT]",
    requests: Sequence[RequestT],
    deadline: float,
) -> ResponseT:
    for request in requests[:-1]:
        await unary(method, request, timeout_s=_left_s(deadline), retry=True)
    return await unary(method, requests[-1], timeout_s=_left_s(deadline), retry=True)


def _left_s(deadline: float) -> float:
    return deadline - asyncio.get_running_loop().time()
