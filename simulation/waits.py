"""Waits of coroutines for the simulated network, which calls back."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any, Protocol

from drover.errors import DroverError
from simulation.network import Heard


class Cancellable(Protocol):
    """A call or stream in progress."""

    def cancel(self) -> None:
        """Stop it."""


async def told(start: Callable[[Heard], object]) -> Any:
    """Wait for the result of what ``start`` starts, which cannot be cancelled.

    Raises:
        Exception: Its error.
    """
    result: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    start(lambda found: None if result.done() else result.set_result(found))
    found = await result
    if isinstance(found, Exception):
        raise found.with_traceback(None) from None
    return found


async def asked(start: Callable[[Heard], Cancellable]) -> Any:
    """Wait for the result of the call that ``start`` starts.

    Raises:
        DroverError: Its error.
    """
    result: asyncio.Future[object] = asyncio.get_running_loop().create_future()

    def heard(found: object) -> None:
        if not result.done():
            result.set_result(found)

    call = start(heard)
    try:
        found = await result
    except asyncio.CancelledError:
        call.cancel()
        raise
    if isinstance(found, DroverError):
        raise found.with_traceback(None)
    return found


async def messages(
    start: Callable[[Heard, Callable[[DroverError], None]], Cancellable],
) -> AsyncGenerator[Any, None]:
    """The messages of the stream that ``start`` opens.

    Raises:
        DroverError: The error that ended it.
    """
    queue: asyncio.Queue[object] = asyncio.Queue()
    stream = start(queue.put_nowait, queue.put_nowait)
    try:
        while True:
            message = await queue.get()
            if isinstance(message, DroverError):
                raise message.with_traceback(None)
            yield message
    finally:
        stream.cancel()
