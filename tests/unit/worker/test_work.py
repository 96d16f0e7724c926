"""Connectors and tasks of a worker between two rebalances."""

import pytest

from drover.errors import (
    InternalError,
    Reason,
    ResourceExhaustedError,
    UnavailableError,
)
from drover.model.config import TargetState
from drover.model.ids import TaskId, Term
from drover.model.status import RunState, Status, StatusEvent
from drover_worker.core import events, instructions
from tests.support.herder_driver import (
    OTHER,
    HerderDriver,
    connector_config,
    entry,
    task_configs,
)

UNREACHABLE = UnavailableError(Reason.SERVICE_UNREACHABLE, "nobody answers")
C0, C1 = TaskId("c", 0), TaskId("c", 1)


@pytest.fixture
def leader(herder: HerderDriver) -> HerderDriver:
    """Runs connector c with two tasks."""
    herder.ready(entry("c", tasks=2))
    herder.settle_as_leader()
    herder.run_engine()
    assert herder.states() == {"c": "RUNNING", "c-0": "RUNNING", "c-1": "RUNNING"}
    assert not herder.todo
    herder.status_log.clear()
    return herder


@pytest.fixture
def follower(herder: HerderDriver) -> HerderDriver:
    """Runs task c-0 only; the connector and its other task are elsewhere."""
    herder.ready(entry("c", tasks=2))
    herder.settle_as_follower(tasks=[C0])
    herder.run_engine()
    herder.status_log.clear()
    return herder


# Starting a task


def test_a_task_starts_with_its_claim_and_the_offsets_read_after_it(herder: HerderDriver) -> None:
    herder.ready(entry("c", tasks=2))
    herder.settle_as_follower(tasks=[C0], generation=4)
    claim = herder.take(instructions.ClaimTask)
    assert not herder.find(instructions.FetchOffsets)
    herder.step(events.TaskClaimed(C0, claim.run_id, Term(4, 9)))
    herder.take(instructions.FetchOffsets)
    assert not herder.find(instructions.StartTask)
    herder.step(events.OffsetsFetched(C0, claim.run_id, ()))
    start = herder.take(instructions.StartTask)
    assert (start.claim, start.run_id, start.paused) == (Term(4, 9), claim.run_id, False)
    assert start.connector_config == connector_config("c")
    assert start.task_config == {"part": "c/0"}
    assert "c-0" not in herder.states()
    herder.step(events.TaskStarted(C0, claim.run_id))
    assert herder.states() == {"c-0": "RUNNING"}


def test_stores_out_of_reach_delay_a_task_and_never_fail_it(herder: HerderDriver) -> None:
    herder.ready(entry("c", tasks=2))
    herder.settle_as_follower(tasks=[C0])
    claims = []
    for wait_ms in (250, 500, 1_000, 2_000, 4_000, 5_000, 5_000):
        claims.append(herder.take(instructions.ClaimTask))
        herder.step(events.TaskNotPrepared(C0, claims[-1].run_id, UNREACHABLE))
        herder.timers = {k: t for k, t in herder.timers.items() if k.startswith("task")}
        herder.advance(wait_ms - 1)
        assert not herder.find(instructions.ClaimTask)
        herder.advance(1)
    assert len({claim.request_id for claim in claims}) == 1
    herder.run_engine()
    assert herder.states() == {"c-0": "RUNNING"}


def test_offsets_that_cannot_be_read_now_are_read_again(herder: HerderDriver) -> None:
    herder.ready(entry("c", tasks=2))
    herder.settle_as_follower(tasks=[C0])
    claim = herder.take(instructions.ClaimTask)
    herder.step(events.TaskClaimed(C0, claim.run_id, Term(1, 1)))
    herder.take(instructions.FetchOffsets)
    busy = ResourceExhaustedError(Reason.QUEUE_FULL, "busy")
    herder.step(events.TaskNotPrepared(C0, claim.run_id, busy))
    herder.advance(250)
    herder.take(instructions.FetchOffsets)


