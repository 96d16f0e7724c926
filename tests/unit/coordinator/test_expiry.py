"""Expiry of offsets, and of groups without offsets (rule O6)."""

import pytest

from drover.machine import Replayed, SetTimer
from drover.model.group import GroupState, OfferedProtocol
from drover.model.offsets import GroupOffset, TopicPartition
from drover_coordinator.core.groups import expiry
from drover_coordinator.core.groups.events import ExpiryDue
from drover_coordinator.core.groups.records import FloorRecord, GroupRecord, OffsetRecord
from drover_coordinator.core.groups.settings import GroupSettings
from tests.support.group_harness import DISK_FULL, GROUP, SESSION_MS, GroupHarness
from tests.unit.coordinator.test_group_offsets import consumers, subscription

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
RETENTION_MS = 100_000
CHECK_MS = 1_000
DEAD, EMPTY = GroupState.DEAD, GroupState.EMPTY
COMPLETING = GroupState.COMPLETING_REBALANCE


@pytest.fixture
def group() -> GroupHarness:
    """A coordinator that keeps offsets for 100 s and checks every second."""
    return GroupHarness(
        GroupSettings(offsets_retention_ms=RETENTION_MS, offsets_retention_check_ms=CHECK_MS)
    )


def live_for(group: GroupHarness, duration_ms: int, *member_ids: str) -> None:
    """Advance the clock while members heartbeat."""
    for _ in range(duration_ms // (SESSION_MS // 2)):
        group.advance(SESSION_MS // 2)
        for member_id in member_ids:
            group.heartbeat(member_id)


# simple groups


def test_o6_offsets_of_a_simple_group_go_by_the_time_of_their_commit(group: GroupHarness) -> None:
    group.commit_offsets({A0: 1, A1: 1})
    group.advance(RETENTION_MS // 2)
    group.commit_offsets({A1: 2})
    group.advance(RETENTION_MS // 2 - 1)
    assert group.offsets() == {A0: 1, A1: 2}
    group.advance(CHECK_MS)
    assert group.offsets() == {A1: 2}
    group.advance(RETENTION_MS // 2)
    assert group.describe().state is DEAD


def test_o6_a_simple_group_goes_with_its_last_offset(group: GroupHarness) -> None:
    group.commit_offsets({A0: 1})
    group.commit_offsets({A0: 1}, group_id="other")
    group.advance(RETENTION_MS)
    group.commit_offsets({A0: 2}, group_id="other")
    group.advance(CHECK_MS)
    assert group.describe().state is DEAD
    assert group.describe("other").state is EMPTY
    assert not any(isinstance(each, FloorRecord) for each in group.records)
    group.restart()
    assert group.describe().state is DEAD


def test_o6_a_simple_group_whose_offsets_were_deleted_goes_too(group: GroupHarness) -> None:
    group.commit_offsets({A0: 1})
    group.delete_offsets(A0)
    assert group.describe().state is EMPTY
    group.advance(CHECK_MS)
    assert group.describe().state is DEAD


# explicit times


@pytest.mark.parametrize("expire_ms", [5_000, RETENTION_MS * 3])
def test_o6_a_time_that_the_consumer_gave_is_kept(group: GroupHarness, expire_ms: int) -> None:
    due_ms = group.now_ms + expire_ms
    group.commit_offsets([GroupOffset("a", 0, 1, expire_time_ms=due_ms)])
    group.advance(expire_ms - 1)
    assert group.offsets() == {A0: 1}
    group.restart()
    group.advance(CHECK_MS + 1)
    assert group.offsets() == {}


def test_o6_a_later_commit_without_a_time_goes_by_retention_again(group: GroupHarness) -> None:
    group.commit_offsets([GroupOffset("a", 0, 1, expire_time_ms=group.now_ms + 5_000)])
    group.commit_offsets({A0: 2})
    group.advance(RETENTION_MS - 1)
    assert group.offsets() == {A0: 2}


# groups that had members


@pytest.mark.parametrize("protocol_type", ["connect", "consumer"])
def test_o6_a_group_that_became_empty_keeps_them_from_then_on(
    group: GroupHarness, protocol_type: str
) -> None:
    group.stable("m", protocol_type=protocol_type)
    group.commit_offsets({A0: 1}, "m", 1)
    live_for(group, RETENTION_MS * 2, "m")
    group.leave("m")
    emptied_ms = group.now_ms
    group.advance(RETENTION_MS // 2)
    group.commit_offsets({A1: 2})
    group.restart()
    group.advance(RETENTION_MS // 2 - 1)
    assert group.offsets() == {A0: 1, A1: 2}
    group.advance(CHECK_MS)
    assert group.now_ms > emptied_ms + RETENTION_MS
    assert group.offsets() == {A1: 2}  # committed after the last member left
    group.advance(RETENTION_MS // 2)
    assert group.describe().state is DEAD


def test_o6_an_empty_group_without_offsets_goes_at_the_next_check(group: GroupHarness) -> None:
    group.stable("m")
    group.leave("m")
    group.advance(CHECK_MS)
    assert group.describe().state is DEAD
    assert group.records[-2:] == [FloorRecord(2), GroupRecord(GROUP, None)]


def test_o6_a_group_that_somebody_is_about_to_join_stays(group: GroupHarness) -> None:
    group.stable("m")
    group.leave("m")
    group.first_join("n")
    group.advance(CHECK_MS * 3)
    assert group.describe().state is EMPTY
    group.join("n")
    group.advance(6_000)
    assert group.describe().generation == 3


@pytest.mark.parametrize("protocol_type", ["connect", "consumer"])
def test_o6_a_group_with_members_that_are_not_understood_keeps_all(
    group: GroupHarness, protocol_type: str
) -> None:
    group.commit_offsets([GroupOffset("a", 0, 1, expire_time_ms=group.now_ms + 60_000)])
    group.commit_offsets({B0: 1})
    group.stable("m", protocol_type=protocol_type)  # its metadata is no subscription
    live_for(group, RETENTION_MS * 2, "m")
    assert group.offsets() == {A0: 1, B0: 1}
    assert group.describe().state is GroupState.STABLE


# consumers


def test_o6_consumers_keep_the_topics_they_read(group: GroupHarness) -> None:
    group.commit_offsets({A0: 1, B0: 2})
    committed_ms = group.now_ms
    consumers(group, "m", topics=("a",))
    group.commit_offsets({A1: 3, TopicPartition("b", 1): 4}, "m", 1)
    live_for(group, RETENTION_MS - (group.now_ms - committed_ms) - SESSION_MS, "m")
    assert B0 in group.offsets()
    live_for(group, RETENTION_MS // 2, "m")
    assert group.offsets() == {A0: 1, A1: 3}
    live_for(group, RETENTION_MS * 2, "m")
    assert group.offsets() == {A0: 1, A1: 3}


@pytest.mark.parametrize("state", [GroupState.PREPARING_REBALANCE, COMPLETING])
def test_o6_consumers_in_a_rebalance_keep_all(group: GroupHarness, state: GroupState) -> None:
    group.commit_offsets({B0: 2})
    consumers(group, "m", topics=("b",))
    live_for(group, RETENTION_MS * 2, "m")
    if state is COMPLETING:
        offered = (OfferedProtocol("range", subscription("a")),)  # m unsubscribes from b
        group.join("m", protocol_type="consumer", protocols=offered)
    else:
        group.first_join("n", protocol_type="consumer", protocols=(OfferedProtocol("range", b""),))
        offered = (OfferedProtocol("range", subscription("a")),)
        group.join("m", protocol_type="consumer", protocols=offered)
    assert group.describe().state is state
    group.advance(2 * CHECK_MS)
    assert group.describe().state is state
    assert group.offsets() == {B0: 2}


# the sweep


@pytest.fixture
def short_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit a step of the sweep to ten items instead of a thousand."""
    monkeypatch.setattr(expiry, "STEP_MAX", 10)


@pytest.mark.usefixtures("short_steps")
def test_a_sweep_takes_bounded_steps_with_pauses(group: GroupHarness) -> None:
    many = {TopicPartition("a", index): index for index in range(2 * expiry.STEP_MAX + 5)}
    group.commit_offsets(many)
    for index in range(expiry.STEP_MAX):
        group.commit_offsets({A0: 1}, group_id=f"simple {index:04}")
    group.advance(RETENTION_MS - CHECK_MS)
    written = len(group.records)
    group.fired.clear()
    group.advance(2 * CHECK_MS)
    assert sum(event == ExpiryDue(begins=False) for event in group.fired) >= 4
    removed = group.records[written:]
    assert sum(isinstance(each, OffsetRecord) for each in removed) == len(many) + expiry.STEP_MAX
    assert group.list_groups().response.groups == ()  # type: ignore[attr-defined]


@pytest.mark.usefixtures("short_steps")
def test_no_step_looks_at_more_than_its_share() -> None:
    group = GroupHarness(
        GroupSettings(offsets_retention_ms=RETENTION_MS, offsets_retention_check_ms=CHECK_MS)
    )
    group.commit_offsets({TopicPartition("a", i): i for i in range(3 * expiry.STEP_MAX)})
    for index in range(expiry.STEP_MAX // 2):
        group.commit_offsets({A0: 1, A1: 2}, group_id=f"simple {index:04}")
    now_ms = group.now_ms + RETENTION_MS
    sizes = []
    begins = goes_on = True
    while goes_on:
        outcome = group.machine.handle(ExpiryDue(begins), now_ms)
        sizes.append(sum(isinstance(each, OffsetRecord) for each in outcome.records))
        assert len(outcome.records) <= 2 * expiry.STEP_MAX
        for record in outcome.records:
            group.records.append(record)
            group.machine.replay(Replayed(len(group.records) - 1, record))
        (timer,) = outcome.instructions
        assert isinstance(timer, SetTimer)
        begins, goes_on = False, timer.event == ExpiryDue(begins=False)
    assert max(sizes) <= expiry.STEP_MAX
    assert sum(sizes) == 4 * expiry.STEP_MAX
    assert len(sizes) >= 4
    assert group.list_groups().response.groups == ()  # type: ignore[attr-defined]


@pytest.mark.usefixtures("short_steps")
def test_a_sweep_that_could_not_be_stored_is_tried_again(group: GroupHarness) -> None:
    group.commit_offsets({A0: 1})
    group.advance(RETENTION_MS - 1)
    group.append_error = DISK_FULL
    group.advance(CHECK_MS)
    assert group.offsets() == {A0: 1}
    group.advance(CHECK_MS)
    assert group.describe().state is DEAD


@pytest.mark.usefixtures("short_steps")
def test_a_restart_in_the_middle_of_a_sweep_begins_a_new_one(group: GroupHarness) -> None:
    group.commit_offsets({TopicPartition("a", i): i for i in range(3 * expiry.STEP_MAX)})
    group.advance(RETENTION_MS - 1)
    written = len(group.records)
    while len(group.records) == written:
        group.advance(1)
    assert len(group.offsets()) == 3 * expiry.STEP_MAX - (len(group.records) - written)
    group.restart()
    group.advance(CHECK_MS - 1)
    assert group.offsets()
    group.advance(100)
    assert group.describe().state is DEAD


@pytest.mark.usefixtures("short_steps")
def test_what_is_committed_during_a_sweep_stays(group: GroupHarness) -> None:
    group.commit_offsets({TopicPartition("a", i): i for i in range(2 * expiry.STEP_MAX)})
    last = TopicPartition("a", 2 * expiry.STEP_MAX - 1)
    group.advance(RETENTION_MS - 1)
    while len(group.offsets()) == 2 * expiry.STEP_MAX:
        group.advance(1)
    group.commit_offsets({last: 77})
    group.advance(CHECK_MS)
    assert group.offsets() == {last: 77}


@pytest.mark.usefixtures("short_steps")
def test_a_group_that_is_deleted_during_a_sweep_is_passed_over(group: GroupHarness) -> None:
    group.commit_offsets({TopicPartition("a", i): i for i in range(2 * expiry.STEP_MAX)})
    group.commit_offsets({A0: 1}, group_id="later")
    group.advance(RETENTION_MS - 1)
    while len(group.offsets()) == 2 * expiry.STEP_MAX:
        group.advance(1)
    group.delete_group()
    group.commit_offsets({A0: 5})
    group.advance(CHECK_MS)
    assert group.offsets() == {A0: 5}
    assert group.describe("later").state is DEAD
