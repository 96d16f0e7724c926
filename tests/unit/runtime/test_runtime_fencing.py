"""A runtime whose log may get another writer: epochs, refusals, and the end of serving."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from drover.errors import DroverError, FailedPreconditionError, Reason
from drover.machine import Complete, SetTimer
from drover.model.ids import Term
from drover.runtime.runtime import Runtime
from drover.testing import ManualClock, MemoryLog, raises_reason
from tests.support.notebook import Notebook, answer, decode, encode, event, start, write


def moved() -> DroverError:
    return FailedPreconditionError(Reason.NOT_COORDINATOR, "it is served elsewhere")


class Owner:
    """Claims the log; ``may_speak`` is false once another owner has it."""

    def __init__(self, machine: Notebook, log: MemoryLog, clock: ManualClock) -> None:
        self._parts = (machine, log, clock)
        self.may_speak = True
        self.fenced_count = 0
        self.runtime: Runtime[str]

    async def load(self, epoch: int) -> None:
        machine, log, clock = self._parts
        self.runtime = Runtime(
            machine,
            log,
            encode=encode,
            decode=decode,
            clock=clock,
            name="notebook",
            writer_epoch=await log.claim(f"owner {epoch}", Term(epoch, 0)),
            refusal=lambda: None if self.may_speak else moved(),
            on_fenced=self._fenced,
        )
        await self.runtime.load()

    def _fenced(self) -> DroverError:
        self.fenced_count += 1
        return moved()


@pytest.fixture
async def owner(machine: Notebook, log: MemoryLog, clock: ManualClock) -> AsyncIterator[Owner]:
    owner = Owner(machine, log, clock)
    await owner.load(1)
    yield owner
    await owner.runtime.close()


async def test_the_owner_of_the_log_appends(owner: Owner, machine: Notebook) -> None:
    done = event("a", write("a", then=[Complete("1", "written")]))
    assert await owner.runtime.submit(done, call_id="1") == "written"
    assert machine.lines == ["a"]


async def test_a_fenced_owner_stops_serving_and_everybody_hears_why(
    owner: Owner, machine: Notebook, log: MemoryLog, clock: ManualClock
) -> None:
    runtime = owner.runtime
    timer = SetTimer("late", clock.now_ms() + 10, event("timer", answer()))
    [parked, _] = await start(
        runtime.submit(event("park", answer()), call_id="parked"),
        runtime.post(event("arm", answer(timer))),
    )
    watcher = runtime.watch("news", 10)
    await log.claim("another", Term(2, 0))
    calls = await start(
        runtime.submit(event("a", write("a", then=[Complete("1", "written")])), call_id="1"),
        runtime.submit(event("ping", answer(Complete("2", "pong"))), call_id="2"),
    )
    for call in (parked, *calls):
        with raises_reason(Reason.NOT_COORDINATOR):
            await call
    with raises_reason(Reason.NOT_COORDINATOR):
        await anext(watcher)
    with raises_reason(Reason.NOT_COORDINATOR):
        await runtime.submit(event("later", answer()), call_id="3")
    clock.advance(10)
    await runtime.wait_until_idle()
    assert machine.lines == []
    assert "handle timer" not in machine.diary
    assert owner.fenced_count == 1


async def test_an_owner_that_may_not_speak_decides_nothing(
    owner: Owner, machine: Notebook, clock: ManualClock
) -> None:
    timer = SetTimer("late", clock.now_ms() + 10, event("timer", answer()))
    await owner.runtime.post(event("arm", answer(timer)))
    machine.diary.clear()
    owner.may_speak = False
    with raises_reason(Reason.NOT_COORDINATOR):
        await owner.runtime.submit(event("a", answer(Complete("1", "yes"))), call_id="1")
    clock.advance(10)
    await owner.runtime.wait_until_idle()
    assert machine.diary == []


async def test_an_append_that_was_decided_in_time_is_told_though_it_took_long(
    owner: Owner, log: MemoryLog
) -> None:
    """The log accepted the append, so no other owner had claimed it."""
    log.hold_appends()
    done = event("a", write("a", then=[Complete("1", "written")]))
    [call] = await start(owner.runtime.submit(done, call_id="1"))
    owner.may_speak = False
    log.release_appends()
    assert await call == "written"


async def test_closing_tells_everybody_the_reason_that_is_given(owner: Owner) -> None:
    runtime = owner.runtime
    [parked] = await start(runtime.submit(event("park", answer()), call_id="parked"))
    watcher = runtime.watch("news", 10)
    await runtime.close(moved())
    for late in (
        parked,
        asyncio.ensure_future(anext(watcher)),
        runtime.submit(event("a", answer()), call_id="1"),
    ):
        with raises_reason(Reason.NOT_COORDINATOR):
            await late
