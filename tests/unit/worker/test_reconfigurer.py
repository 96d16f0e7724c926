"""Task configs: from a connector to the config log."""

import pytest

from drover.errors import FailedPreconditionError, Reason, UnavailableError
from drover.model.config import ConnectorEntry, TargetState
from drover.model.status import RunState
from drover_worker.core import events, instructions
from tests.support.herder_driver import (
    OTHER,
    HerderDriver,
    connector_config,
    entry,
    task_configs,
)

UNREACHABLE = UnavailableError(Reason.SERVICE_UNREACHABLE, "nobody answers")
STALE = FailedPreconditionError(Reason.STALE_WRITER_EPOCH, "a later leader claimed the log")


@pytest.fixture
def owner(herder: HerderDriver) -> HerderDriver:
    """A follower whose connector c has started and is asked for its task configs."""
    herder.ready(entry("c", tasks=1))
    herder.settle_as_follower(connectors=["c"])
    return asked(herder)


@pytest.fixture
def leader(herder: HerderDriver) -> HerderDriver:
    """The same worker as leader."""
    herder.ready(entry("c", tasks=1))
    herder.settle_as_leader()
    return asked(herder)


def asked(herder: HerderDriver) -> HerderDriver:
    start = herder.take(instructions.StartConnector)
    herder.step(events.ConnectorStarted("c", start.run_id))
    return herder


def generate(herder: HerderDriver, count: int) -> None:
    call = herder.take(instructions.GenerateTaskConfigs)
    herder.step(events.TaskConfigsGenerated("c", call.run_id, task_configs("c", count)))


def test_a_started_connector_is_asked_for_as_many_as_tasks_max(owner: HerderDriver) -> None:
    assert owner.take(instructions.GenerateTaskConfigs).tasks_max == 9


def test_the_same_task_configs_are_not_written_again(leader: HerderDriver) -> None:
    generate(leader, 1)
    assert not leader.find(instructions.WriteTaskConfigs)


def test_the_leader_writes_changed_task_configs(leader: HerderDriver) -> None:
    generate(leader, 2)
    write = leader.take(instructions.WriteTaskConfigs)
    assert (write.connector, write.configs) == ("c", task_configs("c", 2))
    assert write.writer_epoch == 7


def test_a_follower_hands_changed_task_configs_to_the_leader(owner: HerderDriver) -> None:
    generate(owner, 2)
    submit = owner.take(instructions.SubmitToLeader)
    assert (submit.leader_url, submit.configs) == (OTHER, task_configs("c", 2))
    owner.step(events.TaskConfigsSubmitted(submit.cause_id))
    owner.advance(2_000)
    assert not owner.find(instructions.GenerateTaskConfigs)


def test_task_configs_of_an_earlier_connector_config_are_written_again(
    leader: HerderDriver,
) -> None:
    generate(leader, 1)
    leader.put("c", config=connector_config("c", extra="1"))
    leader.run_engine()
    assert leader.take(instructions.WriteTaskConfigs).configs == task_configs("c", 1)


def test_inconsistent_task_configs_are_written_again(herder: HerderDriver) -> None:
    config = connector_config("c")
    half = ConnectorEntry(
        "c", config=config, task_count=2, inconsistent=True, applied_config=config
    )
    herder.ready(half)
    herder.settle_as_leader()
    asked(herder)
    generate(herder, 2)
    assert herder.take(instructions.WriteTaskConfigs).configs == task_configs("c", 2)


def test_task_reconfiguration_retries_with_backoff(owner: HerderDriver) -> None:
    waits = (250, 500, 1_000, 2_000)
    for wait_ms in waits:
        generate(owner, 2)
        owner.fail(owner.take(instructions.SubmitToLeader).cause_id, UNREACHABLE)
        owner.timers = {k: t for k, t in owner.timers.items() if k.startswith("reconfigure")}
        owner.advance(wait_ms - 1)
        assert not owner.find(instructions.GenerateTaskConfigs)
        owner.advance(1)
    generate(owner, 2)
    owner.take(instructions.SubmitToLeader)


