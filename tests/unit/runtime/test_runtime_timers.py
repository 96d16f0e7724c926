"""Timers, by a clock that a test moves and by the machine's."""

import asyncio

from drover.clock import SystemClock
from drover.machine import CancelTimer, Complete, Outcome, SetTimer
from drover.runtime.runtime import Runtime
from drover.testing import ManualClock, MemoryLog
from tests.support.notebook import (
    Notebook,
    answer,
    decode,
    encode,
    event,
    put,
    start,
    write,
)
from tests.support.waiting import wait_until_async


async def test_timers_come_when_their_time_is_there(
    runtime: Runtime[str], machine: Notebook, clock: ManualClock
) -> None:
    times: list[int] = []

    def note(_machine: Notebook, now_ms: int) -> Outcome[str]:
        times.append(now_ms)
        return Outcome()

    start_ms = clock.now_ms()
    timers = [SetTimer(f"t{n}", start_ms + n * 100, event(f"t{n}", note)) for n in (3, 1, 2)]
    await runtime.post(event("arm", answer(*timers)))
    clock.advance(99)
    assert times == []
    clock.advance(1)
    assert times == [start_ms + 100]
    clock.advance(10_000)
    assert times == [start_ms + 100, start_ms + 200, start_ms + 300]
    assert machine.diary[:2] == ["handle arm", "handle t1"]


async def test_timers_are_replaced_and_cancelled(
    runtime: Runtime[str], machine: Notebook, clock: ManualClock
) -> None:
    now_ms = clock.now_ms()
    await runtime.post(
        event(
            "arm",
            answer(
                SetTimer("a", now_ms + 10, event("a", answer())),
                SetTimer("b", now_ms + 10, event("b", answer())),
                SetTimer("b", now_ms + 20, event("b later", answer())),
                CancelTimer("a"),
            ),
        )
    )
    clock.advance(10)
    assert machine.diary == ["handle arm"]
    clock.advance(10)
    assert machine.diary == ["handle arm", "handle b later"]


async def test_a_timer_may_write_and_answer(
    runtime: Runtime[str], machine: Notebook, clock: ManualClock
) -> None:
    [parked] = await start(runtime.submit(event("join", answer()), call_id="1"))
    expire = event("expire", write("expired", then=[Complete("1", "too late")]))
    await runtime.post(event("arm", answer(SetTimer("t", clock.now_ms() + 5, expire))))
    clock.advance(5)
    assert await parked == "too late"
    assert machine.lines == ["expired"]


async def test_a_timer_waits_for_the_append_under_way_and_events_before_it(
    runtime: Runtime[str], machine: Notebook, log: MemoryLog, clock: ManualClock
) -> None:
    timer = SetTimer("session", clock.now_ms() + 5, event("expired", answer()))
    await runtime.post(event("arm", answer(timer)))
    log.hold_appends()
    writing, beating = await start(
        runtime.submit(put("a", "1"), call_id="1"),
        runtime.submit(
            event("heartbeat", answer(CancelTimer("session"), Complete("2", "ok"))), call_id="2"
        ),
    )
    clock.advance(100)
    log.release_appends()
    await asyncio.gather(writing, beating)
    await runtime.wait_until_idle()
    assert machine.diary == ["handle arm", "handle a", "replay 0 a", "handle heartbeat"]


async def test_a_timer_that_always_sets_itself_does_not_stop_the_rest(
    runtime: Runtime[str], machine: Notebook, log: MemoryLog
) -> None:
    def again(_machine: Notebook, now_ms: int) -> Outcome[str]:
        if "stop" in machine.lines:
            return Outcome()
        return Outcome((), (SetTimer("t", now_ms, event("again", again)),))

    log.hold_appends()
    [call] = await start(
        runtime.submit(event("a", write("a", then=[Complete("1", 1)])), call_id="1")
    )
    await runtime.post(event("again", again))
    log.release_appends()
    assert await call == 1
    assert await runtime.submit(put("stop", "2"), call_id="2") == "wrote stop"
    await runtime.wait_until_idle()


async def test_timers_follow_the_system_clock_too(machine: Notebook, log: MemoryLog) -> None:
    clock = SystemClock()
    runtime = Runtime(machine, log, encode=encode, decode=decode, clock=clock, name="notebook")
    await runtime.load()
    timer = SetTimer("t", clock.now_ms() + 20, event("rang", answer()))
    await runtime.post(event("arm", answer(timer)))
    await wait_until_async(lambda: "handle rang" in machine.diary, describe=lambda: machine.diary)
    await runtime.close()