@pytest.mark.parametrize("key", ["topics", "topics.regex", ""])
def test_only_a_sink_has_positions_in_topics_read(herder: HerderDriver, key: str) -> None:
    config = connector_config("c", **({key: "t"} if key else {}))
    herder.ready(entry("c", tasks=1, config=config))
    herder.settle_as_follower(tasks=[C0])
    claim = herder.take(instructions.ClaimTask)
    herder.step(events.TaskClaimed(C0, claim.run_id, Term(1, 1)))
    assert herder.take(instructions.FetchOffsets).reads_topics is bool(key)


def test_a_claim_that_can_never_be_had_fails_the_task(herder: HerderDriver) -> None:
    herder.ready(entry("c", tasks=2))
    herder.settle_as_follower(tasks=[C0])
    claim = herder.take(instructions.ClaimTask)
    herder.step(events.TaskNotPrepared(C0, claim.run_id, InternalError("a defect")))
    assert herder.statuses[C0].state is RunState.FAILED
    assert "a defect" in herder.statuses[C0].trace


def test_a_task_of_a_paused_connector_starts_paused(herder: HerderDriver) -> None:
    herder.ready(entry("c", tasks=2, target=TargetState.PAUSED))
    herder.settle_as_leader()
    herder.run_engine()
    assert herder.states() == {"c": "PAUSED", "c-0": "PAUSED", "c-1": "PAUSED"}


# Target states


def test_connector_paused_and_resumed_without_a_rebalance(leader: HerderDriver) -> None:
    leader.target("c", TargetState.PAUSED)
    leader.run_engine()
    assert leader.states() == {"c": "PAUSED", "c-0": "PAUSED", "c-1": "PAUSED"}
    leader.target("c", TargetState.STARTED)
    leader.run_engine()
    assert leader.states() == {"c": "RUNNING", "c-0": "RUNNING", "c-1": "RUNNING"}
    assert leader.stage == "SETTLED"


def test_connector_paused_and_resumed_running_task_only(follower: HerderDriver) -> None:
    follower.target("c", TargetState.PAUSED)
    pause = follower.take(instructions.SetTaskPaused)
    assert (pause.task, pause.paused) == (C0, True)
    follower.step(events.TaskPauseSet(C0, pause.run_id, True))
    assert follower.states() == {"c-0": "PAUSED"}
    follower.target("c", TargetState.STARTED)
    follower.run_engine()
    assert follower.states() == {"c-0": "RUNNING"}


def test_a_resume_that_overtakes_a_pause_wins(follower: HerderDriver) -> None:
    follower.target("c", TargetState.PAUSED)
    follower.target("c", TargetState.STARTED)
    follower.run_engine()
    assert follower.states() == {"c-0": "RUNNING"}


def test_unknown_connector_paused_is_ignored(leader: HerderDriver) -> None:
    leader.target("nobody", TargetState.PAUSED)
    assert not leader.todo


def test_connector_stopped(leader: HerderDriver) -> None:
    leader.commit("c", [])
    assert leader.stage == "SETTLED"
    assert {stop.task for stop in leader.find(instructions.StopTask)} == {C0, C1}
    leader.gather()
    assert leader.stage == "STOPPING_WORK"
    leader.run_engine()
    leader.target("c", TargetState.STOPPED)
    leader.settle_as_leader(generation=2)
    leader.run_engine()
    assert leader.states()["c"] == "STOPPED"
    assert not leader.herder.work.tasks


def test_a_failed_connector_stays_failed_when_paused_but_not_when_stopped(
    leader: HerderDriver,
) -> None:
    run_id = leader.herder.work.connectors["c"].run_id
    leader.step(events.ConnectorFailed("c", run_id, "boom"))
    leader.target("c", TargetState.PAUSED)
    leader.run_engine()
    assert leader.states()["c"] == "FAILED"
    leader.target("c", TargetState.STOPPED)
    leader.run_engine()
    assert leader.states()["c"] == "STOPPED"


# Configs


def test_connector_config_added_leads_to_a_rebalance(leader: HerderDriver) -> None:
    leader.put("d")
    assert not leader.todo
    leader.gather()
    assert leader.stage == "STOPPING_WORK"
    leader.run_engine()
    leader.settle_as_leader(generation=2)
    assert {s.name for s in leader.find(instructions.StartConnector)} == {"c", "d"}


