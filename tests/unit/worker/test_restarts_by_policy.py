"""Automatic restarts of failed connectors and tasks, as restart.policy configures them."""

import pytest

from drover.model.config import TargetState
from drover.model.failures import FailureCause, FailureHistory
from drover.model.ids import TaskId
from drover.model.status import RunState, StatusEvent, StatusKey
from drover_worker.core import events, instructions
from drover_worker.core.context import HerderSettings
from tests.support.herder_driver import ME, HerderDriver, connector_config, entry

C0, C1 = TaskId("c", 0), TaskId("c", 1)
SOON_MS = 1_300


@pytest.fixture
def herder() -> HerderDriver:
    """A worker that stays a member although its heartbeats get no response."""
    return HerderDriver(
        HerderSettings(worker_id=ME, group_id="drover", session_timeout_ms=900_000_000)
    )


def run(herder: HerderDriver, **settings: str) -> HerderDriver:
    """Runs connector c with two tasks."""
    named = {name.replace("_", "."): value for name, value in settings.items()}
    herder.ready(entry("c", tasks=2, config={**connector_config("c"), **named}))
    herder.settle_as_leader()
    herder.run_engine()
    herder.echo_statuses()
    herder.status_log.clear()
    return herder


def fail(herder: HerderDriver, key: StatusKey = C0, cause: FailureCause | None = None) -> None:
    item = herder.herder.work.find(key)
    assert item is not None
    kind = events.TaskFailed if isinstance(key, TaskId) else events.ConnectorFailed
    herder.step(kind(key, item.run_id, "boom", cause or FailureCause.PLUGIN))  # type: ignore[arg-type]
    herder.echo_statuses()


def history(herder: HerderDriver, key: StatusKey = C0) -> FailureHistory:
    found = herder.statuses[key].failures
    assert found is not None
    return found


def rebalance(herder: HerderDriver, generation: int) -> None:
    herder.echo_statuses()
    herder.step(events.GroupPushed("member-a", generation - 1, True))
    herder.run_engine()
    herder.settle_as_leader(generation=generation)
    herder.run_engine()
    herder.echo_statuses()


@pytest.mark.parametrize("key", ["c", C0], ids=str)
def test_what_failed_runs_again_after_a_back_off(herder: HerderDriver, key: StatusKey) -> None:
    run(herder)
    fail(herder, key)
    assert herder.status_log == [(key, RunState.FAILED)]
    assert herder.now_ms < history(herder, key).restart_ms <= herder.now_ms + SOON_MS
    herder.advance(SOON_MS)
    herder.run_engine()
    states = [RunState.FAILED, RunState.RESTARTING, RunState.RUNNING]
    assert herder.status_log == [(key, state) for state in states]
    assert history(herder, key).count == 1
    assert history(herder, key).restart_ms == 0


def test_never_means_until_somebody_restarts_it(herder: HerderDriver) -> None:
    run(herder, restart_policy="never")
    fail(herder)
    herder.advance(3_600_000)
    assert herder.status_log == [(C0, RunState.FAILED)]
    assert history(herder).no_restart_reason == "restart.policy=never"


def test_after_too_many_failures_it_stays_failed_with_its_history(herder: HerderDriver) -> None:
    run(herder, restart_attempts_max="2")
    for _ in range(3):
        fail(herder)
        herder.advance(10_000)
        herder.run_engine()
    assert herder.states()["c-0"] == "FAILED"
    assert len(history(herder).failures) == history(herder).count == 3
    assert "restart.attempts.max=2" in history(herder).no_restart_reason
    herder.advance(3_600_000)
    assert not herder.find(instructions.ClaimTask)


def test_a_users_restart_begins_to_count_anew(herder: HerderDriver) -> None:
    run(herder, restart_attempts_max="1")
    fail(herder)
    herder.restart_requested("c", only_failed=True, include_tasks=True)
    herder.run_engine()
    assert herder.statuses[C0].failures is None
    fail(herder)
    assert history(herder).count == 1
    assert history(herder).restart_ms


def test_another_config_begins_to_count_anew(herder: HerderDriver) -> None:
    run(herder, restart_attempts_max="1")
    fail(herder)
    herder.commit("c", [{"part": "other"}])
    herder.gather()
    herder.run_engine()
    herder.settle_as_leader(generation=2)
    herder.run_engine()
    assert herder.states()["c-0"] == "RUNNING"
    fail(herder)
    assert history(herder).count == 1


