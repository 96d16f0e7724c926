"""Static members (KIP-345): an instance id outlives the processes that hold it, rules J9 and G2.

Members a, b, c have the instance ids A, B, C. The process of a is a2 after a restart, then a3.
"""

import pytest

from drover.errors import Reason
from drover.model.group import (
    GroupState,
    Joined,
    JoinedMember,
    RebalanceInProgress,
    RetryJoin,
    Synced,
)
from drover_coordinator.core.groups.settings import NEW_MEMBER_JOIN_TIMEOUT_MS, GroupSettings
from tests.support.group_harness import DISK_FULL, REBALANCE_MS, SESSION_MS, GroupHarness
from tests.support.static_members import (
    BOTH,
    DELAY_MS,
    LONG_MS,
    completing,
    keep_alive,
    offer,
    stable,
)

PREPARING = GroupState.PREPARING_REBALANCE


# the first join


def test_a_first_join_needs_no_id_and_makes_the_group_durable(group: GroupHarness) -> None:
    call = group.join_static("a", "A")
    assert call.waits
    assert group.describe().state is PREPARING
    assert group.last_metadata().generation == 0
    group.advance(DELAY_MS)
    assert call.joined.member_id == call.joined.leader_id == "a"
    assert call.joined.members == (JoinedMember("a", b"meta", "A"),)
    assert not call.joined.skip_assignment
    assert [each.instance_id for each in group.last_metadata().members] == ["A"]
    assert [each.instance_id for each in group.describe().members] == ["A"]


def test_a_first_join_rebalances_a_stable_group(group: GroupHarness) -> None:
    stable(group, "a")
    newcomer = group.join_static("b", "B")
    assert newcomer.waits
    assert group.join("a", instance_id="A").joined.generation == 2
    assert newcomer.joined.generation == 2


def test_a_first_join_into_an_empty_group_is_one_of_a_newcomer(group: GroupHarness) -> None:
    stable(group, "a")
    group.leave("a")
    call = group.join_static("a2", "A")
    group.advance(DELAY_MS)
    assert call.joined.generation == 3
    assert group.member_ids() == ["a2"]


def test_a_group_that_cannot_be_created_is_not_there(group: GroupHarness) -> None:
    group.append_error = DISK_FULL
    call = group.join_static("a", "A")
    assert call.reason is Reason.STORAGE_UNAVAILABLE
    assert group.describe().state is GroupState.DEAD
    assert group.machine.hard_state() == {}
    assert group.join_static("a2", "A").waits


def test_a_newcomer_that_is_not_answered_is_forgotten_after_five_minutes(
    group: GroupHarness,
) -> None:
    stable(group, "a", rebalance_ms=3_600_000, session_ms=LONG_MS)
    newcomer = group.join_static("b", "B", rebalance_ms=3_600_000, session_ms=LONG_MS)
    group.advance(NEW_MEMBER_JOIN_TIMEOUT_MS - 1)
    assert newcomer.waits
    group.advance(1)
    assert newcomer.reason is Reason.UNKNOWN_MEMBER_ID
    assert group.member_ids() == ["a"]


def test_a_newcomer_that_starts_again_has_five_minutes_of_its_own(group: GroupHarness) -> None:
    slow = {"rebalance_ms": 3_600_000, "session_ms": LONG_MS}
    stable(group, "a", **slow)
    group.join_static("b", "B", **slow)
    group.advance(1_000)
    again = group.join_static("b2", "B", **slow)
    group.advance(NEW_MEMBER_JOIN_TIMEOUT_MS - 1)
    assert again.waits
    group.advance(1)
    assert again.reason is Reason.UNKNOWN_MEMBER_ID


def test_a_member_that_starts_again_is_no_newcomer(group: GroupHarness) -> None:
    slow = {"rebalance_ms": 3_600_000, "session_ms": LONG_MS}
    stable(group, "a", "b", **slow)
    group.enter("c", **slow)
    again = group.join_static("b2", "B", **slow)
    group.advance(2 * NEW_MEMBER_JOIN_TIMEOUT_MS)
    assert again.waits


def test_static_and_dynamic_members_share_a_group(group: GroupHarness) -> None:
    first = group.join_static("a", "A")
    second = group.enter("b")
    group.advance(2 * DELAY_MS)
    assert first.joined.members == (JoinedMember("a", b"meta", "A"), JoinedMember("b", b"meta"))
    assert second.joined.members == ()


