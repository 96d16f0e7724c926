"""DeleteGroup (rule A3), and the generation floor that a deleted group leaves behind."""

import pytest

from drover.errors import Reason
from drover.model.group import GroupPage, GroupState
from drover.model.offsets import TopicPartition
from drover_coordinator.core.groups.records import FloorRecord, GroupRecord, OffsetRecord
from drover_coordinator.core.groups.settings import GroupSettings
from drover_coordinator.record_codec import encode_record
from tests.support.group_harness import DISK_FULL, GROUP, GroupHarness

A0, B0 = TopicPartition("a", 0), TopicPartition("b", 0)
DEAD, EMPTY = GroupState.DEAD, GroupState.EMPTY


def reach(group: GroupHarness, generation: int, group_id: str = GROUP) -> None:
    """Bring a group to ``generation`` and leave it empty."""
    group.enter("m", group_id=group_id)
    group.advance(6_000)
    while group.describe(group_id).generation < generation - 1:
        group.join("m", group_id=group_id)
        group.sync("m", assignments={"m": b""}, group_id=group_id)
    group.leave("m", group_id=group_id)
    assert group.describe(group_id).generation == generation


# A3, which groups may be deleted


def test_a3_an_unknown_group_is_not_found(group: GroupHarness) -> None:
    for group_id in ("unknown", ""):
        assert group.delete_group(group_id).reason is Reason.GROUP_ID_NOT_FOUND
    assert group.delete_group("g" * 256).reason is Reason.INVALID_GROUP_ID


def test_a3_an_empty_group_goes_with_its_offsets(group: GroupHarness) -> None:
    reach(group, 2)
    group.commit_offsets({A0: 1, B0: 2})
    assert group.delete_group().response is None
    assert group.records[-4:] == [
        OffsetRecord(GROUP, A0, None),
        OffsetRecord(GROUP, B0, None),
        FloorRecord(2),
        GroupRecord(GROUP, None),
    ]
    for _ in range(2):
        assert group.describe().state is DEAD
        assert group.list_groups().response == GroupPage(())
        assert group.offsets() == {}
        assert group.delete_group().reason is Reason.GROUP_ID_NOT_FOUND
        group.restart()


def test_a3_a_simple_group_goes_without_raising_the_floor(group: GroupHarness) -> None:
    group.commit_offsets({A0: 1})
    group.commit_offsets({A0: 1}, group_id="")
    assert group.delete_group().response is None
    assert group.delete_group("").response is None
    assert not any(isinstance(each, FloorRecord) for each in group.records)
    group.restart()
    assert group.list_groups().response == GroupPage(())


@pytest.mark.parametrize("state", ["PREPARING", "COMPLETING", "STABLE"])
def test_a3_a_group_with_members_stays(group: GroupHarness, state: str) -> None:
    group.commit_offsets({A0: 1})
    group.completing("m")
    if state != "COMPLETING":
        group.assign("m")
    if state == "PREPARING":
        group.enter("n")
    before = group.describe()
    assert group.delete_group().reason is Reason.NON_EMPTY_GROUP
    assert group.describe() == before
    assert group.offsets() == {A0: 1}


def test_a3_ids_that_were_handed_out_go_with_the_group(group: GroupHarness) -> None:
    group.first_join("a")
    assert group.delete_group().response is None
    assert group.join("a").reason is Reason.UNKNOWN_MEMBER_ID
    group.first_join("b")
    group.advance(5_000)
    group.first_join("c")
    group.advance(5_001)  # the timer of "a" would have fired
    assert group.join("c").waits


def test_a3_a_refused_append_leaves_the_group_as_it_was(group: GroupHarness) -> None:
    reach(group, 2)
    group.commit_offsets({A0: 1})
    group.first_join("n")
    before = group.describe()
    group.append_error = DISK_FULL
    assert group.delete_group().reason is Reason.STORAGE_UNAVAILABLE
    assert group.describe() == before
    assert group.offsets() == {A0: 1}
    assert group.join("n").waits


# the floor


def test_a_new_group_of_that_name_goes_on_where_the_old_one_ended(group: GroupHarness) -> None:
    reach(group, 5)
    group.delete_group()
    group.first_join("n")
    assert group.describe().generation == 5
    call = group.join("n")
    group.advance(6_000)
    assert call.joined.generation == 6
    group.restart()
    assert group.describe().generation == 6


def test_every_new_group_begins_at_the_floor(group: GroupHarness) -> None:
    reach(group, 5)
    group.stable("x", group_id="older")
    group.commit_offsets({A0: 1}, group_id="simple")
    group.delete_group()
    assert group.describe("simple").generation == 5
    assert group.describe("older").generation == 1
    for _ in range(2):
        group.commit_offsets({A0: 1}, group_id="new")
        assert group.describe("new").generation == 5
        assert group.describe("simple").generation == 5
        group.restart()
    calls = group.completing("n", group_id="new")
    assert calls["n"].joined.generation == 6


def test_the_floor_never_goes_down(group: GroupHarness) -> None:
    reach(group, 4, "a")
    reach(group, 2, "b")
    group.delete_group("a")
    group.delete_group("b")
    floors = [each.generation for each in group.records if isinstance(each, FloorRecord)]
    assert floors == [4]
    group.restart()
    group.commit_offsets({A0: 1})
    assert group.describe().generation == 4


def test_a_group_that_began_at_the_floor_and_never_had_members_is_forgotten(
    group: GroupHarness,
) -> None:
    reach(group, 5)
    group.delete_group()
    group.first_join("n")
    group.restart()
    assert group.describe().state is EMPTY  # its creation is durable
    group.advance(group.settings.session_timeout_min_ms)
    assert group.describe().state is DEAD
    assert group.records[-1] == GroupRecord(GROUP, None)
    group.first_join("n")
    group.leave("n")
    assert group.describe().state is DEAD


def test_a_group_with_offsets_outlives_the_ids_that_were_handed_out(group: GroupHarness) -> None:
    group.first_join("n")
    group.commit_offsets({A0: 1})
    group.leave("n")
    assert group.describe().state is EMPTY
    group.restart()
    group.advance(group.settings.session_timeout_max_ms)
    assert group.offsets() == {A0: 1}


def test_a_refused_first_generation_above_the_floor_is_tried_again(group: GroupHarness) -> None:
    reach(group, 5)
    group.delete_group()
    group.enter("n")
    group.append_error = DISK_FULL
    group.advance(6_000)
    assert group.describe().generation == 5
    assert group.join("n").joined.generation == 6


def test_the_order_of_records_on_loading_does_not_matter(group: GroupHarness) -> None:
    """Compaction keeps the last record of each key; only the order of these records is kept."""
    reach(group, 5)
    group.commit_offsets({A0: 1, B0: 2})
    group.delete_group()
    group.commit_offsets({A0: 3})
    group.stable("m", group_id="other")
    group.commit_offsets({B0: 4}, "m", 6, group_id="other")
    before = group.machine.hard_state()
    last = list({encode_record(each).key: each for each in group.records}.values())
    for records in (last, last[::-1], [each for each in last if not is_tombstone(each)]):
        loaded = GroupHarness(GroupSettings())
        loaded.records = list(records)
        loaded.restart_with_log()
        assert loaded.machine.hard_state() == before
        assert loaded.describe().generation == 5
        assert loaded.describe("other").generation == 6


def is_tombstone(record: object) -> bool:
    match record:
        case GroupRecord(_, None) | OffsetRecord(_, _, None):
            return True
    return False
