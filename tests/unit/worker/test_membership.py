"""Rebalances of the eager protocol."""

from dataclasses import replace

import pytest

from drover.errors import (
    DeadlineExceededError,
    FailedPreconditionError,
    NotFoundError,
    Reason,
    UnavailableError,
)
from drover.model.config import TargetState
from drover.model.group import MemberIdRequired, RebalanceInProgress, RetryJoin
from drover.model.ids import TaskId
from drover_worker.core import events, instructions, requests
from drover_worker.core.context import HerderSettings
from drover_worker.core.rebalance.protocol import (
    AssignmentError,
    MemberMetadata,
    decode_assignment,
    decode_metadata,
)
from tests.support.herder_driver import ME, OTHER, HerderDriver, entry

UNREACHABLE = UnavailableError(Reason.SERVICE_UNREACHABLE, "nobody answers")
TIMED_OUT = DeadlineExceededError(Reason.DEADLINE_EXCEEDED, "not read in time")
UNKNOWN = NotFoundError(Reason.UNKNOWN_MEMBER_ID, "unknown member")
ILLEGAL = FailedPreconditionError(Reason.ILLEGAL_GENERATION, "another generation")
C0, C1 = TaskId("c", 0), TaskId("c", 1)


def in_engine(herder: HerderDriver) -> list[str]:
    return [str(item.key) for item in herder.herder.work.all()]


def test_the_worker_joins_only_when_engine_and_configs_are_ready(herder: HerderDriver) -> None:
    herder.step(events.EngineReady())
    assert herder.stage == "STARTING"
    herder.load()
    assert herder.stage == "JOINING"


def test_a_join_offers_url_and_config_offset(herder: HerderDriver) -> None:
    herder.ready(entry("c", tasks=2))
    call = herder.take(instructions.JoinGroup)
    offered = [(p.name, decode_metadata(p.metadata)) for p in call.protocols]
    assert offered == [
        ("compatible", MemberMetadata(ME, 3, held=())),
        ("default", MemberMetadata(ME, 3)),
    ]
    assert call.member_id == ""


def test_a_first_join_comes_again_with_the_id_it_got(herder: HerderDriver) -> None:
    herder.ready()
    first = herder.take(instructions.JoinGroup)
    herder.step(events.JoinAnswered(first.cause_id, MemberIdRequired("m-1")))
    second = herder.take(instructions.JoinGroup)
    assert second.member_id == "m-1"
    herder.step(events.JoinAnswered(second.cause_id, RetryJoin("m-1")))
    assert herder.take(instructions.JoinGroup).member_id == "m-1"


def test_normal_join_group_leader(herder: HerderDriver) -> None:
    herder.ready(entry("c1", tasks=1), entry("c2", tasks=2))
    herder.join(generation=1, others={"member-b": MemberMetadata(OTHER, 0)})
    assigned = {
        member: decode_assignment(data)
        for member, data in herder.take(instructions.SyncGroup).assignments.items()
    }
    assert {*assigned["member-a"].connectors, *map(str, assigned["member-a"].tasks)} == {
        "c1", "c1-0", "c2-1",
    }  # fmt: skip
    assert {*assigned["member-b"].connectors, *map(str, assigned["member-b"].tasks)} == {
        "c2", "c2-0",
    }  # fmt: skip


def test_normal_join_group_follower(herder: HerderDriver) -> None:
    herder.ready(entry("c", tasks=2))
    herder.join(generation=1, leader=False)
    call = herder.sync(herder.led_assignment(connectors=["c"], tasks=[C1]))
    assert call.assignments == {}
    herder.run_engine()
    assert herder.states() == {"c": "RUNNING", "c-1": "RUNNING"}
    assert herder.herder.membership.leader_url == OTHER


