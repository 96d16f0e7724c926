"""From one generation to the next, rules B1 to B5."""

import pytest

from drover.errors import Reason
from drover.model.group import (
    GroupState,
    OfferedProtocol,
    RebalanceInProgress,
    Synced,
    WatchedGroup,
)
from drover_coordinator.core.groups.records import GroupMetadata, GroupRecord
from drover_coordinator.core.groups.settings import GroupSettings
from tests.support.group_harness import GROUP, REBALANCE_MS, SESSION_MS, GroupHarness

DELAY_MS = 3_000


def protocols(*names: str) -> tuple[OfferedProtocol, ...]:
    return tuple(OfferedProtocol(name, name.encode()) for name in names)


# B1


def test_b1_parked_syncs_hear_of_the_rebalance(group: GroupHarness) -> None:
    group.completing("a", "b", "c")
    waiting = group.sync("b")
    assert waiting.waits
    group.enter("d")
    assert waiting.response == RebalanceInProgress()


def test_b1_an_assignment_of_the_old_generation_is_refused(group: GroupHarness) -> None:
    group.completing("a", "b")
    group.enter("c")
    assert group.sync("a", 1, {"a": b"x"}).response == RebalanceInProgress()
    assert group.last_metadata().assigned is False


def test_b1_the_start_is_announced_at_once(group: GroupHarness) -> None:
    group.stable("a", "b")
    group.watched.clear()
    group.enter("c")
    assert group.watched == [
        WatchedGroup(
            created=False,
            state=GroupState.PREPARING_REBALANCE,
            generation=1,
            rejoin_needed=True,
        )
    ]


# B2


def test_b2_the_first_members_are_waited_for(group: GroupHarness) -> None:
    call = group.enter("a")
    group.advance(DELAY_MS - 1)
    assert call.waits
    group.advance(1)
    assert call.joined.generation == 1


def test_b2_a_newcomer_prolongs_the_delay(group: GroupHarness) -> None:
    first = group.enter("a")
    group.advance(DELAY_MS - 1)
    second = group.enter("b")
    group.advance(1)
    assert first.waits
    assert second.waits
    group.advance(DELAY_MS - 1)
    assert first.waits
    group.advance(1)
    assert first.joined.generation == second.joined.generation == 1


def test_b2_the_delay_is_prolonged_up_to_the_rebalance_timeout() -> None:
    group = GroupHarness()
    first = group.enter("a", rebalance_ms=7_000, patience_ms=60_000)
    for index in range(3):  # a member joins in every round: 3 s, 3 s, and the last 1 s
        assert first.waits, index
        group.enter(f"b{index}", rebalance_ms=7_000, patience_ms=60_000)
        group.advance((DELAY_MS, DELAY_MS, 999)[index])
    assert first.waits
    group.advance(1)
    assert first.joined.generation == 1
    assert len(first.joined.members) == 4


def test_b2_leaving_does_not_shorten_the_delay(group: GroupHarness) -> None:
    group.enter("a")
    second = group.enter("b")
    group.leave("a")
    assert second.waits
    group.advance(2 * DELAY_MS)
    assert second.joined.leader_id == "b"


def test_b2_all_leave_during_the_delay(group: GroupHarness) -> None:
    group.enter("a")
    group.leave("a")
    assert group.describe().state is GroupState.PREPARING_REBALANCE
    group.advance(DELAY_MS)
    assert group.describe().state is GroupState.EMPTY
    assert group.last_metadata().generation == 1


def test_b2_the_delay_does_not_wait_for_ids_that_were_handed_out(group: GroupHarness) -> None:
    first = group.enter("a")
    group.first_join("b")
    group.advance(DELAY_MS)
    assert first.joined.generation == 1
    assert group.join("b").waits


def test_b2_no_delay_gives_who_is_there_a_generation_at_once(prompt_group: GroupHarness) -> None:
    call = prompt_group.enter("a")
    prompt_group.advance(0)
    assert call.joined.generation == 1


# B3


def test_b3_completes_as_soon_as_all_are_there(group: GroupHarness) -> None:
    group.stable("a", "b")
    newcomer = group.enter("c")
    first = group.join("a")
    assert newcomer.waits
    assert first.waits
    second = group.join("b")
    assert {call.joined.generation for call in (newcomer, first, second)} == {2}


def test_b3_waits_for_the_slowest_members_rebalance_timeout(group: GroupHarness) -> None:
    patient = {"session_ms": 1_800_000, "patience_ms": 200_000}
    group.enter("a", rebalance_ms=20_000, **patient)
    group.enter("b", rebalance_ms=90_000, **patient)
    group.advance(2 * DELAY_MS)
    group.assign("a", "b")
    newcomer = group.enter("c", rebalance_ms=20_000, **patient)
    group.advance(89_999)
    assert newcomer.waits
    group.advance(1)
    assert newcomer.joined.generation == 2
    assert group.member_ids() == ["c"]


def test_b3_a_leaver_completes_the_wait(group: GroupHarness) -> None:
    group.stable("a", "b", "c")
    calls = group.rejoin("a", "b")
    group.leave("c")
    assert {call.joined.generation for call in calls.values()} == {2}


# B4


