"""Connectors whose commit marker counts tasks that the log lacks."""

from dataclasses import replace

import pytest

from drover.errors import Reason, UnavailableError
from drover.model.config import ConfigSnapshot, ConnectorEntry, TargetState
from drover.model.status import RunState, StatusSnapshot
from drover_worker.core import events, instructions
from tests.support.herder_driver import HerderDriver, entry, task_configs

UNREACHABLE = UnavailableError(Reason.SERVICE_UNREACHABLE, "nobody answers")


def half(name: str, *, target: TargetState = TargetState.STARTED) -> ConnectorEntry:
    return replace(entry(name, tasks=2, target=target), inconsistent=True)


@pytest.fixture
def leader(herder: HerderDriver) -> HerderDriver:
    """Leads, and runs connector c with its two tasks."""
    herder.ready(entry("c", tasks=2))
    herder.settle_as_leader()
    herder.run_engine()
    return herder


def answer_question(herder: HerderDriver, count: int = 2) -> None:
    call = herder.take(instructions.GenerateTaskConfigs)
    herder.step(events.TaskConfigsGenerated("c", call.run_id, task_configs("c", count)))


def write(herder: HerderDriver) -> None:
    """The connector's task configs are durable, but the worker has not read them yet."""
    call = herder.take(instructions.WriteTaskConfigs)
    herder.step(events.ConfigWritten(call.cause_id, herder.offset))


def wait(herder: HerderDriver, duration_ms: int) -> None:
    """Advance the clock without the timers of rebalances."""
    own = ("heal", "reconfigure")
    herder.timers = {key: t for key, t in herder.timers.items() if key.startswith(own)}
    herder.advance(duration_ms)


def make_half_a_set_again(herder: HerderDriver) -> None:
    answer_question(herder)
    write(herder)
    herder.commit_half("c", 2)


def test_an_owner_makes_a_set_anew_that_is_not_whole_in_the_log(leader: HerderDriver) -> None:
    leader.commit_half("c", 3)
    answer_question(leader)
    assert leader.take(instructions.WriteTaskConfigs).configs == task_configs("c", 2)


def test_a_connector_that_was_inconsistent_at_the_start_is_healed(herder: HerderDriver) -> None:
    herder.step(events.StatusesLoaded(StatusSnapshot(0, {})))
    herder.load(half("c"), tasks={}, offset=5)
    herder.step(events.EngineReady())
    herder.settle_as_leader()
    start = herder.take(instructions.StartConnector)
    herder.step(events.ConnectorStarted("c", start.run_id))
    answer_question(herder)
    write(herder)
    herder.commit("c", task_configs("c", 2))
    wait(herder, 60_000)
    assert not herder.find(instructions.GenerateTaskConfigs)


def test_a_snapshot_that_shows_it_is_as_good_as_a_change(leader: HerderDriver) -> None:
    snapshot = ConfigSnapshot(leader.offset + 5, {"c": half("c")}, {})
    leader.offset += 5
    leader.step(events.ConfigsLoaded(snapshot))
    answer_question(leader)
    leader.take(instructions.WriteTaskConfigs)


def test_a_set_that_is_never_whole_is_made_anew_less_and_less_often(
    leader: HerderDriver,
) -> None:
    leader.commit_half("c", 2)
    waits = []
    for _ in range(12):
        make_half_a_set_again(leader)
        waits.append(leader.timers["heal:c"].deadline_ms - leader.now_ms)
        wait(leader, waits[-1] - 1)
        assert not leader.find(instructions.GenerateTaskConfigs)
        wait(leader, 1)
    assert waits[:3] == [250, 500, 1_000]
    assert waits[-1] == 60_000


def test_its_status_says_that_it_does_not_heal_and_is_cleared_when_it_does(
    leader: HerderDriver,
) -> None:
    leader.commit_half("c", 2)
    make_half_a_set_again(leader)
    assert leader.statuses["c"].trace == ""
    wait(leader, 250)
    make_half_a_set_again(leader)
    assert leader.statuses["c"].state is RunState.RUNNING
    assert "still incomplete after it was regenerated 2 times" in leader.statuses["c"].trace
    wait(leader, 500)
    answer_question(leader)
    write(leader)
    leader.commit("c", task_configs("c", 2))
    assert leader.statuses["c"].trace == ""
    assert "heal:c" not in leader.timers


def test_half_a_set_after_half_a_set_is_no_reason_to_rebalance(leader: HerderDriver) -> None:
    leader.commit_half("c", 2)
    structure_offset = leader.herder.context.view.structure_offset
    leader.commit_half("c", 3)
    assert leader.herder.context.view.structure_offset == structure_offset
    assert leader.herder.context.view.connectors["c"].task_count == 3


def test_the_count_goes_on_over_a_rebalance(leader: HerderDriver) -> None:
    leader.commit_half("c", 2)
    for wait_ms in (250, 500):
        make_half_a_set_again(leader)
        wait(leader, wait_ms)
    answer_question(leader)
    write(leader)
    leader.step(events.GroupPushed(leader.member_id, 1, True))
    leader.run_engine()
    leader.settle_as_leader(generation=2)
    start = leader.take(instructions.StartConnector)
    leader.step(events.ConnectorStarted("c", start.run_id))
    make_half_a_set_again(leader)
    assert leader.timers["heal:c"].deadline_ms - leader.now_ms > 500


def test_a_back_off_of_the_writing_itself_is_not_cut_short(leader: HerderDriver) -> None:
    leader.commit_half("c", 2)
    answer_question(leader)
    leader.fail(leader.take(instructions.WriteTaskConfigs).cause_id, UNREACHABLE)
    wait(leader, 249)
    assert not leader.find(instructions.GenerateTaskConfigs)
    wait(leader, 1)
    answer_question(leader)


@pytest.mark.parametrize("target", [TargetState.PAUSED, TargetState.STOPPED])
def test_a_connector_that_should_not_run_is_healed_when_it_should(
    herder: HerderDriver, target: TargetState
) -> None:
    herder.step(events.StatusesLoaded(StatusSnapshot(0, {})))
    herder.load(half("c", target=target), tasks={}, offset=5)
    herder.step(events.EngineReady())
    herder.settle_as_leader()
    wait(herder, 60_000)
    assert not herder.find(instructions.GenerateTaskConfigs)
    herder.target("c", TargetState.STARTED)
    start = herder.take(instructions.StartConnector)
    herder.step(events.ConnectorStarted("c", start.run_id))
    answer_question(herder)
    herder.take(instructions.WriteTaskConfigs)


def test_a_connector_that_cannot_make_them_says_why(leader: HerderDriver) -> None:
    leader.commit_half("c", 2)
    call = leader.take(instructions.GenerateTaskConfigs)
    leader.step(events.TaskConfigsNotGenerated("c", call.run_id, "Traceback: no such file"))
    assert leader.statuses["c"].trace == "Traceback: no such file"


def test_one_that_is_deleted_is_forgotten(leader: HerderDriver) -> None:
    leader.commit_half("c", 2)
    make_half_a_set_again(leader)
    leader.remove("c")
    assert "heal:c" not in leader.timers
    assert not leader.herder.context.view.inconsistent
