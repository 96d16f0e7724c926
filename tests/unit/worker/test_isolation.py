"""A connector that ends the engine is isolated, and its status shows why."""

from collections.abc import Sequence

import pytest

from drover.model.failures import FailureCause
from drover.model.ids import TaskId
from drover.model.status import StatusKey
from drover_worker.core import events, instructions
from drover_worker.core.context import HerderSettings
from drover_worker.core.engine_slots import SHARED, EngineSlot
from tests.support.herder_driver import ME, HerderDriver, connector_config, entry

TEN_MINUTES_MS = 600_000
HOUR_MS = 3_600_000
WHY = "the engine ended with exit code 3"
A0, A1, B0 = TaskId("a", 0), TaskId("a", 1), TaskId("b", 0)
SUSPECTS, QUARANTINE = EngineSlot("suspects/1"), EngineSlot("quarantine/a")


@pytest.fixture
def herder() -> HerderDriver:
    """A worker with connectors a and b; it stays a member although heartbeats get no response."""
    driver = HerderDriver(
        HerderSettings(worker_id=ME, group_id="drover", session_timeout_ms=900_000_000)
    )
    driver.ready(
        entry("a", tasks=2, config=connector_config("a")),
        entry("b", tasks=1, config=connector_config("b")),
    )
    driver.settle_as_leader()
    driver.run_engine()
    driver.echo_statuses()
    return driver


def end(
    herder: HerderDriver,
    at_work: Sequence[StatusKey] | None,
    engine: EngineSlot = SHARED,
    kind: events.EndKind = events.EndKind.CRASH,
) -> None:
    """The engine ends and comes back; what waits for it starts."""
    herder.step(events.EngineLost(WHY, at_work, kind, engine))
    herder.echo_statuses()
    herder.step(events.EngineReady(engine))
    settle(herder)


def settle(herder: HerderDriver) -> None:
    herder.run_engine()
    herder.advance(2_500)  # the first back-offs of a task
    herder.run_engine()
    herder.echo_statuses()


def engine_of(herder: HerderDriver, key: StatusKey) -> EngineSlot:
    item = herder.herder.work.find(key)
    assert item is not None
    return item.engine


def quarantine(herder: HerderDriver) -> None:
    end(herder, [A0])
    end(herder, [A0], SUSPECTS)


def test_after_the_first_end_the_others_run_without_the_suspect(herder: HerderDriver) -> None:
    end(herder, [A0])
    assert set(herder.states().values()) == {"RUNNING"}
    assert {engine_of(herder, key) for key in ("a", A0, A1)} == {SUSPECTS}
    assert {engine_of(herder, key) for key in ("b", B0)} == {SHARED}
    failures = herder.statuses[B0].failures
    assert failures is not None
    (failure,) = failures.failures
    assert failure.cause is FailureCause.ENGINE
    assert failure.message.startswith(f"the worker's engine ended while a was at work: {WHY}")


def test_the_culprit_runs_in_quarantine_and_its_status_shows_why(herder: HerderDriver) -> None:
    quarantine(herder)
    assert set(herder.states().values()) == {"RUNNING"}
    assert {engine_of(herder, key) for key in ("a", A0, A1)} == {QUARANTINE}
    for key in ("a", A0, A1):
        trace = herder.statuses[key].trace
        assert trace.startswith("runs in quarantine since 1")
        assert trace.endswith(f"the engine ended 2 times while it alone was at work: {WHY}")
    assert herder.statuses[B0].trace == ""
    failures = herder.statuses[A0].failures
    assert failures is not None
    assert [each.cause for each in failures.failures] == [FailureCause.ENGINE, FailureCause.PLUGIN]
    others = herder.statuses[B0].failures
    assert others is not None
    assert others.count == 1, "the second end did not affect it"


def test_the_note_counts_the_ends_in_quarantine(herder: HerderDriver) -> None:
    quarantine(herder)
    end(herder, [A0], QUARANTINE)
    assert set(herder.states().values()) == {"RUNNING"}
    assert "the engine ended 3 times while it alone was at work" in herder.statuses["a"].trace


