"""Requests of callers: the worker that serves them, their records, and their one response."""

import pytest

from drover.errors import (
    AbortedError,
    AlreadyExistsError,
    DeadlineExceededError,
    DroverError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    Reason,
    ResourceExhaustedError,
    UnavailableError,
    Violation,
)
from drover.model.config import TargetState
from drover.model.ids import TaskId
from drover.model.status import RunState, StatusKey
from drover_worker.core import events, instructions, requests
from drover_worker.core.context import HerderSettings
from drover_worker.core.lifecycle.restart_plan import RestartPlan
from drover_worker.core.rebalance.protocol import MemberMetadata
from tests.support.herder_driver import (
    ME,
    OTHER,
    HerderDriver,
    connector_config,
    entry,
    task_configs,
)

UNREACHABLE = UnavailableError(Reason.SERVICE_UNREACHABLE, "the config store is away")
STALE = FailedPreconditionError(Reason.STALE_WRITER_EPOCH, "a later leader claimed the log")
CONFIG = connector_config("new")
CREATE = requests.CreateConnector("new", CONFIG, TargetState.STARTED, "r-1")
PUT = requests.PutConnectorConfig("c", connector_config("c", x="1"), None, "r-2")
DELETE = requests.DeleteConnector("c", "r-3")
PAUSE = requests.SetTargetState("c", TargetState.PAUSED, "r-4")
STOP = requests.SetTargetState("c", TargetState.STOPPED, "r-5")
C0, C1 = TaskId("c", 0), TaskId("c", 1)


def restart(*, include_tasks: bool = False, only_failed: bool = False) -> requests.RestartConnector:
    return requests.RestartConnector("c", include_tasks, only_failed, "r-6")


@pytest.fixture
def leader(herder: HerderDriver) -> HerderDriver:
    """Leads two workers; runs its round-robin part of connector c with two tasks."""
    herder.ready(entry("c", tasks=2))
    herder.settle_as_leader(others={"member-b": MemberMetadata(OTHER, 0)})
    herder.run_engine()
    assert {str(item.key) for item in herder.herder.work.all()} == {"c", "c-1"}
    return herder


@pytest.fixture
def follower(herder: HerderDriver) -> HerderDriver:
    """Runs c-0 only."""
    herder.ready(entry("c", tasks=2))
    herder.settle_as_follower(tasks=[C0])
    herder.run_engine()
    return herder


def validate(herder: HerderDriver, kind: str = "source") -> None:
    herder.validated(herder.take(instructions.ValidateConfig).cause_id, kind)


def written(herder: HerderDriver, cause_id: str, *, revision: int = 0, read: bool = True) -> None:
    """The config store has written one record; with ``read`` the view shows it first."""
    herder.step(events.ConfigWritten(cause_id, herder.offset + 1, revision))
    if read:
        herder.offset += 1
        herder.step(events.ConfigsChanged([], herder.offset))


def error_of(herder: HerderDriver, call_id: str = "call") -> DroverError:
    error = herder.answers[call_id]
    assert isinstance(error, DroverError)
    return error


# Create and put


def test_create_connector(leader: HerderDriver) -> None:
    leader.ask(CREATE)
    assert leader.take(instructions.ValidateConfig).config == CONFIG
    leader.step(events.ConfigValidated("request-0", (), "source"))
    assert not leader.answers


def test_create_connector_validates_writes_and_reads_back(leader: HerderDriver) -> None:
    leader.ask(CREATE)
    assert not leader.find(instructions.WriteConnectorConfig)
    validate(leader)
    write = leader.take(instructions.WriteConnectorConfig)
    assert (write.name, write.config, write.expected_revision) == ("new", CONFIG, 0)
    assert (write.initial_state, write.writer_epoch) == (TargetState.STARTED, 7)
    assert write.request_id == "r-1"
    leader.step(events.ConfigWritten(write.cause_id, leader.offset + 1, leader.offset + 1))
    assert not leader.answers
    leader.put("new")
    assert leader.answers == {"call": requests.ConfigStored(leader.offset, True)}