def test_workers_are_called_at_their_internal_urls() -> None:
    settings = HerderSettings(worker_id=ME, group_id="drover", internal_url="worker-a:1")
    herder = HerderDriver(settings)
    herder.ready(entry("c", tasks=1))
    herder.join(
        generation=1,
        others={
            "member-b": MemberMetadata(OTHER, 0, "worker-b:1"),
            "member-c": MemberMetadata("worker-c:7411", 0),  # an older version
        },
    )
    membership = herder.herder.membership
    assert membership.call_url(OTHER) == "worker-b:1"
    assert membership.call_url("worker-c:7411") == "worker-c:7411"
    led = decode_assignment(herder.take(instructions.SyncGroup).assignments["member-b"])
    assert (led.leader_url, led.leader_internal_url) == (ME, "worker-a:1")


@pytest.mark.parametrize(("internal_url", "called"), [("worker-b:1", "worker-b:1"), ("", OTHER)])
def test_the_leader_is_called_at_its_internal_url_if_it_names_one(
    herder: HerderDriver, internal_url: str, called: str
) -> None:
    herder.ready(entry("c", tasks=1))
    herder.join(generation=1, leader=False)
    herder.sync(replace(herder.led_assignment(), leader_internal_url=internal_url))
    assert herder.herder.membership.leader_url == OTHER
    assert herder.herder.membership.call_url(OTHER) == called
    herder.ask(requests.DeleteConnector("c", "r"))
    assert herder.answers == {"call": requests.ForwardTo(called)}


def test_join_assignment_starts_what_was_given_and_nothing_else(herder: HerderDriver) -> None:
    herder.ready(entry("c", tasks=2), entry("d", tasks=1))
    herder.settle_as_follower(tasks=[C0])
    assert in_engine(herder) == ["c-0"]
    claim = herder.take(instructions.ClaimTask)
    assert (claim.task, claim.member_id, claim.generation) == (C0, "member-a", 1)


def test_a_rebalance_stops_everything_before_the_join(herder: HerderDriver) -> None:
    herder.ready(entry("c", tasks=2))
    herder.settle_as_leader()
    herder.run_engine()
    herder.step(events.GroupPushed("member-a", 1, True))
    assert herder.stage == "STOPPING_WORK"
    assert not herder.find(instructions.JoinGroup)
    stops = {stop.task for stop in herder.find(instructions.StopTask)}
    assert stops == {C0, C1}
    herder.run_engine()
    assert herder.stage == "JOINING"
    assert herder.states() == {"c": "UNASSIGNED", "c-0": "UNASSIGNED", "c-1": "UNASSIGNED"}
    assert herder.take(instructions.JoinGroup).member_id == "member-a"


def test_revoked_work_can_be_assigned_again_and_starts_again(herder: HerderDriver) -> None:
    herder.ready(entry("c", tasks=2))
    for generation in (1, 2, 3):
        herder.settle_as_leader(generation=generation)
        herder.run_engine()
        assert herder.states() == {"c": "RUNNING", "c-0": "RUNNING", "c-1": "RUNNING"}
        assert {s.generation for s in herder.statuses.values()} == {generation}
        herder.step(events.GroupPushed("member-a", generation, True))
        herder.run_engine()


def test_a_heartbeat_tells_of_a_rebalance_as_well(herder: HerderDriver) -> None:
    herder.ready()
    herder.settle_as_leader()
    herder.advance(3_000)
    beat = herder.take(instructions.Heartbeat)
    herder.step(events.HeartbeatAnswered(beat.cause_id, True))
    assert herder.stage == "JOINING"


def test_an_announcement_of_an_earlier_generation_is_ignored(herder: HerderDriver) -> None:
    herder.ready()
    herder.settle_as_leader(generation=5)
    herder.step(events.GroupPushed("member-a", 4, True))
    herder.step(events.GroupPushed("somebody", 5, True))
    assert herder.stage == "SETTLED"


def test_an_end_of_a_generation_that_a_coordinator_forgot_is_forgotten_here_too(
    herder: HerderDriver,
) -> None:
    """It announced a rebalance, crashed, and assigns the same generation number again."""
    herder.ready()
    herder.settle_as_follower(generation=1)
    herder.step(events.GroupPushed("member-a", 1, True))
    assert herder.stage == "JOINING"
    herder.settle_as_follower(generation=1)
    assert herder.stage == "SETTLED"


