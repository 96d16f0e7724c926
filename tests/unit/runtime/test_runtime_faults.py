"""Failed appends and defects: which calls they fail, and which state must not change."""

import pytest
from structlog.testing import capture_logs

from drover.errors import NotFoundError, Reason, UnavailableError
from drover.machine import Complete, Fail, Instruction, Notify, Outcome, SetTimer
from drover.runtime.runtime import Runtime
from drover.testing import ManualClock, MemoryLog, raises_reason
from tests.support.notebook import Decide, Event, Notebook, answer, event, put, start, write
from tests.support.waiting import wait_until_async

# failed appends


async def test_a_failed_append_leaves_hard_state_and_fails_every_answer(
    runtime: Runtime[str], machine: Notebook, log: MemoryLog, clock: ManualClock
) -> None:
    [other, third] = await start(
        runtime.submit(event("park", answer()), call_id="other"),
        runtime.submit(event("park", answer()), call_id="third"),
    )
    watcher = runtime.watch("news", 10)
    log.fail_next_append()
    refused = NotFoundError(Reason.UNKNOWN_MEMBER_ID, "fenced")
    then: list[Instruction] = [
        Complete("1", "yes"),
        Complete("other", "yes"),
        Fail("third", refused),
        SetTimer("t", clock.now_ms(), event("timer", answer())),
        Notify("news", "never"),
    ]
    for call in (runtime.submit(event("a", write("a", then=then)), call_id="1"), other, third):
        with raises_reason(Reason.STORAGE_UNAVAILABLE):
            await call
    clock.advance(1)
    await runtime.wait_until_idle()
    assert machine.lines == []
    assert machine.diary == ["handle park", "handle park", "handle a"]
    assert watcher.take_ready(10) == []


async def test_a_failed_append_goes_back_into_the_machine_before_anything_else(
    runtime: Runtime[str], machine: Notebook, log: MemoryLog
) -> None:
    log.hold_appends()
    log.fail_next_append()
    repair = event("repair", answer(Fail("1", UnavailableError(Reason.LOADING, "repaired"))))
    join = event("join", write("a", on_append_failed=repair))
    joining, ping = await start(
        runtime.submit(join, call_id="1"),
        runtime.submit(event("ping", answer(Complete("2", "pong"))), call_id="2"),
    )
    log.release_appends()
    with raises_reason(Reason.LOADING, "repaired"):
        await joining
    assert await ping == "pong"
    assert machine.diary == ["handle join", "failed repair STORAGE_UNAVAILABLE", "handle ping"]


async def test_a_call_that_nobody_would_answer_fails_with_its_append(
    runtime: Runtime[str], log: MemoryLog
) -> None:
    log.fail_next_append()
    with raises_reason(Reason.STORAGE_UNAVAILABLE):
        await runtime.submit(event("a", write("a")), call_id="1")


async def test_a_repair_that_fails_as_well_is_tried_again_later(
    runtime: Runtime[str], machine: Notebook, log: MemoryLog, clock: ManualClock
) -> None:
    log.fail_next_append(count=2)
    again = event("again", write("repaired"))
    repair = event("repair", write("repaired", on_append_failed=again))
    await runtime.post(event("a", write("a", on_append_failed=repair)))
    await runtime.wait_until_idle()
    assert machine.diary == ["handle a", "failed repair STORAGE_UNAVAILABLE"]
    clock.advance(1_000)
    await runtime.wait_until_idle()
    assert machine.diary[-2:] == ["failed again STORAGE_UNAVAILABLE", "replay 0 repaired"]


async def test_the_log_is_used_again_after_a_failure(runtime: Runtime[str], log: MemoryLog) -> None:
    log.fail_next_append()
    with raises_reason(Reason.STORAGE_UNAVAILABLE):
        await runtime.submit(put("a", "1"), call_id="1")
    assert await runtime.submit(put("a", "2"), call_id="2") == "wrote a"


# defects


def defect(_machine: Notebook, _now_ms: int) -> Outcome[str]:
    raise RuntimeError("a bug")


@pytest.mark.parametrize(
    "faulty",
    [event("bug", defect), event("bug", write("poison")), event("bug", write("unwritable"))],
    ids=["handle", "replay", "encode"],
)
async def test_a_defect_fails_its_call_and_nothing_else(
    runtime: Runtime[str], faulty: Event
) -> None:
    with capture_logs() as logs:
        with raises_reason(Reason.INTERNAL, "notebook has a defect") as raised:
            await runtime.submit(faulty, call_id="1")
        assert "bug" not in raised.error.message
        assert await runtime.submit(put("a", "2"), call_id="2") == "wrote a"
    [entry] = [one for one in logs if one["log_level"] == "error"]
    assert entry["exc_info"]


async def test_a_defect_in_a_timer_or_a_post_is_survived(
    runtime: Runtime[str], clock: ManualClock
) -> None:
    with capture_logs() as logs:
        await runtime.post(event("bug", defect))
        await runtime.post(
            event("arm", answer(SetTimer("t", clock.now_ms() + 5, event("bug", defect))))
        )
        clock.advance(5)
        await runtime.wait_until_idle()
    assert len([one for one in logs if one["log_level"] == "error"]) == 2
    assert await runtime.submit(put("a", "2"), call_id="2") == "wrote a"


async def test_an_instruction_of_no_known_kind_is_survived(
    runtime: Runtime[str], log: MemoryLog
) -> None:
    broken: Decide = lambda _machine, _now_ms: Outcome(("a",), ("no instruction",))  # type: ignore[arg-type] # noqa: E731
    with capture_logs():
        await runtime.post(event("bug", broken))
        await wait_until_async(lambda: len(log.records) == 1)
        await runtime.wait_until_idle()
    assert await runtime.submit(put("b", "2"), call_id="2") == "wrote b"
