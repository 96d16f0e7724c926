"""When records are written, what a restart restores, and refused appends (P1 to P4, S2)."""

import pytest

from drover.errors import Reason, UnavailableError
from drover.model.group import (
    GroupState,
    MemberIdRequired,
    OfferedProtocol,
    RebalanceInProgress,
    Synced,
)
from drover_coordinator.core.groups.events import Unloaded
from drover_coordinator.core.groups.records import GroupRecord
from drover_coordinator.core.groups.settings import GroupSettings
from drover_coordinator.record_codec import encode_record
from tests.support.group_harness import (
    DISK_FULL,
    GROUP,
    REBALANCE_MS,
    SESSION_MS,
    GroupHarness,
)

PREPARING = GroupState.PREPARING_REBALANCE


# P1, P2


def test_p1_written_at_creation_generation_assignment_and_becoming_empty(
    group: GroupHarness,
) -> None:
    group.stable("a", "b")
    group.heartbeat("a")
    group.sync("b")
    group.join("b")
    group.leave("a", "b")
    written = [
        (each.metadata.generation, len(each.metadata.members), each.metadata.assigned)
        for each in group.records
        if isinstance(each, GroupRecord) and each.metadata is not None
    ]
    assert written == [(0, 0, False), (1, 2, False), (1, 2, True), (2, 0, False)]


def test_p2_every_offered_protocol_survives_a_restart(group: GroupHarness) -> None:
    offered = (OfferedProtocol("p1", b"1"), OfferedProtocol("p2", b"2"))
    group.stable("a", protocols=offered)
    group.restart()
    assert group.first_join("b", protocols=offered[1:]).response == MemberIdRequired("b")
    newcomer = group.join("b", protocols=offered[1:])
    leader = group.join("a", protocols=offered)
    assert newcomer.joined.protocol_name == leader.joined.protocol_name == "p2"


# P3


def test_p3_an_empty_log_has_no_groups(group: GroupHarness) -> None:
    group.restart()
    assert group.describe().state is GroupState.DEAD


def test_p3_a_stable_group_goes_on_as_if_nothing_had_happened(group: GroupHarness) -> None:
    group.stable("a", "b")
    before = group.describe()
    group.restart()
    assert group.describe() == before
    assert group.heartbeat("a", 1).response is False
    assert group.sync("b", 1).response == Synced(b"to-b", "connect", "default")
    for _ in range(20):
        group.advance(SESSION_MS - 1)
        assert group.heartbeat("a", 1).response is False
        assert group.heartbeat("b", 1).response is False
    assert group.describe() == before


def test_p3_the_last_word_of_a_member_counts_not_its_first(group: GroupHarness) -> None:
    group.stable("a")
    offered = (OfferedProtocol("default", b"new"), OfferedProtocol("more", b"new"))
    group.join("a", protocols=offered, session_ms=20_000, rebalance_ms=30_000)
    group.assign("a")
    before = group.describe()
    assert (before.members[0].metadata, before.members[0].session_timeout_ms) == (b"new", 20_000)
    group.restart()
    assert group.describe() == before
    assert group.first_join("b", protocols=offered[1:]).response == MemberIdRequired("b")


def test_p3_sessions_are_armed_from_now(group: GroupHarness) -> None:
    group.stable("a", "b")
    group.advance(SESSION_MS - 1)
    group.restart()
    group.advance(SESSION_MS - 1)
    assert group.member_ids() == ["a", "b"]
    group.heartbeat("a")
    group.advance(1)
    assert group.member_ids() == ["a"]
    assert group.describe().state is PREPARING


def test_p3_a_generation_that_was_told_but_not_assigned_is_started_anew(
    group: GroupHarness,
) -> None:
    group.completing("a", "b")
    group.restart()
    assert group.describe().state is PREPARING
    assert group.heartbeat("a", 1).response is True
    assert group.sync("a", 1, {"a": b"A"}).response == RebalanceInProgress()
    assert group.watch("b").response.watched.rejoin_needed  # type: ignore[attr-defined]
    calls = group.rejoin("a", "b")
    assert {call.joined.generation for call in calls.values()} == {2}
    group.assign("a", "b")


def test_p3_such_a_generation_does_not_wait_for_the_dead(group: GroupHarness) -> None:
    group.completing("a", "b")
    group.restart()
    survivor = group.join("b")
    group.advance(SESSION_MS)
    assert survivor.joined.leader_id == "b"
    assert survivor.joined.generation == 2


def test_p3_a_rebalance_under_way_is_forgotten_and_the_old_generation_stands(
    group: GroupHarness,
) -> None:
    group.stable("a", "b")
    group.enter("c")
    group.restart()
    assert group.describe().state is GroupState.STABLE
    assert group.member_ids() == ["a", "b"]
    assert group.join("c").reason is Reason.UNKNOWN_MEMBER_ID


def test_p3_an_empty_group_keeps_its_generation(group: GroupHarness) -> None:
    group.stable("a")
    group.leave("a")
    group.restart()
    call = group.enter("b")
    group.advance(3_000)
    assert call.joined.generation == 3


def test_p3_ids_that_were_handed_out_are_forgotten_and_so_is_their_group(
    group: GroupHarness,
) -> None:
    group.first_join("a")
    group.restart()
    assert group.join("a").reason is Reason.UNKNOWN_MEMBER_ID
    group.advance(group.settings.session_timeout_min_ms)
    assert group.records[-1] == GroupRecord(GROUP, None)
    group.restart()
    assert group.describe().state is GroupState.DEAD