def test_an_announcement_that_overtakes_the_sync_counts(herder: HerderDriver) -> None:
    herder.ready(entry("c", tasks=1))
    herder.join(generation=1)
    herder.step(events.GroupPushed("member-a", 1, True))
    herder.sync()
    assert herder.stage == "JOINING"
    assert not herder.find(instructions.StartConnector)


def test_a_sync_that_finds_another_rebalance_joins_again(herder: HerderDriver) -> None:
    herder.ready()
    herder.join(generation=1)
    call = herder.take(instructions.SyncGroup)
    herder.step(events.SyncAnswered(call.cause_id, RebalanceInProgress()))
    assert herder.stage == "JOINING"


def test_the_answer_to_an_earlier_join_is_ignored(herder: HerderDriver) -> None:
    herder.ready()
    stale = herder.take(instructions.JoinGroup)
    herder.step(events.JoinAnswered(stale.cause_id, MemberIdRequired("m-1")))
    herder.step(events.JoinAnswered(stale.cause_id, MemberIdRequired("m-2")))
    assert herder.take(instructions.JoinGroup).member_id == "m-1"


# The config offset


def test_join_leader_cannot_assign(herder: HerderDriver) -> None:
    herder.ready(entry("c", tasks=1))
    ahead = {"member-b": MemberMetadata(OTHER, 9)}
    herder.join(generation=1, others=ahead)
    call = herder.sync()
    errors = [decode_assignment(data).error for data in call.assignments.values()]
    assert errors == [AssignmentError.CONFIG_MISMATCH] * 2
    assert herder.stage == "CATCHING_UP"
    read = herder.take(instructions.ReadConfigsToEnd)
    herder.step(events.ConfigsChanged([], 9))
    herder.step(events.ReadToEnd(read.cause_id))
    herder.join(generation=2, others=ahead)
    herder.sync()
    assert herder.stage == "SETTLED"


def test_on_mismatch_a_follower_reads_only_when_it_is_behind(herder: HerderDriver) -> None:
    herder.ready()
    mismatch = AssignmentError.CONFIG_MISMATCH
    herder.join(generation=1, leader=False)
    herder.sync(herder.led_assignment(offset=0, error=mismatch))
    assert herder.stage == "JOINING"
    herder.join(generation=2, leader=False)
    herder.sync(herder.led_assignment(offset=4, error=mismatch))
    assert herder.stage == "CATCHING_UP"


def test_nothing_is_stopped_after_a_failed_assignment(herder: HerderDriver) -> None:
    herder.ready()
    herder.join(generation=1, leader=False)
    herder.sync(herder.led_assignment(offset=0, error=AssignmentError.CONFIG_MISMATCH))
    assert not herder.status_log
    assert herder.stage == "JOINING"


def test_a_member_that_is_behind_catches_up_before_it_starts(herder: HerderDriver) -> None:
    herder.ready()
    herder.join(generation=1, leader=False)
    herder.sync(herder.led_assignment(connectors=["c"], tasks=[C0], offset=2))
    assert herder.stage == "CATCHING_UP"
    assert in_engine(herder) == []
    read = herder.take(instructions.ReadConfigsToEnd)
    herder.put("c", tasks=1)
    herder.step(events.ReadToEnd(read.cause_id))
    assert herder.stage == "SETTLED"
    assert in_engine(herder) == ["c", "c-0"]


def test_a_member_that_reads_past_the_assignment_joins_again(herder: HerderDriver) -> None:
    herder.ready()
    herder.join(generation=1, leader=False)
    herder.sync(herder.led_assignment(offset=1))
    read = herder.take(instructions.ReadConfigsToEnd)
    herder.put("c", tasks=1)
    herder.step(events.ReadToEnd(read.cause_id))
    assert herder.stage == "SETTLED"
    herder.gather()
    assert herder.stage == "JOINING"


