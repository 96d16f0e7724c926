"""Record counts of tasks in the statuses that a worker writes."""

import pytest

from drover.model.config import TargetState
from drover.model.failures import NEVER, RESTART_POLICY
from drover.model.ids import TaskId
from drover.model.status import RecordCounts, RunState, Status, StatusEvent
from drover_worker.core import events, instructions
from drover_worker.core.context import HerderSettings
from drover_worker.core.instructions import HerderInstruction
from tests.support.herder_driver import ME, OTHER, HerderDriver, connector_config, entry

C0, C1 = TaskId("c", 0), TaskId("c", 1)
FEW = RecordCounts(5, 4, 1)
MORE = RecordCounts(20, 15, 2, 1, 2)


@pytest.fixture
def herder() -> HerderDriver:
    """A worker that stays a member although its heartbeats get no response."""
    settings = HerderSettings(worker_id=ME, group_id="drover", session_timeout_ms=600_000)
    return HerderDriver(settings)


@pytest.fixture
def leader(herder: HerderDriver) -> HerderDriver:
    """Runs connector c with two tasks, without automatic restarts."""
    config = {**connector_config("c"), RESTART_POLICY: NEVER}
    herder.ready(entry("c", tasks=2, config=config))
    herder.settle_as_leader()
    herder.run_engine()
    herder.echo_statuses()
    herder.status_log.clear()
    return herder


def count(driver: HerderDriver, counts: RecordCounts, task: TaskId = C0) -> None:
    driver.step(events.TaskCounted(task, driver.herder.work.tasks[task].run_id, counts))


def tell(driver: HerderDriver, counts: RecordCounts, **figures: int) -> None:
    run_id = driver.herder.work.tasks[C0].run_id
    driver.step(events.TaskCounted(C0, run_id, counts, figures))


def wait(driver: HerderDriver, *, intervals: int = 1) -> None:
    driver.advance(intervals * driver.herder.context.settings.counts_interval_ms)


def observe_writes(driver: HerderDriver) -> list[instructions.WriteStatus]:
    writes: list[instructions.WriteStatus] = []

    def observe(instruction: HerderInstruction) -> None:
        if isinstance(instruction, instructions.WriteStatus):
            writes.append(instruction)

    driver.observer = observe
    return writes


def test_counts_are_written_once_in_an_interval_while_they_change(leader: HerderDriver) -> None:
    count(leader, RecordCounts(1, 1))
    count(leader, FEW)
    assert not leader.status_log
    wait(leader)
    assert leader.status_log == [(C0, RunState.RUNNING)]
    assert leader.statuses[C0].counts == FEW
    wait(leader, intervals=3)
    count(leader, FEW)
    wait(leader)
    assert len(leader.status_log) == 1
    count(leader, MORE)
    wait(leader)
    assert len(leader.status_log) == 2
    assert leader.statuses[C0].counts == MORE


def test_figures_are_written_with_the_counts_and_when_they_alone_change(
    leader: HerderDriver,
) -> None:
    tell(leader, FEW, lag_bytes=1)
    tell(leader, FEW, lag_bytes=2, lag_ms=3)
    wait(leader)
    assert leader.status_log == [(C0, RunState.RUNNING)]
    assert leader.statuses[C0].figures == {"lag_bytes": 2, "lag_ms": 3}
    tell(leader, FEW, lag_bytes=0, lag_ms=3)
    wait(leader)
    assert len(leader.status_log) == 2
    assert leader.statuses[C0].figures["lag_bytes"] == 0
    tell(leader, FEW, lag_bytes=0, lag_ms=3)
    wait(leader)
    assert len(leader.status_log) == 2
    leader.restart_requested("c", only_failed=False, include_tasks=True)
    leader.run_engine()
    assert leader.statuses[C0].figures == {}


def test_one_timer_writes_the_counts_of_all_tasks(leader: HerderDriver) -> None:
    count(leader, FEW)
    leader.advance(1_000)
    count(leader, MORE, C1)
    wait(leader)
    assert leader.status_log == [(C0, RunState.RUNNING), (C1, RunState.RUNNING)]
    assert [leader.statuses[task].counts for task in (C0, C1)] == [FEW, MORE]