def test_p3_a_compacted_log_says_the_same(group: GroupHarness) -> None:
    group.stable("a", "b")
    group.enter("x", group_id="other")
    before = group.machine.hard_state()
    last = {encode_record(record).key: record for record in group.records}
    group.records = list(last.values())
    group.restart()
    assert group.machine.hard_state() == before


def test_p3_too_many_members_for_the_settings_rebalance() -> None:
    group = GroupHarness()
    group.stable("a", "b", "c")
    group.settings = GroupSettings(group_max_size=2)
    group.restart()
    assert group.describe().state is PREPARING


# P4


def test_p4_whoever_waits_hears_it_and_nobody_is_served(group: GroupHarness) -> None:
    group.stable("a", "b")
    parked_join = group.join("a")
    for member_id in ("x", "y"):
        group.enter(member_id, group_id="other")
    group.advance(6_000)
    parked_sync = group.sync("y", 1, group_id="other")
    assert parked_join.waits
    assert parked_sync.waits
    draining = UnavailableError(Reason.DRAINING, "shutting down")
    group.handle(Unloaded(draining))
    assert parked_join.reason is parked_sync.reason is Reason.DRAINING
    for call in (
        group.heartbeat("a", 1),
        group.sync("a", 1),
        group.join("a"),
        group.first_join("c"),
        group.leave("a"),
        group.check_member("a", 1),
        group.watch("a"),
        group.first_join("n", group_id="new"),
        group.heartbeat("n", 1, group_id="new"),
    ):
        assert call.reason is Reason.COORDINATOR_NOT_AVAILABLE
    assert group.describe().state is GroupState.DEAD
    record_count = len(group.records)
    group.advance(2 * REBALANCE_MS)  # timers find nothing to do
    group.handle(Unloaded(draining))
    assert len(group.records) == record_count


# refused appends


def test_a_generation_that_is_not_durable_is_never_told(group: GroupHarness) -> None:
    group.stable("a", "b")
    group.append_error = DISK_FULL
    calls = group.rejoin("a", "b")
    assert {call.reason for call in calls.values()} == {Reason.STORAGE_UNAVAILABLE}
    assert group.describe().generation == 1
    assert group.describe().state is PREPARING
    assert group.heartbeat("a", 1).response is True
    again = group.rejoin("a", "b")
    assert {call.joined.generation for call in again.values()} == {2}


def test_after_a_refused_generation_sessions_and_the_rebalance_timer_still_run(
    group: GroupHarness,
) -> None:
    group.stable("a", "b")
    group.append_error = DISK_FULL
    group.rejoin("a", "b")
    survivor = group.join("a")
    group.advance(SESSION_MS)
    assert survivor.joined.generation == 2
    assert group.member_ids() == ["a"]


def test_a_refused_first_generation(group: GroupHarness) -> None:
    calls = [group.enter("a"), group.enter("b")]
    group.append_error = DISK_FULL
    group.advance(6_000)
    assert {call.reason for call in calls} == {Reason.STORAGE_UNAVAILABLE}
    again = group.rejoin("a", "b")
    assert {call.joined.generation for call in again.values()} == {1}


def test_an_assignment_that_is_not_durable_starts_a_rebalance(group: GroupHarness) -> None:
    group.completing("a", "b")
    follower = group.sync("b")
    group.append_error = DISK_FULL
    leader = group.sync("a", assignments={"a": b"A"})
    assert leader.reason is follower.reason is Reason.STORAGE_UNAVAILABLE
    assert group.describe().state is PREPARING
    calls = group.rejoin("a", "b")
    assert {call.joined.generation for call in calls.values()} == {2}
    group.assign("a", "b")


def test_a_group_that_cannot_be_created_is_not_there(group: GroupHarness) -> None:
    group.append_error = DISK_FULL
    assert group.first_join("a").reason is Reason.STORAGE_UNAVAILABLE
    assert group.describe().state is GroupState.DEAD
    assert group.first_join("a").response == MemberIdRequired("a")


def test_emptiness_that_cannot_be_stored_is_tried_again(group: GroupHarness) -> None:
    group.stable("a")
    group.append_error = DISK_FULL
    assert group.leave("a").reason is Reason.STORAGE_UNAVAILABLE
    assert group.describe().state is PREPARING
    assert group.last_metadata().members  # the log still has the member
    group.advance(1_000)
    assert group.describe().state is GroupState.EMPTY
    assert not group.last_metadata().members


def test_somebody_joins_a_group_whose_emptiness_could_not_be_stored(group: GroupHarness) -> None:
    group.stable("a")
    group.append_error = DISK_FULL
    group.leave("a")
    call = group.enter("b", protocol_type="consumer")
    assert call.joined.generation == 2
    assert group.member_ids() == ["b"]


@pytest.mark.parametrize("failures", [1, 2, 5])
def test_a_disk_that_stays_full_is_survived(group: GroupHarness, failures: int) -> None:
    group.stable("a")
    for _ in range(failures):
        group.append_error = DISK_FULL
        assert group.join("a").reason is Reason.STORAGE_UNAVAILABLE
        assert group.describe().generation == 1
    assert group.join("a").joined.generation == 2