def test_connector_config_removed_leads_to_a_rebalance(leader: HerderDriver) -> None:
    leader.remove("c")
    leader.run_engine()
    leader.gather()
    leader.settle_as_leader(generation=2)
    assert not leader.todo


def test_what_is_removed_stops_at_once_and_alone(herder: HerderDriver) -> None:
    herder.ready(entry("c", tasks=1), entry("d", tasks=1))
    herder.settle_as_leader()
    herder.run_engine()
    herder.remove("c")
    assert herder.take(instructions.StopConnector).name == "c"
    assert herder.take(instructions.StopTask).task == C0
    assert herder.stage == "SETTLED"


def test_a_connector_that_comes_back_at_once_waits_for_its_owner(leader: HerderDriver) -> None:
    leader.remove("c")
    leader.put("c", tasks=1)
    leader.run_engine()
    assert not leader.herder.work.all()
    leader.gather()
    leader.settle_as_leader(generation=2)
    leader.run_engine()
    assert leader.states() == {"c": "RUNNING", "c-0": "RUNNING", "c-1": "UNASSIGNED"}


def test_task_configs_added_lead_to_a_rebalance(leader: HerderDriver) -> None:
    leader.commit("c", [{"part": "0"}])
    leader.gather()
    assert leader.stage == "STOPPING_WORK"


def test_earlier_tasks_stop_at_once_and_later_ones_start_after_the_rebalance(
    leader: HerderDriver,
) -> None:
    leader.commit("c", [{"part": "all"}])
    leader.run_engine()
    assert leader.states() == {"c": "RUNNING", "c-0": "UNASSIGNED", "c-1": "UNASSIGNED"}
    leader.gather()
    leader.run_engine()
    leader.settle_as_leader(generation=2)
    leader.run_engine()
    assert leader.states() == {"c": "RUNNING", "c-0": "RUNNING", "c-1": "UNASSIGNED"}


def test_the_same_task_configs_again_change_nothing(leader: HerderDriver) -> None:
    leader.commit("c", task_configs("c", 2))
    leader.gather()
    assert leader.stage == "SETTLED"
    assert not leader.todo


def test_the_same_task_configs_made_of_another_config_are_others(leader: HerderDriver) -> None:
    leader.put("c", config=connector_config("c", extra="1"))
    leader.run_engine()
    leader.commit("c", task_configs("c", 2))
    assert {stop.task for stop in leader.find(instructions.StopTask)} == {C0, C1}


def test_connector_config_update_restarts_that_connector_alone(leader: HerderDriver) -> None:
    changed = connector_config("c", extra="1")
    leader.put("c", config=changed)
    assert leader.stage == "SETTLED"
    assert leader.take(instructions.StopConnector).name == "c"
    assert not leader.find(instructions.StopTask)
    run_id = leader.herder.work.connectors["c"].run_id
    leader.step(events.ConnectorStopped("c", run_id))
    start = leader.take(instructions.StartConnector)
    assert start.config == changed
    assert start.run_id > run_id


def test_connector_config_update_is_no_business_of_others(follower: HerderDriver) -> None:
    follower.put("c", config=connector_config("c", extra="1"))
    assert not follower.todo
    assert follower.stage == "SETTLED"


def test_a_connector_in_the_assignment_that_is_gone_is_not_started(herder: HerderDriver) -> None:
    herder.ready()
    herder.settle_as_follower(connectors=["gone"], tasks=[TaskId("gone", 0)])
    assert not herder.todo


def test_changes_while_the_watch_was_away_are_caught_up(leader: HerderDriver) -> None:
    paused = entry("c", tasks=2, target=TargetState.PAUSED)
    leader.load(paused, offset=20)
    leader.run_engine()
    assert leader.stage == "SETTLED"
    assert leader.states() == {"c": "PAUSED", "c-0": "PAUSED", "c-1": "PAUSED"}
    leader.load(paused, offset=25)
    leader.gather()
    assert leader.stage == "SETTLED"
    leader.load(paused, entry("d"), offset=30)
    leader.gather()
    assert leader.stage == "STOPPING_WORK"
    leader.run_engine()
    leader.settle_as_leader(generation=2)
    leader.load(entry("c", tasks=1), offset=40)
    assert not [task for task in leader.herder.work.tasks.values() if not task.revoked]
    leader.run_engine()
    leader.gather()
    assert leader.stage in ("STOPPING_WORK", "JOINING")