def test_a_status_that_is_written_anyway_has_the_counts_of_then(leader: HerderDriver) -> None:
    count(leader, FEW)
    leader.step(events.TaskFailed(C0, leader.herder.work.tasks[C0].run_id, "boom"))
    assert leader.statuses[C0].counts == FEW
    wait(leader)
    assert leader.status_log == [(C0, RunState.FAILED)]


def test_what_a_failed_task_tells_last_is_written_with_its_failure(leader: HerderDriver) -> None:
    leader.step(events.TaskFailed(C0, leader.herder.work.tasks[C0].run_id, "boom"))
    count(leader, MORE)
    wait(leader)
    status = leader.statuses[C0]
    assert (status.state, status.trace, status.counts) == (RunState.FAILED, "boom", MORE)


def test_what_a_lost_engine_had_counted_stays_with_the_failure(leader: HerderDriver) -> None:
    count(leader, FEW)
    leader.step(events.EngineLost("killed"))
    assert leader.statuses[C0].state is RunState.FAILED
    assert leader.statuses[C0].counts == FEW
    leader.status_log.clear()
    wait(leader)
    assert not leader.status_log


def test_counts_that_come_before_the_start_is_answered_are_kept(herder: HerderDriver) -> None:
    herder.ready(entry("c", tasks=2))
    herder.settle_as_follower(tasks=[C0])
    for _ in range(2):
        (step,) = herder.todo
        herder.todo.remove(step)
        answer = herder._engine_answer(step, {})
        assert answer is not None
        herder.step(answer)
    count(herder, FEW)
    wait(herder)
    assert not herder.status_log
    herder.run_engine()
    assert herder.status_log == [(C0, RunState.RUNNING)]
    assert herder.statuses[C0].counts == FEW


def test_pauses_and_restarts_keep_the_counts(leader: HerderDriver) -> None:
    count(leader, FEW)
    leader.target("c", TargetState.PAUSED)
    leader.run_engine()
    assert leader.statuses[C0].state is RunState.PAUSED
    assert leader.statuses[C0].counts == FEW
    leader.target("c", TargetState.STARTED)
    leader.run_engine()
    count(leader, MORE)
    leader.restart_requested("c", only_failed=False, include_tasks=True)
    assert leader.statuses[C0].state is RunState.RESTARTING
    assert leader.statuses[C0].counts == MORE
    leader.run_engine()
    assert leader.statuses[C0].state is RunState.RUNNING
    assert leader.statuses[C0].counts == MORE
    count(leader, FEW)
    wait(leader)
    assert leader.statuses[C0].counts == MORE + FEW


def test_a_task_that_claims_again_keeps_the_counts(leader: HerderDriver) -> None:
    count(leader, FEW)
    wait(leader)
    leader.status_log.clear()
    count(leader, MORE)
    leader.step(events.TaskFenced(C0, leader.herder.work.tasks[C0].run_id))
    count(leader, MORE)
    wait(leader)
    assert not leader.status_log
    leader.run_engine()
    assert leader.status_log == [(C0, RunState.RUNNING)]
    assert leader.statuses[C0].counts == MORE


def test_counts_of_a_run_that_is_over_are_dropped(leader: HerderDriver) -> None:
    old = leader.herder.work.tasks[C0].run_id
    leader.step(events.GroupPushed("member-a", 1, True))
    leader.run_engine()
    leader.step(events.TaskCounted(C0, old, FEW))
    wait(leader)
    assert leader.statuses[C0].state is RunState.UNASSIGNED
    assert leader.statuses[C0].counts is None
    leader.settle_as_leader(generation=2)
    leader.run_engine()
    leader.status_log.clear()
    leader.step(events.TaskCounted(C0, old, MORE))
    leader.step(events.TaskCounted(TaskId("nobody", 0), 1, MORE))
    wait(leader)
    assert not leader.status_log


