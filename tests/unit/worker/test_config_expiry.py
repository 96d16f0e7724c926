"""Expired values of config providers: only the run that uses them is replaced."""

import pytest

from drover.model.ids import TaskId
from drover.model.status import RunState, StatusKey
from drover_worker.core import events, instructions
from tests.support.herder_driver import HerderDriver, entry

TASK = TaskId("c", 0)


@pytest.fixture
def leader(herder: HerderDriver) -> HerderDriver:
    """Runs a connector with two tasks."""
    herder.ready(entry("c", tasks=2))
    herder.settle_as_leader()
    herder.run_engine()
    return herder


def run_of(herder: HerderDriver, key: StatusKey) -> int:
    item = herder.herder.work.find(key)
    assert item is not None
    return item.run_id


def test_a_task_is_started_again_with_what_holds_now(leader: HerderDriver) -> None:
    before = run_of(leader, TASK)
    leader.step(events.ConfigExpired(TASK, before))
    assert [each.task for each in leader.find(instructions.StopTask)] == [TASK]
    leader.run_engine()
    assert run_of(leader, TASK) > before
    assert leader.statuses[TASK].state is RunState.RUNNING
    assert not leader.find(instructions.StopConnector)


def test_a_connector_is_started_again_without_its_tasks(leader: HerderDriver) -> None:
    tasks = run_of(leader, TASK)
    leader.step(events.ConfigExpired("c", run_of(leader, "c")))
    assert [each.name for each in leader.find(instructions.StopConnector)] == ["c"]
    leader.run_engine()
    assert run_of(leader, TASK) == tasks


def test_what_is_told_of_an_earlier_run_changes_nothing(leader: HerderDriver) -> None:
    leader.step(events.ConfigExpired(TASK, run_of(leader, TASK) - 1))
    leader.step(events.ConfigExpired("gone", 1))
    assert leader.todo == []