def test_create_connector_with_initial_state(leader: HerderDriver) -> None:
    leader.ask(requests.CreateConnector("new", CONFIG, TargetState.STOPPED, "r"))
    validate(leader)
    write = leader.take(instructions.WriteConnectorConfig)
    assert write.initial_state is TargetState.STOPPED


def test_create_connector_failed_validation_tells_every_fault(leader: HerderDriver) -> None:
    leader.ask(CREATE)
    faults = [Violation('config["a"]', "is wrong"), Violation('config["b"]', "is missing")]
    call = leader.take(instructions.ValidateConfig)
    leader.step(events.ConfigValidated(call.cause_id, faults, "source"))
    error = error_of(leader)
    assert isinstance(error, InvalidArgumentError)
    assert error.reason is Reason.INVALID_CONFIG
    assert list(error.violations) == faults
    assert not leader.find(instructions.WriteConnectorConfig)


def test_a_sink_in_the_workers_group_is_refused(leader: HerderDriver) -> None:
    config = {**CONFIG, "consumer.override.group.id": "drover"}
    leader.ask(requests.CreateConnector("new", config, TargetState.STARTED, "r"))
    validate(leader, "sink")
    assert isinstance(error_of(leader), InvalidArgumentError)


def test_create_connector_already_exists(leader: HerderDriver) -> None:
    leader.ask(CREATE)
    validate(leader)
    mismatch = AbortedError(Reason.REVISION_MISMATCH, "revision 3, not 0")
    leader.fail(leader.take(instructions.WriteConnectorConfig).cause_id, mismatch)
    error = error_of(leader)
    assert isinstance(error, AlreadyExistsError)
    assert error.reason is Reason.CONNECTOR_ALREADY_EXISTS


def test_create_connector_config_store_error_reaches_the_caller(leader: HerderDriver) -> None:
    leader.ask(CREATE)
    validate(leader)
    error = InvalidArgumentError(Reason.TOO_LARGE, "too large")
    leader.fail(leader.take(instructions.WriteConnectorConfig).cause_id, error)
    assert error_of(leader) is error


def test_put_connector_config_says_whether_it_created(leader: HerderDriver) -> None:
    leader.ask(PUT)
    validate(leader)
    write = leader.take(instructions.WriteConnectorConfig)
    assert (write.expected_revision, write.initial_state) == (None, None)
    written(leader, write.cause_id, revision=9)
    assert leader.answers == {"call": requests.ConfigStored(9, False)}


def test_put_with_a_revision_that_is_not_the_present_one(leader: HerderDriver) -> None:
    leader.ask(requests.PutConnectorConfig("c", CONFIG, 5, "r"))
    validate(leader)
    write = leader.take(instructions.WriteConnectorConfig)
    assert write.expected_revision == 5
    error = AbortedError(Reason.REVISION_MISMATCH, "revision 3, not 5")
    leader.fail(write.cause_id, error)
    assert error_of(leader) is error


# Delete, pause, stop


def test_destroy_connector(leader: HerderDriver) -> None:
    leader.ask(DELETE)
    remove = leader.take(instructions.RemoveConnector)
    assert (remove.name, remove.writer_epoch, remove.request_id) == ("c", 7, "r-3")
    written(leader, remove.cause_id)
    assert leader.answers == {"call": requests.Accomplished()}


def test_an_unknown_connector_cannot_be_removed(leader: HerderDriver) -> None:
    leader.ask(requests.DeleteConnector("nobody", "r"))
    unknown = NotFoundError(Reason.CONNECTOR_NOT_FOUND, "no such connector")
    leader.fail(leader.take(instructions.RemoveConnector).cause_id, unknown)
    assert error_of(leader) is unknown


def test_any_worker_writes_a_pause_even_during_a_rebalance(follower: HerderDriver) -> None:
    follower.step(events.GroupPushed("member-a", 1, True))
    follower.ask(PAUSE)
    write = follower.take(instructions.WriteTargetState)
    assert (write.name, write.target_state) == ("c", TargetState.PAUSED)
    written(follower, write.cause_id)
    assert follower.answers == {"call": requests.Accomplished()}


