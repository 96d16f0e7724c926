"""From the first record loaded to the last call answered."""

import asyncio
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from drover.errors import Reason
from drover.log.log import LogRecord
from drover.log.sqlite import SqliteLog
from drover.machine import Complete, SetTimer
from drover.runtime import compaction
from drover.runtime.runtime import Runtime
from drover.testing import ManualClock, MemoryLog, raises_reason, read_all
from tests.support.notebook import (
    Notebook,
    answer,
    event,
    new_runtime,
    put,
    start,
    write,
)
from tests.support.waiting import wait_until_async

# loading


async def test_nothing_is_served_before_the_log_is_read(
    machine: Notebook, log: MemoryLog, clock: ManualClock
) -> None:
    runtime = new_runtime(machine, log, clock)
    seen = [runtime.loaded]
    with raises_reason(Reason.LOADING, "notebook"):
        await runtime.submit(put("a", "1"), call_id="1")
    with raises_reason(Reason.LOADING):
        await runtime.post(event("x", answer()))
    with raises_reason(Reason.LOADING):
        runtime.watch("x", 1)
    await runtime.load()
    seen.append(runtime.loaded)
    assert seen == [False, True]
    assert await runtime.submit(put("a", "1"), call_id="1") == "wrote a"
    with raises_reason(Reason.INTERNAL, "twice"):
        await runtime.load()
    await runtime.close()


async def test_loading_replays_everything_and_then_arms(log: MemoryLog, clock: ManualClock) -> None:
    await log.append([LogRecord(b"k", value) for value in (b"a", b"foreign", b"b")])
    machine = Notebook()
    runtime = new_runtime(machine, log, clock)
    await runtime.load()
    assert machine.diary == ["replay 0 a", "replay 2 b", "loaded 3"]
    clock.advance(500)
    assert machine.diary[-1] == "handle armed"
    await runtime.close()


async def test_loading_lets_the_event_loop_run(log: MemoryLog, clock: ManualClock) -> None:
    await log.append([LogRecord(b"k%d" % number, b"v") for number in range(5_000)])
    runtime = new_runtime(Notebook(), log, clock)
    load = asyncio.ensure_future(runtime.load())
    turns = 0
    while not load.done():
        turns += 1
        await asyncio.sleep(0)
    assert turns >= 10
    await runtime.close()


@pytest.mark.parametrize(
    ("value", "reason", "words"),
    [(b"\xff", Reason.LOG_CORRUPT, "offset 1"), (b"poison", Reason.INTERNAL, "defect")],
    ids=["cannot be decoded", "cannot be applied"],
)
async def test_a_record_that_cannot_be_used_stops_the_load(
    log: MemoryLog, clock: ManualClock, value: bytes, reason: Reason, words: str
) -> None:
    await log.append([LogRecord(b"a", b"a"), LogRecord(b"b", value)])
    runtime = new_runtime(Notebook(), log, clock)
    with capture_logs(), raises_reason(reason, "notebook", words):
        await runtime.load()
    assert not runtime.loaded
    await runtime.close()


async def test_hard_state_is_the_same_after_a_restart(tmp_path: Path, clock: ManualClock) -> None:
    lines: list[list[str]] = []
    for life in range(3):
        machine = Notebook()
        log = await SqliteLog.open(tmp_path / "log.db", clock)
        runtime = new_runtime(machine, log, clock)
        await runtime.load()
        assert machine.lines == (lines[-1] if lines else [])
        for number in range(5):
            await runtime.submit(put(f"{life}/{number}", "1"), call_id="1")
        lines.append(list(machine.lines))
        await runtime.close()
        await log.close()
    assert len(lines[-1]) == 15


async def test_the_log_is_compacted_when_much_of_it_is_superseded(
    machine: Notebook, log: MemoryLog, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "COMPACT_AFTER_RECORDS", 3_000)
    runtime = new_runtime(machine, log, clock)
    await runtime.load()
    for _ in range(5):
        await runtime.submit(
            event("a", write(*["a"] * 1_000, then=[Complete("1", 0)])), call_id="1"
        )
    await wait_until_async(lambda: len(log.records) <= 3_000, describe=lambda: len(log.records))
    await runtime.close()
    size = len(log.records)
    await log.append([LogRecord(b"a", b"a")] * 3_000)
    runtime = new_runtime(Notebook(), log, clock)
    await runtime.load()
    await wait_until_async(lambda: len(log.records) <= size)
    await runtime.close()


# closing


async def test_close_finishes_the_append_and_answers_everyone_else(
    runtime: Runtime[str], machine: Notebook, log: MemoryLog
) -> None:
    [parked] = await start(runtime.submit(event("join", answer()), call_id="0"))
    watcher = runtime.watch("other", 10)
    log.hold_appends()
    writing, queued = await start(
        runtime.submit(put("a", "1"), call_id="1"), runtime.submit(put("b", "2"), call_id="2")
    )
    [closing] = await start(runtime.close())
    assert not closing.done()
    with raises_reason(Reason.DRAINING, "shutting down"):
        await runtime.submit(put("c", "3"), call_id="3")
    log.release_appends()
    await closing
    assert await writing == "wrote a"
    for call in (parked, queued, anext(watcher)):
        with raises_reason(Reason.DRAINING):
            await call
    assert machine.lines == ["a"]
    assert len(await read_all(log)) == 1


async def test_close_is_idempotent_and_silences_timers(
    runtime: Runtime[str], machine: Notebook, clock: ManualClock
) -> None:
    timer = SetTimer("t", clock.now_ms() + 5, event("rang", answer()))
    await runtime.post(event("arm", answer(timer)))
    await asyncio.gather(runtime.close(), runtime.close())
    await runtime.close()
    clock.advance(1_000)
    assert machine.diary == ["handle arm"]
    assert clock.alarm_count() == 0
    with raises_reason(Reason.DRAINING):
        await runtime.submit(put("a", "1"), call_id="1")
    with raises_reason(Reason.DRAINING):
        await runtime.post(event("x", answer()))


async def test_close_before_and_during_the_load(
    machine: Notebook, log: MemoryLog, clock: ManualClock
) -> None:
    await log.append([LogRecord(b"k%d" % number, b"v") for number in range(5_000)])
    runtime = new_runtime(machine, log, clock)
    [load] = await start(runtime.load())
    await runtime.close()
    with raises_reason(Reason.DRAINING):
        await load
    assert not runtime.loaded
