"""Static members (KIP-345): a place in the group that outlives its processes, rules J9, G2, B4, L1.

Members a, b, c have the instance ids A, B, C. A process that starts again is a2, then a3.
"""

import pytest

from drover.errors import Reason
from drover.model.group import (
    GroupState,
    Joined,
    JoinedMember,
    LeaveOutcome,
    LeaveResult,
    LeavingMember,
    MemberIdRequired,
    OfferedProtocol,
    RebalanceInProgress,
    RetryJoin,
    Synced,
    WatchedGroup,
)
from services.coordinator.core.settings import NEW_MEMBER_JOIN_TIMEOUT_MS, GroupSettings
from tests.support.group_harness import DISK_FULL, REBALANCE_MS, SESSION_MS, Call, GroupHarness

DELAY_MS = 3_000
LONG_MS = 1_800_000
PREPARING = GroupState.PREPARING_REBALANCE
COMPLETING = GroupState.COMPLETING_REBALANCE
LEFT, UNKNOWN = LeaveOutcome.LEFT, LeaveOutcome.UNKNOWN_MEMBER_ID
FENCED = LeaveOutcome.FENCED_INSTANCE_ID


def offer(*names: str, metadata: bytes = b"meta") -> tuple[OfferedProtocol, ...]:
    return tuple(OfferedProtocol(name, metadata) for name in names)


BOTH = offer("p", "q")


def completing(group: GroupHarness, *member_ids: str, **options: object) -> dict[str, Call]:
    """A first generation that was just told; a has the instance id A and so on."""
    calls = {each: group.join_static(each, each.upper(), **options) for each in member_ids}
    group.advance(2 * DELAY_MS)
    for call in calls.values():
        assert call.joined.leader_id == member_ids[0]
    return calls


def stable(group: GroupHarness, *member_ids: str, **options: object) -> None:
    completing(group, *member_ids, **options)
    group.assign(*member_ids)


def keep_alive(group: GroupHarness, *member_ids: str, duration_ms: int) -> None:
    for _ in range(duration_ms // 1_000):
        group.advance(1_000)
        for member_id in member_ids:
            group.heartbeat(member_id)


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
        group.heartbeat("ghost", 7, instance_id="B"),  # goes before a wrong generation
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
        group.join("p", instance_id="X"),  # an id that was handed out to a dynamic member
        group.sync("a", 1, instance_id="X"),
        group.heartbeat("a", 1, instance_id="X"),
        group.heartbeat("ghost", 1),
    ):
        assert call.reason is Reason.UNKNOWN_MEMBER_ID
    assert group.join("p").waits  # it is still good


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


# a process that starts again while the group is stable


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
    assert group.member_ids() == ["a"]  # b never asked for its assignment, nor did b2


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
    group.break_watch("b")  # its process is gone, as was to be expected
    group.advance(SESSION_MS - 1)
    assert group.member_ids() == ["a", "b2"]
    assert group.watch("b").reason is Reason.UNKNOWN_MEMBER_ID


def test_a_fenced_process_claims_nothing(group: GroupHarness) -> None:
    stable(group, "a", "b")
    assert group.check_member("b", 1).response is None
    group.join_static("b2", "B")
    assert group.check_member("b", 1).reason is Reason.UNKNOWN_MEMBER_ID
    assert group.check_member("b2", 1).response is None


# a process that starts again while the group rebalances


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
    assert impatient.joined.generation == 1  # stable: there was nothing to wait for
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


# members that do not come back