def test_a_log_that_ends_before_the_assignment_is_no_ground_to_start(herder: HerderDriver) -> None:
    herder.ready()
    herder.join(generation=1, leader=False)
    herder.sync(herder.led_assignment(offset=9))
    read = herder.take(instructions.ReadConfigsToEnd)
    herder.step(events.ReadToEnd(read.cause_id))
    assert herder.stage == "JOINING"


def test_a_pause_during_the_rebalance_is_no_reason_for_another(herder: HerderDriver) -> None:
    herder.ready(entry("c", tasks=1))
    herder.join(generation=1, leader=False)
    assignment = herder.led_assignment(tasks=[C0])
    herder.target("c", TargetState.PAUSED)
    herder.sync(assignment)
    assert herder.stage == "SETTLED"
    herder.run_engine()
    assert herder.states() == {"c-0": "PAUSED"}


def test_a_new_connector_during_the_rebalance_is_one(herder: HerderDriver) -> None:
    herder.ready(entry("c", tasks=1))
    herder.join(generation=1, leader=False)
    assignment = herder.led_assignment(tasks=[C0])
    herder.put("d")
    herder.sync(assignment)
    assert herder.stage == "SETTLED"
    herder.run_engine()
    assert herder.states() == {"c-0": "RUNNING"}
    herder.gather()
    assert herder.stage == "STOPPING_WORK"


def test_task_configs_later_than_the_assignment_wait_for_the_next_one(
    herder: HerderDriver,
) -> None:
    herder.ready(entry("c", tasks=1), entry("d", tasks=1))
    herder.join(generation=1, leader=False)
    assignment = herder.led_assignment(tasks=[C0, TaskId("d", 0)])
    herder.commit("c", [{"part": "another share"}])
    herder.sync(assignment)
    assert in_engine(herder) == ["d-0"]
    herder.run_engine()
    herder.gather()
    herder.run_engine()
    herder.settle_as_follower(generation=2, tasks=[C0, TaskId("d", 0)])
    assert in_engine(herder) == ["c-0", "d-0"]


def test_a_burst_of_changes_costs_one_rebalance(herder: HerderDriver) -> None:
    herder.ready()
    herder.settle_as_leader()
    settings = herder.herder.context.settings
    for index in range(3):
        herder.put(f"c{index}")
        herder.advance(settings.rejoin_delay_ms - 1)
        assert herder.stage == "SETTLED"
    herder.advance(1)
    assert herder.stage == "JOINING"
    herder.settle_as_leader(generation=2)
    herder.gather()
    assert herder.stage == "SETTLED"


