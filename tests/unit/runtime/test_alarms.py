"""Alarms of clocks: the clock that tests advance, and the event loop's."""

from functools import partial

import pytest

from drover.clock import SystemClock
from drover.runtime.alarms import call_at
from drover.testing import ManualClock
from tests.support.waiting import wait_until, wait_until_async


def test_alarms_ring_in_order_each_at_its_time() -> None:
    clock = ManualClock(start_ms=0)
    rung: list[tuple[str, int]] = []

    def ring(name: str) -> None:
        rung.append((name, clock.now_ms()))

    for name, deadline_ms in (("b", 20), ("a", 10), ("c", 20), ("never", 41)):
        call_at(clock, deadline_ms, partial(ring, name))
    clock.advance(40)
    assert rung == [("a", 10), ("b", 20), ("c", 20)]
    assert clock.now_ms() == 40
    assert clock.alarm_count() == 1


def test_an_alarm_set_by_an_alarm_rings_in_the_same_advance() -> None:
    clock = ManualClock(start_ms=0)
    rung: list[int] = []

    def again() -> None:
        rung.append(clock.now_ms())
        call_at(clock, clock.now_ms() + 10, again)

    call_at(clock, 10, again)
    clock.advance(35)
    assert rung == [10, 20, 30]


def test_a_cancelled_alarm_is_silent() -> None:
    clock = ManualClock(start_ms=0)
    rung: list[str] = []
    alarm = call_at(clock, 10, lambda: rung.append("cancelled"))
    alarm.cancel()
    call_at(clock, -5, lambda: rung.append("past"))
    clock.advance(0)
    clock.advance(100)
    alarm.cancel()
    assert rung == ["past"]


def test_time_does_not_go_back() -> None:
    with pytest.raises(ValueError, match="-1 ms"):
        ManualClock().advance(-1)


async def test_the_system_clock_rings_through_the_event_loop() -> None:
    clock = SystemClock()
    rung: list[int] = []
    cancelled = call_at(clock, clock.now_ms() + 1, lambda: rung.append(-1))
    cancelled.cancel()
    call_at(clock, clock.now_ms() - 1_000, lambda: rung.append(1))
    call_at(clock, clock.now_ms() + 10, lambda: rung.append(2))
    await wait_until_async(lambda: len(rung) == 2, describe=lambda: rung)
    assert rung == [1, 2]


def test_waiting_in_vain_says_what_for() -> None:
    with pytest.raises(AssertionError, match=r"within 0\.02 s: rain .last value: 0"):
        wait_until(lambda: 0, timeout_s=0.02, describe="rain")
    assert wait_until(lambda: "value", describe="rain") == "value"
