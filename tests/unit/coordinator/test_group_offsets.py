"""A group's offsets: commit, fetch, delete (rules O1 to O5, A4)."""

import struct

import pytest

from drover.errors import DroverError, Reason, UnavailableError
from drover.model.group import GroupState, OfferedProtocol
from drover.model.offsets import (
    METADATA_MAX_BYTES,
    GroupCommit,
    GroupCommitOutcome,
    GroupOffset,
    GroupOffsetDeleted,
    GroupOffsetDeletion,
    GroupOffsetPage,
    TopicPartition,
)
from drover_coordinator.core.groups import machine
from drover_coordinator.core.groups.events import Unloaded
from drover_coordinator.core.groups.subscriptions import parse_topics
from drover_coordinator.core.groups.validate import COMMIT_MAX_PARTITIONS
from tests.support.group_harness import (
    DISK_FULL,
    GROUP,
    SESSION_MS,
    START_MS,
    Call,
    GroupHarness,
)

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
COMMITTED = GroupCommitOutcome.COMMITTED
DELETED = GroupOffsetDeletion.DELETED
SUBSCRIBED = GroupOffsetDeletion.GROUP_SUBSCRIBED_TO_TOPIC


def subscription(*topics: str, version: int = 1, tail: bytes = b"\xff\xff\xff\xff") -> bytes:
    """A consumer's metadata: the topics it reads, then the other fields of the version."""
    names = [topic.encode() for topic in topics]
    head = struct.pack(">hi", version, len(names))
    return head + b"".join(struct.pack(">h", len(name)) + name for name in names) + tail


def consumers(group: GroupHarness, *member_ids: str, topics: tuple[str, ...] = ("a",)) -> None:
    """A stable group of consumers that read ``topics``."""
    offered = (OfferedProtocol("range", subscription(*topics)),)
    group.stable(*member_ids, protocol_type="consumer", protocols=offered)


def outcomes(call: Call) -> list[GroupCommitOutcome]:
    assert isinstance(call.response, GroupCommit)
    assert not call.response.rebalance_in_progress
    return [outcome for _, outcome in call.response.outcomes]


def deletions(call: Call) -> list[GroupOffsetDeletion]:
    results = call.response
    assert isinstance(results, tuple)
    return [each.outcome for each in results if isinstance(each, GroupOffsetDeleted)]


# O1, no group


def test_o1_a_commit_without_a_group_makes_a_simple_one(group: GroupHarness) -> None:
    assert outcomes(group.commit_offsets({A0: 5})) == [COMMITTED]
    described = group.describe()
    assert (described.state, described.protocol_type) == (GroupState.EMPTY, "")
    assert (described.generation, described.members) == (0, ())
    assert group.offsets() == {A0: 5}


def test_o1_a_member_of_no_group_is_of_another_generation(group: GroupHarness) -> None:
    for generation in (0, 1, 2**31 - 1):
        call = group.commit_offsets({A0: 5}, "m", generation)
        assert call.reason is Reason.ILLEGAL_GENERATION
    assert not group.records
    assert group.describe().state is GroupState.DEAD


def test_o1_a_consumer_without_a_group_may_commit_under_the_empty_name(
    group: GroupHarness,
) -> None:
    assert outcomes(group.commit_offsets({A0: 5}, group_id="")) == [COMMITTED]
    assert group.offsets("") == {A0: 5}
    assert group.describe("").state is GroupState.EMPTY
    group.restart()
    assert group.offsets("") == {A0: 5}


def test_o1_a_simple_group_lives_through_a_restart(group: GroupHarness) -> None:
    group.commit_offsets({A0: 5, B0: 7})
    before = group.describe()
    group.advance(1_000)
    group.restart()
    assert group.describe() == before
    assert group.offsets() == {A0: 5, B0: 7}


def test_o1_members_may_join_a_simple_group(group: GroupHarness) -> None:
    group.commit_offsets({A0: 5})
    group.stable("m")
    assert group.describe().generation == 1
    assert group.offsets() == {A0: 5}
    group.restart()
    assert group.offsets() == {A0: 5}


# O2, who may commit