def test_b4_who_has_not_joined_is_out(group: GroupHarness) -> None:
    group.stable("a", "b", session_ms=1_800_000)
    newcomer = group.enter("c", patience_ms=REBALANCE_MS + 1)
    group.advance(REBALANCE_MS)
    assert newcomer.joined.leader_id == "c"
    assert group.member_ids() == ["c"]
    assert group.removed == ["a", "b"]
    assert group.heartbeat("a", 1).reason is Reason.UNKNOWN_MEMBER_ID


def test_b4_the_leader_is_kept(group: GroupHarness) -> None:
    group.stable("a", "b")
    second = group.join("b", protocols=protocols("default"))
    first = group.join("a")
    assert first.joined.leader_id == second.joined.leader_id == "a"


def test_b4_another_leader_is_elected_when_it_is_gone(group: GroupHarness) -> None:
    group.stable("a", "b", "c")
    group.leave("a")
    calls = group.rejoin("b", "c")
    assert {call.joined.leader_id for call in calls.values()} == {"b"}
    assert [each.member_id for each in calls["b"].joined.members] == ["b", "c"]


def test_b4_no_members_is_stored_as_empty(group: GroupHarness) -> None:
    group.stable("a")
    group.leave("a")
    assert group.records[-1] == GroupRecord(
        GROUP,
        GroupMetadata(
            protocol_type="connect",
            generation=2,
            protocol_name="",
            leader_id="",
            state_timestamp_ms=group.now_ms,
        ),
    )


def test_b4_generations_only_grow(group: GroupHarness) -> None:
    group.stable("a")
    for generation in range(2, 6):
        assert group.join("a").joined.generation == generation
        group.assign("a")
    group.leave("a")
    call = group.enter("b")
    group.advance(DELAY_MS)
    assert call.joined.generation == 7


@pytest.mark.parametrize(
    ("offers", "selected"),
    [
        ((("p1", "p2"), ("p1", "p2")), "p1"),
        ((("p1", "p2"), ("p2", "p1"), ("p2", "p1")), "p2"),
        ((("p1", "p2", "p3"), ("p3", "p2")), "p2"),  # not all members support p1; one vote each
        ((("p1", "p3"), ("p2", "p3")), "p3"),
    ],
)
def test_b4_the_protocol_with_most_votes_is_selected(
    group: GroupHarness, offers: tuple[tuple[str, ...], ...], selected: str
) -> None:
    calls = [
        group.enter(f"m{index}", protocols=protocols(*names)) for index, names in enumerate(offers)
    ]
    group.advance(2 * DELAY_MS)
    assert {call.joined.protocol_name for call in calls} == {selected}
    assert {each.metadata for each in calls[0].joined.members} == {selected.encode()}


# B5


def test_b5_who_does_not_sync_in_time_is_out(group: GroupHarness) -> None:
    group.completing("a", "b", "c", session_ms=1_800_000)
    leader, follower = group.sync("a", assignments={"a": b"A", "b": b"B"}), group.sync("b")
    assert leader.response == Synced(b"A", "connect", "default")
    assert follower.response == Synced(b"B", "connect", "default")
    group.advance(REBALANCE_MS - 1)
    assert group.describe().state is GroupState.STABLE
    group.advance(1)
    assert group.describe().state is GroupState.PREPARING_REBALANCE
    assert group.member_ids() == ["a", "b"]
    assert group.removed == ["c"]


def test_b5_a_leader_that_does_not_sync_is_out(group: GroupHarness) -> None:
    group.completing("a", "b", session_ms=1_800_000)
    follower = group.sync("b")
    group.advance(REBALANCE_MS)
    assert follower.response == RebalanceInProgress()
    assert group.member_ids() == ["b"]
    assert group.join("b", session_ms=1_800_000).joined.leader_id == "b"


def test_b5_nobody_syncs(group: GroupHarness) -> None:
    group.completing("a", "b", session_ms=1_800_000)
    group.advance(REBALANCE_MS)
    assert group.describe().state is GroupState.EMPTY
    assert group.last_metadata().generation == 2


def test_b5_all_synced_in_time(group: GroupHarness) -> None:
    group.stable("a", "b", session_ms=1_800_000)
    group.advance(2 * REBALANCE_MS)
    assert group.describe().state is GroupState.STABLE
    assert group.describe().generation == 1


def test_b5_the_timer_of_an_older_generation_harms_nobody(group: GroupHarness) -> None:
    group.completing("a", session_ms=1_800_000)
    group.advance(REBALANCE_MS // 2)
    group.join("a", protocols=protocols("default", "more"), session_ms=1_800_000)
    assert group.describe().generation == 2
    group.advance(REBALANCE_MS - 1)
    assert group.member_ids() == ["a"]
    group.advance(1)
    assert group.member_ids() == []


def test_a_session_that_ends_while_completing_rebalances() -> None:
    group = GroupHarness(GroupSettings(initial_rebalance_delay_ms=0))
    calls = [group.enter("a", session_ms=SESSION_MS), group.enter("b", session_ms=1_800_000)]
    group.advance(0)
    assert all(call.joined.generation == 1 for call in calls)
    waiting = group.sync("b")
    group.advance(SESSION_MS)  # the leader died before it could assign
    assert waiting.response == RebalanceInProgress()
    assert group.member_ids() == ["b"]
