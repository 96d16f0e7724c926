"""Blocking calls in separate threads: a slow server must not hold one of the shared threads."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


def in_own_thread(
    function: Callable[[], T], name: str, on_end: Callable[[], None] = lambda: None
) -> "asyncio.Future[T]":
    """Run a function in a daemon thread.

    Args:
        function: What to run.
        name: The name of the thread.
        on_end: Called in the loop when the function has ended, also if no caller waits for it, or
            if it could not start.
    """
    loop = asyncio.get_running_loop()
    result: asyncio.Future[T] = loop.create_future()

    def ended(outcome: T | None, error: Exception | None) -> None:
        on_end()
        if result.done():
            return
        if error is not None:
            result.set_exception(error)
        else:
            result.set_result(outcome)  # type: ignore[arg-type]

    def run() -> None:
        outcome, failure = None, None
        try:
            outcome = function()
        except Exception as error:  # noqa: BLE001 - the caller decides
            failure = error
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(ended, outcome, failure)

    try:
        threading.Thread(target=run, name=name, daemon=True).start()
    except RuntimeError as error:  # the system has no thread left
        ended(None, error)
    return result
