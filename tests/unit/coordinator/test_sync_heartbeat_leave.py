"""SyncGroup, Heartbeat and LeaveGroup, rules S1 to S3, H1 to H3, L1 to L3."""

import pytest

from drover.errors import Reason
from drover.model.group import (
    GroupState,
    LeaveOutcome,
    LeaveResult,
    RebalanceInProgress,
    RetryJoin,
    Synced,
)
from drover_coordinator.core.groups.events import MemberStreamBroken, WatchEnded
from drover_coordinator.core.groups.settings import WATCHES_PER_MEMBER_MAX, GroupSettings
from tests.support.group_harness import GROUP, REBALANCE_MS, SESSION_MS, GroupHarness

LEFT, UNKNOWN = LeaveOutcome.LEFT, LeaveOutcome.UNKNOWN_MEMBER_ID


def keep_alive(group: GroupHarness, *member_ids: str, sessions: int) -> None:
    """Let only these members heartbeat for some sessions."""
    for _ in range(4 * sessions):
        group.advance(SESSION_MS // 4)
        for member_id in member_ids:
            group.heartbeat(member_id)


# S1


def test_s1_unknown_group_member_and_generation(group: GroupHarness) -> None:
    assert group.sync("a", 1).reason is Reason.UNKNOWN_MEMBER_ID
    group.completing("a")
    assert group.sync("ghost", 1).reason is Reason.UNKNOWN_MEMBER_ID
    for generation in (0, 2, -1, 2**31 - 1):
        call = group.sync("a", generation)
        assert call.reason is Reason.ILLEGAL_GENERATION
        assert call.errors[0].metadata["currentGeneration"] == "1"


def test_s1_protocol_must_be_the_groups(group: GroupHarness) -> None:
    group.completing("a", "b")
    wrong_type = group.sync("b", protocol_type="consumer")
    assert wrong_type.reason is Reason.INCONSISTENT_GROUP_PROTOCOL
    wrong_name = group.sync("b", protocol_name="other")
    assert wrong_name.reason is Reason.INCONSISTENT_GROUP_PROTOCOL
    assert group.sync("b", protocol_type="connect", protocol_name="default").waits


# S2


def test_s2_followers_wait_for_the_leader(group: GroupHarness) -> None:
    group.completing("a", "b", "c")
    second = group.sync("b")
    assert second.waits
    first = group.sync("a", assignments={"a": b"A", "b": b"B", "c": b"C"})
    third = group.sync("c")
    answers = [call.response for call in (first, second, third)]
    assert answers == [Synced(each, "connect", "default") for each in (b"A", b"B", b"C")]
    assert group.describe().state is GroupState.STABLE


def test_s2_the_assignment_is_in_the_log(group: GroupHarness) -> None:
    group.completing("a", "b")
    group.sync("a", assignments={"a": b"A", "b": b"B"})
    metadata = group.last_metadata()
    assert metadata.assigned
    assert metadata.generation == 1
    assert [(each.member_id, each.assignment) for each in metadata.members] == [
        ("a", b"A"),
        ("b", b"B"),
    ]


def test_s2_who_is_left_out_gets_nothing_and_strangers_are_ignored(group: GroupHarness) -> None:
    group.completing("a", "b")
    follower = group.sync("b")
    group.sync("a", assignments={"a": b"A", "ghost": b"G"})
    assert follower.response == Synced(b"", "connect", "default")
    assert [each.member_id for each in group.last_metadata().members] == ["a", "b"]


def test_s2_what_a_follower_assigns_is_ignored(group: GroupHarness) -> None:
    group.completing("a", "b")
    follower = group.sync("b", assignments={"a": b"none", "b": b"all of it"})
    assert follower.waits
    group.sync("a", assignments={"b": b"a part"})
    assert follower.response == Synced(b"a part", "connect", "default")
    late = group.sync("b", assignments={"a": b"none", "b": b"all of it"})
    assert late.response == Synced(b"a part", "connect", "default")


def test_s2_a_member_assigned_twice_is_refused(group: GroupHarness) -> None:
    group.completing("a")
    event = group.sync("a", assignments={"a": b"A"}).event
    group.join("a")
    assignments = tuple(event.assignments) * 2  # type: ignore[union-attr]
    call = group.submit(
        type(event)(group.call_id(), GROUP, "a", 2, assignments=assignments)  # type: ignore[call-arg,arg-type]
    )
    assert call.reason is Reason.INVALID_REQUEST
    assert group.describe().state is GroupState.COMPLETING_REBALANCE


def test_s2_a_second_sync_takes_the_place_of_the_first(group: GroupHarness) -> None:
    group.completing("a", "b")
    first, second = group.sync("b"), group.sync("b")
    assert first.reason is Reason.COORDINATOR_NOT_AVAILABLE
    group.sync("a", assignments={"b": b"B"})
    assert second.response == Synced(b"B", "connect", "default")


def test_s2_an_abandoned_sync_has_to_be_made_again(group: GroupHarness) -> None:
    group.completing("a", "b", session_ms=1_800_000)
    group.abandon(group.sync("b"))
    group.sync("a", assignments={"b": b"B"})
    group.advance(REBALANCE_MS)
    assert group.member_ids() == ["a"]


def test_s2_preparing_answers_that_a_rebalance_is_under_way(group: GroupHarness) -> None:
    group.stable("a", "b")
    group.enter("c")
    assert group.sync("a", 1).response == RebalanceInProgress()


# S3


def test_s3_stable_answers_the_assignment_again(group: GroupHarness) -> None:
    group.stable("a", "b")
    record_count = len(group.records)
    for member_id in ("a", "b"):
        assert group.sync(member_id).response == Synced(
            f"to-{member_id}".encode(), "connect", "default"
        )
    assert len(group.records) == record_count


def test_s3_a_leaders_second_assignment_changes_nothing(group: GroupHarness) -> None:
    group.stable("a")
    assert group.sync("a", assignments={"a": b"new"}).response == Synced(
        b"to-a", "connect", "default"
    )


# H


def test_h1_answers_by_state(group: GroupHarness) -> None:
    assert group.heartbeat("a", 1).reason is Reason.UNKNOWN_MEMBER_ID
    group.completing("a", "b")
    assert group.heartbeat("a", 1).response is False
    group.assign("a", "b")
    assert group.heartbeat("a", 1).response is False
    group.enter("c")
    assert group.heartbeat("a", 1).response is True
    assert group.heartbeat("a", 2).reason is Reason.ILLEGAL_GENERATION
    assert group.heartbeat("ghost", 1).reason is Reason.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("generation", [-1, 0, 2, 2**31 - 1])
def test_h1_another_generation_is_refused(group: GroupHarness, generation: int) -> None:
    group.stable("a")
    assert group.heartbeat("a", generation).reason is Reason.ILLEGAL_GENERATION


def test_h1_keeps_the_session_alive_in_every_state(group: GroupHarness) -> None:
    group.completing("a", "b")
    keep_alive(group, "a", "b", sessions=2)
    assert group.member_ids() == ["a", "b"]
    group.assign("a", "b")
    keep_alive(group, "a", "b", sessions=2)
    assert group.describe().state is GroupState.STABLE
    group.enter("c")
    keep_alive(group, "a", "b", sessions=2)
    assert group.member_ids() == ["a", "b", "c"]


def test_h2_parked_members_count_as_alive(group: GroupHarness) -> None:
    group.stable("a", "b")
    joining = group.join("a")
    keep_alive(group, "b", sessions=3)
    assert joining.waits
    group.join("b")
    syncing = group.sync("b")
    keep_alive(group, "a", sessions=3)
    assert syncing.waits
    assert group.member_ids() == ["a", "b"]


def test_h2_the_session_counts_again_once_the_call_is_answered(group: GroupHarness) -> None:
    group.stable("a", "b")
    joining = group.join("a")
    keep_alive(group, "b", sessions=2)
    group.join("b")
    assert joining.joined.generation == 2
    group.advance(SESSION_MS - 1)
    assert group.member_ids() == ["a", "b"]
    group.advance(1)
    assert group.describe().state is GroupState.EMPTY


def test_h3_a_silent_member_is_out_and_the_rest_rebalances(group: GroupHarness) -> None:
    group.stable("a", "b")
    keep_alive(group, "a", sessions=1)
    assert group.describe().state is GroupState.PREPARING_REBALANCE
    assert group.member_ids() == ["a"]
    assert group.removed == ["b"]


def test_h3_expiry_may_complete_a_rebalance(group: GroupHarness) -> None:
    group.stable("a", "b")
    newcomer = group.enter("c")
    joining = group.join("a")
    group.advance(SESSION_MS)
    assert newcomer.joined.generation == joining.joined.generation == 2
    assert group.member_ids() == ["a", "c"]


def test_h3_a_coordinator_that_was_stopped_blames_nobody(group: GroupHarness) -> None:
    group.stable("a", "b")
    group.now_ms += 2 * SESSION_MS  # SIGSTOP, SIGCONT: timers fire late, heartbeats wait unread
    group.advance(0)
    assert group.member_ids() == ["a", "b"]
    group.heartbeat("a")
    group.advance(SESSION_MS - 1)
    assert group.member_ids() == ["a", "b"]
    group.heartbeat("a")
    group.advance(1)
    assert group.member_ids() == ["a"]


def test_h_many_heartbeats_set_no_timers(group: GroupHarness) -> None:
    group.stable("a")
    before = len(group.fired)
    for _ in range(1_000):
        group.advance(100)
        group.heartbeat("a", 1)
    assert len(group.fired) - before <= 100_000 // SESSION_MS + 2


# L


def test_l1_a_result_for_each(group: GroupHarness) -> None:
    group.stable("a", "b")
    group.first_join("p")
    assert group.leave("a", "ghost", "p", "a").response == (
        LeaveResult("a", LEFT),
        LeaveResult("ghost", UNKNOWN),
        LeaveResult("p", LEFT),
        LeaveResult("a", UNKNOWN),
    )
    assert group.join("p").reason is Reason.UNKNOWN_MEMBER_ID


def test_l2_an_unknown_group_knows_nobody(group: GroupHarness) -> None:
    assert group.leave("a").response == (LeaveResult("a", UNKNOWN),)
    assert not group.records


def test_l2_an_empty_group_knows_nobody(group: GroupHarness) -> None:
    group.stable("a")
    group.leave("a")
    assert group.leave("a").response == (LeaveResult("a", UNKNOWN),)


def test_l3_one_rebalance_for_the_batch(group: GroupHarness) -> None:
    group.stable("a", "b", "c")
    group.watched.clear()
    group.leave("a", "b")
    assert [each.state for each in group.watched] == [GroupState.PREPARING_REBALANCE]
    assert group.join("c").joined.generation == 2


def test_l3_a_leavers_parked_join_hears_that_it_is_unknown(group: GroupHarness) -> None:
    group.stable("a", "b")
    joining = group.join("a")
    group.leave("a")
    assert joining.reason is Reason.UNKNOWN_MEMBER_ID


def test_l3_a_leavers_parked_sync_hears_that_it_is_unknown(group: GroupHarness) -> None:
    group.completing("a", "b", "c")
    leaver, other = group.sync("b"), group.sync("c")
    group.leave("b")
    assert leaver.reason is Reason.UNKNOWN_MEMBER_ID
    assert other.response == RebalanceInProgress()


def test_l3_all_leave_and_the_group_is_empty_at_once(group: GroupHarness) -> None:
    group.stable("a", "b")
    group.leave("a", "b")
    assert group.describe().state is GroupState.EMPTY
    assert not group.last_metadata().members


def test_the_last_id_that_was_handed_out_leaves(group: GroupHarness) -> None:
    group.first_join("a")
    assert group.leave("a").response == (LeaveResult("a", LEFT),)
    assert group.describe().state is GroupState.DEAD
    assert group.machine.hard_state() == {}


def test_a_claim_needs_a_member_of_the_generation(group: GroupHarness) -> None:
    assert group.check_member("a", 1).reason is Reason.UNKNOWN_MEMBER_ID
    group.stable("a", "b")
    assert group.check_member("a", 1).response is None
    assert group.check_member("a", 0).reason is Reason.ILLEGAL_GENERATION
    assert group.check_member("a", 2).reason is Reason.ILLEGAL_GENERATION
    assert group.check_member("ghost", 1).reason is Reason.UNKNOWN_MEMBER_ID
    group.join("a")
    assert group.check_member("b", 1).response is None  # b keeps working until it joins
    group.join("b")
    assert group.check_member("b", 1).reason is Reason.ILLEGAL_GENERATION


# the watch and the disconnect grace


def test_w_a_watch_begins_with_the_group_as_it_is(group: GroupHarness) -> None:
    assert group.watch("a").reason is Reason.UNKNOWN_MEMBER_ID
    group.stable("a", "b")
    watched = group.watch("a").response.watched  # type: ignore[attr-defined]
    assert watched.created
    assert (watched.state, watched.generation) == (GroupState.STABLE, 1)
    assert not watched.rejoin_needed
    group.join("a")
    assert not group.watch("a").response.watched.rejoin_needed  # type: ignore[attr-defined]
    assert group.watch("b").response.watched.rejoin_needed  # type: ignore[attr-defined]


def test_w_a_broken_watch_cuts_the_session_to_the_grace(group: GroupHarness) -> None:
    group.stable("a", "b")
    group.watch("b")
    group.break_watch("b")
    group.advance(999)
    assert group.member_ids() == ["a", "b"]
    group.advance(1)
    assert group.member_ids() == ["a"]
    assert group.describe().state is GroupState.PREPARING_REBALANCE


def test_w_the_next_leader_hears_who_is_gone(group: GroupHarness) -> None:
    group.stable("a", "b", "c", "d")
    for member_id in ("b", "c", "d"):
        group.watch(member_id)
    group.break_watch("b")
    group.advance(1_000)
    group.leave("c")
    joins = [group.join(member_id) for member_id in ("a", "d")]
    assert [call.joined.disconnected_member_ids for call in joins] == [("b",), ()]
    group.assign("a", "d")
    joins = [group.join(member_id) for member_id in ("a", "d")]
    assert [call.joined.disconnected_member_ids for call in joins] == [(), ()]


def test_w_the_leader_does_not_hear_of_a_session_that_ended_on_its_connection(
    group: GroupHarness,
) -> None:
    group.stable("a", "b")
    group.watch("b")
    group.advance(SESSION_MS - 1)
    group.heartbeat("a")
    group.advance(1)
    assert group.member_ids() == ["a"]
    assert group.join("a").joined.disconnected_member_ids == ()


def test_w_a_heartbeat_that_was_under_way_when_the_process_died_does_not_end_the_grace(
    group: GroupHarness,
) -> None:
    group.stable("a", "b")
    group.watch("b")
    group.break_watch("b")
    assert group.heartbeat("b").response is False
    group.advance(1_000)
    assert group.member_ids() == ["a"]
    assert group.join("a").joined.disconnected_member_ids == ("b",)


def test_w_a_join_that_was_under_way_when_the_process_died_does_not_end_the_grace(
    group: GroupHarness,
) -> None:
    group.stable("a", "b")
    group.watch("b")
    group.break_watch("b")
    group.abandon(group.join("b"))
    survivor = group.join("a")
    group.advance(1_000)
    assert survivor.joined.disconnected_member_ids == ("b",)


def test_w_a_member_that_joins_between_two_watches_keeps_its_session(group: GroupHarness) -> None:
    group.stable("a")
    group.watch("a")
    group.break_watch("a")
    joined = group.join("a").joined
    group.sync("a", joined.generation, {"a": b""})
    group.watch("a")
    group.advance(SESSION_MS - 1)
    assert group.member_ids() == ["a"]


def test_w_a_new_watch_ends_the_grace(group: GroupHarness) -> None:
    group.stable("a")
    group.watch("a")
    group.break_watch("a")
    group.advance(500)
    group.watch("a")
    group.advance(SESSION_MS - 1)
    assert group.member_ids() == ["a"]


def test_w_the_break_of_an_older_watch_is_no_sign(group: GroupHarness) -> None:
    group.stable("a")
    group.watch("a")
    group.watch("a")  # a second watch opens before the server sees the first one break
    group.break_watch("a")
    group.advance(SESSION_MS - 1)
    assert group.member_ids() == ["a"]


def test_w_a_watch_that_the_server_ends_starts_no_grace(group: GroupHarness) -> None:
    group.stable("a")
    group.watch("a")
    group.end_watch("a")
    group.advance(SESSION_MS - 1)
    assert group.member_ids() == ["a"]


def test_w_the_grace_never_prolongs_a_session(group: GroupHarness) -> None:
    group.stable("a")
    group.watch("a")
    group.advance(SESSION_MS - 100)
    group.break_watch("a")
    group.advance(100)
    assert group.member_ids() == []


def test_w_a_vanished_process_with_a_parked_join_gets_the_grace() -> None:
    for broken_first in (True, False):
        group = GroupHarness(GroupSettings(disconnect_grace_ms=300))
        group.stable("a", "b")
        group.watch("a")
        vanished = group.join("a")
        if broken_first:
            group.break_watch("a")
            group.abandon(vanished)
        else:
            group.abandon(vanished)
            group.break_watch("a")
        assert vanished.response == RetryJoin("a")
        survivor = group.join("b")
        group.advance(299)
        assert survivor.waits
        group.advance(1)
        assert survivor.joined.leader_id == "b"


def test_w_a_break_while_parked_counts_once_the_call_is_answered(group: GroupHarness) -> None:
    group.stable("a", "b")
    group.watch("a")
    group.join("a")
    group.break_watch("a")
    group.advance(SESSION_MS - 1)
    assert group.member_ids() == ["a", "b"]  # the parked join keeps a alive
    group.join("b")
    group.advance(1_000)
    assert group.member_ids() == ["b"]


def test_w_a_member_has_few_watches_and_one_more_is_refused(group: GroupHarness) -> None:
    group.stable("a", "b")
    for _ in range(WATCHES_PER_MEMBER_MAX):
        group.watch("a")
    refused = group.watch("a")
    assert refused.reason is Reason.QUEUE_FULL
    assert "8 watches" in refused.errors[0].message
    assert group.watch("b").responses  # the limit is per member
    group.handle(MemberStreamBroken(GROUP, "a", refused.call_id))  # the refused watch breaks, too
    for _ in range(WATCHES_PER_MEMBER_MAX - 1):
        group.break_watch("a")
    group.advance(SESSION_MS - 1)
    assert group.member_ids() == ["a", "b"]  # one watch is still open
    group.heartbeat("a")
    group.heartbeat("b")
    group.break_watch("a")
    group.advance(1_000)
    assert group.member_ids() == ["b"]


def test_w_a_watch_ends_once_however_often_it_is_told(group: GroupHarness) -> None:
    group.stable("a")
    first, second = group.watch("a"), group.watch("a")
    for _ in range(2):
        group.handle(MemberStreamBroken(GROUP, "a", first.call_id))
        group.handle(WatchEnded(GROUP, "a", first.call_id))
    group.advance(SESSION_MS - 1)
    assert group.member_ids() == ["a"]
    group.heartbeat("a")
    group.handle(MemberStreamBroken(GROUP, "a", second.call_id))
    group.advance(1_000)
    assert group.member_ids() == []


def test_w_breaks_of_strangers_are_ignored(group: GroupHarness) -> None:
    group.break_watch("a")
    group.stable("a")
    group.break_watch("ghost")
    group.end_watch("ghost")
    assert group.member_ids() == ["a"]