def test_stop_connector_empties_the_task_configs_first(leader: HerderDriver) -> None:
    leader.ask(STOP)
    empty = leader.take(instructions.WriteTaskConfigs)
    assert (empty.connector, empty.configs) == ("c", ())
    assert not leader.find(instructions.WriteTargetState)
    leader.step(events.ConfigWritten(empty.cause_id, leader.offset + 1))
    target = leader.take(instructions.WriteTargetState)
    assert target.target_state is TargetState.STOPPED
    assert target.request_id != empty.request_id
    written(leader, target.cause_id)
    assert leader.answers == {"call": requests.Accomplished()}


def test_a_stop_that_is_asked_for_again_empties_the_task_configs_again(
    leader: HerderDriver,
) -> None:
    """The owner may have made new task configs after the first stop failed halfway."""
    leader.ask(STOP)
    first = leader.take(instructions.WriteTaskConfigs)
    leader.step(events.ConfigWritten(first.cause_id, leader.offset + 1))
    refused = InvalidArgumentError(Reason.INVALID_REQUEST, "not now")
    leader.fail(leader.take(instructions.WriteTargetState).cause_id, refused)
    leader.ask(STOP, call_id="again")
    second = leader.take(instructions.WriteTaskConfigs)
    assert second.configs == ()
    assert second.request_id != first.request_id


def test_stop_connector_that_cannot_write_task_configs_leaves_the_target_alone(
    leader: HerderDriver,
) -> None:
    leader.ask(STOP)
    error = InvalidArgumentError(Reason.TOO_LARGE, "refused")
    leader.fail(leader.take(instructions.WriteTaskConfigs).cause_id, error)
    assert error_of(leader) is error
    assert not leader.find(instructions.WriteTargetState)


@pytest.mark.parametrize("after_first_write", [False, True])
def test_a_stop_that_has_begun_goes_on_when_its_caller_leaves(
    leader: HerderDriver, after_first_write: bool
) -> None:
    leader.ask(STOP)
    empty = leader.take(instructions.WriteTaskConfigs)
    if not after_first_write:
        leader.step(events.RequestCancelled("call"))
    leader.step(events.ConfigWritten(empty.cause_id, leader.offset + 1))
    if after_first_write:
        leader.step(events.RequestCancelled("call"))
    assert leader.take(instructions.WriteTargetState).target_state is TargetState.STOPPED


def test_a_connector_that_is_being_stopped_gets_no_new_task_configs(leader: HerderDriver) -> None:
    leader.ask(STOP)
    submit = requests.SubmitTaskConfigs("c", task_configs("c", 5), "r-7")
    leader.ask(submit, call_id="submit")
    assert error_of(leader, "submit").reason is Reason.REVISION_MISMATCH
    assert leader.take(instructions.WriteTaskConfigs).configs == ()


def test_task_configs_are_not_dropped_by_a_leader_that_has_not_read_of_the_start(
    leader: HerderDriver,
) -> None:
    """The owner has read the start, and must not believe that its task configs are written."""
    leader.target("c", TargetState.STOPPED)
    leader.ask(requests.SubmitTaskConfigs("c", task_configs("c", 5), "r-7"))
    assert error_of(leader).reason is Reason.REVISION_MISMATCH


# Restarts


def test_the_owner_restarts_a_connector_object(leader: HerderDriver) -> None:
    before = leader.herder.work.connectors["c"].run_id
    leader.ask(restart())
    assert not leader.answers
    leader.run_engine()
    assert leader.answers == {"call": requests.Accomplished()}
    assert leader.herder.work.connectors["c"].run_id > before


def test_restart_connector_unknown(leader: HerderDriver) -> None:
    leader.ask(requests.RestartConnector("nobody", False, False, "r"))
    assert error_of(leader).reason is Reason.CONNECTOR_NOT_FOUND


def test_restart_connector_redirects_to_the_leader(follower: HerderDriver) -> None:
    follower.ask(restart())
    assert follower.answers == {"call": requests.ForwardTo(OTHER)}