def test_a_stream_of_changes_cannot_put_a_rebalance_off_for_ever(herder: HerderDriver) -> None:
    herder.ready()
    herder.settle_as_leader()
    started_ms = herder.now_ms
    settings = herder.herder.context.settings
    for index in range(100):
        herder.put(f"c{index}")
        herder.advance(settings.rejoin_delay_ms // 2)
        if herder.stage != "SETTLED":
            break
    assert herder.stage == "JOINING"
    assert herder.now_ms - started_ms <= settings.rejoin_delay_max_ms


def test_a_rebalance_for_changes_waits_until_the_last_assignment_is_started(
    herder: HerderDriver,
) -> None:
    herder.ready(entry("c", tasks=1))
    herder.settle_as_follower(tasks=[C0])
    herder.put("d")
    herder.gather()
    assert herder.stage == "SETTLED"
    herder.run_engine()
    herder.gather()
    assert herder.stage == "STOPPING_WORK"


def test_a_start_that_takes_long_does_not_put_a_rebalance_off_for_ever(
    herder: HerderDriver,
) -> None:
    herder.ready(entry("c", tasks=1))
    herder.settle_as_follower(tasks=[C0])
    herder.put("d")
    longest_ms = herder.herder.context.settings.rejoin_delay_max_ms
    herder.advance(longest_ms - 1)
    assert herder.stage == "SETTLED"
    herder.advance(1)
    assert herder.stage == "JOINING"


@pytest.mark.parametrize("leads", [True, False])
def test_a_rebalance_for_changes_waits_for_task_configs_that_are_being_written(
    herder: HerderDriver, leads: bool
) -> None:
    herder.ready(entry("c"))
    if leads:
        herder.settle_as_leader()
    else:
        herder.settle_as_follower(connectors=["c"])
    herder.run_engine(task_counts={"c": 1})
    herder.put("d")
    herder.gather()
    assert herder.stage == "SETTLED"
    call: instructions.WriteTaskConfigs | instructions.SubmitToLeader
    if leads:
        call = herder.take(instructions.WriteTaskConfigs)
    else:
        call = herder.take(instructions.SubmitToLeader)
    herder.commit("c", call.configs)
    herder.step(events.TaskConfigsSubmitted(call.cause_id))
    herder.gather()
    assert herder.stage == "STOPPING_WORK"


def test_the_leader_waits_for_task_configs_that_others_made(herder: HerderDriver) -> None:
    herder.ready(entry("c"))
    herder.settle_as_leader()
    herder.run_engine()
    herder.ask(requests.SubmitTaskConfigs("c", [{"part": "0"}], "r-1"))
    herder.put("d")
    herder.gather()
    assert herder.stage == "SETTLED"
    write = herder.take(instructions.WriteTaskConfigs)
    herder.commit("c", write.configs)
    herder.step(events.ConfigWritten(write.cause_id, herder.offset))
    herder.gather()
    assert herder.stage == "STOPPING_WORK"


def test_what_is_no_change_of_the_structure_does_not_put_a_rebalance_off(
    herder: HerderDriver,
) -> None:
    herder.ready(entry("c"))
    herder.settle_as_leader()
    settings = herder.herder.context.settings
    herder.put("d")
    herder.advance(settings.rejoin_delay_ms - 1)
    herder.target("c", TargetState.PAUSED)
    herder.advance(1)
    assert herder.stage == "STOPPING_WORK"


def test_a_rebalance_of_the_group_does_not_wait_for_changes_to_be_gathered(
    herder: HerderDriver,
) -> None:
    herder.ready()
    herder.settle_as_leader()
    herder.put("d")
    herder.step(events.GroupPushed(herder.member_id, 1, True))
    assert herder.stage == "JOINING"
    assert "rejoin" not in herder.timers
    herder.settle_as_leader(generation=2)
    herder.gather()
    assert herder.stage == "SETTLED"


def test_join_leader_catch_up_fails(herder: HerderDriver) -> None:
    herder.ready()
    ahead = {"member-b": MemberMetadata(OTHER, 9)}
    herder.join(generation=1, others=ahead)
    herder.sync()
    read = herder.take(instructions.ReadConfigsToEnd)
    herder.fail(read.cause_id, TIMED_OUT)
    assert herder.stage == "BACKING_OFF"
    assert herder.take(instructions.LeaveGroup).member_id == "member-a"
    herder.advance(1_999)
    assert herder.stage == "BACKING_OFF"
    herder.advance(1)
    assert herder.take(instructions.JoinGroup).member_id == ""
    assert not herder.find(instructions.ReadConfigsToEnd)


# Losing the group


def test_work_goes_on_while_the_coordinator_is_out_of_reach(herder: HerderDriver) -> None:
    herder.ready(entry("c", tasks=1))
    herder.settle_as_leader()
    herder.run_engine()
    for _ in range(3):
        herder.advance(3_000)
        beat = herder.take(instructions.Heartbeat)
        herder.fail(beat.cause_id, UNREACHABLE)
    assert herder.states() == {"c": "RUNNING", "c-0": "RUNNING"}
    assert herder.stage == "SETTLED"
    herder.advance(1_000)
    assert herder.stage == "STOPPING_WORK"
    herder.run_engine()
    assert herder.states() == {"c": "UNASSIGNED", "c-0": "UNASSIGNED"}
    assert herder.stage == "JOINING"


def test_the_session_counts_from_when_the_last_heard_heartbeat_was_sent(
    herder: HerderDriver,
) -> None:
    herder.ready()
    herder.settle_as_leader()
    herder.advance(3_000)
    beat = herder.take(instructions.Heartbeat)
    herder.advance(2_000)
    herder.step(events.HeartbeatAnswered(beat.cause_id, False))
    herder.advance(7_999)
    assert herder.stage == "SETTLED"
    herder.advance(1)
    assert herder.stage == "JOINING"


def test_one_heartbeat_at_a_time(herder: HerderDriver) -> None:
    herder.ready()
    herder.settle_as_leader()
    herder.advance(9_000)
    assert len(herder.find(instructions.Heartbeat)) == 1


def test_an_unreachable_coordinator_is_joined_again_and_again(herder: HerderDriver) -> None:
    herder.ready()
    for _ in range(3):
        herder.fail(herder.take(instructions.JoinGroup).cause_id, UNREACHABLE)
        assert herder.stage == "BACKING_OFF"
        herder.advance(500)
    assert herder.stage == "JOINING"


def test_a_forgotten_member_stops_its_work_and_joins_as_a_new_one(herder: HerderDriver) -> None:
    herder.ready(entry("c", tasks=1))
    herder.settle_as_leader()
    herder.run_engine()
    herder.advance(3_000)
    herder.fail(herder.take(instructions.Heartbeat).cause_id, UNKNOWN)
    assert herder.stage == "STOPPING_WORK"
    herder.run_engine()
    assert herder.take(instructions.JoinGroup).member_id == ""


def test_a_member_of_another_generation_stops_its_work_and_keeps_its_id(
    herder: HerderDriver,
) -> None:
    herder.ready(entry("c", tasks=1))
    herder.settle_as_leader()
    herder.run_engine()
    herder.advance(3_000)
    herder.fail(herder.take(instructions.Heartbeat).cause_id, ILLEGAL)
    herder.run_engine()
    assert herder.take(instructions.JoinGroup).member_id == "member-a"


@pytest.mark.parametrize("error", [UNKNOWN, ILLEGAL])
def test_a_claim_refused_for_the_membership_leads_to_a_rebalance(
    herder: HerderDriver, error: NotFoundError
) -> None:
    herder.ready(entry("c", tasks=1))
    herder.settle_as_follower(tasks=[C0])
    claim = herder.take(instructions.ClaimTask)
    herder.step(events.TaskNotPrepared(C0, claim.run_id, error))
    assert herder.stage == "JOINING"
    assert "c-0" not in herder.states()


# The end


def test_a_stop_ends_tasks_says_so_and_leaves(herder: HerderDriver) -> None:
    herder.ready(entry("c", tasks=1))
    herder.settle_as_leader()
    herder.run_engine()
    herder.step(events.StopRequested())
    assert not herder.find(instructions.LeaveGroup)
    herder.run_engine()
    assert herder.states() == {"c": "UNASSIGNED", "c-0": "UNASSIGNED"}
    leave = herder.take(instructions.LeaveGroup)
    assert leave.member_id == "member-a"
    assert not herder.find(instructions.Halt)
    herder.step(events.LeaveAnswered(leave.cause_id))
    herder.take(instructions.Halt)
    assert not herder.timers


def test_a_stop_ends_without_a_coordinator_too(herder: HerderDriver) -> None:
    herder.ready()
    herder.settle_as_leader()
    herder.step(events.StopRequested())
    herder.fail(herder.take(instructions.LeaveGroup).cause_id, UNREACHABLE)
    herder.take(instructions.Halt)


def test_a_worker_that_never_joined_just_ends(herder: HerderDriver) -> None:
    herder.step(events.StopRequested())
    herder.take(instructions.Halt)


def test_only_the_last_statuses_of_a_stopping_worker_are_written_safely(
    herder: HerderDriver,
) -> None:
    herder.ready(entry("c", tasks=1))
    herder.settle_as_leader()
    herder.run_engine()
    emitted = herder.step(events.StopRequested())
    stop = next(i for i in emitted if isinstance(i, instructions.StopTask))
    written = [
        i.write
        for i in herder.step(events.TaskStopped(stop.task, stop.run_id))
        if isinstance(i, instructions.WriteStatus)
    ]
    assert [(str(w.status.key), w.safe) for w in written] == [("c-0", True)]