def test_o2_an_empty_group_takes_commits_of_nobodys_member(group: GroupHarness) -> None:
    group.stable("m")
    group.leave("m")
    assert outcomes(group.commit_offsets({A0: 5})) == [COMMITTED]
    assert outcomes(group.commit_offsets({A0: 6}, "gone", -1)) == [COMMITTED]
    assert group.offsets() == {A0: 6}


def test_o2_an_empty_group_has_no_members_to_commit(group: GroupHarness) -> None:
    group.stable("m")
    group.leave("m")
    for generation in (0, 1, 2):
        call = group.commit_offsets({A0: 5}, "m", generation)
        assert call.reason is Reason.UNKNOWN_MEMBER_ID


def enter_state(group: GroupHarness, state: GroupState) -> None:
    if state is GroupState.COMPLETING_REBALANCE:
        group.completing("m", "n")
        return
    group.stable("m", "n")
    if state is GroupState.PREPARING_REBALANCE:
        group.enter("x")
    assert group.describe().state is state


WITH_MEMBERS = (
    GroupState.PREPARING_REBALANCE,
    GroupState.COMPLETING_REBALANCE,
    GroupState.STABLE,
)


@pytest.mark.parametrize("state", WITH_MEMBERS)
def test_o2_a_group_with_members_takes_commits_of_members_only(
    group: GroupHarness, state: GroupState
) -> None:
    enter_state(group, state)
    for member_id, generation, reason in (
        ("", -1, Reason.UNKNOWN_MEMBER_ID),
        ("", 1, Reason.UNKNOWN_MEMBER_ID),
        ("stranger", 1, Reason.UNKNOWN_MEMBER_ID),
        ("stranger", -1, Reason.UNKNOWN_MEMBER_ID),
        ("m", 0, Reason.ILLEGAL_GENERATION),
        ("m", 2, Reason.ILLEGAL_GENERATION),
        ("m", -1, Reason.ILLEGAL_GENERATION),
    ):
        call = group.commit_offsets({A0: 5}, member_id, generation)
        assert call.reason is reason, (member_id, generation)
    assert group.offsets() == {}


def test_o2_a_replaced_static_member_is_fenced(group: GroupHarness) -> None:
    group.join_static("old", "i")
    group.advance(6_000)
    group.sync("old", 1, {"old": b"all"})
    assert outcomes(group.commit_offsets({A0: 1}, "old", 1, instance_id="i")) == [COMMITTED]
    group.join_static("new", "i")
    assert group.commit_offsets({A0: 2}, "old", 1, instance_id="i").reason is (
        Reason.FENCED_INSTANCE_ID
    )
    unknown = group.commit_offsets({A0: 2}, "new", 1, instance_id="another")
    assert unknown.reason is Reason.UNKNOWN_MEMBER_ID
    # a commit with only an instance id counts as a member's
    anybody = group.commit_offsets({A0: 2}, "", -1, instance_id="i")
    assert anybody.reason is Reason.FENCED_INSTANCE_ID
    assert outcomes(group.commit_offsets({A0: 3}, "new", 1, instance_id="i")) == [COMMITTED]
    assert group.offsets() == {A0: 3}


# O3, rebalances and sessions


def test_o3_while_the_group_waits_for_its_assignment_nothing_is_committed(
    group: GroupHarness,
) -> None:
    group.completing("m")
    record_count = len(group.records)
    call = group.commit_offsets({A0: 5}, "m", 1)
    assert call.response == GroupCommit(rebalance_in_progress=True)
    assert len(group.records) == record_count
    group.advance(SESSION_MS)  # nor did the commit renew the session
    assert group.member_ids() == []


def test_o3_a_commit_keeps_the_session_alive(group: GroupHarness) -> None:
    group.stable("m", "n")
    for _ in range(5):
        group.advance(SESSION_MS - 1)
        group.commit_offsets({A0: 5}, "m", 1)
    assert group.member_ids() == ["m"]
    assert group.describe().state is GroupState.PREPARING_REBALANCE
    group.advance(SESSION_MS - 1)
    assert outcomes(group.commit_offsets({A0: 6}, "m", 1)) == [COMMITTED]
    group.advance(SESSION_MS - 1)
    assert group.member_ids() == ["m"]
    group.advance(1)
    assert group.member_ids() == []


