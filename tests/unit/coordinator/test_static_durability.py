"""Which process holds an instance id after refused appends and crashes."""

import pytest

from drover.errors import Reason
from drover.model.group import (
    GroupState,
    LeavingMember,
    MemberIdRequired,
    RetryJoin,
    Synced,
)
from drover.model.offsets import TopicPartition
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


# refused appends


def test_a_holder_that_is_not_durable_did_not_come(group: GroupHarness) -> None:
    stable(group, "a", "b", protocols=BOTH)
    group.watch("b")
    group.append_error = DISK_FULL
    failed = group.join_static("b2", "B", protocols=offer("p"), session_ms=20_000)
    assert failed.reason is Reason.STORAGE_UNAVAILABLE
    assert group.describe().state is GroupState.STABLE
    assert group.removed == []  # the watch of b stays open
    described = group.describe().members[1]
    assert (described.member_id, described.session_timeout_ms) == ("b", SESSION_MS)
    assert group.heartbeat("b2", 1, instance_id="B").reason is Reason.FENCED_INSTANCE_ID
    assert group.heartbeat("b", 1, instance_id="B").response is False
    keep_alive(group, "a", duration_ms=SESSION_MS)
    assert group.member_ids() == ["a"]  # the session of b has expired


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
    keep_alive(group, "c", duration_ms=2 * SESSION_MS)  # the waiting calls keep a and b alive
    group.append_error = DISK_FULL
    group.join_static("b2", "B")
    group.advance(SESSION_MS - 1)  # b and c send no more requests
    assert leader.waits
    group.advance(1)
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
    group.advance(SESSION_MS)  # the session of c, whose sync failed, expires
    assert {call.joined.generation for call in calls.values()} == {2}
    assert group.member_ids() == ["a", "b"]


def test_one_that_gets_its_place_back_lives_for_a_session_from_then(
    group: GroupHarness,
) -> None:
    """The join of b waited longer than its session; b counted as alive while it waited."""
    stable(group, "a", "b", "c")
    group.join("a", instance_id="A")
    group.join("b", instance_id="B")
    keep_alive(group, "c", duration_ms=SESSION_MS)
    group.advance(500)
    group.append_error = DISK_FULL
    assert group.join_static("b2", "B").reason is Reason.STORAGE_UNAVAILABLE
    keep_alive(group, "c", duration_ms=SESSION_MS - 1_000)
    assert group.member_ids() == ["a", "b", "c"]
    keep_alive(group, "c", duration_ms=1_000)
    assert group.member_ids() == ["a", "c"]


def test_completing_all_timers_run_though_the_holder_was_not_durable(
    group: GroupHarness,
) -> None:
    completing(group, "a", "b", "c")
    group.sync("c")
    keep_alive(group, "a", "b", duration_ms=2 * SESSION_MS)
    group.append_error = DISK_FULL
    group.join_static("b2", "B")
    leader = group.join("a")
    keep_alive(group, "b", duration_ms=SESSION_MS)
    assert group.member_ids() == ["a", "b"]  # c has no waiting sync, so its session expired
    keep_alive(group, "b", duration_ms=REBALANCE_MS - SESSION_MS - 1_000)
    assert leader.waits
    keep_alive(group, "b", duration_ms=1_000)  # b heartbeats and does not join
    assert leader.joined.generation == 2


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
    group.first_join("p")  # its pending id keeps the phase open
    group.append_error = DISK_FULL
    assert group.join_static("b2", "B").reason is Reason.STORAGE_UNAVAILABLE
    assert group.member_ids() == ["a"]
    assert group.join_static("b3", "B").waits


def test_a_group_that_was_removed_goes_on_above_its_last_generation(group: GroupHarness) -> None:
    stable(group, "a")
    group.leave(LeavingMember("", "A"))
    generation = group.describe().generation
    group.delete_group()
    first = group.join_static("a2", "A")
    group.restart()
    again = group.join_static("a3", "A")
    group.advance(DELAY_MS)
    assert first.waits  # the restart lost this call
    assert again.joined.generation == generation + 1


def test_a_simple_group_keeps_its_offsets_when_its_first_member_is_not_durable(
    group: GroupHarness,
) -> None:
    at = TopicPartition("t", 0)
    group.commit_offsets({at: 7})
    group.append_error = DISK_FULL
    assert group.join_static("a", "A").reason is Reason.STORAGE_UNAVAILABLE
    assert group.describe().state is GroupState.EMPTY
    assert group.offsets() == {at: 7}
    again = group.join_static("a2", "A")
    group.advance(DELAY_MS)
    assert again.joined.generation == 1
    assert group.offsets() == {at: 7}


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
    group.restart()  # the restart loses the rebalance and the leave of b
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
    assert group.describe().state is PREPARING  # generation 2 was announced but not assigned
    assert group.member_ids() == ["a", "b"]
    calls = group.rejoin("a", "b")
    assert {call.joined.generation for call in calls.values()} == {3}


def test_dynamic_members_still_need_an_id_first(group: GroupHarness) -> None:
    stable(group, "a")
    assert group.first_join("b").response == MemberIdRequired("b")
