"""Waking up at a time of a ``Clock``, be it the machine's or one that a test moves by hand."""

import asyncio
from collections.abc import Callable
from typing import Protocol, runtime_checkable

from drover.clock import Clock


class Alarm(Protocol):
    """A wake-up that is set."""

    def cancel(self) -> None:
        """Forget it; no effect once it has rung."""


@runtime_checkable
class AlarmClock(Clock, Protocol):
    """A clock that rings by itself, such as ``drover.testing.ManualClock``."""

    def call_at(self, deadline_ms: int, callback: Callable[[], None]) -> Alarm:
        """Run ``callback`` once when the clock reaches ``deadline_ms``."""


def call_at(clock: Clock, deadline_ms: int, callback: Callable[[], None]) -> Alarm:
    """Run ``callback`` in this event loop once ``clock`` has reached ``deadline_ms``.

    With a clock that only tells the time the loop's own timer is used; it may ring a little early,
    so a callback looks at the clock again.
    """
    if isinstance(clock, AlarmClock):
        return clock.call_at(deadline_ms, callback)
    delay_s = max(0, deadline_ms - clock.now_ms()) / 1_000
    return asyncio.get_running_loop().call_later(delay_s, callback)
