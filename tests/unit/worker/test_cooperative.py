"""Rebalances of the cooperative protocol: only work that moves is stopped."""

import pytest

from drover.errors import (
    FailedPreconditionError,
    NotFoundError,
    Reason,
    UnavailableError,
)
from drover.model.ids import TaskId
from drover.model.status import RunState, Status, StatusEvent, StatusKey
from drover_worker.core import events, instructions
from drover_worker.core.context import HerderSettings
from drover_worker.core.rebalance.protocol import (
    AssignmentError,
    MemberMetadata,
    decode_assignment,
    decode_metadata,
)
from tests.support.herder_driver import ME, OTHER, HerderDriver, entry, task_configs

C0, C1, D0 = TaskId("c", 0), TaskId("c", 1), TaskId("d", 0)
UNREACHABLE = UnavailableError(Reason.SERVICE_UNREACHABLE, "nobody answers")
UNKNOWN = NotFoundError(Reason.UNKNOWN_MEMBER_ID, "unknown member")
STALE_TERM = FailedPreconditionError(Reason.STALE_TERM, "a later set was claimed")


@pytest.fixture
def herder() -> HerderDriver:
    return HerderDriver(protocol="compatible")


@pytest.fixture
def leader(herder: HerderDriver) -> HerderDriver:
    """Alone, with connector c and its two tasks."""
    herder.ready(entry("c", tasks=2))
    herder.settle_as_leader()
    herder.run_engine()
    herder.status_log.clear()
    return herder


@pytest.fixture
def follower(herder: HerderDriver) -> HerderDriver:
    """Runs connector c and task c-0; c-1 is elsewhere."""
    herder.ready(entry("c", tasks=2))
    herder.settle_as_follower(connectors=["c"], tasks=[C0])
    herder.run_engine()
    herder.status_log.clear()
    return herder


def push(herder: HerderDriver, generation: int) -> None:
    herder.step(events.GroupPushed("member-a", generation, True))


def told(herder: HerderDriver) -> set[StatusKey]:
    """The connectors and tasks that the worker's pending join reports as held."""
    (call,) = herder.find(instructions.JoinGroup)
    held = decode_metadata(call.protocols[0].metadata).held
    assert held is not None
    return set(held)


def stops(herder: HerderDriver) -> list[object]:
    return [*herder.find(instructions.StopTask), *herder.find(instructions.StopConnector)]


def test_work_goes_on_through_a_rebalance(follower: HerderDriver) -> None:
    push(follower, 1)
    assert follower.stage == "JOINING"
    assert told(follower) == {"c", C0}
    follower.settle_as_follower(generation=2)
    assert not stops(follower)
    assert follower.status_log == []
    assert set(follower.states().values()) == {"RUNNING"}


def test_a_status_of_a_generation_that_the_worker_missed_is_corrected_in_the_next(
    follower: HerderDriver,
) -> None:
    delay_ms = follower.herder.context.settings.status_check_ms
    follower.echo_statuses()
    missed = Status(C0, RunState.UNASSIGNED, OTHER, generation=2)
    follower.step(events.StatusesChanged([StatusEvent(9, C0, missed)]))
    follower.advance(delay_ms)
    assert follower.status_log == [], "the other worker may run it"
    push(follower, 1)
    follower.settle_as_follower(generation=3)
    follower.advance(delay_ms)
    assert follower.status_log == [(C0, RunState.RUNNING)]


def test_what_is_taken_stops_and_then_the_worker_rejoins_without_it(
    follower: HerderDriver,
) -> None:
    push(follower, 1)
    follower.join(generation=2, leader=False)
    follower.sync(follower.led_assignment(stops=[C0]))
    assert follower.stage == "SETTLED"
    assert follower.take(instructions.StopTask).task == C0
    assert not follower.find(instructions.JoinGroup)
    run_id = follower.herder.work.tasks[C0].run_id
    follower.step(events.TaskStopped(C0, run_id))
    assert told(follower) == {"c"}
    follower.settle_as_follower(generation=3)
    assert follower.states() == {"c": "RUNNING", "c-0": "UNASSIGNED"}


