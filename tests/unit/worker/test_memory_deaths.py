"""Which connectors and tasks are blamed for engines that ran out of memory."""

from collections.abc import Sequence

import pytest

from drover.model.failures import FailureCause
from drover.model.ids import TaskId
from drover.model.status import StatusKey
from drover_worker.core import events
from drover_worker.core.context import HerderSettings
from drover_worker.core.lifecycle.memory_deaths import MemoryDeaths
from tests.support.herder_driver import ME, HerderDriver, connector_config, entry

HOUR_MS = 3_600_000
WHY = "the kernel killed it"
A0, A1, B0, C0 = TaskId("a", 0), TaskId("a", 1), TaskId("b", 0), TaskId("c", 0)


@pytest.fixture
def herder() -> HerderDriver:
    """A worker with connectors a and b; it stays a member although heartbeats get no response."""
    driver = HerderDriver(
        HerderSettings(worker_id=ME, group_id="drover", session_timeout_ms=900_000_000)
    )
    config = {**connector_config("a"), "restart.attempts.max": "1"}
    driver.ready(entry("a", tasks=2, config=config), entry("b", tasks=1))
    driver.settle_as_leader()
    driver.run_engine()
    driver.echo_statuses()
    return driver


def end(herder: HerderDriver, starved: Sequence[StatusKey] | None) -> None:
    herder.step(events.EngineLost(WHY, starved))
    herder.echo_statuses()


def begin(herder: HerderDriver) -> None:
    herder.step(events.EngineReady())
    herder.run_engine()
    herder.echo_statuses()


def faults(deaths: MemoryDeaths, *starved: StatusKey, at_ms: int = 0) -> set[StatusKey]:
    return set(deaths.faults(events.EngineLost(WHY, starved), at_ms))


def test_who_was_at_work_twice_in_a_row_alone_is_the_cause() -> None:
    deaths = MemoryDeaths()
    assert faults(deaths, A0) == set()
    assert faults(deaths, A0) == {A0}
    assert faults(deaths, A1, "a") == {A1, "a"}, "the connector counts, not the task"


def test_who_was_at_work_by_chance_is_ruled_out_by_the_next_end() -> None:
    deaths = MemoryDeaths()
    assert faults(deaths, A0, B0, C0) == set()
    assert faults(deaths, A0, B0) == set()
    assert faults(deaths, A0, C0) == {A0}
    assert faults(deaths, A0, B0, C0) == {A0}


def test_of_two_that_are_always_at_work_nobody_knows() -> None:
    deaths = MemoryDeaths()
    assert [faults(deaths, A0, B0) for _ in range(5)] == [set()] * 5


def test_ends_with_nobody_in_common_begin_anew() -> None:
    deaths = MemoryDeaths()
    faults(deaths, A0)
    assert faults(deaths, B0) == set()
    assert faults(deaths, A0) == set()
    assert faults(deaths, A0) == {A0}


def test_ends_that_are_far_apart_begin_anew() -> None:
    deaths = MemoryDeaths()
    faults(deaths, A0)
    assert faults(deaths, A0, at_ms=HOUR_MS + 1) == set()
    assert faults(deaths, A0, at_ms=2 * HOUR_MS) == {A0}


def test_other_ends_say_nothing() -> None:
    deaths = MemoryDeaths()
    faults(deaths, A0)
    assert not deaths.faults(events.EngineLost("kill -9"), 0)
    assert faults(deaths) == set(), "no connector or task was active"
    faults(deaths, A0)
    assert faults(deaths, A0) == {A0}


def test_it_counts_as_the_connectors_failure_and_its_policy_decides(herder: HerderDriver) -> None:
    end(herder, [A0, B0])
    begin(herder)
    assert set(herder.states().values()) == {"RUNNING"}
    end(herder, [A0])
    failures = herder.statuses[A0].failures
    assert failures is not None
    assert [each.cause for each in failures.failures] == [FailureCause.ENGINE, FailureCause.PLUGIN]
    assert failures.restart_ms > herder.now_ms
    trace = herder.statuses[A0].trace
    start = "out of memory 2 times in a row while this connector was active"
    assert trace.startswith(f"{start}: {WHY}")
    assert "batch.max.bytes" in trace
    begin(herder)
    others = {key: state for key, state in herder.states().items() if key != "a-0"}
    assert herder.states()["a-0"] == "FAILED"
    assert set(others.values()) == {"RUNNING"}, "others start with the engine"
    herder.advance(1_300)
    herder.run_engine()
    assert herder.states()["a-0"] == "RUNNING"

    end(herder, [A0, B0])
    begin(herder)
    herder.advance(HOUR_MS)
    herder.run_engine()
    assert herder.states() == {**others, "a-0": "FAILED"}
    failures = herder.statuses[A0].failures
    assert failures is not None
    assert "restart.attempts.max=1" in failures.no_restart_reason
    others_failures = herder.statuses[B0].failures
    assert others_failures is not None
    assert {each.cause for each in others_failures.failures} == {FailureCause.ENGINE}


def test_a_connector_object_may_be_the_cause_as_well(herder: HerderDriver) -> None:
    for _ in range(2):
        end(herder, ["a"])
        begin(herder)
    assert herder.states()["a"] == "FAILED"
    herder.advance(1_300)
    herder.run_engine()
    assert herder.states()["a"] == "RUNNING"
