"""The order of steps: decide, append, replay, release; one event at a time."""

import asyncio
from pathlib import Path

import pytest

from drover.errors import InternalError, NotFoundError, Reason
from drover.log.log import LogRecord
from drover.log.sqlite import SqliteLog
from drover.machine import CancelTimer, Complete, Fail, Notify, Outcome
from drover.model.ids import Term
from drover.runtime.runtime import Runtime
from drover.testing import ManualClock, MemoryLog, raises_reason
from tests.support.notebook import (
    Decide,
    Notebook,
    answer,
    event,
    new_runtime,
    put,
    start,
    write,
)
from tests.support.waiting import wait_until_async

# order


async def test_records_are_durable_and_replayed_before_the_answer(
    runtime: Runtime[str], machine: Notebook, log: MemoryLog
) -> None:
    log.hold_appends()
    [call] = await start(runtime.submit(put("a", "1"), call_id="1"))
    assert machine.diary == ["handle a"]
    assert not call.done()
    log.release_appends()
    assert await call == "wrote a"
    assert machine.diary == ["handle a", "replay 0 a"]
    assert [stored.record.value for stored in log.records] == [b"a"]


async def test_an_event_without_records_is_answered_in_the_callers_task(
    runtime: Runtime[str],
) -> None:
    call = runtime.submit(event("ping", answer(Complete("1", "pong"))), call_id="1")
    with pytest.raises(StopIteration) as stop:
        call.send(None)  # the call completes without waiting
    assert stop.value.value == "pong"


async def test_events_wait_for_the_append_under_way(
    runtime: Runtime[str], machine: Notebook, log: MemoryLog
) -> None:
    log.hold_appends()
    calls = await start(
        runtime.submit(put("a", "1"), call_id="1"),
        runtime.submit(event("ping", answer(Complete("2", "pong"))), call_id="2"),
        runtime.submit(put("b", "3"), call_id="3"),
    )
    assert machine.diary == ["handle a"]
    log.release_appends()
    assert await asyncio.gather(*calls) == ["wrote a", "pong", "wrote b"]
    assert machine.diary == ["handle a", "replay 0 a", "handle ping", "handle b", "replay 1 b"]


async def test_many_callers_are_handled_one_at_a_time(tmp_path: Path, clock: ManualClock) -> None:
    machine = Notebook()
    log = await SqliteLog.open(tmp_path / "log.db", clock)
    runtime = new_runtime(machine, log, clock)
    await runtime.load()

    def count(call_id: str) -> Decide:
        def decide(machine: Notebook, _now_ms: int) -> Outcome[str]:
            number = str(len(machine.lines))
            return Outcome((number,), (Complete(call_id, number),))

        return decide

    answers = await asyncio.gather(
        *(runtime.submit(event("", count(str(n))), call_id=str(n)) for n in range(300))
    )
    assert sorted(int(str(one)) for one in answers) == list(range(300))
    assert machine.lines == [str(number) for number in range(300)]
    await runtime.close()
    await log.close()


async def test_a_parked_call_is_answered_by_a_later_event(runtime: Runtime[str]) -> None:
    [parked] = await start(runtime.submit(event("join", answer()), call_id="1"))
    assert not parked.done()
    await runtime.post(event("sync", answer(Complete("1", "joined"))))
    assert await parked == "joined"


async def test_answers_to_unknown_calls_are_ignored(runtime: Runtime[str]) -> None:
    await runtime.post(
        event(
            "x", answer(Complete("gone", 1), Fail("gone", InternalError("")), CancelTimer("gone"))
        )
    )
    assert await runtime.submit(event("y", answer(Complete("1", 1))), call_id="1") == 1


async def test_a_machines_error_reaches_its_caller(runtime: Runtime[str]) -> None:
    refusal = NotFoundError(Reason.UNKNOWN_MEMBER_ID, "who?")
    with raises_reason(Reason.UNKNOWN_MEMBER_ID) as raised:
        await runtime.submit(event("x", answer(Fail("1", refusal))), call_id="1")
    assert raised.error is refusal


async def test_a_call_id_is_not_used_twice_at_once(runtime: Runtime[str]) -> None:
    [parked] = await start(runtime.submit(event("join", answer()), call_id="1"))
    with raises_reason(Reason.INTERNAL, "'1'"):
        await runtime.submit(event("join", answer()), call_id="1")
    await runtime.post(event("sync", answer(Complete("1", "joined"))))
    assert await parked == "joined"


async def test_request_ids_are_kept_beside_the_records(
    runtime: Runtime[str], machine: Notebook, log: MemoryLog, clock: ManualClock
) -> None:
    await runtime.submit(put("a", "1", request_id="request-1"), call_id="1")
    assert machine.request_ids == ["request-1"]
    again = Notebook()
    other = new_runtime(again, log, clock)
    await other.load()
    assert again.request_ids == ["request-1"]
    await other.close()


async def test_a_record_may_have_a_request_id_of_its_own(
    log: MemoryLog, clock: ManualClock
) -> None:
    runtime = Runtime(
        Notebook(),
        log,
        encode=lambda line: LogRecord(b"key", line.encode(), request_id=f"of {line}"),
        decode=lambda stored: (stored.record.value or b"").decode(),
        clock=clock,
        name="test",
    )
    await runtime.load()
    await runtime.submit(put("a", "1"), call_id="1")
    await runtime.submit(put("b", "2", request_id="request-2"), call_id="2")
    assert [stored.record.request_id for stored in log.records] == ["of a", "request-2"]
    await runtime.close()


