"""Two runtimes on one log: a record has the same effect, whichever runtime wrote it."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

import pytest
from structlog.testing import capture_logs

from drover.errors import DataLossError, DroverError, Reason
from drover.log.log import LogRecord, StoredRecord
from drover.machine import Complete, Instruction, Notify, SetTimer
from drover.model.ids import Term
from drover.runtime.runtime import APPLIED_CHANNEL, Runtime
from drover.testing import ManualClock, MemoryLog, SharedMemoryLog, raises_reason
from tests.support.notebook import Notebook, answer, event, new_runtime, put, start, write
from tests.support.waiting import wait_until_async


@dataclass
class Replica:
    """A process that shares the log with another."""

    clock: ManualClock
    log: SharedMemoryLog
    machine: Notebook = field(default_factory=Notebook)

    def __post_init__(self) -> None:
        self.runtime: Runtime[str] = new_runtime(self.machine, self.log, self.clock)

    async def put(self, line: str, **options: object) -> object:
        return await self.runtime.submit(put(line, line, **options), call_id=line)

    async def has(self, *lines: str) -> None:
        await wait_until_async(
            lambda: self.machine.lines == list(lines), describe=lambda: self.machine.lines
        )


@pytest.fixture
async def replicas(clock: ManualClock) -> AsyncIterator[tuple[Replica, Replica]]:
    first = MemoryLog(clock).shared()
    pair = Replica(clock, first), Replica(clock, first.shared())
    for each in pair:
        await each.runtime.load()
        each.machine.diary.clear()
    yield pair
    for each in pair:
        each.log.release_appends()
        each.log.release_tail()
        await each.runtime.close()


Pair = tuple[Replica, Replica]


async def test_records_take_effect_in_the_order_of_the_log(replicas: Pair) -> None:
    one, two = replicas
    assert await one.put("a") == "wrote a"
    assert await two.put("b") == "wrote b"
    await asyncio.gather(*(each.put(line) for line, each in zip("cdef", replicas * 2, strict=True)))
    await wait_until_async(lambda: len(one.machine.lines) == len(two.machine.lines) == 6)
    assert one.machine.lines == two.machine.lines
    assert one.machine.lines == [
        (stored.record.value or b"").decode() for stored in one.log.records
    ]


async def test_loading_reads_what_others_wrote(replicas: Pair, clock: ManualClock) -> None:
    one, _ = replicas
    await one.put("a")
    await one.put("b")
    late = Replica(clock, one.log.shared())
    await late.runtime.load()
    assert late.machine.diary == ["replay 0 a", "replay 1 b", "loaded 2"]
    await one.put("c")
    await late.has("a", "b", "c")
    await late.runtime.close()


async def test_a_decision_is_told_after_its_records_took_effect(replicas: Pair) -> None:
    one, _ = replicas
    one.log.hold_tail()
    watcher = one.runtime.watch("news", 10)
    then: list[Instruction] = [Notify("news", "told"), Complete("1", "written")]
    [call] = await start(one.runtime.submit(event("a", write("a", then=then)), call_id="1"))
    await wait_until_async(lambda: len(one.log.records) == 1)
    assert not call.done()
    assert one.machine.diary == ["handle a"]
    assert watcher.take_ready(10) == []
    one.log.release_tail()
    assert await call == "written"
    assert one.machine.diary == ["handle a", "replay 0 a"]
    assert watcher.take_ready(10) == ["told"]


async def test_foreign_records_take_effect_while_an_append_is_held(replicas: Pair) -> None:
    one, two = replicas
    one.log.hold_appends()
    [call] = await start(one.put("own"))
    for number in range(3):
        await two.put(f"foreign {number}")
    await one.has("foreign 0", "foreign 1", "foreign 2")
    assert not call.done()
    one.log.release_appends()
    assert await call == "wrote own"
    assert one.machine.diary == [
        "handle own",
        "replay 0 foreign 0",
        "replay 1 foreign 1",
        "replay 2 foreign 2",
        "replay 3 own",
    ]


async def test_watchers_hear_of_foreign_records(replicas: Pair) -> None:
    one, two = replicas
    lines = one.runtime.watch("lines", 10)
    applied = one.runtime.watch(APPLIED_CHANNEL, 10)
    await two.runtime.submit(event("x", write("a", "b", then=[Complete("1", 0)])), call_id="1")
    assert [await anext(lines), await anext(lines)] == ["a", "b"]
    await anext(applied)
    assert applied.take_ready(10) == []  # one wake-up for records that arrived together


async def test_what_foreign_records_arm_rings(replicas: Pair, clock: ManualClock) -> None:
    one, _ = replicas
    await one.runtime.post(
        event("arm", answer(SetTimer("t", clock.now_ms() + 5, event("rang", answer()))))
    )
    one.log.hold_appends()
    [call] = await start(one.put("own"))
    clock.advance(5)
    one.log.release_appends()
    await call
    await wait_until_async(lambda: one.machine.diary[-1] == "handle rang")


async def test_neither_side_starves_the_other(replicas: Pair) -> None:
    one, two = replicas
    many = [LogRecord(b"%d" % number, b"f%d" % number) for number in range(20_000)]
    await two.log.append(many)
    assert await asyncio.wait_for(one.put("own"), 30) == "wrote own"
    pings = 0
    await two.log.append(many)
    while len(one.machine.lines) < 40_001:
        done = event("ping", answer(Complete("ping", "pong")))
        assert await one.runtime.submit(done, call_id="ping") == "pong"
        pings += 1
        await asyncio.sleep(0)
    assert pings > 10


async def test_a_slow_watcher_does_not_hold_the_log_up(replicas: Pair) -> None:
    one, two = replicas
    watcher = one.runtime.watch("lines", 2)
    await two.log.append([LogRecord(b"k", b"line")] * 10)
    await wait_until_async(lambda: len(one.machine.lines) == 10)
    with raises_reason(Reason.QUEUE_FULL):
        await anext(watcher)


async def test_a_record_tells_its_request_its_author_and_its_time(
    replicas: Pair, clock: ManualClock
) -> None:
    one, two = replicas
    decided_ms = clock.now_ms()
    one.log.hold_appends()
    [call] = await start(one.put("a", request_id="request-1", author="ann@host"))
    clock.advance(1_000)
    one.log.release_appends()
    await call
    await two.has("a")
    for each in replicas:
        (replayed,) = each.machine.replayed
        assert (replayed.request_id, replayed.author) == ("request-1", "ann@host")
        assert replayed.timestamp_ms == decided_ms


async def test_an_end_is_waited_for(replicas: Pair) -> None:
    one, two = replicas
    one.log.hold_tail()
    await two.put("a")
    end_offset = await one.log.end_offset()
    [waiting] = await start(one.runtime.wait_until_applied(end_offset))
    assert not waiting.done()
    one.log.release_tail()
    await waiting
    assert one.machine.lines == ["a"]
    await one.runtime.wait_until_applied(end_offset)


# appends that fail


async def test_a_failed_append_fails_its_call_alone(replicas: Pair) -> None:
    one, two = replicas
    one.log.fail_next_append()
    with raises_reason(Reason.STORAGE_UNAVAILABLE):
        await one.put("a")
    await two.put("b")
    assert await one.put("c") == "wrote c"
    assert one.machine.lines == ["b", "c"]


async def test_a_request_is_recognised_whose_append_failed_though_it_was_written(
    replicas: Pair,
) -> None:
    """The runtime decides no request before the log shows whether the append was written."""
    one, _ = replicas
    one.log.hold_tail()
    one.log.fail_next_append(written=True)
    with raises_reason(Reason.STORAGE_UNAVAILABLE):
        await one.put("a", request_id="request-1")
    [again] = await start(one.put("b"))
    assert not again.done()
    assert "handle b" not in one.machine.diary
    one.log.release_tail()
    await again
    assert one.machine.diary == ["handle a", "replay 0 a", "handle b", "replay 1 b"]


async def test_while_the_log_cannot_say_what_became_of_an_append_calls_are_refused(
    replicas: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, _ = replicas
    one.log.fail_next_append(written=True)
    away = True
    end_offset = one.log.end_offset

    async def maybe() -> int:
        if away:
            raise await storage_error(one.log)
        return await end_offset()

    monkeypatch.setattr(one.log, "end_offset", maybe)
    with raises_reason(Reason.STORAGE_UNAVAILABLE):
        await one.put("a")
    calls = await start(*(one.put(line) for line in "bcd"))
    for call in calls:
        with raises_reason(Reason.STORAGE_UNAVAILABLE):
            await call
    away = False
    assert await one.put("e") == "wrote e"
    assert one.machine.lines == ["a", "e"]


async def test_closing_does_not_wait_for_a_log_that_cannot_say(
    replicas: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, _ = replicas
    one.log.fail_next_append()
    with raises_reason(Reason.STORAGE_UNAVAILABLE):
        await one.put("a")
    monkeypatch.setattr(one.log, "end_offset", asyncio.Event().wait)
    [call] = await start(one.put("b"))
    await asyncio.wait_for(one.runtime.close(), 30)
    with raises_reason(Reason.DRAINING):
        await call


async def storage_error(log: SharedMemoryLog) -> DroverError:
    log.fail_next_append()
    with pytest.raises(DroverError) as raised:
        await log.append([])
    return raised.value


async def test_a_fenced_writer_is_refused_and_goes_on_following(replicas: Pair) -> None:
    one, two = replicas
    old = await one.log.claim("w1", Term(1, 1))
    new = await two.log.claim("w2", Term(2, 1))
    with raises_reason(Reason.STALE_WRITER_EPOCH):
        await one.put("a", writer_epoch=old)
    await two.put("b", writer_epoch=new)
    await one.has("b")


# the end


async def test_closing_finishes_the_append_and_tells_what_became_of_it(replicas: Pair) -> None:
    one, two = replicas
    watcher = one.runtime.watch("lines", 10)
    one.log.hold_appends()
    writing, queued = await start(one.put("a"), one.put("b"))
    [closing] = await start(one.runtime.close())
    await two.put("x")
    one.log.release_appends()
    await closing
    assert await writing == "wrote a"
    with raises_reason(Reason.DRAINING):
        await queued
    assert watcher.take_ready(10) == ["x", "a"]
    assert one.machine.lines == ["x", "a"]
    await two.put("y")
    await two.has("x", "a", "y")
    assert one.machine.lines == ["x", "a"]


async def test_closing_while_loading_ends_the_load(clock: ManualClock) -> None:
    replica = Replica(clock, MemoryLog(clock).shared())
    replica.log.hold_tail()
    await replica.log.append([LogRecord(b"k", b"a")])
    [loading] = await start(replica.runtime.load())
    await replica.runtime.close()
    with raises_reason(Reason.DRAINING):
        await loading
    assert not replica.runtime.loaded


async def test_a_load_may_be_tried_again(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = Replica(clock, MemoryLog(clock).shared())
    await replica.log.append([LogRecord(b"k", b"a")])
    error = await storage_error(replica.log)

    async def away() -> int:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(replica.log, "end_offset", away)
        with raises_reason(Reason.STORAGE_UNAVAILABLE):
            await replica.runtime.load()
    await replica.runtime.load()
    assert replica.machine.diary == ["replay 0 a", "loaded 1"]
    await replica.runtime.close()


@pytest.mark.parametrize(
    ("value", "reason", "words"),
    [(b"\xff", Reason.LOG_CORRUPT, "offset 1"), (b"poison", Reason.INTERNAL, "defect")],
    ids=["cannot be decoded", "cannot be applied"],
)
async def test_a_record_that_cannot_be_used_ends_everything(
    replicas: Pair, value: bytes, reason: Reason, words: str
) -> None:
    one, two = replicas
    [parked] = await start(one.runtime.submit(event("park", answer()), call_id="parked"))
    watcher = one.runtime.watch("news", 10)
    with capture_logs() as logs:
        await two.log.append([LogRecord(b"a", b"a"), LogRecord(b"b", value)])
        error = await asyncio.wait_for(one.runtime.wait_until_failed(), 30)
    assert error.reason is reason
    assert words in error.message
    assert [entry["log_level"] for entry in logs] == ["error"] * 2  # one in each runtime
    for call in (
        parked,
        anext(watcher),
        one.put("b"),
        one.runtime.wait_until_applied(9),
    ):
        with raises_reason(reason):
            await call
    with raises_reason(reason):
        one.runtime.check_loaded()


async def test_a_truncated_log_is_not_served_any_more(
    replicas: Pair, monkeypatch: pytest.MonkeyPatch, clock: ManualClock
) -> None:
    log = MemoryLog(clock).shared()
    gone = DataLossError(Reason.LOG_CORRUPT, "the topic was truncated")

    async def tail(start_offset: int) -> AsyncIterator[Sequence[StoredRecord]]:
        yield []
        raise gone

    monkeypatch.setattr(log, "tail", tail)
    replica = Replica(clock, log)
    log.hold_appends()
    await replica.runtime.load()
    with capture_logs():
        [writing] = await start(replica.put("a"))
        assert await replica.runtime.wait_until_failed() is gone
    log.release_appends()
    with raises_reason(Reason.LOG_CORRUPT):
        await writing
    await replica.runtime.close()