def test_the_backoff_of_a_reconfiguration_ends_at_a_minute(owner: HerderDriver) -> None:
    for _ in range(12):
        owner.timers = {k: t for k, t in owner.timers.items() if k.startswith("reconfigure")}
        call = owner.take(instructions.GenerateTaskConfigs)
        owner.step(events.TaskConfigsNotGenerated("c", call.run_id, "boom"))
        delay_ms = owner.timers["reconfigure:c"].deadline_ms - owner.now_ms
        owner.advance(delay_ms)
    assert delay_ms == 60_000


def test_a_connector_that_cannot_make_them_runs_on_and_shows_why(owner: HerderDriver) -> None:
    call = owner.take(instructions.GenerateTaskConfigs)
    owner.step(events.TaskConfigsNotGenerated("c", call.run_id, "Traceback: boom"))
    assert owner.statuses["c"].state is RunState.RUNNING
    assert owner.statuses["c"].trace == "Traceback: boom"
    owner.advance(250)
    generate(owner, 1)
    assert owner.statuses["c"].trace == ""


def test_no_retry_with_too_many_tasks(owner: HerderDriver) -> None:
    generate(owner, 10)
    assert owner.statuses["c"].state is RunState.FAILED
    assert "tasks.max is 9" in owner.statuses["c"].trace
    owner.advance(9_000)
    assert not owner.find(instructions.GenerateTaskConfigs)


def test_a_connector_that_asks_while_it_is_asked_is_asked_again(leader: HerderDriver) -> None:
    run_id = leader.herder.work.connectors["c"].run_id
    leader.step(events.ReconfigurationRequested("c", run_id))
    generate(leader, 1)
    generate(leader, 2)
    leader.take(instructions.WriteTaskConfigs)


def test_a_connector_that_is_not_started_is_not_asked(leader: HerderDriver) -> None:
    generate(leader, 1)
    leader.target("c", TargetState.PAUSED)
    leader.run_engine()
    leader.step(events.ReconfigurationRequested("c", leader.herder.work.connectors["c"].run_id))
    assert not leader.find(instructions.GenerateTaskConfigs)


def test_rebalance_failed_connector_is_not_asked_for_task_configs(herder: HerderDriver) -> None:
    herder.ready(entry("c", tasks=1))
    herder.settle_as_follower(connectors=["c"])
    start = herder.take(instructions.StartConnector)
    herder.step(events.ConnectorFailed("c", start.run_id, "boom"))
    assert herder.states() == {"c": "FAILED"}
    assert not herder.todo
    herder.step(events.GroupPushed("member-a", 1, True))
    herder.run_engine()
    assert herder.stage == "JOINING"


def test_a_rebalance_ends_what_was_under_way(owner: HerderDriver) -> None:
    generate(owner, 2)
    submit = owner.take(instructions.SubmitToLeader)
    owner.step(events.GroupPushed("member-a", 1, True))
    owner.run_engine()
    owner.fail(submit.cause_id, UNREACHABLE)
    assert "reconfigure:c" not in owner.timers


def test_task_configs_made_before_the_right_to_write_wait_for_it(herder: HerderDriver) -> None:
    herder.ready(entry("c", tasks=1))
    herder.join(generation=1)
    herder.sync()
    asked(herder)
    generate(herder, 2)
    assert not herder.find(instructions.WriteTaskConfigs)
    herder.grant_writer(epoch=3)
    assert herder.take(instructions.WriteTaskConfigs).writer_epoch == 3


def test_a_write_under_a_stale_epoch_claims_again_and_is_repeated(leader: HerderDriver) -> None:
    generate(leader, 2)
    leader.fail(leader.take(instructions.WriteTaskConfigs).cause_id, STALE)
    assert leader.grant_writer(epoch=8).sequence == 2
    leader.advance(250)
    generate(leader, 2)
    assert leader.take(instructions.WriteTaskConfigs).writer_epoch == 8
