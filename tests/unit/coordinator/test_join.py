"""JoinGroup, rules J1 to J8."""

import pytest

from drover.errors import Reason
from drover.model.group import (
    GroupState,
    JoinedMember,
    LeaveOutcome,
    MemberIdRequired,
    OfferedProtocol,
    RetryJoin,
)
from drover_coordinator.core.groups.records import GroupMetadata, GroupRecord, MemberRecord
from drover_coordinator.core.groups.settings import NEW_MEMBER_JOIN_TIMEOUT_MS, GroupSettings
from tests.support.group_harness import GROUP, REBALANCE_MS, SESSION_MS, START_MS, GroupHarness

META = (OfferedProtocol("default", b"meta"),)
OTHER_META = (OfferedProtocol("default", b"other"),)


def member_record(member_id: str, assignment: bytes = b"") -> MemberRecord:
    return MemberRecord(member_id, "client", "host", SESSION_MS, REBALANCE_MS, META, assignment)


# J1


@pytest.mark.parametrize("session_ms", [-1, 0, 5_999, 1_800_001, 2**40])
def test_j1_session_timeout_out_of_range_is_refused(group: GroupHarness, session_ms: int) -> None:
    call = group.first_join("a", session_ms=session_ms)
    assert call.reason is Reason.INVALID_SESSION_TIMEOUT
    assert group.describe().state is GroupState.DEAD  # no group was created


@pytest.mark.parametrize("session_ms", [6_000, 1_800_000])
def test_j1_session_timeout_at_the_bounds_is_taken(group: GroupHarness, session_ms: int) -> None:
    assert group.first_join("a", session_ms=session_ms).response == MemberIdRequired("a")


# J2


def test_j2_first_join_creates_the_group_durably(group: GroupHarness) -> None:
    assert group.first_join("a").response == MemberIdRequired("a")
    assert group.records == [
        GroupRecord(GROUP, GroupMetadata("", 0, "", "", state_timestamp_ms=START_MS))
    ]
    assert group.describe().state is GroupState.EMPTY


def test_j2_unknown_group_with_member_id_is_refused_and_not_created(group: GroupHarness) -> None:
    assert group.join("a").reason is Reason.UNKNOWN_MEMBER_ID
    assert not group.records
    assert group.describe().state is GroupState.DEAD


# J3


def test_j3_a_full_stable_group_refuses_newcomers_and_keeps_members() -> None:
    group = GroupHarness(GroupSettings(group_max_size=2))
    group.stable("a", "b")
    assert group.first_join("c").reason is Reason.GROUP_MAX_SIZE_REACHED
    assert group.heartbeat("a").response is False
    rejoin = group.join("a")
    assert rejoin.waits
    assert group.describe().state is GroupState.PREPARING_REBALANCE


def test_j3_the_last_to_join_a_rebalance_are_kept_out_and_removed() -> None:
    group = GroupHarness()
    group.stable("a", "b", "c")
    smaller = GroupHarness(GroupSettings(group_max_size=2))
    smaller.records = list(group.records)
    smaller.now_ms = group.now_ms
    smaller.restart_with_log()
    assert smaller.describe().state is GroupState.PREPARING_REBALANCE
    first, second = smaller.join("c"), smaller.join("a")
    third = smaller.join("b")
    assert third.reason is Reason.GROUP_MAX_SIZE_REACHED
    assert first.joined.generation == second.joined.generation == 2
    assert smaller.member_ids() == ["a", "c"]


def test_j3_a_parked_member_may_join_again_though_the_group_is_full() -> None:
    group = GroupHarness(GroupSettings(group_max_size=2))
    first, other = group.enter("a"), group.enter("b")
    again = group.join("a")
    assert first.response == RetryJoin("a")
    assert group.first_join("c").reason is Reason.GROUP_MAX_SIZE_REACHED
    group.advance(6_000)
    assert again.joined.generation == other.joined.generation == 1


def test_j3_ids_that_wait_for_their_join_are_bounded_too() -> None:
    group = GroupHarness(GroupSettings(group_max_size=2))
    group.first_join("a")
    group.first_join("b")
    assert group.first_join("c").reason is Reason.GROUP_MAX_SIZE_REACHED


def test_j3_an_id_that_found_no_room_is_waited_for_no_longer() -> None:
    group = GroupHarness(GroupSettings(group_max_size=2))
    group.stable("a")
    group.first_join("b")
    group.first_join("c")
    calls = [group.join("b"), group.join("a")]
    assert all(call.waits for call in calls)  # c may still join
    assert group.join("c").reason is Reason.GROUP_MAX_SIZE_REACHED
    assert {call.joined.generation for call in calls} == {2}
    assert group.join("c").reason is Reason.GROUP_MAX_SIZE_REACHED
    group.leave("b")
    assert group.join("c").reason is Reason.UNKNOWN_MEMBER_ID


# J5


