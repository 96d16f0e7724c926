"""Time, passed in. Cores get ``now_ms`` as an argument; shells get a ``Clock``."""

import time
from typing import Protocol


class Clock(Protocol):
    """Where a shell reads the time."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch; never goes back within a process."""


class SystemClock:
    """The machine's clock: wall time at the start, then monotonic, so that it never jumps back."""

    def __init__(self) -> None:
        self._base_ns = time.time_ns() - time.monotonic_ns()

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return (self._base_ns + time.monotonic_ns()) // 1_000_000