def test_restart_task_redirects_to_the_owner(leader: HerderDriver) -> None:
    leader.ask(requests.RestartTask(C0))
    assert leader.answers == {"call": requests.ForwardTo(OTHER)}


def test_restart_task_here(follower: HerderDriver) -> None:
    follower.ask(requests.RestartTask(C0))
    follower.run_engine()
    assert follower.answers == {"call": requests.Accomplished()}


def test_restart_of_a_task_that_waits_for_the_next_assignment_waits_as_well(
    leader: HerderDriver,
) -> None:
    leader.commit("c", task_configs("another share", 2))
    leader.run_engine()
    leader.ask(requests.RestartTask(C1))
    leader.gather()
    leader.run_engine()
    assert not leader.answers
    leader.settle_as_leader(generation=2, others={"member-b": MemberMetadata(OTHER, 0)})
    leader.run_engine()
    assert leader.answers == {"call": requests.Accomplished()}


def test_restart_task_unknown(leader: HerderDriver) -> None:
    leader.ask(requests.RestartTask(TaskId("c", 9)))
    assert error_of(leader).reason is Reason.TASK_NOT_FOUND


def test_a_restart_that_fails_is_done_all_the_same(follower: HerderDriver) -> None:
    follower.ask(requests.RestartTask(C0))
    stop = follower.take(instructions.StopTask)
    follower.step(events.TaskStopped(C0, stop.run_id))
    claim = follower.find(instructions.ClaimTask)[0]
    follower.step(events.TaskFailed(C0, claim.run_id, "boom"))
    assert follower.answers == {"call": requests.Accomplished()}
    assert follower.states()["c-0"] == "FAILED"


def test_a_restart_overtaken_by_a_rebalance_is_asked_of_the_new_owner(
    follower: HerderDriver,
) -> None:
    follower.ask(requests.RestartTask(C0))
    follower.step(events.GroupPushed("member-a", 1, True))
    follower.run_engine()
    assert not follower.answers
    follower.settle_as_follower(generation=2)
    assert follower.answers == {"call": requests.ForwardTo(OTHER)}


def test_a_restart_with_tasks_is_written_by_the_leader_with_its_plan(leader: HerderDriver) -> None:
    states: dict[StatusKey, RunState] = {
        "c": RunState.RUNNING,
        C0: RunState.FAILED,
        C1: RunState.RUNNING,
    }
    leader.see_statuses(states)
    leader.ask(restart(include_tasks=True, only_failed=True))
    write = leader.take(instructions.WriteRestartRequest)
    assert (write.name, write.only_failed, write.include_tasks) == ("c", True, True)
    written(leader, write.cause_id)
    plan = RestartPlan("c", False, (C0,))
    assert leader.answers == {"call": requests.RestartPlanned(plan)}


def test_a_restart_of_a_connector_without_status_is_not_written(herder: HerderDriver) -> None:
    herder.ready(entry("c", tasks=2))
    herder.settle_as_leader()
    herder.ask(restart(include_tasks=True))
    assert error_of(herder).reason is Reason.CONNECTOR_NOT_FOUND
    assert not herder.find(instructions.WriteRestartRequest)


# Which worker serves a call


@pytest.mark.parametrize("request_", [CREATE, PUT, DELETE, STOP, restart(include_tasks=True)])
def test_what_needs_the_leader_is_carried_there(
    follower: HerderDriver, request_: requests.Request
) -> None:
    follower.ask(request_)
    assert follower.answers == {"call": requests.ForwardTo(OTHER)}


@pytest.mark.parametrize("request_", [CREATE, DELETE])
def test_a_call_is_carried_at_most_twice(
    follower: HerderDriver, request_: requests.Request
) -> None:
    follower.ask(request_, hops=2)
    assert error_of(follower).reason is Reason.NOT_LEADER


def test_an_owners_call_is_carried_at_most_twice(leader: HerderDriver) -> None:
    leader.ask(requests.RestartTask(C0), hops=2)
    assert error_of(leader).reason is Reason.NOT_OWNER