def test_o3_a_commit_that_is_not_a_members_keeps_nobody_alive(group: GroupHarness) -> None:
    group.stable("m")
    group.advance(SESSION_MS - 1)
    group.commit_offsets({A0: 5}, "stranger", 1)
    group.advance(1)
    assert group.member_ids() == []


def test_o3_a_refused_append_leaves_the_session_looked_after(group: GroupHarness) -> None:
    group.stable("m", "n")
    group.advance(100)
    group.append_error = DISK_FULL
    assert group.commit_offsets({A0: 5}, "m", 1).reason is Reason.STORAGE_UNAVAILABLE
    assert group.offsets() == {}
    group.advance(SESSION_MS - 1)
    assert "m" in group.member_ids()
    group.advance(1)
    assert "m" not in group.member_ids()
    assert outcomes(group.commit_offsets({A0: 6}, group_id="other")) == [COMMITTED]


# O4, what is committed


def test_o4_too_much_metadata_fails_its_own_partition_only(group: GroupHarness) -> None:
    fits = GroupOffset("a", 0, 1, metadata="ü" * (METADATA_MAX_BYTES // 2))
    too_much = GroupOffset("a", 1, 2, metadata="ü" * (METADATA_MAX_BYTES // 2) + "x")
    call = group.commit_offsets([fits, too_much])
    assert outcomes(call) == [COMMITTED, GroupCommitOutcome.METADATA_TOO_LARGE]
    assert group.offsets() == {A0: 1}
    assert group.commit_offsets([too_much], group_id="other").responses
    assert group.describe("other").state is GroupState.DEAD


def test_o4_everything_of_a_commit_is_kept(group: GroupHarness) -> None:
    group.advance(7)
    offset = GroupOffset("a", 0, 2**62, leader_epoch=3, metadata="m", expire_time_ms=10**12)
    group.commit_offsets([offset, GroupOffset("b", 0, 0, commit_time_ms=99)])
    group.restart()
    page = group.fetch_offsets().response
    assert page == GroupOffsetPage(
        (
            GroupOffset("a", 0, 2**62, 3, "m", START_MS + 7, 10**12),
            GroupOffset("b", 0, 0, commit_time_ms=START_MS + 7),
        )
    )


def test_o4_a_commit_of_many_partitions_is_one_append_or_none(group: GroupHarness) -> None:
    group.commit_offsets({A0: 1, A1: 1, B0: 1})
    group.append_error = DISK_FULL
    assert group.commit_offsets({A0: 2, A1: 2}).reason is Reason.STORAGE_UNAVAILABLE
    assert group.offsets() == {A0: 1, A1: 1, B0: 1}
    group.commit_offsets({A0: 3, A1: 3})
    assert group.offsets() == {A0: 3, A1: 3, B0: 1}


def test_o4_a_repeated_commit_changes_nothing(group: GroupHarness) -> None:
    for _ in range(3):
        group.commit_offsets({A0: 5})
    assert group.offsets() == {A0: 5}


def test_o4_every_fault_of_a_commit_is_told(group: GroupHarness) -> None:
    call = group.commit_offsets(
        [
            GroupOffset("", 0, 1),
            GroupOffset("t" * 250, 0, 1),
            GroupOffset("a\n", 0, 1),
            GroupOffset("a", -1, 1),
            GroupOffset("a", 0, -1),
            GroupOffset("a", 0, 1, leader_epoch=-1),
            GroupOffset("a", 2, 1, expire_time_ms=-1),
            GroupOffset("a", 3, 1, expire_time_ms=2**62),
        ],
        member_id="m" * 400,
        instance_id="",
    )
    assert call.reason is Reason.INVALID_REQUEST
    assert [each.field for each in call.errors[0].violations] == [  # type: ignore[attr-defined]
        "member_id",
        "instance_id",
        "offsets[0].topic",
        "offsets[1].topic",
        "offsets[2].topic",
        "offsets[3].partition",
        "offsets[4].offset",
        "offsets[5].leader_epoch",
        "offsets[6].expire_time",
        "offsets[7].expire_time",
        "offsets[5]",
    ]
    assert group.commit_offsets([]).reason is Reason.INVALID_REQUEST
    many = {TopicPartition("a", index): 0 for index in range(COMMIT_MAX_PARTITIONS + 1)}
    assert group.commit_offsets(many).reason is Reason.INVALID_REQUEST
    del many[A0]
    assert len(outcomes(group.commit_offsets(many))) == COMMIT_MAX_PARTITIONS
    assert group.commit_offsets({A0: 1}, group_id="g\0").reason is Reason.INVALID_GROUP_ID


def test_o4_a_log_has_room_for_so_many_groups_and_offsets(
    group: GroupHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "OFFSETS_MAX", 3)
    group.commit_offsets({A0: 1, A1: 1})
    assert group.commit_offsets({A0: 2, B0: 1}, group_id="h").reason is Reason.QUEUE_FULL
    assert group.describe("h").state is GroupState.DEAD
    assert outcomes(group.commit_offsets({A0: 2, B0: 1})) == [COMMITTED, COMMITTED]
    assert outcomes(group.commit_offsets({A0: 3, A1: 3, B0: 3})) == [COMMITTED] * 3
    group.restart()
    assert group.commit_offsets({TopicPartition("c", 0): 1}).reason is Reason.QUEUE_FULL
    group.delete_offsets(A0)
    assert outcomes(group.commit_offsets({TopicPartition("c", 0): 1})) == [COMMITTED]
    monkeypatch.setattr(machine, "GROUPS_MAX", 1)
    group.delete_offsets(A1)
    assert group.commit_offsets({A0: 2}, group_id="h").reason is Reason.QUEUE_FULL
    assert outcomes(group.commit_offsets({A0: 2})) == [COMMITTED]


# O5, fetch


def fetched(call: Call) -> list[tuple[TopicPartition, int]]:
    page = call.response
    assert isinstance(page, GroupOffsetPage)
    return [(TopicPartition(each.topic, each.partition), each.offset) for each in page.offsets]


@pytest.mark.parametrize("state", [GroupState.EMPTY, *WITH_MEMBERS])
def test_o5_offsets_are_told_in_any_state(group: GroupHarness, state: GroupState) -> None:
    group.commit_offsets({A0: 5})
    if state is not GroupState.EMPTY:
        enter_state(group, state)
    assert fetched(group.fetch_offsets(B0, A0)) == [(B0, -1), (A0, 5)]
    assert fetched(group.fetch_offsets()) == [(A0, 5)]


def test_o5_what_is_not_committed_is_minus_one(group: GroupHarness) -> None:
    assert fetched(group.fetch_offsets(A0, B0)) == [(A0, -1), (B0, -1)]
    assert fetched(group.fetch_offsets()) == []
    assert fetched(group.fetch_offsets(A0, group_id="")) == [(A0, -1)]


def test_o5_pages_cover_every_offset_once_in_order(group: GroupHarness) -> None:
    committed = {
        TopicPartition(topic, partition): partition
        for topic in ("b", "a/b", "ü", "a")
        for partition in (3, 12, 0, 2)
    }
    group.commit_offsets(committed)
    for size in (1, 3, 16, 17):
        found: list[tuple[TopicPartition, int]] = []
        token = ""
        for _ in range(len(committed)):
            call = group.fetch_offsets(page_size=size, page_token=token)
            page = call.response
            assert isinstance(page, GroupOffsetPage)
            assert 1 <= len(page.offsets) <= size
            found += fetched(call)
            token = page.next_page_token
            if not token:
                break
        assert found == sorted(committed.items())
    default = group.fetch_offsets().response
    assert isinstance(default, GroupOffsetPage)
    assert not default.next_page_token


def test_o5_pages_are_bounded_in_bytes(group: GroupHarness) -> None:
    wide = [TopicPartition("a", index) for index in range(600)]
    group.commit_offsets([GroupOffset("a", at.partition, 1, metadata="m" * 4_000) for at in wide])
    for named in ((), tuple(reversed(wide))):
        found: list[TopicPartition] = []
        token, page_count = "", 0
        while True:
            page = group.fetch_offsets(*named, page_token=token, page_size=10_000).response
            assert isinstance(page, GroupOffsetPage)
            assert sum(len(each.metadata) for each in page.offsets) <= 1024 * 1024
            found += [TopicPartition(each.topic, each.partition) for each in page.offsets]
            token, page_count = page.next_page_token, page_count + 1
            if not token:
                break
        assert found == list(named or wide)
        assert page_count == 3


@pytest.mark.parametrize("token", ["x", "1", "/a", "-1/a", "9" * 11 + "/a", "\u0661/a"])
def test_o5_a_token_that_no_page_gave_is_refused(group: GroupHarness, token: str) -> None:
    group.commit_offsets({A0: 5})
    assert group.fetch_offsets(page_token=token).reason is Reason.INVALID_REQUEST


def test_o5_a_token_for_named_partitions_is_a_count(group: GroupHarness) -> None:
    for token in ("x", "-1", "9" * 10):
        assert group.fetch_offsets(A0, page_token=token).reason is Reason.INVALID_REQUEST
    assert fetched(group.fetch_offsets(A0, B0, page_token="1")) == [(B0, -1)]
    assert fetched(group.fetch_offsets(A0, page_token="7")) == []


def test_o5_faults_of_a_fetch(group: GroupHarness) -> None:
    for page_size in (-1, 10_001):
        assert group.fetch_offsets(page_size=page_size).reason is Reason.INVALID_REQUEST
    for at in (TopicPartition("", 0), TopicPartition("a", -1)):
        assert group.fetch_offsets(at).reason is Reason.INVALID_REQUEST
        assert group.delete_offsets(at).reason is Reason.INVALID_REQUEST
    many = [TopicPartition("a", index) for index in range(COMMIT_MAX_PARTITIONS + 1)]
    assert group.fetch_offsets(*many).reason is Reason.INVALID_REQUEST


# A4, delete


def test_a4_offsets_of_an_unknown_group_cannot_be_deleted(group: GroupHarness) -> None:
    assert group.delete_offsets(A0).reason is Reason.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize("protocol_type", ["", "connect", "consumer"])
def test_a4_an_empty_group_gives_up_any_offset(group: GroupHarness, protocol_type: str) -> None:
    if protocol_type:
        group.stable("m", protocol_type=protocol_type)
        group.leave("m")
    group.commit_offsets({A0: 1, A1: 2})
    assert deletions(group.delete_offsets(A0, B0)) == [DELETED, DELETED]
    assert group.offsets() == {A1: 2}
    assert deletions(group.delete_offsets(A0)) == [DELETED]
    group.restart()
    assert group.offsets() == {A1: 2}


def test_a4_only_what_is_there_leaves_a_record(group: GroupHarness) -> None:
    group.commit_offsets({A0: 1})
    record_count = len(group.records)
    group.delete_offsets(A1, B0)
    assert len(group.records) == record_count


def test_a4_the_last_offsets_of_a_simple_group_can_be_deleted_twice(group: GroupHarness) -> None:
    group.commit_offsets({A0: 1})
    for _ in range(2):
        assert deletions(group.delete_offsets(A0)) == [DELETED]
    group.restart()
    assert group.describe().state is GroupState.DEAD


@pytest.mark.parametrize("state", WITH_MEMBERS)
def test_a4_a_group_with_members_that_are_no_consumers_keeps_all(
    group: GroupHarness, state: GroupState
) -> None:
    group.commit_offsets({A0: 1})
    enter_state(group, state)
    assert group.delete_offsets(A0).reason is Reason.NON_EMPTY_GROUP
    assert group.offsets() == {A0: 1}


def test_a4_consumers_keep_the_topics_they_read(group: GroupHarness) -> None:
    group.commit_offsets({A0: 1, B0: 2})
    consumers(group, "m", "n", topics=("a", "c"))
    assert deletions(group.delete_offsets(A0, B0)) == [SUBSCRIBED, DELETED]
    assert group.offsets() == {A0: 1}
    group.restart()
    assert deletions(group.delete_offsets(A0)) == [SUBSCRIBED]


def test_a4_what_any_member_reads_counts_also_while_they_rebalance(group: GroupHarness) -> None:
    group.commit_offsets({A0: 1, B0: 2, A1: 3})
    consumers(group, "m", topics=("a",))
    group.enter(
        "n",
        protocol_type="consumer",
        protocols=(OfferedProtocol("range", subscription("b")),),
    )
    assert group.describe().state is GroupState.PREPARING_REBALANCE
    assert deletions(group.delete_offsets(A0, B0)) == [SUBSCRIBED, SUBSCRIBED]


def test_a4_before_a_protocol_is_selected_all_that_are_offered_count(group: GroupHarness) -> None:
    group.commit_offsets({A0: 1, B0: 2, TopicPartition("c", 0): 3})
    offered = (
        OfferedProtocol("range", subscription("a")),
        OfferedProtocol("sticky", subscription("b")),
    )
    group.enter("m", protocol_type="consumer", protocols=offered)
    found = deletions(group.delete_offsets(A0, B0, TopicPartition("c", 0)))
    assert found == [SUBSCRIBED, SUBSCRIBED, DELETED]


def test_a4_consumers_that_cannot_be_understood_keep_all(group: GroupHarness) -> None:
    group.commit_offsets({A0: 1})
    group.stable("m", protocol_type="consumer")  # its metadata b"meta" is no subscription
    assert deletions(group.delete_offsets(A0)) == [SUBSCRIBED]


def test_a4_no_offset_of_a_failed_append_goes(group: GroupHarness) -> None:
    group.commit_offsets({A0: 1, A1: 2})
    group.append_error = DISK_FULL
    assert group.delete_offsets(A0, A1).reason is Reason.STORAGE_UNAVAILABLE
    assert group.offsets() == {A0: 1, A1: 2}


def test_a4_one_partition_at_least_is_named(group: GroupHarness) -> None:
    group.commit_offsets({A0: 1})
    assert group.delete_offsets().reason is Reason.INVALID_REQUEST


# subscriptions


@pytest.mark.parametrize("version", [0, 1, 3, 99])
def test_a_subscription_is_understood_in_any_version(version: int) -> None:
    metadata = subscription("a", "grüppe", version=version, tail=b"\0\0\0\x02xxanything")
    assert parse_topics(metadata) == frozenset({"a", "grüppe"})


def test_a_subscription_to_nothing() -> None:
    assert parse_topics(subscription()) == frozenset()
    assert parse_topics(struct.pack(">hi", 0, 0)) == frozenset()


@pytest.mark.parametrize(
    "metadata",
    [
        b"",
        b"\0",
        b"meta",
        struct.pack(">hi", -1, 0),
        struct.pack(">hi", 0, -1),
        struct.pack(">hi", 0, 2**31 - 1),
        struct.pack(">hih", 0, 1, -1),
        struct.pack(">hih", 0, 1, 0),
        struct.pack(">hih", 0, 1, 5) + b"four",
        struct.pack(">hih", 0, 1, 2) + b"\xff\xff",
        struct.pack(">hih", 0, 2, 1) + b"a",
    ],
)
def test_bytes_that_are_no_subscription(metadata: bytes) -> None:
    assert parse_topics(metadata) is None


# a coordinator that has stopped serving


def test_whoever_asks_a_coordinator_that_serves_no_more_hears_so(group: GroupHarness) -> None:
    group.commit_offsets({A0: 1})
    group.stable("m", group_id="other")
    draining: DroverError = UnavailableError(Reason.DRAINING, "shutting down")
    group.handle(Unloaded(draining))
    record_count = len(group.records)
    for group_id in (GROUP, "other", "unknown"):
        for call in (
            group.commit_offsets({A0: 2}, group_id=group_id),
            group.commit_offsets({A0: 2}, "m", 1, group_id=group_id),
            group.fetch_offsets(A0, group_id=group_id),
            group.fetch_offsets(group_id=group_id),
            group.delete_offsets(A0, group_id=group_id),
            group.delete_group(group_id),
        ):
            assert call.reason is Reason.COORDINATOR_NOT_AVAILABLE
    group.advance(group.settings.offsets_retention_ms * 2)
    assert len(group.records) == record_count
