"""A worker that hands over its work because it stops or because an operator drains it."""

import pytest

from drover.errors import DroverError, Reason, UnavailableError
from drover.model.ids import TaskId
from drover.model.status import StatusKey
from drover_worker.core import events, instructions, requests
from drover_worker.core.rebalance.protocol import (
    MemberMetadata,
    decode_assignment,
    decode_metadata,
)
from tests.support.herder_driver import ME, OTHER, HerderDriver, entry

C0, C1 = TaskId("c", 0), TaskId("c", 1)
UNREACHABLE = UnavailableError(Reason.SERVICE_UNREACHABLE, "nobody answers")


@pytest.fixture
def follower() -> HerderDriver:
    """Runs connector c and task c-0; c-1 is elsewhere."""
    herder = HerderDriver(protocol="compatible")
    herder.ready(entry("c", tasks=2))
    herder.settle_as_follower(connectors=["c"], tasks=[C0])
    herder.run_engine()
    return herder


@pytest.fixture
def leader() -> HerderDriver:
    """Runs connector c and c-1 beside another worker, which runs c-0."""
    herder = HerderDriver(protocol="compatible")
    herder.ready(entry("c", tasks=2))
    herder.settle_as_leader(others={"member-b": other(C0)})
    herder.run_engine()
    return herder


def other(*held: StatusKey, draining: bool = False) -> MemberMetadata:
    return MemberMetadata(OTHER, 0, held=held, draining=draining)


def said(herder: HerderDriver) -> MemberMetadata:
    (call,) = herder.find(instructions.JoinGroup)
    return decode_metadata(call.protocols[0].metadata)


def stop(herder: HerderDriver, *, hand_over: bool = True) -> None:
    herder.step(events.StopRequested(hand_over))


def settle(herder: HerderDriver, generation: int, *stops: StatusKey) -> None:
    """Settle in a generation in which the leader revokes these from the worker."""
    herder.join(generation=generation, leader=False)
    herder.sync(herder.led_assignment(stops=stops))


def test_a_worker_that_ends_tells_the_group_first_and_goes_on_meanwhile(
    follower: HerderDriver,
) -> None:
    stop(follower)
    told = said(follower)
    assert told.draining
    assert set(told.held or ()) == {"c", C0}
    assert not follower.find(instructions.StopTask)


def test_it_leaves_once_what_it_handed_over_has_stopped(follower: HerderDriver) -> None:
    stop(follower)
    settle(follower, 2, "c", C0)
    assert len(follower.find(instructions.StopTask)) == 1
    assert not follower.find(instructions.LeaveGroup)
    follower.run_engine()
    leave = follower.take(instructions.LeaveGroup)
    follower.step(events.LeaveAnswered(leave.cause_id))
    follower.take(instructions.Halt)
    assert not follower.timers


def test_it_stops_and_leaves_by_itself_when_nobody_takes_its_work(follower: HerderDriver) -> None:
    """All other workers may drain as well, or the leader may not support drains."""
    stop(follower)
    settle(follower, 2)
    assert follower.stage == "LEAVING"
    follower.run_engine()
    follower.take(instructions.LeaveGroup)


def test_what_was_removed_meanwhile_does_not_count_as_kept(follower: HerderDriver) -> None:
    stop(follower)
    follower.remove("c")
    settle(follower, 2)
    assert follower.stage == "SETTLED"
    follower.run_engine()
    follower.take(instructions.LeaveGroup)


def test_the_join_under_way_is_answered_before_the_group_is_told(follower: HerderDriver) -> None:
    follower.step(events.GroupPushed("member-a", 1, True))
    assert not said(follower).draining
    stop(follower)
    settle(follower, 2)
    assert follower.stage == "JOINING"
    assert said(follower).draining


def test_without_a_coordinator_it_stops_at_once(follower: HerderDriver) -> None:
    stop(follower)
    follower.fail(follower.take(instructions.JoinGroup).cause_id, UNREACHABLE)
    assert follower.stage == "LEAVING"


def test_a_hand_over_that_takes_too_long_is_given_up(follower: HerderDriver) -> None:
    stop(follower)
    stop(follower, hand_over=False)
    assert follower.stage == "LEAVING"
    follower.run_engine()
    follower.take(instructions.LeaveGroup)


def test_the_end_of_the_engine_frees_a_worker_whose_work_does_not_stop(
    follower: HerderDriver,
) -> None:
    stop(follower, hand_over=False)
    assert not follower.find(instructions.LeaveGroup)
    follower.step(events.EngineLost("closed"))
    follower.take(instructions.LeaveGroup)


