"""A clock that moves only when a test advances it."""

import heapq
from collections.abc import Callable


class ManualAlarm:
    """An alarm on a ``ManualClock``."""

    def __init__(self, deadline_ms: int, callback: Callable[[], None]) -> None:
        self.deadline_ms = deadline_ms
        self._callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """Cancel the alarm; no effect after it has rung."""
        self._callback = None

    @property
    def cancelled(self) -> bool:
        """Whether the alarm was cancelled or has rung."""
        return self._callback is None

    def ring(self) -> None:
        """Call the callback, at most once."""
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()


class ManualClock:
    """A ``Clock`` for tests: time moves only with ``advance``.

    The timers of a ``Runtime`` with this clock fire in ``advance``:

        clock = ManualClock()
        runtime = Runtime(machine, log, clock=clock, ...)
        clock.advance(10_000)
        await runtime.wait_until_idle()
    """

    def __init__(self, start_ms: int = 1_000_000) -> None:
        self._now_ms = start_ms
        self._sequence = 0
        self._alarms: list[tuple[int, int, ManualAlarm]] = []

    def now_ms(self) -> int:
        """The current time in milliseconds."""
        return self._now_ms

    def call_at(self, deadline_ms: int, callback: Callable[[], None]) -> ManualAlarm:
        """Call ``callback`` in the ``advance`` that reaches ``deadline_ms``.

        A deadline in the past rings in the next ``advance``, even of 0.
        """
        alarm = ManualAlarm(deadline_ms, callback)
        self._sequence += 1
        heapq.heappush(self._alarms, (deadline_ms, self._sequence, alarm))
        return alarm

    def advance(self, duration_ms: int) -> None:
        """Move the time by ``duration_ms``, and ring the alarms up to then in order, each at its
        time.
        """
        if duration_ms < 0:
            raise ValueError(f"time cannot go back: {duration_ms} ms")
        target_ms = self._now_ms + duration_ms
        while self._alarms and self._alarms[0][0] <= target_ms:
            deadline_ms, _, alarm = heapq.heappop(self._alarms)
            if not alarm.cancelled:
                self._now_ms = max(self._now_ms, deadline_ms)
                alarm.ring()
        self._now_ms = target_ms

    def alarm_count(self) -> int:
        """The number of alarms that are set."""
        return sum(not alarm.cancelled for _, _, alarm in self._alarms)
