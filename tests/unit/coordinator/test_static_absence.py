"""Static members that miss a rebalance, leave, or find no room, rules B4, L1 and J3."""

from drover.errors import Reason
from drover.model.group import (
    GroupState,
    LeaveOutcome,
    LeaveResult,
    LeavingMember,
    Synced,
    WatchedGroup,
)
from drover_coordinator.core.groups.settings import NEW_MEMBER_JOIN_TIMEOUT_MS, GroupSettings
from tests.support.group_harness import REBALANCE_MS, GroupHarness
from tests.support.static_members import DELAY_MS, LONG_MS, offer, stable

PREPARING = GroupState.PREPARING_REBALANCE
LEFT, UNKNOWN = LeaveOutcome.LEFT, LeaveOutcome.UNKNOWN_MEMBER_ID
FENCED = LeaveOutcome.FENCED_INSTANCE_ID


# members that do not rejoin


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
            assert group.heartbeat(member_id, 2).response is False  # no rebalance starts
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


def test_a_newcomer_that_misses_its_first_rebalance_lives_on_like_all_others(
    group: GroupHarness,
) -> None:
    stable(group, "a", session_ms=LONG_MS)
    group.abandon(group.join_static("b", "B", session_ms=LONG_MS))
    group.join("a", session_ms=LONG_MS)
    group.advance(REBALANCE_MS)
    group.sync("a", assignments={"a": b"A", "b": b"B"})
    assert group.join("b", instance_id="B", session_ms=LONG_MS).joined.generation == 2
    assert group.sync("b").response == Synced(b"B", "connect", "default")
    group.advance(NEW_MEMBER_JOIN_TIMEOUT_MS)
    assert group.watch("b").responses
    group.advance(1)
    assert group.member_ids() == ["a", "b"]
    again = group.join("b", instance_id="B", session_ms=LONG_MS, protocols=offer("default", "p"))
    group.advance(REBALANCE_MS - 1)
    assert again.waits


def test_a_leader_that_misses_a_rebalance_leads_no_longer(group: GroupHarness) -> None:
    stable(group, "a", "b", "c", session_ms=LONG_MS)
    group.leave("c")
    follower = group.join("b", session_ms=LONG_MS)
    group.advance(REBALANCE_MS)
    assert follower.joined.leader_id == "b"
    assert [each.member_id for each in follower.joined.members] == ["a", "b"]


def test_a_leader_keeps_the_lead_though_its_process_starts_again_and_joins_last(
    group: GroupHarness,
) -> None:
    stable(group, "a", "b", session_ms=LONG_MS)
    group.leave(group.enter("c").event.member_id)  # type: ignore[union-attr]
    group.join("b", session_ms=LONG_MS)
    group.advance(REBALANCE_MS)
    group.assign("b")
    assert group.describe().leader_id == "b"
    first = group.join("a", instance_id="A", session_ms=LONG_MS, protocols=offer("default", "more"))
    last = group.join_static("b2", "B", session_ms=LONG_MS)
    assert first.joined.leader_id == last.joined.leader_id == "b2"


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