async def test_the_writer_epoch_is_checked(runtime: Runtime[str], log: MemoryLog) -> None:
    old = await log.claim("w1", Term(1, 1))
    new = await log.claim("w2", Term(2, 1))
    with raises_reason(Reason.STALE_WRITER_EPOCH):
        await runtime.submit(put("a", "1", writer_epoch=old), call_id="1")
    assert await runtime.submit(put("b", "2", writer_epoch=new), call_id="2") == "wrote b"


# callers who leave


async def test_a_cancelled_call_is_reported_to_the_machine(
    runtime: Runtime[str], machine: Notebook
) -> None:
    [parked] = await start(
        runtime.submit(event("join", answer()), call_id="1", on_cancel=event("left", answer()))
    )
    parked.cancel()
    await wait_until_async(lambda: machine.diary == ["handle join", "handle left"])
    assert await runtime.submit(event("x", answer(Complete("1", 1))), call_id="1") == 1


async def test_a_call_cancelled_before_its_turn_is_reported_after_it(
    runtime: Runtime[str], machine: Notebook, log: MemoryLog
) -> None:
    log.hold_appends()
    writing, parked = await start(
        runtime.submit(put("a", "1"), call_id="1"),
        runtime.submit(event("join", answer()), call_id="2", on_cancel=event("left", answer())),
    )
    parked.cancel()
    await asyncio.wait([parked])
    log.release_appends()
    await writing
    await runtime.wait_until_idle()
    assert machine.diary == ["handle a", "replay 0 a", "handle join", "handle left"]


async def test_a_call_cancelled_after_its_answer_is_not_reported(
    runtime: Runtime[str], machine: Notebook
) -> None:
    [parked] = await start(
        runtime.submit(event("join", answer()), call_id="1", on_cancel=event("left", answer()))
    )
    await runtime.post(event("sync", answer(Complete("1", "joined"))))
    parked.cancel()
    await asyncio.wait([parked])
    await runtime.wait_until_idle()
    assert machine.diary == ["handle join", "handle sync"]


async def test_a_cancelled_caller_does_not_stop_its_append(
    runtime: Runtime[str], machine: Notebook, log: MemoryLog
) -> None:
    log.hold_appends()
    [writing] = await start(runtime.submit(put("a", "1"), call_id="1"))
    writing.cancel()
    await asyncio.wait([writing])
    log.release_appends()
    await runtime.wait_until_idle()
    assert machine.lines == ["a"]


# bounds


async def test_the_queue_is_bounded(machine: Notebook, log: MemoryLog, clock: ManualClock) -> None:
    runtime = new_runtime(machine, log, clock, max_queue=3)
    await runtime.load()
    log.hold_appends()
    ids = [str(number) for number in range(4)]
    calls = await start(*(runtime.submit(put(one, one), call_id=one) for one in ids))
    with raises_reason(Reason.QUEUE_FULL, "3 requests", "back off"):
        await runtime.submit(put("x", "x"), call_id="x")
    log.release_appends()
    assert await asyncio.gather(*calls) == [f"wrote {one}" for one in ids]
    assert await runtime.submit(put("x", "x"), call_id="x") == "wrote x"
    await runtime.close()


async def test_what_is_posted_is_taken_though_the_queue_is_full(
    machine: Notebook, log: MemoryLog, clock: ManualClock
) -> None:
    runtime = new_runtime(machine, log, clock, max_queue=1)
    await runtime.load()
    log.hold_appends()
    calls = await start(*(runtime.submit(put(one, one), call_id=one) for one in ("0", "1")))
    with raises_reason(Reason.QUEUE_FULL):
        await runtime.submit(put("x", "x"), call_id="x")
    await runtime.post(event("posted", write("posted")))
    runtime.post_nowait(event("posted too", write("posted too")))
    log.release_appends()
    await asyncio.gather(*calls)
    await runtime.wait_until_idle()
    assert machine.lines[-2:] == ["posted", "posted too"]
    await runtime.close()


async def test_watchers_get_what_is_replayed_and_notified(runtime: Runtime[str]) -> None:
    watcher = runtime.watch("lines", 10)
    await runtime.submit(
        event("a", write("a", "b", then=[Notify("lines", "c"), Complete("1", 0)])), call_id="1"
    )
    assert watcher.take_ready(10) == ["a", "b", "c"]


async def test_a_slow_watcher_does_not_block_the_machine(runtime: Runtime[str]) -> None:
    watcher = runtime.watch("lines", 2)
    for number in range(10):
        await runtime.submit(put(str(number), "1"), call_id="1")
    with raises_reason(Reason.QUEUE_FULL):
        await anext(watcher)


async def test_the_number_of_watchers_is_bounded(
    machine: Notebook, log: MemoryLog, clock: ManualClock
) -> None:
    runtime = new_runtime(machine, log, clock, max_watchers=1)
    await runtime.load()
    with runtime.watch("x", 1), raises_reason(Reason.QUEUE_FULL):
        runtime.watch("y", 1)
    runtime.watch("y", 1)
    await runtime.close()
