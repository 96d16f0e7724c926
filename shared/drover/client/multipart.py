"""Sends sets of task configs that exceed a message's maximum size in several parts.

``drover.rpc.multipart`` reassembles them.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

import grpc.aio

from drover.client.calls import unary
from drover.errors import AbortedError, Reason

#: The maximum size of a part.
PART_MAX_BYTES = 2 * 1024 * 1024
#: The maximum number of attempts if the server loses earlier parts.
PARTS_ATTEMPTS = 3


class Entry(Protocol):
    """An entry of a set."""

    def ByteSize(self) -> int:  # noqa: N802
        """The size of the entry in a message."""


class Part(Protocol):
    """A message with some entries of a set."""

    part: int
    more: bool


EntryT = TypeVar("EntryT", bound=Entry)
RequestT = TypeVar("RequestT", bound=Part)
ResponseT = TypeVar("ResponseT")


def _in_parts(entries: Sequence[EntryT]) -> Iterator[list[EntryT]]:
    """Split a set into at least one part; a part above the limit has a single entry."""
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
    """Send a set in one or more messages; returns the response to the last one.

    The client sends the set again if the server has lost earlier parts, because it restarted or
    because the response to the last part was lost.

    Args:
        method: The method to call.
        entries: The set.
        request_of: Creates the message for some entries, without the part's index. All messages
            must have the same request id.
        timeout_s: The time limit for all messages.

    Raises:
        AbortedError: PART_MISSING, the server lost parts at every attempt.
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