# known ids, and ids that do not fit


@pytest.mark.parametrize("state", ["preparing", "completing", "stable"])
def test_a_fenced_id_is_refused_everywhere(group: GroupHarness, state: str) -> None:
    completing(group, "a", "b")
    if state != "completing":
        group.assign("a", "b")
    if state == "preparing":
        group.first_join("c")
        group.join("c")
    for call in (
        group.join("ghost", instance_id="B"),
        group.join("a", instance_id="B"),  # the id of another member
        group.sync("ghost", 1, instance_id="B"),
        group.heartbeat("ghost", 1, instance_id="B"),
        group.heartbeat("ghost", 7, instance_id="B"),  # checked before the generation
        group.heartbeat("a", 1, instance_id="B"),
    ):
        assert call.reason is Reason.FENCED_INSTANCE_ID
        assert call.errors[0].code == "FAILED_PRECONDITION"
    assert group.member_ids()[:2] == ["a", "b"]


def test_an_instance_id_that_nobody_has_is_unknown(group: GroupHarness) -> None:
    stable(group, "a")
    group.first_join("p")
    for call in (
        group.join("ghost", instance_id="X"),
        group.join("a", instance_id="X"),
        group.join("p", instance_id="X"),  # the pending id of a dynamic member
        group.sync("a", 1, instance_id="X"),
        group.heartbeat("a", 1, instance_id="X"),
        group.heartbeat("ghost", 1),
    ):
        assert call.reason is Reason.UNKNOWN_MEMBER_ID
    assert group.join("p").waits  # its id is still valid


def test_a_member_may_leave_its_instance_id_out(group: GroupHarness) -> None:
    stable(group, "a", "b")
    assert group.heartbeat("b", 1).response is False
    assert group.join("b").joined.generation == 1
    assert group.describe().members[1].instance_id == "B"


def test_the_fenced_hear_it_though_the_group_is_full() -> None:
    group = GroupHarness(GroupSettings(group_max_size=2))
    stable(group, "a", "b")
    assert group.join("ghost", instance_id="B").reason is Reason.FENCED_INSTANCE_ID
    assert group.join("ghost", instance_id="X").reason is Reason.UNKNOWN_MEMBER_ID


def test_errors_say_whose_place_it_was(group: GroupHarness) -> None:
    stable(group, "a")
    group.join_static("a2", "A")
    error = group.heartbeat("a", 1, instance_id="A").errors[0]
    assert error.metadata == {"groupId": "g", "memberId": "a", "instanceId": "A"}
    assert "another process" in error.message


# a process that restarts while the group is stable


def test_a_follower_starts_again_without_a_rebalance(group: GroupHarness) -> None:
    stable(group, "a", "b")
    group.watched.clear()
    again = group.join_static("b2", "B")
    assert again.response == Joined(1, "b2", "a", "connect", "default")
    assert group.sync("b2", 1, instance_id="B").response == Synced(b"to-b", "connect", "default")
    assert group.describe().state is GroupState.STABLE
    assert group.member_ids() == ["a", "b2"]
    assert group.watched == []
    assert group.heartbeat("b", 1, instance_id="B").reason is Reason.FENCED_INSTANCE_ID
    assert group.heartbeat("b", 1).reason is Reason.UNKNOWN_MEMBER_ID


def test_a_leader_starts_again_without_a_rebalance_and_must_not_assign(
    group: GroupHarness,
) -> None:
    stable(group, "a", "b")
    again = group.join_static("a2", "A").joined
    assert (again.generation, again.leader_id) == (1, "a2")
    assert again.members == (JoinedMember("a2", b"meta", "A"), JoinedMember("b", b"meta", "B"))
    assert again.skip_assignment
    assert group.describe().leader_id == group.last_metadata().leader_id == "a2"
    ignored = group.sync("a2", 1, {"a2": b"new", "b": b"new"})
    assert ignored.response == Synced(b"to-a", "connect", "default")
    assert group.sync("b", 1).response == Synced(b"to-b", "connect", "default")


def test_a_follower_does_not_skip_what_is_not_its_own(group: GroupHarness) -> None:
    stable(group, "a", "b")
    assert not group.join_static("b2", "B").joined.skip_assignment


