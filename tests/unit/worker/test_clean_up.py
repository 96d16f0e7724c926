"""The leader removes statuses of deleted connectors and their tasks until the store has none."""

import pytest

from drover.model.ids import TaskId
from drover.model.status import RecordCounts, RunState
from tests.support.herder_driver import ME, HerderDriver, entry

C0 = TaskId("c", 0)


@pytest.fixture
def leader(herder: HerderDriver) -> HerderDriver:
    """Runs connector c with two tasks."""
    herder.ready(entry("c", tasks=2))
    herder.settle_as_leader()
    herder.run_engine()
    herder.status_log.clear()
    return herder


@pytest.fixture
def follower(herder: HerderDriver) -> HerderDriver:
    """Runs a task of c only."""
    herder.ready(entry("c", tasks=2))
    herder.settle_as_follower(tasks=[C0])
    herder.run_engine()
    herder.status_log.clear()
    return herder


def test_the_leader_removes_statuses_of_deleted_connectors_and_their_tasks(
    leader: HerderDriver,
) -> None:
    leader.see_statuses({"gone": RunState.RUNNING, TaskId("gone", 7): RunState.UNASSIGNED})
    assert leader.states()["gone"] == "DESTROYED"
    assert leader.states()["gone-7"] == "DESTROYED"
    leader.status_log.clear()
    leader.see_statuses({C0: RunState.RUNNING})
    assert not leader.status_log


def test_a_task_that_does_not_exist_keeps_its_counts(leader: HerderDriver) -> None:
    leader.see_statuses({TaskId("c", 7): RunState.UNASSIGNED}, counts=RecordCounts(read_count=1))
    assert not leader.status_log


def test_the_status_of_a_task_that_does_not_exist_is_removed_without_counts(
    leader: HerderDriver,
) -> None:
    leader.see_statuses({TaskId("c", 7): RunState.RUNNING})
    assert leader.status_log == [(TaskId("c", 7), RunState.DESTROYED)]


def test_a_worker_reports_the_end_of_a_task_before_its_status_is_removed(
    leader: HerderDriver,
) -> None:
    """The report may have counts, which a removal that is written after it would lose."""
    leader.see_statuses({TaskId("c", 7): RunState.RUNNING}, worker=ME)
    assert not leader.status_log
    leader.see_statuses({TaskId("c", 7): RunState.UNASSIGNED}, worker=ME)
    assert leader.status_log == [(TaskId("c", 7), RunState.DESTROYED)]


def test_the_leader_removes_a_status_again_until_it_is_gone(leader: HerderDriver) -> None:
    leader.see_statuses({"gone": RunState.RUNNING})
    # a last status of the leader, the former owner, replaced the removal before it was sent
    leader.status_log.clear()
    leader.statuses.pop("gone")
    leader.advance(leader.herder.context.settings.status_check_ms)
    assert leader.status_log == [("gone", RunState.DESTROYED)]
    leader.echo_statuses()
    leader.status_log.clear()
    leader.advance(10_000)
    assert not leader.status_log


def test_a_follower_leaves_statuses_alone(follower: HerderDriver) -> None:
    follower.see_statuses({"gone": RunState.RUNNING})
    assert not follower.status_log