def test_task_configs_are_taken_by_the_leader_only(follower: HerderDriver) -> None:
    follower.ask(requests.SubmitTaskConfigs("c", [], "r"))
    assert error_of(follower).reason is Reason.NOT_LEADER


def test_submitted_task_configs_are_written_and_read_back(leader: HerderDriver) -> None:
    leader.ask(requests.SubmitTaskConfigs("c", task_configs("c", 3), "r"))
    write = leader.take(instructions.WriteTaskConfigs)
    assert (write.configs, write.request_id) == (task_configs("c", 3), "r")
    leader.step(events.ConfigWritten(write.cause_id, leader.offset + 1))
    assert not leader.answers
    leader.commit("c", task_configs("c", 3))
    assert leader.answers == {"call": requests.Accomplished()}


def test_task_configs_of_an_unknown_connector_are_refused(leader: HerderDriver) -> None:
    leader.ask(requests.SubmitTaskConfigs("nobody", [], "r"))
    assert error_of(leader).reason is Reason.CONNECTOR_NOT_FOUND


# Waiting


@pytest.mark.parametrize("request_", [CREATE, DELETE, STOP, restart(), requests.RestartTask(C0)])
def test_a_request_simply_waits_for_the_end_of_a_rebalance(
    leader: HerderDriver, request_: requests.Request
) -> None:
    leader.see_statuses({"c": RunState.RUNNING})
    leader.step(events.GroupPushed("member-a", 1, True))
    leader.ask(request_)
    leader.run_engine()
    assert not leader.answers
    leader.settle_as_follower(generation=2)
    assert leader.answers == {"call": requests.ForwardTo(OTHER)}


def test_a_store_that_is_away_is_waited_for(leader: HerderDriver) -> None:
    leader.ask(DELETE)
    for wait_ms in (250, 500, 1_000):
        leader.fail(leader.take(instructions.RemoveConnector).cause_id, UNREACHABLE)
        leader.advance(wait_ms)
    written(leader, leader.take(instructions.RemoveConnector).cause_id)
    assert leader.answers == {"call": requests.Accomplished()}


def test_an_engine_that_is_away_is_waited_for(leader: HerderDriver) -> None:
    leader.ask(CREATE)
    away = UnavailableError(Reason.ENGINE_UNAVAILABLE, "the engine starts")
    leader.fail(leader.take(instructions.ValidateConfig).cause_id, away)
    leader.advance(250)
    leader.take(instructions.ValidateConfig)


def test_a_cancelled_request_gets_no_answer(leader: HerderDriver) -> None:
    leader.ask(DELETE)
    remove = leader.take(instructions.RemoveConnector)
    leader.step(events.RequestCancelled("call"))
    leader.step(events.ConfigWritten(remove.cause_id, leader.offset))
    leader.advance(2_000)
    assert not leader.answers


def test_an_answer_after_the_deadline_is_not_given(leader: HerderDriver) -> None:
    leader.ask(DELETE, timeout_ms=100)
    remove = leader.take(instructions.RemoveConnector)
    leader.advance(100)
    leader.step(events.ConfigWritten(remove.cause_id, leader.offset))
    assert isinstance(leader.answers["call"], DeadlineExceededError)


def test_a_stopping_worker_answers_everyone(leader: HerderDriver) -> None:
    leader.ask(DELETE)
    leader.step(events.StopRequested())
    leader.ask(CREATE, call_id="late")
    for call_id in ("call", "late"):
        assert error_of(leader, call_id).reason is Reason.DRAINING


def test_too_many_requests_are_refused() -> None:
    settings = HerderSettings(worker_id=ME, group_id="drover", request_count_max=2)
    herder = HerderDriver(settings)
    for index in range(3):
        herder.ask(CREATE, call_id=str(index))
    assert isinstance(herder.answers["2"], ResourceExhaustedError)
    assert set(herder.answers) == {"2"}


# The right to write