@pytest.mark.parametrize("alone", [True, False], ids=["alone", "without work"])
def test_nobody_is_told_when_there_is_nothing_to_hand_over(*, alone: bool) -> None:
    herder = HerderDriver(protocol="compatible")
    herder.ready(entry("c", tasks=1)) if alone else herder.ready()
    herder.settle_as_leader(others={} if alone else {"member-b": other()})
    herder.run_engine()
    stop(herder)
    assert herder.stage == "LEAVING"


def test_an_eager_worker_leaves_at_once() -> None:
    herder = HerderDriver()
    herder.ready(entry("c", tasks=1))
    herder.settle_as_follower(tasks=[TaskId("c", 0)])
    stop(herder)
    assert herder.stage == "LEAVING"


def test_a_leader_that_ends_assigns_its_work_to_the_others(leader: HerderDriver) -> None:
    stop(leader)
    leader.join(generation=2, others={"member-b": other(C0)})
    sync = leader.sync()
    assert set(decode_assignment(sync.assignments["member-a"]).stops) == {"c", C1}
    assert not decode_assignment(sync.assignments["member-b"]).keys
    assert leader.herder.membership.draining == {ME: ("c", C1)}
    leader.run_engine()
    leader.take(instructions.LeaveGroup)


def test_callers_are_answered_until_the_worker_leaves(leader: HerderDriver) -> None:
    stop(leader)
    assert leader.herder.describe_stage().endswith(", and is being drained")
    leader.join(generation=2, others={"member-b": other(C0)})
    leader.sync()
    assert leader.herder.membership.leads
    assert not leader.herder.membership.ending


# Drains by an operator


def ask(herder: HerderDriver, worker_id: str, *, draining: bool = True, hops: int = 0) -> None:
    herder.ask(requests.DrainWorker(worker_id, draining), hops=hops)


def reason_of(herder: HerderDriver) -> Reason:
    answer = herder.answers["call"]
    assert isinstance(answer, DroverError)
    return answer.reason


def test_a_drain_goes_to_the_leader_and_from_there_to_the_worker(
    follower: HerderDriver, leader: HerderDriver
) -> None:
    ask(follower, ME)  # a client's request, which the leader decides
    assert follower.answers["call"] == requests.ForwardTo(OTHER)
    ask(leader, OTHER)
    assert leader.answers["call"] == requests.ForwardTo(OTHER)


def test_it_is_answered_once_the_group_knows_and_the_worker_stays_a_member(
    follower: HerderDriver,
) -> None:
    ask(follower, ME, hops=1)
    assert said(follower).draining
    assert "call" not in follower.answers
    settle(follower, 2, "c", C0)
    assert follower.answers.pop("call") == requests.Accomplished()
    follower.run_engine()
    assert not said(follower).held
    settle(follower, 3)
    assert follower.stage == "SETTLED"
    assert follower.herder.describe_stage() == (
        "the worker is running its assignment, and is drained"
    )
    ask(follower, ME, draining=False, hops=1)
    assert not said(follower).draining


def test_an_eager_worker_stops_everything_and_says_that_it_wants_no_more() -> None:
    herder = HerderDriver()
    herder.ready(entry("c", tasks=1))
    herder.settle_as_follower(tasks=[C0])
    herder.run_engine()
    ask(herder, ME, hops=1)
    herder.run_engine()
    assert said(herder).draining
    herder.settle_as_follower(generation=2)
    assert herder.answers["call"] == requests.Accomplished()
    assert herder.stage == "SETTLED"


def test_a_drain_that_nobody_relieves_ends(follower: HerderDriver) -> None:
    ask(follower, ME, hops=1)
    settle(follower, 2)
    assert reason_of(follower) is Reason.NO_OTHER_WORKER
    assert not said(follower).draining
    assert not follower.find(instructions.StopTask)


def test_the_leader_refuses_what_leaves_nobody_and_whom_it_does_not_know(
    leader: HerderDriver,
) -> None:
    ask(leader, "nobody:1")
    assert reason_of(leader) is Reason.WORKER_NOT_FOUND
    leader.step(events.GroupPushed("member-a", 1, True))
    leader.join(generation=2, others={"member-b": other(C0, draining=True)})
    leader.sync()
    leader.answers.clear()
    ask(leader, ME)
    assert reason_of(leader) is Reason.NO_OTHER_WORKER


def test_a_worker_that_ends_does_not_take_work_again(follower: HerderDriver) -> None:
    stop(follower)
    settle(follower, 2, "c", C0)
    ask(follower, ME, draining=False, hops=1)
    assert follower.herder.membership.drain.requested