def test_who_misses_a_rebalance_stays_until_its_session_ends(group: GroupHarness) -> None:
    stable(group, "a", "b", session_ms=3 * REBALANCE_MS)
    newcomer = group.enter("c")
    leader = group.join("a", session_ms=3 * REBALANCE_MS)
    group.advance(REBALANCE_MS)
    assert newcomer.joined.generation == leader.joined.generation == 2
    assert [each.member_id for each in leader.joined.members] == ["a", "b", "c"]
    group.sync("c")
    group.sync("a", assignments={"a": b"A", "b": b"B", "c": b"C"})
    for _ in range(2 * REBALANCE_MS // 1_000 - 1):
        group.advance(1_000)
        for member_id in ("a", "c"):
            assert group.heartbeat(member_id, 2).response is False  # nobody is asked to make room
    group.advance(1_000)
    assert group.member_ids() == ["a", "c"]
    assert group.describe().state is PREPARING


def test_who_missed_a_rebalance_comes_back_to_its_share(group: GroupHarness) -> None:
    stable(group, "a", "b", session_ms=LONG_MS)
    group.enter("c")
    group.join("a", session_ms=LONG_MS)
    group.advance(REBALANCE_MS)
    group.sync("c")
    group.sync("a", assignments={"a": b"A", "b": b"B", "c": b"C"})
    assert group.heartbeat("b", 1, instance_id="B").reason is Reason.ILLEGAL_GENERATION
    assert group.join("b", instance_id="B", session_ms=LONG_MS).joined.generation == 2
    assert group.sync("b", 2).response == Synced(b"B", "connect", "default")
    assert group.join_static("b2", "B").joined.generation == 2
    assert group.sync("b2", 2).response == Synced(b"B", "connect", "default")


def test_a_leader_that_misses_a_rebalance_leads_no_longer(group: GroupHarness) -> None:
    stable(group, "a", "b", "c", session_ms=LONG_MS)
    group.leave("c")
    follower = group.join("b", session_ms=LONG_MS)
    group.advance(REBALANCE_MS)
    assert follower.joined.leader_id == "b"
    assert [each.member_id for each in follower.joined.members] == ["a", "b"]


def test_nobody_joined_but_static_members_remain_and_the_phase_goes_on(
    group: GroupHarness,
) -> None:
    stable(group, "a", "b", session_ms=LONG_MS)
    group.leave(group.enter("c").event.member_id)  # type: ignore[union-attr]
    for _ in range(3):
        group.advance(REBALANCE_MS)
        assert group.describe().state is PREPARING
        assert group.describe().generation == 1
        assert group.member_ids() == ["a", "b"]
    late = group.join("b", instance_id="B", session_ms=LONG_MS)
    group.advance(REBALANCE_MS)
    assert late.joined.generation == 2
    assert late.joined.leader_id == "b"


def test_a_prolonged_phase_drops_dynamic_members_and_keeps_static_ones(
    group: GroupHarness,
) -> None:
    group.join_static("a", "A", session_ms=LONG_MS)
    group.enter("b", session_ms=LONG_MS)
    group.advance(2 * DELAY_MS)
    group.assign("a", "b")
    group.leave(group.enter("c").event.member_id)  # type: ignore[union-attr]
    group.advance(REBALANCE_MS)
    assert group.member_ids() == ["a"]
    assert group.describe().state is PREPARING
    assert group.join("a", session_ms=LONG_MS).joined.generation == 2


def test_a_phase_that_waits_for_nobody_else_ends_with_the_last_session(
    group: GroupHarness,
) -> None:
    stable(group, "a", "b", session_ms=2 * REBALANCE_MS)
    group.leave(group.enter("c").event.member_id)  # type: ignore[union-attr]
    group.advance(2 * REBALANCE_MS)
    assert group.describe().state is GroupState.EMPTY
    assert group.last_metadata().generation == 2


def test_a_session_is_not_prolonged_by_rebalances_that_are_missed(group: GroupHarness) -> None:
    stable(group, "a", "b", session_ms=2 * REBALANCE_MS)
    for _ in range(2):
        group.join("a", session_ms=2 * REBALANCE_MS, patience_ms=REBALANCE_MS + 1)
        group.advance(REBALANCE_MS)
        group.sync("a", assignments={})
    assert group.member_ids() == ["a"]


# leaving


def test_leaving_by_instance_id_by_both_and_fenced(group: GroupHarness) -> None:
    stable(group, "a", "b", "c")
    group.enter("d")
    group.join_static("c2", "C")
    results = group.leave(
        LeavingMember("", "A"),
        LeavingMember("b", "B"),
        LeavingMember("c", "C"),
        LeavingMember("", "X"),
        LeavingMember("d", "X"),
        LeavingMember("c"),
        LeavingMember("c2"),
        LeavingMember("", "A"),
    ).response
    assert results == (
        LeaveResult("a", LEFT, "A"),
        LeaveResult("b", LEFT, "B"),
        LeaveResult("c", FENCED, "C"),
        LeaveResult("", UNKNOWN, "X"),
        LeaveResult("d", UNKNOWN, "X"),
        LeaveResult("c", UNKNOWN),
        LeaveResult("c2", LEFT),
        LeaveResult("a", UNKNOWN, "A"),
    )
    assert group.member_ids() == ["d"]


def test_a_batch_of_static_members_rebalances_once(group: GroupHarness) -> None:
    stable(group, "a", "b", "c")
    group.watched.clear()
    group.leave(LeavingMember("", "A"), LeavingMember("", "B"))
    assert group.watched == [WatchedGroup(False, PREPARING, 1, rejoin_needed=True)]
    assert group.join("c").joined.generation == 2


def test_a_static_leaver_that_waits_hears_that_it_is_unknown(group: GroupHarness) -> None:
    stable(group, "a", "b")
    parked = group.join("a", instance_id="A")
    group.leave(LeavingMember("", "A"))
    assert parked.reason is Reason.UNKNOWN_MEMBER_ID


def test_one_that_left_comes_back_as_a_newcomer(group: GroupHarness) -> None:
    stable(group, "a", "b")
    group.leave(LeavingMember("", "B"))
    assert group.join("b", instance_id="B").reason is Reason.UNKNOWN_MEMBER_ID
    again = group.join_static("b2", "B")
    assert group.join("a").joined.generation == again.joined.generation == 2


# the size limit


def test_a_full_group_lets_a_process_start_again() -> None:
    group = GroupHarness(GroupSettings(group_max_size=2))
    stable(group, "a", "b")
    assert group.join_static("b2", "B").joined.generation == 1
    assert group.join_static("c", "C").reason is Reason.GROUP_MAX_SIZE_REACHED
    assert group.first_join("d").reason is Reason.GROUP_MAX_SIZE_REACHED
    assert group.member_ids() == ["a", "b2"]


def test_static_members_beyond_the_limit_are_refused() -> None:
    group = GroupHarness(GroupSettings(group_max_size=2))
    calls = [group.join_static(each, each.upper()) for each in ("a", "b", "c")]
    assert calls[2].reason is Reason.GROUP_MAX_SIZE_REACHED
    group.advance(2 * DELAY_MS)
    assert [call.joined.generation for call in calls[:2]] == [1, 1]
    assert group.member_ids() == ["a", "b"]


def test_a_newcomer_does_not_take_the_place_of_an_absent_static_member() -> None:
    group = GroupHarness(GroupSettings(group_max_size=2))
    stable(group, "a", "b", session_ms=LONG_MS)
    leader = group.join("a", instance_id="A", session_ms=LONG_MS)
    assert group.first_join("c").reason is Reason.GROUP_MAX_SIZE_REACHED
    assert group.join_static("d", "D").reason is Reason.GROUP_MAX_SIZE_REACHED
    group.advance(REBALANCE_MS)
    assert leader.joined.generation == 2
    assert group.member_ids() == ["a", "b"]


def test_the_last_to_join_are_out_when_the_limit_is_lower_than_before() -> None:
    group = GroupHarness()
    stable(group, "a", "b", "c", session_ms=LONG_MS)
    group.settings = GroupSettings(group_max_size=2)
    group.restart()
    assert group.describe().state is PREPARING
    first = group.join("c", instance_id="C", session_ms=LONG_MS)
    second = group.join_static("b2", "B", session_ms=LONG_MS)
    assert group.join_static("a2", "A").reason is Reason.GROUP_MAX_SIZE_REACHED
    assert first.joined.generation == second.joined.generation == 2
    assert group.member_ids() == ["b2", "c"]


def test_absent_static_members_that_find_no_room_are_out() -> None:
    group = GroupHarness()
    stable(group, "a", "b", "c", session_ms=LONG_MS)
    group.settings = GroupSettings(group_max_size=2)
    group.restart()
    survivor = group.join("c", instance_id="C", session_ms=LONG_MS)
    group.advance(REBALANCE_MS)
    assert survivor.joined.generation == 2
    assert group.member_ids() == ["a", "c"]


# refused appends


def test_a_holder_that_is_not_durable_did_not_come(group: GroupHarness) -> None:
    stable(group, "a", "b", protocols=BOTH)
    group.watch("b")
    group.append_error = DISK_FULL
    failed = group.join_static("b2", "B", protocols=offer("p"), session_ms=20_000)
    assert failed.reason is Reason.STORAGE_UNAVAILABLE
    assert group.describe().state is GroupState.STABLE
    assert group.removed == []  # the watch goes on
    described = group.describe().members[1]
    assert (described.member_id, described.session_timeout_ms) == ("b", SESSION_MS)
    assert group.heartbeat("b2", 1, instance_id="B").reason is Reason.FENCED_INSTANCE_ID
    assert group.heartbeat("b", 1, instance_id="B").response is False
    keep_alive(group, "a", duration_ms=SESSION_MS)
    assert group.member_ids() == ["a"]  # its session was still looked after


def test_a_leader_whose_holder_is_not_durable_leads_on(group: GroupHarness) -> None:
    stable(group, "a", "b")
    group.append_error = DISK_FULL
    assert group.join_static("a2", "A").reason is Reason.STORAGE_UNAVAILABLE
    assert group.describe().leader_id == "a"
    assert group.join_static("a3", "A").joined.leader_id == "a3"


def test_preparing_a_holder_that_is_not_durable_did_not_come(group: GroupHarness) -> None:
    stable(group, "a", "b", "c")
    leader = group.join("a", instance_id="A")
    parked = group.join("b", instance_id="B")
    group.append_error = DISK_FULL
    failed = group.join_static("b2", "B")
    assert failed.reason is parked.reason is Reason.STORAGE_UNAVAILABLE
    assert leader.waits
    assert group.member_ids() == ["a", "b", "c"]
    again, last = group.join("b", instance_id="B"), group.join("c")
    assert {call.joined.generation for call in (leader, again, last)} == {2}


def test_preparing_its_timers_run_though_the_holder_was_not_durable(group: GroupHarness) -> None:
    stable(group, "a", "b", "c")
    leader = group.join("a", instance_id="A")
    group.join("b", instance_id="B")
    group.append_error = DISK_FULL
    group.join_static("b2", "B")
    group.advance(SESSION_MS)  # neither b nor c is heard of again
    assert leader.joined.generation == 2
    assert group.member_ids() == ["a"]


def test_completing_a_holder_that_is_not_durable_leaves_a_rebalance(group: GroupHarness) -> None:
    completing(group, "a", "b", "c")
    waiting = group.sync("c")
    group.append_error = DISK_FULL
    assert group.join_static("b2", "B").reason is Reason.STORAGE_UNAVAILABLE
    assert waiting.reason is Reason.STORAGE_UNAVAILABLE
    assert group.describe().state is PREPARING
    assert group.member_ids() == ["a", "b", "c"]
    calls = group.rejoin("a", "b")
    group.advance(SESSION_MS)  # c, whose sync was failed, is looked after too
    assert {call.joined.generation for call in calls.values()} == {2}
    assert group.member_ids() == ["a", "b"]


def test_a_generation_that_is_not_durable_gives_its_last_joiners_place_back(
    group: GroupHarness,
) -> None:
    stable(group, "a", "b")
    leader = group.join("a", instance_id="A")
    group.append_error = DISK_FULL
    again = group.join_static("b2", "B")
    assert again.reason is leader.reason is Reason.STORAGE_UNAVAILABLE
    assert group.member_ids() == ["a", "b"]
    calls = group.rejoin("a", "b")
    assert {call.joined.generation for call in calls.values()} == {2}


def test_a_place_that_a_newcomer_took_is_given_back_too(group: GroupHarness) -> None:
    stable(group, "a", "b")
    group.leave(LeavingMember("", "B"))
    group.first_join("p")  # keeps the phase open
    group.append_error = DISK_FULL
    assert group.join_static("b2", "B").reason is Reason.STORAGE_UNAVAILABLE
    assert group.member_ids() == ["a"]
    assert group.join_static("b3", "B").waits


# restarts of the coordinator


def test_static_members_survive_a_restart(group: GroupHarness) -> None:
    stable(group, "a", "b")
    before = group.describe()
    group.restart()
    assert group.describe() == before
    assert group.heartbeat("b", 1, instance_id="B").response is False
    assert group.join_static("b2", "B").joined.generation == 1
    assert group.join_static("a2", "A").joined.skip_assignment


@pytest.mark.parametrize("state", ["preparing", "completing", "changed"])
def test_one_that_was_fenced_stays_so_through_a_crash(group: GroupHarness, state: str) -> None:
    completing(group, "a", "b", "c", protocols=BOTH)
    if state != "completing":
        group.assign("a", "b", "c")
    if state == "preparing":
        group.leave("c")
    protocols = BOTH[1:] if state == "changed" else BOTH
    assert group.join_static("b2", "B", protocols=protocols).waits
    assert group.describe().state is PREPARING
    group.restart()
    generation = group.describe().generation
    assert group.heartbeat("b", generation, instance_id="B").reason is Reason.FENCED_INSTANCE_ID
    assert group.join("b", instance_id="B").reason is Reason.FENCED_INSTANCE_ID
    assert group.heartbeat("b2", generation, instance_id="B").responses
    assert "b2" in group.member_ids()


def test_one_that_was_told_to_retry_is_known_after_a_crash(group: GroupHarness) -> None:
    stable(group, "a", "b")
    group.leave(LeavingMember("", "B"))
    newcomer = group.join_static("b2", "B", patience_ms=1)
    group.advance(1)
    assert newcomer.response == RetryJoin("b2")
    group.restart()  # the rebalance is forgotten, and that b had left
    again = group.join("b2", instance_id="B")
    assert again.joined.generation == 1
    assert group.sync("b2", 1).response == Synced(b"to-b", "connect", "default")


def test_one_that_never_was_in_a_generation_begins_anew_after_a_crash(
    group: GroupHarness,
) -> None:
    stable(group, "a")
    group.join_static("b", "B")
    group.restart()
    assert group.member_ids() == ["a"]
    assert group.join("b", instance_id="B").reason is Reason.UNKNOWN_MEMBER_ID
    assert group.join_static("b2", "B").waits


def test_a_leader_replaced_while_preparing_leads_the_old_generation_after_a_crash(
    group: GroupHarness,
) -> None:
    stable(group, "a", "b")
    group.enter("c")
    group.join_static("a2", "A")
    group.restart()
    assert group.describe().state is GroupState.STABLE
    assert group.describe().leader_id == "a2"
    assert group.sync("a2", 1).response == Synced(b"to-a", "connect", "default")


def test_a_compacted_log_knows_the_last_holder(group: GroupHarness) -> None:
    stable(group, "a", "b")
    for number in range(2, 5):
        group.join_static(f"b{number}", "B")
    group.records = group.records[-1:]
    group.restart()
    assert group.member_ids() == ["a", "b4"]


def test_absent_members_of_a_generation_survive_a_restart(group: GroupHarness) -> None:
    stable(group, "a", "b", session_ms=LONG_MS)
    group.join("a", session_ms=LONG_MS)
    group.advance(REBALANCE_MS)
    group.restart()
    assert group.describe().state is PREPARING  # told, but not assigned
    assert group.member_ids() == ["a", "b"]
    calls = group.rejoin("a", "b")
    assert {call.joined.generation for call in calls.values()} == {3}


def test_dynamic_members_still_need_an_id_first(group: GroupHarness) -> None:
    stable(group, "a")
    assert group.first_join("b").response == MemberIdRequired("b")