def test_the_leader_claims_the_log_with_its_generation(herder: HerderDriver) -> None:
    herder.ready()
    herder.join(generation=4)
    herder.sync()
    herder.ask(CREATE)
    validate(herder)
    assert not herder.find(instructions.WriteConnectorConfig)
    claim = herder.take(instructions.ClaimWriter)
    assert (claim.term.generation, claim.term.sequence) == (4, 1)
    herder.step(events.WriterClaimed(claim.cause_id, 3, 0))
    assert herder.take(instructions.WriteConnectorConfig).writer_epoch == 3


def test_a_new_leader_reads_what_was_written_before_it_writes(herder: HerderDriver) -> None:
    herder.ready()
    herder.join(generation=4)
    herder.sync()
    herder.ask(DELETE)
    claim = herder.take(instructions.ClaimWriter)
    herder.step(events.WriterClaimed(claim.cause_id, 3, 5))
    assert not herder.find(instructions.RemoveConnector)
    herder.step(events.ConfigsChanged([], 5))
    herder.take(instructions.RemoveConnector)


def test_a_stale_epoch_is_claimed_again_and_the_write_repeated(leader: HerderDriver) -> None:
    leader.ask(DELETE, call_id="one")
    leader.ask(requests.DeleteConnector("d", "r"), call_id="two")
    for remove in leader.take_all(instructions.RemoveConnector):
        leader.fail(remove.cause_id, STALE)
    term = leader.grant_writer(epoch=8)
    assert term.sequence == 2
    repeated = leader.take_all(instructions.RemoveConnector)
    assert [remove.writer_epoch for remove in repeated] == [8, 8]
    assert {remove.request_id for remove in repeated} == {"r-3", "r"}


def test_a_late_refusal_of_an_old_epoch_does_not_cost_the_new_one(leader: HerderDriver) -> None:
    leader.ask(DELETE, call_id="one")
    leader.ask(requests.DeleteConnector("d", "r"), call_id="two")
    first, second = leader.take_all(instructions.RemoveConnector)
    leader.fail(first.cause_id, STALE)
    leader.grant_writer(epoch=8)
    leader.take(instructions.RemoveConnector)
    leader.fail(second.cause_id, STALE)
    assert not leader.find(instructions.ClaimWriter)
    assert leader.take(instructions.RemoveConnector).writer_epoch == 8


def test_an_ex_leader_does_not_claim_again(leader: HerderDriver) -> None:
    leader.step(events.GroupPushed("member-a", 1, True))
    leader.run_engine()
    leader.settle_as_follower(generation=2)
    assert leader.herder.lease.epoch is None
    assert not leader.find(instructions.ClaimWriter)


def test_a_claim_below_the_stored_term_leads_to_a_rebalance(herder: HerderDriver) -> None:
    herder.ready()
    herder.join(generation=4)
    herder.sync()
    stale = FailedPreconditionError(Reason.STALE_TERM, "5.1 is stored")
    herder.fail(herder.take(instructions.ClaimWriter).cause_id, stale)
    assert herder.stage == "JOINING"


def test_a_claim_is_tried_again_while_the_store_is_away(herder: HerderDriver) -> None:
    herder.ready()
    herder.join(generation=4)
    herder.sync()
    for wait_ms in (250, 500):
        herder.fail(herder.take(instructions.ClaimWriter).cause_id, UNREACHABLE)
        herder.advance(wait_ms)
    herder.take(instructions.ClaimWriter)


@pytest.mark.parametrize("kind", [instructions.ClaimWriter, instructions.WriteConnectorConfig])
def test_a_store_that_was_away_for_long_is_found_again_soon(
    kind: type[instructions.ClaimWriter] | type[instructions.WriteConnectorConfig],
) -> None:
    settings = HerderSettings(worker_id=ME, group_id="drover", session_timeout_ms=600_000)
    herder = HerderDriver(settings)
    herder.ready()
    herder.join(generation=1)
    herder.sync()
    if kind is instructions.WriteConnectorConfig:
        herder.grant_writer()
    herder.ask(CREATE, timeout_ms=600_000)
    herder.validated(herder.take(instructions.ValidateConfig).cause_id)
    for _ in range(20):
        herder.fail(herder.take(kind).cause_id, UNREACHABLE)
        herder.advance(settings.call_backoff_max_ms)
    assert herder.find(kind)