# Statuses that a dead owner left


@pytest.mark.parametrize("left", [RunState.RUNNING, RunState.PAUSED, RunState.RESTARTING])
def test_what_a_dead_owner_ran_is_unassigned_until_it_runs_here(
    herder: HerderDriver, left: RunState
) -> None:
    herder.ready(entry("c", tasks=1))
    herder.see_statuses({"c": left, C0: left})
    herder.settle_as_follower(generation=2, connectors=["c"], tasks=[C0])
    assert herder.states() == {"c": "UNASSIGNED", "c-0": "UNASSIGNED"}
    herder.run_engine()
    assert herder.states() == {"c": "RUNNING", "c-0": "RUNNING"}


def test_what_a_dead_owner_ran_is_unassigned_while_the_engine_is_away(
    herder: HerderDriver,
) -> None:
    herder.ready(entry("c", tasks=1))
    herder.see_statuses({C0: RunState.RUNNING})
    herder.step(events.EngineLost("killed"))
    herder.settle_as_follower(generation=2, tasks=[C0])
    assert herder.status_log == [(C0, RunState.UNASSIGNED)]
    assert herder.statuses[C0].generation == 2


@pytest.mark.parametrize("left", [RunState.FAILED, RunState.UNASSIGNED])
def test_a_status_that_claims_no_run_stays_until_there_is_one(
    herder: HerderDriver, left: RunState
) -> None:
    herder.ready(entry("c", tasks=1))
    herder.see_statuses({C0: left})
    herder.settle_as_follower(generation=2, tasks=[C0])
    herder.run_engine()
    assert herder.status_log == [(C0, RunState.RUNNING)]


@pytest.mark.parametrize("late", [RunState.RUNNING, RunState.UNASSIGNED, None])
def test_the_owner_repeats_what_a_former_owner_wrote_over(
    leader: HerderDriver, late: RunState | None
) -> None:
    leader.echo_statuses()
    leader.status_log.clear()
    if late is None:
        leader.step(events.StatusesChanged([StatusEvent(9, C0, None)]))
    else:
        leader.see_statuses({C0: late})
    assert not leader.status_log  # the worker's own status may not be read yet
    leader.advance(leader.herder.context.settings.status_check_ms)
    assert leader.status_log == [(C0, RunState.RUNNING)]


def test_the_owner_repeats_nothing_when_the_store_has_heard_it_meanwhile(
    leader: HerderDriver,
) -> None:
    leader.see_statuses({C0: RunState.FAILED})
    leader.echo_statuses()
    leader.status_log.clear()
    leader.advance(10_000)
    assert not leader.status_log


def test_a_worker_that_is_late_itself_does_not_argue_with_its_successor(
    leader: HerderDriver,
) -> None:
    leader.echo_statuses()
    leader.status_log.clear()
    later = Status(C0, RunState.RUNNING, OTHER, leader.herder.context.generation + 1)
    leader.step(events.StatusesChanged([StatusEvent(9, C0, later)]))
    leader.advance(10_000)
    assert not leader.status_log


# Failures


def test_a_failed_task_stays_failed_and_touches_nothing_else(leader: HerderDriver) -> None:
    run_id = leader.herder.work.tasks[C0].run_id
    leader.step(events.TaskFailed(C0, run_id, "Traceback: no such file"))
    assert leader.states() == {"c": "RUNNING", "c-0": "FAILED", "c-1": "RUNNING"}
    assert leader.statuses[C0].trace == "Traceback: no such file"
    leader.advance(2_000)
    assert not leader.find(instructions.ClaimTask)


def test_a_fence_does_not_bring_a_failed_task_back(leader: HerderDriver) -> None:
    run_id = leader.herder.work.tasks[C0].run_id
    leader.step(events.TaskFailed(C0, run_id, "boom"))
    leader.step(events.TaskFenced(C0, run_id))
    leader.run_engine()
    assert leader.states()["c-0"] == "FAILED"