def test_a_culprit_that_goes_on_is_stopped_with_all_its_work(herder: HerderDriver) -> None:
    quarantine(herder)
    for _ in range(3):
        end(herder, [A0], QUARANTINE)
    herder.advance(HOUR_MS)
    assert herder.states() == {
        "a": "FAILED",
        "a-0": "FAILED",
        "a-1": "FAILED",
        "b": "RUNNING",
        "b-0": "RUNNING",
    }
    failures = herder.statuses[A0].failures
    assert failures is not None
    assert failures.last is not None
    assert failures.last.cause is FailureCause.LIMIT
    assert failures.no_restart_reason
    assert "in quarantine" in herder.statuses[A0].trace.splitlines()[0]
    assert not herder.herder.work.has_engine(QUARANTINE), "no engine waits for it"


def test_a_restart_by_a_user_ends_the_quarantine(herder: HerderDriver) -> None:
    quarantine(herder)
    herder.restart_requested("a", only_failed=False, include_tasks=True)
    settle(herder)
    assert {engine_of(herder, key) for key in ("a", A0, A1)} == {SHARED}
    assert set(herder.states().values()) == {"RUNNING"}
    assert herder.statuses["a"].trace == ""
    assert not herder.herder.work.isolation.quarantined


def test_a_restart_by_a_user_starts_a_culprit_that_was_stopped(herder: HerderDriver) -> None:
    quarantine(herder)
    for _ in range(3):
        end(herder, [A0], QUARANTINE)
    herder.restart_requested("a", only_failed=True, include_tasks=True)
    settle(herder)
    assert set(herder.states().values()) == {"RUNNING"}
    assert engine_of(herder, A0) == SHARED


def test_a_changed_config_ends_the_quarantine(herder: HerderDriver) -> None:
    quarantine(herder)
    herder.put("a", config={**connector_config("a"), "changed": "1"})
    settle(herder)
    assert engine_of(herder, "a") == SHARED
    assert not herder.herder.work.isolation.quarantined


def test_a_plugin_reload_starts_a_culprit_that_was_stopped(herder: HerderDriver) -> None:
    quarantine(herder)
    for _ in range(3):
        end(herder, [A0], QUARANTINE)
    herder.step(events.PluginsReloaded())
    settle(herder)
    assert set(herder.states().values()) == {"RUNNING"}
    assert {engine_of(herder, key) for key in ("a", A0, A1)} == {SHARED}


def test_a_suspect_returns_when_nothing_ends_for_ten_minutes(herder: HerderDriver) -> None:
    end(herder, [A0])
    herder.advance(TEN_MINUTES_MS)
    settle(herder)
    assert {engine_of(herder, key) for key in ("a", A0, A1)} == {SHARED}
    assert set(herder.states().values()) == {"RUNNING"}
    assert not herder.herder.work.has_engine(SUSPECTS)


def test_an_end_that_was_requested_moves_nothing(herder: HerderDriver) -> None:
    for _ in range(4):
        end(herder, ())
    assert {engine_of(herder, key) for key in ("a", A0, "b", B0)} == {SHARED}
    assert not herder.find(instructions.StartEngine)


def test_a_removed_connector_leaves_no_quarantine(herder: HerderDriver) -> None:
    quarantine(herder)
    herder.remove("a")
    settle(herder)
    assert not herder.herder.work.isolation.quarantined
    assert not herder.herder.work.has_engine(QUARANTINE)


def test_a_connector_object_may_be_the_culprit_as_well(herder: HerderDriver) -> None:
    end(herder, ["a"])
    end(herder, ["a"], SUSPECTS)
    assert set(herder.herder.work.isolation.quarantined) == {"a"}


def test_the_failure_of_memory_names_its_remedy(herder: HerderDriver) -> None:
    end(herder, [A0], kind=events.EndKind.MEMORY)
    herder.step(events.EngineLost(WHY, [A0], events.EndKind.MEMORY, SUSPECTS))
    trace = herder.statuses[A0].trace
    assert trace.startswith("out of memory 2 times in a row while this connector alone was at work")
    assert "batch.max.bytes" in trace
