"""Which connector is named as the one that ends the engine, and where suspects run."""

from collections.abc import Sequence

import pytest

from drover.model.failures import FailureCause
from drover.model.ids import TaskId
from drover.model.status import StatusKey
from drover_worker.core.events import EndKind
from drover_worker.core.lifecycle.engine_deaths import (
    QUARANTINE_ENDS_MAX,
    EngineDeath,
    EngineDeaths,
    EngineFault,
    ended_text,
)

HOUR_MS = 3_600_000
WHY = "the engine ended with exit code 3"
A0, B0, C0, D0 = (TaskId(name, 0) for name in "abcd")


def end(
    deaths: EngineDeaths,
    *at_work: StatusKey,
    slot: str = "shared",
    at_ms: int = 0,
    kind: EndKind = EndKind.CRASH,
    unknown: bool = False,
    idle: bool = False,
    by_itself: bool = False,
    recent: Sequence[StatusKey] = (),
) -> dict[StatusKey, EngineFault]:
    """The engine of a slot ends; returns the failures that count as the connector's own.

    ``at_work`` is held by the engine, and at work unless that is unknown or the engine is idle.
    ``recent`` is held by it too, and was at work shortly before.
    """
    found = None if unknown else () if idle else at_work
    held = (*at_work, *recent)
    death = EngineDeath(slot, WHY, found, held, kind, by_itself, recent)
    return dict(deaths.record(death, at_ms))


def clock(time_ms: int) -> str:
    return f"09:00 and {time_ms} ms"


def release_ms(deaths: EngineDeaths) -> int | None:
    return deaths.release_ms


def test_a_connector_that_alone_was_at_work_twice_is_named_and_quarantined() -> None:
    deaths = EngineDeaths()
    assert end(deaths, A0) == {}
    assert deaths.slots == {"a": "suspects/1"}, "the others are safe after the first end"
    faults = end(deaths, A0, slot="suspects/1")
    assert list(faults) == [A0]
    assert faults[A0].cause is FailureCause.PLUGIN
    text = "the engine ended 2 times in a row while this connector alone was at work; it now runs"
    assert faults[A0].trace.startswith(f"{text} in quarantine: {WHY}")
    assert deaths.slots == {"a": "quarantine/a"}
    assert deaths.note("a", clock) == (
        "runs in quarantine since 09:00 and 0 ms: the engine ended 2 times while it alone was"
        f" at work: {WHY}"
    )
    assert deaths.note("b", clock) == ""


def test_any_of_its_tasks_and_the_connector_object_count_together() -> None:
    deaths = EngineDeaths()
    end(deaths, A0, TaskId("a", 1))
    assert set(end(deaths, "a", slot="suspects/1")) == {"a"}


def test_suspects_are_split_until_one_is_alone() -> None:
    deaths = EngineDeaths()
    end(deaths, A0, B0, C0, D0)
    assert deaths.slots == {"a": "suspects/1"}, "the most suspicious one first"
    end(deaths, B0, C0, D0)
    assert deaths.slots == {"b": "suspects/1", "c": "suspects/1", "d": "suspects/2"}
    end(deaths, B0, C0, slot="suspects/1")
    assert deaths.slots == {"b": "suspects/1", "c": "suspects/2"}, "d is cleared"
    assert end(deaths, C0, slot="suspects/2") == {}
    assert set(end(deaths, C0, slot="suspects/2")) == {C0}
    assert deaths.slots == {"c": "quarantine/c"}, "b returns"


def test_with_nothing_at_work_nobody_is_accused() -> None:
    deaths = EngineDeaths()
    for _ in range(5):
        assert end(deaths) == {}
    assert deaths.slots == {}