def test_what_a_run_counts_during_its_stop_belongs_to_it(leader: HerderDriver) -> None:
    count(leader, FEW)
    leader.step(events.GroupPushed("member-a", 1, True))
    count(leader, MORE)
    leader.run_engine()
    assert leader.statuses[C0].state is RunState.UNASSIGNED
    assert leader.statuses[C0].counts == MORE
    leader.echo_statuses()
    leader.settle_as_leader(generation=2)
    leader.run_engine()
    count(leader, FEW)
    leader.restart_requested("c", only_failed=False, include_tasks=True)
    count(leader, FEW + FEW)
    leader.run_engine()
    assert leader.statuses[C0].counts == MORE + FEW + FEW


def test_counts_of_a_task_that_is_given_up_are_written_when_it_has_stopped(
    leader: HerderDriver,
) -> None:
    count(leader, FEW)
    leader.step(events.GroupPushed("member-a", 1, True))
    leader.run_engine()
    assert leader.statuses[C0].state is RunState.UNASSIGNED
    assert leader.statuses[C0].counts == FEW
    assert leader.statuses[C0].figures == {}
    leader.status_log.clear()
    wait(leader)
    assert (C0, RunState.RUNNING) not in leader.status_log


def see(driver: HerderDriver, status: Status) -> None:
    driver.step(events.StatusesChanged([StatusEvent(9, status.key, status)]))


def test_the_next_owner_adds_to_the_counts_of_the_one_before(herder: HerderDriver) -> None:
    herder.ready(entry("c", tasks=1))
    see(herder, Status(C0, RunState.RUNNING, OTHER, 0, counts=FEW))
    herder.settle_as_follower(tasks=[C0])
    herder.run_engine()
    assert herder.statuses[C0].counts == FEW
    count(herder, MORE)
    wait(herder)
    assert herder.statuses[C0].counts == FEW + MORE


def test_the_last_counts_of_the_owner_before_may_arrive_after_the_start(
    herder: HerderDriver,
) -> None:
    herder.ready(entry("c", tasks=1))
    see(herder, Status(C0, RunState.RUNNING, OTHER, 0, counts=FEW))
    herder.settle_as_follower(tasks=[C0])
    herder.run_engine()
    count(herder, MORE)
    see(herder, Status(C0, RunState.UNASSIGNED, OTHER, 0, counts=FEW + FEW))
    see(herder, Status(C0, RunState.UNASSIGNED, OTHER, 0, counts=FEW + FEW))
    wait(herder)
    assert herder.statuses[C0].counts == FEW + FEW + MORE


def test_a_workers_own_earlier_status_is_not_counted_again(leader: HerderDriver) -> None:
    count(leader, FEW)
    wait(leader)
    earlier = leader.statuses[C0]
    see(leader, earlier)
    count(leader, MORE)
    see(leader, earlier)
    wait(leader)
    assert leader.statuses[C0].counts == MORE


def test_counts_are_no_contradiction(leader: HerderDriver) -> None:
    count(leader, MORE)
    wait(leader)
    leader.status_log.clear()
    known = leader.herder.context.statuses[C0]
    assert known.counts is None, "the store does not have the counts yet"
    leader.step(events.StatusesChanged([StatusEvent(9, C0, known)]))
    leader.advance(leader.herder.context.settings.status_check_ms)
    assert not leader.status_log


def test_what_another_wrote_over_is_repeated_with_its_counts(leader: HerderDriver) -> None:
    count(leader, MORE)
    wait(leader)
    leader.status_log.clear()
    leader.see_statuses({C0: RunState.UNASSIGNED})
    leader.advance(leader.herder.context.settings.status_check_ms)
    assert leader.status_log == [(C0, RunState.RUNNING)]
    assert leader.statuses[C0].counts == MORE


def test_counts_replace_no_status_of_a_later_owner(leader: HerderDriver) -> None:
    later = Status(C0, RunState.RUNNING, OTHER, leader.herder.context.generation + 1)
    leader.step(events.StatusesChanged([StatusEvent(9, C0, later)]))
    writes = observe_writes(leader)
    count(leader, FEW)
    wait(leader)
    assert [each.write.safe for each in writes] == [True]
