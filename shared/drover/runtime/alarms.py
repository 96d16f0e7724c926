"""Callbacks at a time of a ``Clock``: of the system clock or of a manual clock in a test."""

import asyncio
from collections.abc import Callable
from typing import Protocol, runtime_checkable

from drover.clock import Clock


class Alarm(Protocol):
    """A scheduled callback."""

    def cancel(self) -> None:
        """Cancel the callback; no effect once it has run."""


@runtime_checkable
class AlarmClock(Clock, Protocol):
    """A clock that runs callbacks, such as ``drover.testing.ManualClock``."""

    def call_at(self, deadline_ms: int, callback: Callable[[], None]) -> Alarm:
        """Run ``callback`` once when the clock reaches ``deadline_ms``."""


def call_at(clock: Clock, deadline_ms: int, callback: Callable[[], None]) -> Alarm:
    """Run ``callback`` in this event loop once ``clock`` has reached ``deadline_ms``.

    With a clock that is no ``AlarmClock`` the loop's timer is used. It may fire slightly early, so
    the callback has to check the clock.
    """
    if isinstance(clock, AlarmClock):
        return clock.call_at(deadline_ms, callback)
    delay_s = max(0, deadline_ms - clock.now_ms()) / 1_000
    return asyncio.get_running_loop().call_later(delay_s, callback)