def test_an_engine_that_ends_between_calls_accuses_its_only_connector() -> None:
    deaths = EngineDeaths()
    end(deaths, A0, B0, idle=True, by_itself=True)
    assert deaths.slots == {}, "several connectors ran in it"
    end(deaths, A0)
    for kind in (EndKind.KILL, EndKind.CRASH):
        assert end(deaths, A0, slot="suspects/1", kind=kind, idle=True) == {}, "not by itself"
    faults = end(deaths, A0, "a", slot="suspects/1", idle=True, by_itself=True)
    assert set(faults) == {A0, "a"}
    assert deaths.slots == {"a": "quarantine/a"}
    for _ in range(QUARANTINE_ENDS_MAX):
        end(deaths, A0, slot="quarantine/a", idle=True, by_itself=True)
    assert deaths.quarantined["a"].stopped


def test_the_only_connector_that_worked_shortly_before_the_ends_is_named() -> None:
    deaths = EngineDeaths()
    assert end(deaths, recent=[A0]) == {}
    assert deaths.slots == {"a": "suspects/1"}
    assert set(end(deaths, slot="suspects/1", recent=[A0])) == {A0}
    assert deaths.slots == {"a": "quarantine/a"}


def test_of_several_that_worked_shortly_before_the_most_suspicious_is_tested_first() -> None:
    deaths = EngineDeaths()
    end(deaths, recent=[A0, B0, C0])
    assert deaths.slots == {"a": "suspects/1"}
    end(deaths, recent=[C0, B0])
    assert deaths.slots == {"c": "suspects/1", "b": "suspects/2"}


def test_one_at_work_while_others_worked_shortly_before_is_tested_but_never_named_for_it() -> None:
    deaths = EngineDeaths()
    end(deaths, A0, recent=[B0, C0])
    assert deaths.slots == {"a": "suspects/1"}
    end(deaths, B0, recent=[C0])
    assert deaths.slots == {"a": "suspects/1", "b": "suspects/2"}
    end(deaths, recent=[C0, D0])
    end(deaths, recent=[C0, D0])
    assert deaths.slots == {"c": "suspects/1"}, "the shared engine ended without a and b"
    for _ in range(6):
        end(deaths, A0, recent=[B0, C0])
        assert not deaths.quarantined
    by_itself = EngineDeaths()
    end(by_itself, A0, recent=[B0, C0])
    assert set(end(by_itself, A0, slot="suspects/1")) == {A0}, "alone in its engine"


def test_one_at_work_among_suspects_of_an_engine_is_separated_from_the_others() -> None:
    deaths = EngineDeaths()
    end(deaths, A0, B0, C0, D0)
    end(deaths, B0, C0, D0)
    end(deaths, C0, slot="suspects/1", recent=[B0])
    assert deaths.slots == {"c": "suspects/1", "b": "suspects/2"}


def test_if_it_is_unknown_what_was_at_work_everything_in_that_engine_is_suspected() -> None:
    deaths = EngineDeaths()
    end(deaths, A0, B0, unknown=True)
    end(deaths, A0, slot="suspects/1", unknown=True)
    assert set(end(deaths, A0, slot="suspects/1", unknown=True)) == {A0}


def test_a_culprit_is_stopped_after_more_ends_in_quarantine() -> None:
    deaths = EngineDeaths()
    end(deaths, A0)
    end(deaths, A0, slot="suspects/1")
    for count in range(1, QUARANTINE_ENDS_MAX):
        faults = end(deaths, A0, slot="quarantine/a")
        assert faults[A0].cause is FailureCause.PLUGIN
        text = f"its engine ended while it was at work in quarantine (end {count} of at most 3"
        assert faults[A0].trace.startswith(f"{text} within 3600 s): {WHY}")
    faults = end(deaths, A0, "a", slot="quarantine/a")
    assert {fault.cause for fault in faults.values()} == {FailureCause.LIMIT}
    assert set(faults) == {A0, "a"}, "all its work is stopped"
    assert "Change its config or restart it to try again" in faults[A0].trace
    assert deaths.quarantined["a"].stopped
    assert deaths.slots == {"a": "quarantine/a"}


def test_an_end_in_quarantine_with_nothing_at_work_does_not_count() -> None:
    deaths = EngineDeaths()
    end(deaths, A0)
    end(deaths, A0, slot="suspects/1")
    for _ in range(10):
        assert end(deaths, slot="quarantine/a") == {}