def test_a_task_that_cannot_be_started_is_failed(herder: HerderDriver) -> None:
    herder.ready(entry("c", tasks=2))
    herder.settle_as_follower(tasks=[C0])
    claim = herder.take(instructions.ClaimTask)
    herder.step(events.TaskClaimed(C0, claim.run_id, Term(1, 1)))
    herder.step(events.OffsetsFetched(C0, claim.run_id, ()))
    herder.take(instructions.FetchOffsets)
    herder.take(instructions.StartTask)
    herder.step(events.TaskFailed(C0, claim.run_id, "boom"))
    assert herder.states() == {"c-0": "FAILED"}
    assert not herder.todo


def test_a_failure_stays_visible_over_a_rebalance_until_the_next_run(leader: HerderDriver) -> None:
    leader.step(events.TaskFailed(C0, leader.herder.work.tasks[C0].run_id, "boom"))
    leader.step(events.GroupPushed("member-a", 1, True))
    leader.run_engine()
    assert leader.states()["c-0"] == "FAILED"
    leader.settle_as_leader(generation=2)
    leader.run_engine()
    assert leader.states()["c-0"] == "RUNNING"


def test_late_reports_of_an_earlier_run_are_ignored(leader: HerderDriver) -> None:
    old_task = leader.herder.work.tasks[C0].run_id
    old_connector = leader.herder.work.connectors["c"].run_id
    leader.step(events.GroupPushed("member-a", 1, True))
    leader.run_engine()
    leader.settle_as_leader(generation=2)
    leader.run_engine()
    leader.status_log.clear()
    for late in (
        events.TaskFailed(C0, old_task, "late"),
        events.TaskFenced(C0, old_task),
        events.TaskStarted(C0, old_task),
        events.TaskStopped(C0, old_task),
        events.TaskClaimed(C0, old_task, Term(1, 1)),
        events.OffsetsFetched(C0, old_task, ()),
        events.TaskPauseSet(C0, old_task, True),
        events.ConnectorFailed("c", old_connector, "late"),
        events.ConnectorStopped("c", old_connector),
        events.ReconfigurationRequested("c", old_connector),
        events.TaskConfigsGenerated("c", old_connector, []),
        events.TaskFailed(TaskId("nobody", 0), 1, "late"),
        events.ConnectorFailed("nobody", 1, "late"),
    ):
        leader.step(late)
    assert not leader.todo
    assert not leader.status_log


def test_a_fenced_task_claims_again_and_restarts_at_once(leader: HerderDriver) -> None:
    old = leader.herder.work.tasks[C0].run_id
    leader.step(events.TaskFenced(C0, old))
    stop = leader.take(instructions.StopTask)
    leader.step(events.TaskStopped(C0, stop.run_id))
    claim = leader.take(instructions.ClaimTask)
    assert claim.run_id > old
    leader.step(events.TaskClaimed(C0, claim.run_id, Term(1, 50)))
    leader.run_engine()
    assert leader.states()["c-0"] == "RUNNING"


def test_a_task_that_is_still_starting_is_stopped_at_once(herder: HerderDriver) -> None:
    herder.ready(entry("c", tasks=2))
    herder.settle_as_follower(tasks=[C0])
    claim = herder.take(instructions.ClaimTask)
    herder.step(events.TaskClaimed(C0, claim.run_id, Term(1, 1)))
    herder.step(events.OffsetsFetched(C0, claim.run_id, ()))
    herder.take_all(instructions.FetchOffsets)
    herder.take(instructions.StartTask)
    herder.step(events.GroupPushed("member-a", 1, True))
    stop = herder.take(instructions.StopTask)
    herder.step(events.TaskStarted(C0, claim.run_id))
    assert herder.stage == "STOPPING_WORK"
    assert not herder.status_log
    herder.step(events.TaskStopped(C0, stop.run_id))
    assert herder.stage == "JOINING"


# The engine