def test_a_rebalance_before_it_has_stopped_tells_that_it_is_still_here(
    follower: HerderDriver,
) -> None:
    push(follower, 1)
    follower.join(generation=2, leader=False)
    follower.sync(follower.led_assignment(stops=[C0]))
    push(follower, 2)
    assert told(follower) == {"c", C0}


def test_what_was_being_stopped_can_be_given_back(follower: HerderDriver) -> None:
    push(follower, 1)
    follower.join(generation=2, leader=False)
    follower.sync(follower.led_assignment(stops=[C0]))
    push(follower, 2)
    follower.settle_as_follower(generation=3)
    follower.run_engine()
    assert follower.states()["c-0"] == "RUNNING"


def test_what_is_new_starts_beside_what_runs(follower: HerderDriver) -> None:
    push(follower, 1)
    follower.settle_as_follower(generation=2, tasks=[C1])
    claim = follower.take(instructions.ClaimTask)
    assert (claim.task, claim.generation) == (C1, 2)
    assert not stops(follower)


def test_a_new_connector_stops_nothing(leader: HerderDriver) -> None:
    leader.put("d", tasks=1)
    leader.gather()
    leader.settle_as_leader(generation=2)
    leader.run_engine()
    assert leader.states() == dict.fromkeys(["c", "c-0", "c-1", "d", "d-0"], "RUNNING")
    assert {key for key, _ in leader.status_log} == {"d", D0}


def test_other_configs_of_as_many_tasks_need_no_rebalance(leader: HerderDriver) -> None:
    leader.commit("c", [{"part": "other"}, {"part": "more"}])
    assert {stop.task for stop in leader.find(instructions.StopTask)} == {C0, C1}
    leader.gather()
    leader.run_engine()
    assert leader.stage == "SETTLED"
    assert leader.states() == {"c": "RUNNING", "c-0": "RUNNING", "c-1": "RUNNING"}


def test_another_number_of_tasks_is_assigned_and_the_rest_restarts(leader: HerderDriver) -> None:
    leader.commit("c", task_configs("c", 3))
    leader.gather()
    assert leader.stage == "JOINING"
    leader.settle_as_leader(generation=2)
    leader.run_engine()
    assert leader.states()["c-2"] == "RUNNING"
    leader.commit("c", task_configs("c", 1))
    leader.run_engine()
    assert leader.states()["c-2"] == "UNASSIGNED"
    leader.gather()
    leader.settle_as_leader(generation=3)
    assert leader.herder.work.held == ("c", C0)


def test_a_set_of_an_earlier_run_that_comes_late_is_made_good(leader: HerderDriver) -> None:
    leader.commit("c", [{"part": "stale"}], own=False)
    leader.run_engine(task_counts={"c": 2})
    write = leader.take(instructions.WriteTaskConfigs)
    assert write.configs == task_configs("c", 2)


def test_tasks_that_went_and_came_back_are_assigned_anew(leader: HerderDriver) -> None:
    leader.commit("c", task_configs("c", 1))
    leader.run_engine()
    leader.commit("c", task_configs("c", 2))
    leader.gather()
    leader.settle_as_leader(generation=2)
    leader.run_engine()
    assert leader.herder.work.held == ("c", C0, C1)


def test_the_leader_takes_from_itself_for_one_that_joins(leader: HerderDriver) -> None:
    push(leader, 1)
    other = {"member-b": MemberMetadata(OTHER, 0, held=())}
    leader.join(generation=2, others=other)
    (sync,) = leader.find(instructions.SyncGroup)
    parts = {member: decode_assignment(data) for member, data in sync.assignments.items()}
    assert [part.keys for part in parts.values()] == [(), ()]
    assert [list(part.stops) for part in parts.values()] == [[C0], []]
    leader.sync()
    assert leader.herder.membership.owner(C1) == ME
    assert leader.herder.membership.owner(C0) == ""
    leader.run_engine()
    leader.join(generation=3, others=other)
    (sync,) = leader.find(instructions.SyncGroup)
    assert decode_assignment(sync.assignments["member-b"]).keys == (C0,)
    leader.sync()
    assert leader.herder.membership.owner(C0) == OTHER


