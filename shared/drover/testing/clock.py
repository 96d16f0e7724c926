"""A clock that moves only when a test says so."""

import heapq
from collections.abc import Callable


class ManualAlarm:
    """An alarm that was set on a ``ManualClock``."""

    def __init__(self, deadline_ms: int, callback: Callable[[], None]) -> None:
        self.deadline_ms = deadline_ms
        self._callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """Forget the alarm; no effect once it has rung."""
        self._callback = None

    @property
    def cancelled(self) -> bool:
        """Whether it will never ring (again)."""
        return self._callback is None

    def ring(self) -> None:
        """Run the callback once."""
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()


class ManualClock:
    """A ``Clock`` for tests: time stands still until ``advance``.

    A ``Runtime`` that was given this clock has its timers woken by ``advance``:

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
        """The present, in milliseconds."""
        return self._now_ms

    def call_at(self, deadline_ms: int, callback: Callable[[], None]) -> ManualAlarm:
        """Run ``callback`` when time reaches ``deadline_ms``, within the ``advance`` that gets
        there; a deadline that is past rings with the next ``advance``, even of 0.
        """
        alarm = ManualAlarm(deadline_ms, callback)
        self._sequence += 1
        heapq.heappush(self._alarms, (deadline_ms, self._sequence, alarm))
        return alarm

    def advance(self, duration_ms: int) -> None:
        """Move on by ``duration_ms``, ringing the alarms on the way in order, each at its time."""
        if duration_ms < 0:
            raise ValueError(f"time does not go back: {duration_ms} ms")
        target_ms = self._now_ms + duration_ms
        while self._alarms and self._alarms[0][0] <= target_ms:
            deadline_ms, _, alarm = heapq.heappop(self._alarms)
            if not alarm.cancelled:
                self._now_ms = max(self._now_ms, deadline_ms)
                alarm.ring()
        self._now_ms = target_ms

    def alarm_count(self) -> int:
        """How many alarms are set."""
        return sum(not alarm.cancelled for _, _, alarm in self._alarms)