def test_a_lost_engine_fails_its_tasks_and_a_new_one_brings_them_back(
    leader: HerderDriver,
) -> None:
    leader.step(events.EngineLost("out of memory"))
    assert leader.states() == {"c": "FAILED", "c-0": "FAILED", "c-1": "FAILED"}
    assert "out of memory" in leader.statuses[C0].trace
    assert leader.stage == "SETTLED"
    assert not leader.todo
    leader.step(events.EngineReady())
    leader.run_engine()
    assert leader.states() == {"c": "RUNNING", "c-0": "RUNNING", "c-1": "RUNNING"}


def test_a_task_that_its_plugin_failed_is_not_brought_back_by_a_new_engine(
    leader: HerderDriver,
) -> None:
    leader.step(events.TaskFailed(C0, leader.herder.work.tasks[C0].run_id, "boom"))
    leader.step(events.EngineLost("killed"))
    assert leader.statuses[C0].trace == "boom"
    leader.step(events.EngineReady())
    leader.run_engine()
    assert leader.states() == {"c": "RUNNING", "c-0": "FAILED", "c-1": "RUNNING"}


def test_a_rebalance_without_an_engine_waits_for_nothing(leader: HerderDriver) -> None:
    leader.step(events.EngineLost("killed"))
    leader.step(events.GroupPushed("member-a", 1, True))
    assert leader.stage == "JOINING"
    leader.settle_as_leader(generation=2)
    assert not leader.find(instructions.StartConnector)
    leader.step(events.EngineReady())
    leader.run_engine()
    assert leader.states() == {"c": "RUNNING", "c-0": "RUNNING", "c-1": "RUNNING"}


def test_an_engine_lost_while_stopping_does_not_hold_up_the_rebalance(
    leader: HerderDriver,
) -> None:
    leader.step(events.GroupPushed("member-a", 1, True))
    assert leader.find(instructions.StopTask)
    leader.step(events.EngineLost("killed"))
    assert leader.stage == "JOINING"


# Restart requests that the log brings


@pytest.mark.parametrize(
    ("only_failed", "include_tasks", "restarted"),
    [
        (True, False, set()),
        (True, True, {"c-1"}),
        (False, False, {"c"}),
        (False, True, {"c", "c-0", "c-1"}),
    ],
)
def test_each_worker_restarts_its_own_part(
    leader: HerderDriver, only_failed: bool, include_tasks: bool, restarted: set[str]
) -> None:
    leader.step(events.TaskFailed(C1, leader.herder.work.tasks[C1].run_id, "boom"))
    before = {str(item.key): item.run_id for item in leader.herder.work.all()}
    leader.restart_requested("c", only_failed=only_failed, include_tasks=include_tasks)
    leader.run_engine()
    after = {str(item.key): item.run_id for item in leader.herder.work.all()}
    assert {key for key in after if after[key] != before[key]} == restarted
    assert leader.stage == "SETTLED"


def test_a_restart_goes_by_way_of_restarting(leader: HerderDriver) -> None:
    leader.restart_requested("c", only_failed=False, include_tasks=False)
    leader.run_engine()
    assert leader.status_log == [("c", RunState.RESTARTING), ("c", RunState.RUNNING)]


def test_a_restart_with_no_assignments_does_nothing(herder: HerderDriver) -> None:
    herder.ready(entry("c", tasks=2))
    herder.settle_as_follower()
    herder.restart_requested("c", only_failed=False, include_tasks=True)
    assert not herder.todo


def test_restarts_wait_for_the_end_of_a_rebalance_and_the_highest_impact_wins(
    leader: HerderDriver,
) -> None:
    leader.step(events.GroupPushed("member-a", 1, True))
    leader.run_engine()
    leader.restart_requested("c", only_failed=False, include_tasks=True)
    leader.restart_requested("c", only_failed=True, include_tasks=False)
    assert not leader.find(instructions.StartConnector)
    leader.settle_as_leader(generation=2)
    leader.run_engine()
    assert leader.states() == {"c": "RUNNING", "c-0": "RUNNING", "c-1": "RUNNING"}
    assert all(item.finished_version == 2 for item in leader.herder.work.all())


def test_a_restart_of_an_unknown_connector_is_ignored(leader: HerderDriver) -> None:
    leader.restart_requested("nobody", only_failed=False, include_tasks=True)
    assert not leader.todo