def test_the_new_holder_is_durable(group: GroupHarness) -> None:
    stable(group, "a", "b")
    before = group.last_metadata()
    group.join_static("b2", "B", protocols=offer("default", metadata=b"new"), session_ms=20_000)
    after = group.last_metadata()
    assert (after.generation, after.assigned, after.leader_id) == (1, True, "a")
    assert after.members[0] == before.members[0]
    holder = after.members[1]
    assert (holder.member_id, holder.instance_id, holder.assignment) == ("b2", "B", b"to-b")
    assert holder.protocols == offer("default", metadata=b"new")
    assert holder.session_timeout_ms == 20_000
    group.restart()
    assert group.describe().state is GroupState.STABLE
    assert group.heartbeat("b2", 1, instance_id="B").response is False
    assert group.heartbeat("b", 1, instance_id="B").reason is Reason.FENCED_INSTANCE_ID


def test_new_timeouts_hold_from_then_on(group: GroupHarness) -> None:
    stable(group, "a", "b")
    group.join_static("b2", "B", session_ms=2 * SESSION_MS, rebalance_ms=2 * REBALANCE_MS)
    described = group.describe().members[1]
    assert described.session_timeout_ms == 2 * SESSION_MS
    assert described.rebalance_timeout_ms == 2 * REBALANCE_MS
    keep_alive(group, "a", duration_ms=2 * SESSION_MS - 1_000)
    assert group.member_ids() == ["a", "b2"]
    keep_alive(group, "a", duration_ms=1_000)
    assert group.member_ids() == ["a"]


def test_every_start_gets_another_id(group: GroupHarness) -> None:
    stable(group, "a", "b")
    for number in range(2, 6):
        assert group.join_static(f"b{number}", "B").joined.member_id == f"b{number}"
        assert group.member_ids() == ["a", f"b{number}"]
    assert group.describe().generation == 1


def test_a_selected_protocol_that_stays_starts_no_rebalance(group: GroupHarness) -> None:
    stable(group, "a", "b", protocols=BOTH)
    assert group.join_static("b2", "B", protocols=offer("p", metadata=b"x")).joined.generation == 1
    assert group.describe().state is GroupState.STABLE
    group.restart()
    assert group.describe().state is GroupState.STABLE


def test_a_selected_protocol_that_changes_starts_one(group: GroupHarness) -> None:
    stable(group, "a", "b", protocols=BOTH)
    call = group.join_static("b2", "B", protocols=offer("q"))
    assert call.waits
    assert group.describe().state is PREPARING
    assert group.heartbeat("b", 1, instance_id="B").reason is Reason.FENCED_INSTANCE_ID
    leader = group.join("a", protocols=BOTH)
    assert leader.joined.generation == call.joined.generation == 2
    assert leader.joined.protocol_name == "q"


def test_a_protocol_that_not_all_speak_is_refused(group: GroupHarness) -> None:
    stable(group, "a", "b", protocols=BOTH)
    call = group.join_static("b2", "B", protocols=offer("r"))
    assert call.reason is Reason.INCONSISTENT_GROUP_PROTOCOL
    assert group.heartbeat("b", 1, instance_id="B").response is False


def test_a_known_leader_that_joins_again_rebalances(group: GroupHarness) -> None:
    stable(group, "a", "b")
    leader = group.join("a", instance_id="A")
    assert leader.waits
    follower = group.join("b", instance_id="B")
    assert leader.joined.generation == follower.joined.generation == 2


def test_a_known_follower_that_joins_again_does_not(group: GroupHarness) -> None:
    stable(group, "a", "b")
    assert group.join("b", instance_id="B").joined.generation == 1
    assert group.join("b", instance_id="B", protocols=offer("default", metadata=b"x")).waits


def test_a_process_that_started_again_has_to_sync_only_if_the_one_before_had_to(
    group: GroupHarness,
) -> None:
    completing(group, "a", "b", session_ms=LONG_MS)
    group.sync("a", assignments={"a": b"A", "b": b"B"})
    group.join_static("b2", "B", session_ms=LONG_MS)
    group.advance(REBALANCE_MS)
    assert group.member_ids() == ["a"]  # neither b nor b2 has sent a sync


def test_one_that_started_again_is_alive_for_its_session(group: GroupHarness) -> None:
    stable(group, "a", "b")
    keep_alive(group, "a", duration_ms=SESSION_MS - 1_000)
    group.join_static("b2", "B")
    keep_alive(group, "a", duration_ms=SESSION_MS - 1_000)
    assert group.member_ids() == ["a", "b2"]
    keep_alive(group, "a", duration_ms=1_000)
    assert group.member_ids() == ["a"]


