"""Executes a machine's instructions: completes parked calls, sets timers, notifies watchers."""

import asyncio
from collections.abc import Callable, Sequence

from drover.clock import Clock
from drover.errors import DroverError, InternalError
from drover.machine import CancelTimer, Complete, Fail, Instruction, Notify, SetTimer
from drover.runtime.alarms import Alarm, call_at
from drover.runtime.timers import Timers
from drover.runtime.watchers import Watchers


class Delivery:
    """Executes instructions.

    Args:
        clock: The clock of the timers.
        watchers: Get the notifications.
        on_due: Called when a timer may be due.
    """

    def __init__(self, clock: Clock, watchers: Watchers, on_due: Callable[[], None]) -> None:
        self.timers = Timers()
        self._clock = clock
        self._watchers = watchers
        self._on_due = on_due
        self._calls: dict[str, asyncio.Future[object]] = {}
        self._alarm: Alarm | None = None
        self._alarm_ms = 0
        self._ended = False

    def expect(self, call_id: str) -> asyncio.Future[object]:
        """Park a call; the future gets its response or error.

        Raises:
            InternalError: A call with this id is parked already.
        """
        if call_id in self._calls:
            raise InternalError(f"call id {call_id!r} is used twice")
        answer: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._calls[call_id] = answer
        return answer

    def forget(self, call_id: str) -> bool:
        """Drop a parked call; False if it was completed already."""
        return self._calls.pop(call_id, None) is not None

    def release(self, instructions: Sequence[Instruction]) -> None:
        """Execute ``instructions`` in order."""
        timers_changed = False
        for instruction in instructions:
            if isinstance(instruction, Complete):
                call = self._calls.pop(instruction.call_id, None)
                if call is not None and not call.done():
                    call.set_result(instruction.response)
            elif isinstance(instruction, SetTimer):
                self.timers.set(instruction.key, instruction.deadline_ms, instruction.event)
                timers_changed = True
            elif isinstance(instruction, CancelTimer):
                self.timers.cancel(instruction.key)
            elif isinstance(instruction, Notify):
                self._watchers.notify(instruction.channel, instruction.message)
            else:
                self.fail(instruction.call_id, instruction.error)
        if timers_changed:
            self.set_alarm()

    def fail(self, call_id: str, error: DroverError) -> None:
        """Fail one call with ``error`` if it is still parked."""
        call = self._calls.pop(call_id, None)
        if call is not None and not call.done():
            call.set_exception(error)

    def fail_named(self, instructions: Sequence[Instruction], error: DroverError) -> None:
        """Fail every call that ``instructions`` would have completed or failed."""
        for instruction in instructions:
            if isinstance(instruction, Complete | Fail):
                self.fail(instruction.call_id, error)

    def end(self, error: DroverError) -> None:
        """Drop all timers, and end all calls and watches with ``error``."""
        self._ended = True
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        self.timers.clear()
        for call_id in list(self._calls):
            self.fail(call_id, error)
        self._watchers.end_all(error)

    def set_alarm(self) -> None:
        """Set the alarm for the next timer.

        An alarm that is too early is kept: when it rings, the next one is set. So heartbeats, which
        only move timers back, do not reset the alarm.
        """
        deadline_ms = self.timers.next_deadline_ms()
        if deadline_ms is None or self._ended:
            return
        if self._alarm is not None:
            if self._alarm_ms <= deadline_ms:
                return
            self._alarm.cancel()
        self._alarm_ms = deadline_ms
        self._alarm = call_at(self._clock, deadline_ms, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        self._on_due()
