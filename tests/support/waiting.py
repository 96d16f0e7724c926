"""Waiting for a condition with bounded polling; tests wait in no other way."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar, overload

T = TypeVar("T")

DEFAULT_TIMEOUT_S = 60.0
POLL_INTERVAL_S = 0.01


def wait_until(
    predicate: Callable[[], T],
    *,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    describe: str | Callable[[], object] = "",
) -> T:
    """Poll until ``predicate`` is truthy and return its value.

    ``describe`` names the condition, or returns the state to show after a timeout.
    """
    deadline = time.monotonic() + timeout_s
    pause = threading.Event()
    while True:
        value = predicate()
        if value:
            return value
        if time.monotonic() >= deadline:
            raise AssertionError(_timed_out(timeout_s, describe, value))
        pause.wait(POLL_INTERVAL_S)


@overload
async def wait_until_async(
    predicate: Callable[[], Awaitable[T]],
    *,
    timeout_s: float = ...,
    describe: str | Callable[[], object] = ...,
) -> T: ...


@overload
async def wait_until_async(
    predicate: Callable[[], T],
    *,
    timeout_s: float = ...,
    describe: str | Callable[[], object] = ...,
) -> T: ...


async def wait_until_async(
    predicate: Callable[[], T | Awaitable[T]],
    *,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    describe: str | Callable[[], object] = "",
) -> T:
    """As ``wait_until``, letting the event loop run; ``predicate`` may be a coroutine function."""
    deadline = time.monotonic() + timeout_s
    while True:
        outcome = predicate()
        value: T = await outcome if isinstance(outcome, Awaitable) else outcome
        if value:
            return value
        if time.monotonic() >= deadline:
            raise AssertionError(_timed_out(timeout_s, describe, value))
        await asyncio.sleep(POLL_INTERVAL_S)


async def pause(duration_s: float = POLL_INTERVAL_S) -> None:
    """The pause between two rounds of a loop that runs until it is cancelled.

    To wait for a condition, use ``wait_until_async``.
    """
    await asyncio.sleep(duration_s)


def _timed_out(timeout_s: float, describe: str | Callable[[], object], value: object) -> str:
    what = describe() if callable(describe) else describe
    return f"not so within {timeout_s:g} s: {what or 'the condition'} (last value: {value!r})"