def test_a_rebalance_does_not_try_again_what_failed_for_good(herder: HerderDriver) -> None:
    run(herder, restart_policy="never")
    fail(herder)
    rebalance(herder, 2)
    assert herder.states() == {"c": "RUNNING", "c-0": "FAILED", "c-1": "RUNNING"}
    assert herder.statuses[C0].generation == 2
    herder.restart_requested("c", only_failed=True, include_tasks=True)
    herder.run_engine()
    assert herder.states()["c-0"] == "RUNNING"


def test_a_worker_that_was_started_later_tries_it_again(herder: HerderDriver) -> None:
    run(herder, restart_policy="never")
    fail(herder)
    herder.herder.context.started_ms = herder.now_ms + 1
    rebalance(herder, 2)
    assert herder.states()["c-0"] == "RUNNING"
    assert history(herder).count == 1


def test_the_next_owner_goes_on_counting(herder: HerderDriver) -> None:
    run(herder)
    fail(herder)
    herder.advance(SOON_MS)
    herder.run_engine()
    rebalance(herder, 2)
    fail(herder)
    assert history(herder).count == 2
    assert history(herder).restart_ms > herder.now_ms + SOON_MS


def test_a_late_word_of_the_owner_before_denies_the_failure(herder: HerderDriver) -> None:
    run(herder, restart_policy="never")
    fail(herder)
    herder.restart_requested("c", only_failed=True, include_tasks=True)
    herder.run_engine()
    known = dict(herder.statuses)
    herder.statuses[C0] = herder.herder.context.statuses[C0]  # the worker reads RUNNING later
    rebalance(herder, 2)
    assert herder.states()["c-0"] == "FAILED"
    herder.step(events.StatusesChanged([StatusEvent(99, C0, known[C0])]))
    herder.run_engine()
    assert herder.states()["c-0"] == "RUNNING"


def test_what_is_paused_waits_for_its_resume(herder: HerderDriver) -> None:
    run(herder)
    fail(herder)
    herder.target("c", TargetState.PAUSED)
    herder.run_engine()
    herder.advance(60_000)
    assert herder.states()["c-0"] == "FAILED"
    herder.target("c", TargetState.STARTED)
    herder.run_engine()
    assert herder.states()["c-0"] == "RUNNING"


def test_the_loss_of_the_engine_is_nobodys_failure(herder: HerderDriver) -> None:
    run(herder, restart_policy="never")
    for _ in range(3):
        herder.step(events.EngineLost("killed"))
        assert history(herder).last.cause is FailureCause.ENGINE  # type: ignore[union-attr]
        herder.step(events.EngineReady())
        herder.run_engine()
        assert set(herder.states().values()) == {"RUNNING"}


def test_a_start_that_failed_with_sparks_jvm_is_made_again_with_the_next_engine(
    herder: HerderDriver,
) -> None:
    run(herder, restart_policy="never")
    fail(herder, cause=FailureCause.ENGINE)
    herder.step(events.EngineLost("killed"))
    assert herder.states()["c-0"] == "FAILED"
    herder.step(events.EngineReady())
    herder.run_engine()
    assert herder.states()["c-0"] == "RUNNING"


def test_it_is_also_made_again_when_the_engine_lives_on(herder: HerderDriver) -> None:
    run(herder, restart_policy="never")
    fail(herder, cause=FailureCause.ENGINE)
    herder.advance(SOON_MS)
    herder.run_engine()
    assert herder.states()["c-0"] == "RUNNING"


def test_what_went_beyond_a_limit_stays_failed(herder: HerderDriver) -> None:
    run(herder)
    fail(herder, cause=FailureCause.LIMIT)
    herder.advance(3_600_000)
    assert herder.states()["c-0"] == "FAILED"


def test_a_back_off_outlasts_the_engine(herder: HerderDriver) -> None:
    run(herder)
    fail(herder)
    herder.step(events.EngineLost("killed"))
    herder.advance(SOON_MS)
    assert herder.states()["c-0"] == "FAILED"
    herder.step(events.EngineReady())
    herder.run_engine()
    assert herder.states()["c-0"] == "RUNNING"


def test_a_back_off_of_an_earlier_failure_says_nothing_about_the_next(herder: HerderDriver) -> None:
    run(herder)
    fail(herder)
    herder.restart_requested("c", only_failed=True, include_tasks=True)
    herder.run_engine()
    herder.step(events.RestartDue(C0, 1))
    assert herder.states()["c-0"] == "RUNNING"
    assert not herder.find(instructions.StopTask)
