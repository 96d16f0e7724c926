"""Random commits, deletions, expiry, restarts, compactions and failed appends against a dict.

The model tracks acknowledgements and their times: positions by group and partition, the existing
groups, and the highest generation of each group id.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from drover.errors import Reason
from drover.model.group import GroupPage, GroupState
from drover.model.offsets import (
    GroupCommit,
    GroupCommitOutcome,
    GroupOffset,
    GroupOffsetDeleted,
    GroupOffsetDeletion,
    TopicPartition,
)
from drover_coordinator.core.groups.settings import GroupSettings
from drover_coordinator.record_codec import encode_record
from tests.support.group_harness import DISK_FULL, Call, GroupHarness

RETENTION_MS = 50_000
CHECK_MS = 10_000
SESSION_MS = 6_000
GROUPS = ("", "g", "h")
PARTITIONS = tuple(TopicPartition(topic, index) for topic in ("a", "b") for index in (0, 1))

groups = st.sampled_from(GROUPS)
named_groups = st.sampled_from(GROUPS[1:])
positions = st.dictionaries(st.sampled_from(PARTITIONS), st.integers(0, 5), min_size=1)


class OffsetsLife(RuleBasedStateMachine):
    """Groups that are created and deleted, with offsets."""

    def __init__(self) -> None:
        super().__init__()
        self.group = GroupHarness(
            GroupSettings(
                initial_rebalance_delay_ms=0,
                offsets_retention_ms=RETENTION_MS,
                offsets_retention_check_ms=CHECK_MS,
            )
        )
        self.committed: dict[str, dict[TopicPartition, GroupOffset]] = {}
        self.highest: dict[str, int] = {}
        self.member_count = 0

    # --- calls -------------------------------------------------------------------------------

    @rule(group_id=groups, offsets=positions, lives_ms=st.none() | st.integers(0, 100_000))
    def commit(
        self, group_id: str, offsets: dict[TopicPartition, int], lives_ms: int | None
    ) -> None:
        expire_ms = None if lives_ms is None else self.group.now_ms + lives_ms
        sent = [
            GroupOffset(at.topic, at.partition, offset, expire_time_ms=expire_ms)
            for at, offset in offsets.items()
        ]
        self.acknowledge(self.group.commit_offsets(sent, group_id=group_id), group_id, sent)

    @rule(group_id=named_groups, offsets=positions, stale=st.booleans())
    def commit_as_member(
        self, group_id: str, offsets: dict[TopicPartition, int], stale: bool
    ) -> None:
        described = self.group.describe(group_id)
        member_id = described.members[0].member_id if described.members else "nobody"
        sent = [GroupOffset(at.topic, at.partition, offset) for at, offset in offsets.items()]
        call = self.group.commit_offsets(
            sent, member_id, described.generation + stale, group_id=group_id
        )
        if stale or not described.members:
            assert call.errors
        self.acknowledge(call, group_id, sent)

    def acknowledge(self, call: Call, group_id: str, sent: list[GroupOffset]) -> None:
        if call.errors:
            assert call.reason in (
                Reason.STORAGE_UNAVAILABLE,
                Reason.UNKNOWN_MEMBER_ID,
                Reason.ILLEGAL_GENERATION,
            )
            return
        assert isinstance(call.response, GroupCommit)
        for at, outcome in call.response.outcomes:
            assert outcome is GroupCommitOutcome.COMMITTED
            (offset,) = [each for each in sent if TopicPartition(each.topic, each.partition) == at]
            self.committed.setdefault(group_id, {})[at] = GroupOffset(
                at.topic,
                at.partition,
                offset.offset,
                commit_time_ms=self.group.now_ms,
                expire_time_ms=offset.expire_time_ms,
            )

    @rule(group_id=groups, partitions=st.sets(st.sampled_from(PARTITIONS), min_size=1))
    def delete_offsets(self, group_id: str, partitions: set[TopicPartition]) -> None:
        call = self.group.delete_offsets(*sorted(partitions), group_id=group_id)
        if call.errors:
            assert call.reason in (
                Reason.STORAGE_UNAVAILABLE,
                Reason.GROUP_ID_NOT_FOUND,
                Reason.NON_EMPTY_GROUP,
            )
            if call.reason is Reason.GROUP_ID_NOT_FOUND:
                assert not self.committed.get(group_id)
            return
        for result in call.response:  # type: ignore[attr-defined]
            assert isinstance(result, GroupOffsetDeleted)
            assert result.outcome is GroupOffsetDeletion.DELETED
            self.committed.get(group_id, {}).pop(result.partition, None)

    @rule(group_id=groups)
    def delete_group(self, group_id: str) -> None:
        call = self.group.delete_group(group_id)
        if call.responses:
            self.committed.pop(group_id, None)
            assert self.group.describe(group_id).state is GroupState.DEAD
        elif call.reason is Reason.GROUP_ID_NOT_FOUND:
            assert not self.committed.get(group_id)

    @rule(group_id=named_groups)
    def somebody_joins(self, group_id: str) -> None:
        self.member_count += 1
        member_id = f"m{self.member_count}"
        if self.group.first_join(member_id, group_id=group_id).errors:
            return
        call = self.group.join(member_id, group_id=group_id, session_ms=SESSION_MS)
        self.group.advance(0)
        if not call.responses:
            return
        generation = call.joined.generation
        assert generation > self.highest.get(group_id, 0), "a generation was given out twice"
        self.highest[group_id] = generation
        self.group.sync(member_id, generation, {member_id: b""}, group_id=group_id)

    @rule(group_id=named_groups)
    def everybody_leaves(self, group_id: str) -> None:
        members = self.group.member_ids(group_id)
        if members:
            self.group.leave(*members, group_id=group_id)

    # --- the world ---------------------------------------------------------------------------

    @rule(duration_ms=st.sampled_from([1, CHECK_MS // 2, CHECK_MS, RETENTION_MS]))
    def time_passes(self, duration_ms: int) -> None:
        self.group.advance(duration_ms)
        self.look_for_what_expired()

    @rule()
    def the_coordinator_crashes(self) -> None:
        self.group.append_error = None
        self.group.restart()

    @rule()
    def the_log_is_compacted(self) -> None:
        before = self.group.machine.hard_state()
        last = {encode_record(each).key: each for each in self.group.records}
        self.group.records = list(last.values())
        self.group.append_error = None
        self.group.restart()
        assert self.group.machine.hard_state() == before

    @rule()
    def the_next_append_fails(self) -> None:
        self.group.append_error = DISK_FULL

    # --- the model ---------------------------------------------------------------------------

    def look_for_what_expired(self) -> None:
        """Drop expired offsets from the model; the invariant checks that all others still exist."""
        for group_id, committed in self.committed.items():
            present = self.group.offsets(group_id)
            for at in [each for each in committed if each not in present]:
                offset = committed.pop(at)
                if offset.expire_time_ms is None:
                    due_ms = offset.commit_time_ms + RETENTION_MS
                else:
                    due_ms = offset.expire_time_ms
                assert self.group.now_ms >= due_ms, f"{group_id} {at} went too early"

    @invariant()
    def all_that_was_acknowledged_is_there(self) -> None:
        for group_id in GROUPS:
            expected = {
                at: offset.offset for at, offset in self.committed.get(group_id, {}).items()
            }
            assert self.group.offsets(group_id) == expected

    @invariant()
    def groups_are_there_as_long_as_they_have_offsets(self) -> None:
        page = self.group.list_groups().response
        assert isinstance(page, GroupPage)
        listed = {each.group_id for each in page.groups}
        assert {group_id for group_id, offsets in self.committed.items() if offsets} <= listed
        for each in page.groups:
            assert each.generation >= self.highest.get(each.group_id, 0)
            self.highest[each.group_id] = each.generation

    def teardown(self) -> None:
        """Finally every offset expires, and every group without members is removed."""
        self.group.append_error = None
        for group_id in GROUPS[1:]:
            self.everybody_leaves(group_id)
        self.group.advance(SESSION_MS * 100)
        self.group.advance(4 * RETENTION_MS)
        page = self.group.list_groups().response
        assert page == GroupPage(()), page


TestOffsetsLife = OffsetsLife.TestCase
TestOffsetsLife.settings = settings(max_examples=100, stateful_step_count=40)