# watches and claims


def test_the_watch_of_the_one_before_ends_and_is_no_sign_of_the_new_one(
    group: GroupHarness,
) -> None:
    stable(group, "a", "b")
    group.watch("b")
    group.join_static("b2", "B")
    assert group.removed == ["b"]
    group.break_watch("b")  # the watch of the replaced process breaks
    group.advance(SESSION_MS - 1)
    assert group.member_ids() == ["a", "b2"]
    assert group.watch("b").reason is Reason.UNKNOWN_MEMBER_ID


def test_a_fenced_process_claims_nothing(group: GroupHarness) -> None:
    stable(group, "a", "b")
    assert group.check_member("b", 1).response is None
    group.join_static("b2", "B")
    assert group.check_member("b", 1).reason is Reason.UNKNOWN_MEMBER_ID
    assert group.check_member("b2", 1).response is None


# a process that restarts while the group rebalances


def test_preparing_the_new_holder_waits_and_the_one_before_is_fenced(group: GroupHarness) -> None:
    stable(group, "a", "b", "c")
    parked = group.join("b", instance_id="B", protocols=offer("default", metadata=b"x"))
    again = group.join_static("b2", "B")
    assert parked.reason is Reason.FENCED_INSTANCE_ID
    assert again.waits
    leader, other = group.join("a"), group.join("c")
    assert {call.joined.generation for call in (again, leader, other)} == {2}
    assert [each.member_id for each in leader.joined.members] == ["a", "b2", "c"]


def test_preparing_a_leader_that_starts_again_leads_on(group: GroupHarness) -> None:
    stable(group, "b", "a")  # b is the leader
    group.enter("c")
    again, other = group.join_static("b2", "B"), group.join("a")
    assert again.joined.leader_id == other.joined.leader_id == "b2"


def test_the_join_that_completes_the_phase_may_be_a_new_holders(group: GroupHarness) -> None:
    stable(group, "a", "b")
    leader = group.join("a")
    again = group.join_static("b2", "B")
    assert again.joined.generation == leader.joined.generation == 2
    assert [each.member_id for each in group.last_metadata().members] == ["a", "b2"]


def test_completing_a_new_holder_starts_another_rebalance(group: GroupHarness) -> None:
    completing(group, "a", "b", "c")
    fenced, other = group.sync("b", instance_id="B"), group.sync("c", instance_id="C")
    again = group.join_static("b2", "B")
    assert fenced.reason is Reason.FENCED_INSTANCE_ID
    assert other.response == RebalanceInProgress()
    assert again.waits
    assert group.describe().state is PREPARING
    assert group.sync("a", 1, {"a": b"A"}).response == RebalanceInProgress()
    calls = group.rejoin("a", "c")
    assert {call.joined.generation for call in (again, *calls.values())} == {2}


def test_a_single_member_starts_again_while_its_assignment_is_awaited(
    group: GroupHarness,
) -> None:
    completing(group, "a")
    assert group.join_static("a2", "A").joined.generation == 2


def test_a_parked_holder_counts_as_alive_and_its_caller_may_go(group: GroupHarness) -> None:
    stable(group, "a", "b")
    group.enter("c")
    again = group.join_static("b2", "B")
    group.advance(SESSION_MS - 1)
    group.abandon(again)
    assert again.response == RetryJoin("b2")
    group.heartbeat("a")
    group.advance(SESSION_MS)
    assert "b2" not in group.member_ids()


def test_a_new_holder_that_took_too_long_joins_on_with_its_id(group: GroupHarness) -> None:
    stable(group, "a", "b", "c")
    impatient = group.join_static("b2", "B", patience_ms=1, protocols=offer("default", "x"))
    assert impatient.joined.generation == 1  # the group is stable, so the join does not wait
    group.enter("d")
    impatient = group.join_static("b3", "B", patience_ms=1)
    group.advance(1)
    assert impatient.response == RetryJoin("b3")
    assert group.join("b3", instance_id="B").waits


def test_a_place_is_taken_in_the_initial_delay(group: GroupHarness) -> None:
    first = group.join_static("a", "A")
    again = group.join_static("a2", "A")
    assert first.reason is Reason.FENCED_INSTANCE_ID
    group.advance(DELAY_MS)
    assert again.joined.leader_id == "a2"
    assert group.member_ids() == ["a2"]