def test_a_leader_that_is_behind_moves_nothing(leader: HerderDriver) -> None:
    push(leader, 1)
    leader.join(
        generation=2, others={"member-b": MemberMetadata(OTHER, leader.offset + 1, held=())}
    )
    (sync,) = leader.find(instructions.SyncGroup)
    errors = [decode_assignment(data).error for data in sync.assignments.values()]
    assert errors == [AssignmentError.CONFIG_MISMATCH] * 2
    leader.sync()
    assert leader.stage == "CATCHING_UP"
    assert not stops(leader)


def test_a_delay_leads_to_a_rebalance_after_it(follower: HerderDriver) -> None:
    push(follower, 1)
    follower.join(generation=2, leader=False)
    follower.sync(follower.led_assignment(delay_ms=2_000))
    follower.advance(1_900)
    assert follower.stage == "SETTLED"
    follower.advance(200)
    assert follower.stage == "JOINING"
    assert not stops(follower)


def test_a_join_that_fails_stops_nothing_within_the_session(follower: HerderDriver) -> None:
    push(follower, 1)
    for _ in range(3):
        follower.fail(follower.take(instructions.JoinGroup).cause_id, UNREACHABLE)
        assert follower.stage == "BACKING_OFF"
        follower.advance(500)
    assert not stops(follower)
    follower.settle_as_follower(generation=2)
    assert set(follower.states().values()) == {"RUNNING"}


def test_a_rebalance_that_takes_long_keeps_work_while_heartbeats_are_answered(
    follower: HerderDriver,
) -> None:
    push(follower, 1)
    for _ in range(10):
        follower.advance(3_000)
        beat = follower.take(instructions.Heartbeat)
        follower.step(events.HeartbeatAnswered(beat.cause_id, rebalance_in_progress=True))
    assert follower.stage == "JOINING"
    assert not stops(follower)


def test_out_of_reach_for_a_session_everything_stops_also_during_a_join(
    follower: HerderDriver,
) -> None:
    push(follower, 1)
    follower.advance(10_001)
    assert follower.stage == "JOINING"
    assert len(stops(follower)) == 2
    follower.settle_as_follower(generation=2)
    follower.run_engine()
    assert follower.states() == {"c": "RUNNING", "c-0": "RUNNING"}
    push(follower, 2)
    assert follower.stage == "JOINING", "the next rebalance stops no work"


def test_a_member_that_was_removed_stops_before_it_joins_again(follower: HerderDriver) -> None:
    follower.advance(3_000)
    follower.fail(follower.take(instructions.Heartbeat).cause_id, UNKNOWN)
    assert follower.stage == "STOPPING_WORK"
    assert len(stops(follower)) == 2
    follower.run_engine()
    assert told(follower) == set()


def test_a_join_of_a_member_that_was_removed_stops_everything_first(
    follower: HerderDriver,
) -> None:
    push(follower, 1)
    follower.fail(follower.take(instructions.JoinGroup).cause_id, UNKNOWN)
    assert len(stops(follower)) == 2
    follower.advance(600)
    assert follower.stage == "STOPPING_WORK"
    follower.run_engine()
    assert told(follower) == set()


def test_a_claim_of_the_generation_before_is_made_again_under_the_next(
    herder: HerderDriver,
) -> None:
    herder.ready(entry("c", tasks=1))
    herder.settle_as_follower(tasks=[C0])
    claim = herder.take(instructions.ClaimTask)
    push(herder, 1)
    error = FailedPreconditionError(Reason.ILLEGAL_GENERATION, "another generation")
    herder.step(events.TaskNotPrepared(C0, claim.run_id, error))
    herder.join(generation=2, leader=False)
    herder.advance(300)
    assert herder.take(instructions.ClaimTask).generation == 1, "generation 2 is not assigned yet"
    herder.step(events.TaskNotPrepared(C0, claim.run_id, error))
    herder.sync(herder.led_assignment())
    herder.advance(600)
    assert herder.take(instructions.ClaimTask).generation == 2


