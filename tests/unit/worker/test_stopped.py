"""A stopped connector has no tasks and a started one has, after any order of changes."""

import pytest

from drover.errors import FailedPreconditionError, Reason, UnavailableError
from drover.model.config import TargetState
from drover_worker.core import events, instructions
from tests.support.herder_driver import HerderDriver, entry, task_configs

STOPPED = TargetState.STOPPED


@pytest.fixture
def leader(herder: HerderDriver) -> HerderDriver:
    """Runs connector c with two tasks, leads and may write."""
    herder.ready(entry("c", tasks=2))
    herder.settle_as_leader()
    herder.run_engine()
    assert not herder.todo
    return herder


def test_the_leader_empties_what_was_stopped_with_tasks(leader: HerderDriver) -> None:
    leader.target("c", STOPPED)
    write = leader.take(instructions.WriteTaskConfigs)
    assert (write.connector, write.configs, write.writer_epoch) == ("c", (), 7)
    leader.commit("c", ())
    leader.step(events.ConfigWritten(write.cause_id, leader.offset))
    leader.run_engine()
    assert not leader.find(instructions.WriteTaskConfigs)


def test_the_leader_empties_task_configs_that_come_after_the_stop(leader: HerderDriver) -> None:
    leader.commit("c", ())
    leader.target("c", STOPPED)
    assert not leader.find(instructions.WriteTaskConfigs)
    leader.commit("c", task_configs("c", 1))
    assert leader.take(instructions.WriteTaskConfigs).configs == ()


def test_a_new_leader_looks_at_every_connector(herder: HerderDriver) -> None:
    herder.ready(entry("c", tasks=2, target=STOPPED), entry("d", tasks=1))
    herder.settle_as_leader()
    assert herder.take(instructions.WriteTaskConfigs).connector == "c"


def test_a_follower_leaves_it_to_the_leader(herder: HerderDriver) -> None:
    herder.ready(entry("c", tasks=2))
    herder.settle_as_follower(connectors=["c"])
    herder.run_engine()
    herder.target("c", STOPPED)
    assert not herder.find(instructions.WriteTaskConfigs)


def test_what_could_not_be_emptied_is_tried_again(leader: HerderDriver) -> None:
    leader.target("c", STOPPED)
    write = leader.take(instructions.WriteTaskConfigs)
    leader.fail(write.cause_id, UnavailableError(Reason.SERVICE_UNREACHABLE, "nobody answers"))
    assert not leader.find(instructions.WriteTaskConfigs)
    leader.advance(leader.herder.context.settings.retry_backoff_ms)
    again = leader.take(instructions.WriteTaskConfigs)
    fenced = FailedPreconditionError(Reason.STALE_WRITER_EPOCH, "fenced")
    leader.fail(again.cause_id, fenced)
    leader.grant_writer(epoch=8)
    assert leader.take(instructions.WriteTaskConfigs).writer_epoch == 8


def test_an_owner_makes_task_configs_anew_when_a_late_stop_took_them(leader: HerderDriver) -> None:
    leader.commit("c", (), own=False)
    leader.run_engine(task_counts={"c": 2})
    assert len(leader.take(instructions.WriteTaskConfigs).configs) == 2
