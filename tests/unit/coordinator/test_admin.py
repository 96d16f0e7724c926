"""DescribeGroup and ListGroups, rules A1 and A2."""

from drover.errors import Reason
from drover.model.group import (
    GroupDescription,
    GroupListing,
    GroupMember,
    GroupPage,
    GroupState,
)
from drover.model.offsets import TopicPartition
from tests.support.group_harness import GROUP, REBALANCE_MS, SESSION_MS, GroupHarness

STABLE, EMPTY = GroupState.STABLE, GroupState.EMPTY


def member(member_id: str, metadata: bytes = b"", assignment: bytes = b"") -> GroupMember:
    return GroupMember(member_id, "client", "host", SESSION_MS, REBALANCE_MS, metadata, assignment)


def test_a1_an_unknown_group_is_dead(group: GroupHarness) -> None:
    assert group.describe("nobody") == GroupDescription("nobody", GroupState.DEAD)
    assert group.describe("") == GroupDescription("", GroupState.DEAD)


def test_a1_a_stable_group_shows_everything(group: GroupHarness) -> None:
    group.stable("b", "a")
    assert group.describe() == GroupDescription(
        group_id=GROUP,
        state=STABLE,
        protocol_type="connect",
        protocol_name="default",
        generation=1,
        leader_id="b",
        members=(member("a", b"meta", b"to-a"), member("b", b"meta", b"to-b")),
        state_change_time_ms=group.now_ms,
    )


def test_a1_metadata_and_assignment_only_when_stable(group: GroupHarness) -> None:
    group.completing("a")
    completing = group.describe()
    assert (completing.members, completing.protocol_name) == ((member("a"),), "")
    group.assign("a")
    group.enter("b")
    assert group.describe().state is GroupState.PREPARING_REBALANCE
    assert group.describe().members == (member("a"), member("b"))


def test_a1_an_empty_group_keeps_its_type_and_generation(group: GroupHarness) -> None:
    group.stable("a")
    group.leave("a")
    assert group.describe() == GroupDescription(
        GROUP, EMPTY, "connect", generation=2, state_change_time_ms=group.now_ms
    )


def test_a2_lists_by_group_id_with_filters(group: GroupHarness) -> None:
    for group_id, protocol_type in (("c", "consumer"), ("a", "connect"), ("b", "connect")):
        group.enter("m", group_id=group_id, protocol_type=protocol_type)
    group.advance(3_000)
    group.leave("m", group_id="b")
    everything = group.list_groups().response
    completing = GroupState.COMPLETING_REBALANCE
    assert everything == GroupPage(
        (
            GroupListing("a", completing, "connect", 1, 1),
            GroupListing("b", EMPTY, "connect", 0, 2),
            GroupListing("c", completing, "consumer", 1, 1),
        )
    )

    def found(**filters: object) -> list[str]:
        page = group.list_groups(**filters).response
        return [each.group_id for each in page.groups]  # type: ignore[attr-defined]

    assert found(states=frozenset({EMPTY})) == ["b"]
    assert found(states=frozenset({EMPTY, completing})) == ["a", "b", "c"]
    assert found(states=frozenset({STABLE})) == []
    assert found(protocol_types=frozenset({"connect"})) == ["a", "b"]
    assert found(protocol_types=frozenset({"connect"}), states=frozenset({completing})) == ["a"]


def test_a2_pages_cover_every_group_once(group: GroupHarness) -> None:
    expected = [f"g{index:03}" for index in range(205)]
    for group_id in reversed(expected):
        group.first_join("m", group_id=group_id)
    found: list[str] = []
    token = ""
    sizes = []
    while True:
        page = group.list_groups(page_token=token).response
        assert isinstance(page, GroupPage)
        sizes.append(len(page.groups))
        found += [each.group_id for each in page.groups]
        token = page.next_page_token
        if not token:
            break
    assert found == expected
    assert sizes == [100, 100, 5]
    last = group.list_groups(page_size=5, page_token="g199").response
    assert isinstance(last, GroupPage)
    assert [each.group_id for each in last.groups] == expected[200:]
    assert last.next_page_token == ""


def test_a2_page_size_has_bounds(group: GroupHarness) -> None:
    assert group.list_groups(page_size=-1).reason is Reason.INVALID_REQUEST
    assert group.list_groups(page_size=1_001).reason is Reason.INVALID_REQUEST
    assert group.list_groups(page_size=1_000).response == GroupPage(())


def test_a2_the_group_without_a_name_is_listed_on_pages_of_any_size(group: GroupHarness) -> None:
    for group_id in ("", "a", "b"):
        group.commit_offsets({TopicPartition("t", 0): 1}, group_id=group_id)
    for size in (1, 2, 3):
        found: list[str] = []
        token = ""
        for _ in range(4):
            page = group.list_groups(page_size=size, page_token=token).response
            assert isinstance(page, GroupPage)
            found += [each.group_id for each in page.groups]
            token = page.next_page_token
            if not token:
                break
        assert found == ["", "a", "b"]


def test_a2_a_simple_group_has_no_type(group: GroupHarness) -> None:
    group.commit_offsets({TopicPartition("t", 0): 1})
    group.enter("m", group_id="typed")
    assert group.list_groups(protocol_types=frozenset({""})).response == GroupPage(
        (GroupListing("g", EMPTY, "", 0, 0),)
    )