def test_a_claim_that_a_later_set_of_configs_refuses_is_made_again(follower: HerderDriver) -> None:
    follower.step(events.TaskFenced(C0, follower.herder.work.tasks[C0].run_id))
    stop = follower.take(instructions.StopTask)
    follower.step(events.TaskStopped(C0, stop.run_id))
    claim = follower.take(instructions.ClaimTask)
    follower.step(events.TaskNotPrepared(C0, claim.run_id, STALE_TERM))
    assert follower.stage == "SETTLED"
    follower.commit("c", [{"part": "other"}, {"part": "more"}])
    follower.run_engine()
    assert follower.states()["c-0"] == "RUNNING"


def test_the_first_eager_generation_stops_what_is_not_assigned(follower: HerderDriver) -> None:
    follower.protocol = "default"
    push(follower, 1)
    follower.settle_as_follower(generation=2, tasks=[C0, C1])
    assert [stop.name for stop in follower.find(instructions.StopConnector)] == ["c"]
    assert not follower.find(instructions.StopTask)
    follower.run_engine()
    assert follower.herder.membership.protocol_name == "default"
    push(follower, 2)
    assert {stop.task for stop in follower.find(instructions.StopTask)} == {C0, C1}
    assert follower.stage == "STOPPING_WORK"


def test_from_eager_to_cooperative_work_starts_once_more(follower: HerderDriver) -> None:
    follower.protocol = "default"
    push(follower, 1)
    follower.settle_as_follower(generation=2, connectors=["c"], tasks=[C0])
    follower.run_engine()
    push(follower, 2)
    follower.run_engine()
    follower.protocol = "compatible"
    follower.settle_as_follower(generation=3, connectors=["c"], tasks=[C0])
    follower.run_engine()
    push(follower, 3)
    assert follower.stage == "JOINING"
    assert told(follower) == {"c", C0}


def test_an_eager_worker_offers_nothing_else() -> None:
    settings = HerderSettings(worker_id=ME, group_id="drover", connect_protocol="eager")
    herder = HerderDriver(settings)
    herder.ready(entry("c", tasks=1))
    assert [p.name for p in herder.take(instructions.JoinGroup).protocols] == ["default"]


def test_the_end_of_the_engine_moves_nothing(follower: HerderDriver) -> None:
    follower.step(events.EngineLost("killed"))
    push(follower, 1)
    assert told(follower) == {"c", C0}


def rebalances_after_ms(
    leader: HerderDriver, number: int, delay_ms: int, *, lasts_ms: int = 0
) -> None:
    """Put a connector, and check that the group rebalances exactly ``delay_ms`` later."""
    leader.put(f"d{number}")
    leader.advance(delay_ms - 1)
    assert leader.stage == "SETTLED"
    leader.advance(1)
    assert leader.stage == "JOINING"
    leader.advance(lasts_ms)
    leader.settle_as_leader(generation=number)


@pytest.mark.parametrize("lasts_ms", [0, 2_000])
def test_only_many_rebalances_in_a_row_wait_for_changes_to_be_gathered(
    leader: HerderDriver, lasts_ms: int
) -> None:
    settings = leader.herder.context.settings
    first_ms, later_ms = settings.rejoin_delay_first_ms, settings.rejoin_delay_ms
    for number in (2, 3, 4, 5):
        rebalances_after_ms(leader, number, first_ms, lasts_ms=lasts_ms)
    for number in (6, 7):
        rebalances_after_ms(leader, number, later_ms, lasts_ms=lasts_ms)
    leader.advance(500)
    rebalances_after_ms(leader, 8, first_ms)
