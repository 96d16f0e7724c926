"""The time as a dependency. Cores receive ``now_ms`` as an argument; shells receive a ``Clock``."""

import time
from typing import Protocol


class Clock(Protocol):
    """The time source of a shell."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch; never decreases within a process."""


def utc_text(time_ms: int) -> str:
    """A time in ms since the epoch as text, in seconds: 2026-11-28T21:00:00Z."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time_ms // 1000))


class SystemClock:
    """The system clock: wall time at the start, then monotonic, so that it never jumps back."""

    def __init__(self) -> None:
        self._base_ns = time.time_ns() - time.monotonic_ns()

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return (self._base_ns + time.monotonic_ns()) // 1_000_000