def test_j5_empty_type_or_list_is_refused(group: GroupHarness) -> None:
    assert group.first_join("a", protocol_type="").reason is Reason.INCONSISTENT_GROUP_PROTOCOL
    assert group.first_join("a", protocols=()).reason is Reason.INCONSISTENT_GROUP_PROTOCOL
    assert not group.records


def test_j5_another_type_is_refused_while_there_are_members(group: GroupHarness) -> None:
    group.stable("a")
    call = group.first_join("b", protocol_type="consumer")
    assert call.reason is Reason.INCONSISTENT_GROUP_PROTOCOL
    group.leave("a")
    assert group.first_join("b", protocol_type="consumer").response == MemberIdRequired("b")


def test_j5_a_newcomer_needs_a_protocol_that_all_speak(group: GroupHarness) -> None:
    both = (OfferedProtocol("p1", b""), OfferedProtocol("p2", b""))
    group.enter("a", protocols=both)
    group.enter("b", protocols=both[1:])
    call = group.first_join("c", protocols=both[:1])
    assert call.reason is Reason.INCONSISTENT_GROUP_PROTOCOL
    assert group.first_join("c", protocols=both).response == MemberIdRequired("c")


# J6


def test_j6_an_id_that_was_handed_out_is_no_member_and_expires(group: GroupHarness) -> None:
    group.stable("a")
    group.first_join("b")
    assert group.member_ids() == ["a"]
    assert group.describe().state is GroupState.STABLE
    assert group.heartbeat("b").reason is Reason.UNKNOWN_MEMBER_ID
    for _ in range(4):
        group.advance(SESSION_MS // 4)
        group.heartbeat("a")
    assert group.join("b").reason is Reason.UNKNOWN_MEMBER_ID
    assert group.describe().state is GroupState.STABLE


def test_j6_a_rebalance_waits_for_the_id_until_it_joins(group: GroupHarness) -> None:
    group.stable("a", "b")
    group.first_join("c")
    calls = group.rejoin("a", "b")
    assert all(call.waits for call in calls.values())
    third = group.join("c")
    assert {call.joined.generation for call in (*calls.values(), third)} == {2}


def test_j6_a_rebalance_waits_for_the_id_until_it_expires(group: GroupHarness) -> None:
    group.stable("a", "b")
    group.first_join("c")
    calls = group.rejoin("a", "b")
    group.advance(SESSION_MS - 1)
    assert all(call.waits for call in calls.values())
    group.advance(1)
    assert {call.joined.generation for call in calls.values()} == {2}


def test_j6_a_group_nobody_ever_was_in_is_forgotten(group: GroupHarness) -> None:
    group.first_join("a")
    group.advance(SESSION_MS)
    assert group.records[-1] == GroupRecord(GROUP, None)
    assert group.describe().state is GroupState.DEAD
    assert group.machine.hard_state() == {}


def test_j6_a_group_that_had_a_generation_is_kept(group: GroupHarness) -> None:
    group.stable("a")
    group.leave("a")
    group.first_join("b")
    group.advance(SESSION_MS)
    assert group.describe().state is GroupState.EMPTY
    assert group.describe().generation == 2


# J7


def test_j7_the_leader_gets_every_member_and_followers_none(group: GroupHarness) -> None:
    calls = group.completing("a", "b")
    assert calls["a"].joined.members == (JoinedMember("a", b"meta"), JoinedMember("b", b"meta"))
    assert calls["b"].joined.members == ()
    assert calls["b"].joined.leader_id == "a"
    assert calls["b"].joined.protocol_name == "default"
    assert calls["b"].joined.protocol_type == "connect"


def test_j7_the_generation_is_in_the_log_before_the_joins_are_answered(
    group: GroupHarness,
) -> None:
    group.completing("a", "b")
    assert group.records[1:] == [
        GroupRecord(
            GROUP,
            GroupMetadata(
                protocol_type="connect",
                generation=1,
                protocol_name="default",
                leader_id="a",
                state_timestamp_ms=START_MS + 6_000,
                members=(member_record("a"), member_record("b")),
                assigned=False,
            ),
        )
    ]


def test_j7_a_newcomer_rebalances_a_stable_group(group: GroupHarness) -> None:
    group.stable("a", "b")
    third = group.enter("c")
    assert third.waits
    assert group.describe().state is GroupState.PREPARING_REBALANCE
    assert group.heartbeat("a", 1).response is True


def test_j7_a_newcomer_that_is_not_answered_is_forgotten_after_five_minutes(
    group: GroupHarness,
) -> None:
    slow = {"rebalance_ms": 3_600_000, "session_ms": 1_800_000}
    group.stable("a", **slow)
    newcomer = group.enter("b", **slow)
    group.advance(NEW_MEMBER_JOIN_TIMEOUT_MS - 1)
    assert newcomer.waits
    group.advance(1)
    assert newcomer.reason is Reason.UNKNOWN_MEMBER_ID
    assert group.member_ids() == ["a"]


def test_j7_once_answered_a_newcomer_lives_by_its_session(group: GroupHarness) -> None:
    group.completing("a")
    group.advance(SESSION_MS - 1)
    assert group.member_ids() == ["a"]
    group.advance(1)
    assert group.member_ids() == []


def test_j7_once_assigned_a_newcomer_lives_by_its_session(group: GroupHarness) -> None:
    group.stable("a")
    for _ in range(2 * NEW_MEMBER_JOIN_TIMEOUT_MS // SESSION_MS):
        group.advance(SESSION_MS - 1)
        assert group.heartbeat("a").response is False
    group.advance(SESSION_MS)
    assert group.member_ids() == []


# J8


def test_j8_an_unknown_id_is_refused_in_a_known_group(group: GroupHarness) -> None:
    group.stable("a")
    assert group.join("ghost").reason is Reason.UNKNOWN_MEMBER_ID


def test_j8_an_id_of_an_empty_group_is_refused(group: GroupHarness) -> None:
    group.stable("a")
    group.leave("a")
    assert group.join("a").reason is Reason.UNKNOWN_MEMBER_ID


def test_j8_completing_same_metadata_is_answered_again(group: GroupHarness) -> None:
    calls = group.completing("a", "b")
    record_count = len(group.records)
    assert group.join("a").joined == calls["a"].joined
    assert group.join("b").joined == calls["b"].joined
    assert len(group.records) == record_count
    assert group.describe().state is GroupState.COMPLETING_REBALANCE


def test_j8_completing_other_metadata_rebalances(group: GroupHarness) -> None:
    group.completing("a", "b")
    assert group.join("b", protocols=OTHER_META).waits
    assert group.describe().state is GroupState.PREPARING_REBALANCE


def test_j8_stable_unchanged_follower_is_answered_again(group: GroupHarness) -> None:
    group.stable("a", "b")
    joined = group.join("b").joined
    assert (joined.generation, joined.leader_id, joined.members) == (1, "a", ())
    assert group.describe().state is GroupState.STABLE


def test_j8_stable_changed_follower_rebalances(group: GroupHarness) -> None:
    group.stable("a", "b")
    assert group.join("b", protocols=OTHER_META).waits


def test_j8_stable_leader_always_rebalances(group: GroupHarness) -> None:
    group.stable("a", "b")
    leader = group.join("a")
    assert leader.waits
    follower = group.join("b")
    assert leader.joined.generation == follower.joined.generation == 2


def test_j8_a_member_that_joins_twice_has_its_first_call_answered(group: GroupHarness) -> None:
    group.stable("a", "b")
    first = group.join("a")
    second = group.join("a")
    assert first.response == RetryJoin("a")
    group.join("b")
    assert second.joined.generation == 2


def test_j8_a_rejoin_takes_new_timeouts_and_metadata(group: GroupHarness) -> None:
    group.stable("a")
    call = group.join("a", protocols=OTHER_META, session_ms=20_000, rebalance_ms=30_000)
    assert call.joined.members == (JoinedMember("a", b"other"),)
    member = group.last_metadata().members[0]
    assert (member.session_timeout_ms, member.rebalance_timeout_ms) == (20_000, 30_000)


# parked joins whose caller cancels, or whose deadline nears


def test_a_parked_join_is_answered_in_time(group: GroupHarness) -> None:
    group.stable("a", "b")
    call = group.join("a", patience_ms=5_000)
    group.advance(4_999)
    assert call.waits
    group.advance(1)
    assert call.response == RetryJoin("a")
    assert group.describe().state is GroupState.PREPARING_REBALANCE
    again = group.join("a")
    group.join("b")
    assert again.joined.generation == 2


def test_a_member_that_was_told_to_retry_and_does_not_is_dropped(group: GroupHarness) -> None:
    group.stable("a", "b")
    impatient = group.join("a", patience_ms=1_000)
    group.advance(1_000)
    assert impatient.response == RetryJoin("a")
    other = group.join("b")
    group.advance(SESSION_MS - 1)
    assert other.waits
    group.advance(1)
    assert other.joined.leader_id == "b"
    assert group.member_ids() == ["b"]


def test_an_abandoned_join_no_longer_counts_as_alive(group: GroupHarness) -> None:
    group.stable("a", "b")
    vanished = group.join("a")
    group.advance(2 * SESSION_MS // 3)
    group.abandon(vanished)
    assert vanished.response == RetryJoin("a")
    survivor = group.join("b")
    group.advance(SESSION_MS - 1)
    assert survivor.waits
    group.advance(1)
    assert survivor.joined.leader_id == "b"


def test_an_abandoned_call_that_is_not_parked_changes_nothing(group: GroupHarness) -> None:
    group.stable("a", "b")
    old = group.join("a")
    new = group.join("a")
    group.abandon(old)
    assert new.waits


def test_leaving_ids_that_were_handed_out(group: GroupHarness) -> None:
    group.stable("a")
    group.first_join("b")
    calls = group.rejoin("a")
    assert calls["a"].waits
    results = group.leave("b").response
    assert [result.outcome for result in results] == [LeaveOutcome.LEFT]  # type: ignore[attr-defined]
    assert calls["a"].joined.generation == 2