def test_rare_ends_in_quarantine_never_stop_it() -> None:
    deaths = EngineDeaths()
    end(deaths, A0)
    end(deaths, A0, slot="suspects/1")
    for hour in range(1, 20):
        faults = end(deaths, A0, slot="quarantine/a", at_ms=hour * HOUR_MS)
        assert faults[A0].cause is FailureCause.PLUGIN


def test_a_changed_or_restarted_connector_gets_a_new_chance() -> None:
    deaths = EngineDeaths()
    end(deaths, A0)
    end(deaths, A0, slot="suspects/1")
    deaths.release("a")
    assert deaths.slots == {}
    assert deaths.note("a", clock) == ""
    assert end(deaths, A0) == {}, "it is counted from the beginning"


def test_after_a_plugin_reload_nobody_is_suspected() -> None:
    deaths = EngineDeaths()
    end(deaths, A0)
    end(deaths, A0, slot="suspects/1")
    end(deaths, B0, C0)
    deaths.release_all()
    assert deaths.slots == {}


def test_suspects_return_when_nothing_ends_for_ten_minutes() -> None:
    deaths = EngineDeaths()
    end(deaths, A0, at_ms=1_000)
    assert release_ms(deaths) == 601_000
    deaths.release_due(600_999)
    assert deaths.slots
    deaths.release_due(601_000)
    assert not deaths.slots
    assert release_ms(deaths) is None
    end(deaths, A0, at_ms=900_000)
    assert "a" in deaths.quarantined, "the first end still counts for an hour"


def test_ends_that_are_far_apart_are_unrelated() -> None:
    deaths = EngineDeaths()
    for hour in range(5):
        assert end(deaths, A0, at_ms=hour * (HOUR_MS + 1)) == {}


def test_a_second_culprit_is_found_while_the_first_is_tested() -> None:
    deaths = EngineDeaths()
    end(deaths, A0)
    end(deaths, B0)
    assert deaths.slots == {"a": "suspects/1", "b": "suspects/2"}
    end(deaths, B0, slot="suspects/2")
    end(deaths, A0, slot="suspects/1")
    assert deaths.slots == {"a": "quarantine/a", "b": "quarantine/b"}


def test_an_engine_of_its_own_counts_as_the_connectors_failure_only() -> None:
    deaths = EngineDeaths()
    for _ in range(5):
        faults = end(deaths, A0, slot="own/a")
        assert faults[A0].cause is FailureCause.PLUGIN
        assert faults[A0].trace.startswith(f"its own engine ended while it was at work: {WHY}")
    assert end(deaths, A0, slot="own/a", kind=EndKind.KILL) == {}
    assert deaths.slots == {}


def test_out_of_memory_has_its_own_remedy() -> None:
    deaths = EngineDeaths()
    end(deaths, A0, kind=EndKind.MEMORY)
    faults = end(deaths, A0, slot="suspects/1", kind=EndKind.MEMORY)
    assert faults[A0].trace.startswith("out of memory 2 times in a row")
    assert "batch.max.bytes" in faults[A0].trace
    faults = end(deaths, A0, slot="quarantine/a", kind=EndKind.MEMORY)
    assert faults[A0].trace.startswith("out of memory while it was at work in quarantine (end 1")


@pytest.mark.parametrize(
    ("slot", "at_work", "text"),
    [
        ("shared", [A0], f"the worker's engine ended while a was at work: {WHY}; it restarts"),
        ("shared", [A0, B0], "ended while a, b were at work: "),
        ("shared", [A0, B0, C0, D0, "e"], "ended while a, b, c and 2 more were at work: "),
        ("shared", [], f"the worker's engine ended: {WHY}"),
        ("suspects/1", [A0], "the engine suspects/1 ended while a was at work"),
    ],
)
def test_the_others_are_told_why_they_restart(
    slot: str, at_work: Sequence[StatusKey], text: str
) -> None:
    assert text in ended_text(EngineDeath(slot, WHY, at_work, at_work))
