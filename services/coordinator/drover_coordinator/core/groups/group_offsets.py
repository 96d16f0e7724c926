"""A group's offsets: commit, fetch, delete (rules O1 to O5 and A4)."""

import heapq
from collections.abc import Iterable

from drover.errors import DroverError
from drover.model.group import GroupState
from drover.model.offsets import (
    METADATA_MAX_BYTES,
    NO_OFFSET,
    GroupCommit,
    GroupCommitOutcome,
    GroupOffset,
    GroupOffsetDeleted,
    GroupOffsetDeletion,
    GroupOffsetPage,
    TopicPartition,
)
from drover.model.pages import PAGE_BYTES_MAX
from drover_coordinator.core.groups.events import (
    CommitGroupOffsets,
    DeleteGroupOffsets,
    FetchGroupOffsets,
)
from drover_coordinator.core.groups.failures import (
    bad_page_token,
    group_not_found,
    illegal_generation,
    non_empty_group,
    unknown_member,
)
from drover_coordinator.core.groups.fencing import member_error
from drover_coordinator.core.groups.group import Group
from drover_coordinator.core.groups.outcome_builder import OutcomeBuilder
from drover_coordinator.core.groups.records import OffsetRecord
from drover_coordinator.core.groups.sessions import extend_session
from drover_coordinator.core.groups.subscriptions import CONSUMER, subscribed_topics

PAGE_SIZE_DEFAULT = 1_000
#: The bytes of an offset in the response without its strings.
_POSITION_BYTES = 64


def commit(group: Group | None, event: CommitGroupOffsets, builder: OutcomeBuilder) -> None:
    """Commit offsets, all valid ones in one append (O1 to O4)."""
    error = _commit_error(group, event)
    if error is not None:
        builder.fail(event.call_id, error)
        return
    if group is not None and group.state is GroupState.COMPLETING_REBALANCE:
        builder.complete(event.call_id, GroupCommit(rebalance_in_progress=True))
        return
    outcomes = []
    for offset in event.offsets:
        at = TopicPartition(offset.topic, offset.partition)
        if len(offset.metadata.encode()) > METADATA_MAX_BYTES:
            outcomes.append((at, GroupCommitOutcome.METADATA_TOO_LARGE))
            continue
        outcomes.append((at, GroupCommitOutcome.COMMITTED))
        committed = GroupOffset(
            topic=offset.topic,
            partition=offset.partition,
            offset=offset.offset,
            leader_epoch=offset.leader_epoch,
            metadata=offset.metadata,
            commit_time_ms=builder.now_ms,
            expire_time_ms=offset.expire_time_ms,
        )
        builder.append(OffsetRecord(event.group_id, at, committed))
    builder.complete(event.call_id, GroupCommit(tuple(outcomes)))
    member = group.members.get(event.member_id) if group is not None else None
    if group is not None and member is not None:
        extend_session(group, member, builder)  # sets no timer, which a failed append would drop


def new_count(group: Group | None, event: CommitGroupOffsets) -> int:
    """How many new partitions a commit would add."""
    offsets = group.offsets if group is not None else {}
    return sum(TopicPartition(each.topic, each.partition) not in offsets for each in event.offsets)


def _commit_error(group: Group | None, event: CommitGroupOffsets) -> DroverError | None:
    """The error of a commit, or None; a group with members accepts commits of members only."""
    if group is None:
        if event.generation < 0:
            return None
        return illegal_generation(event.group_id, event.generation, 0)
    if group.state is GroupState.EMPTY and event.generation < 0:
        return None
    if event.generation < 0 and not event.member_id and event.instance_id is None:
        return unknown_member(group.group_id, event.member_id)
    return member_error(group, event.member_id, event.instance_id, event.generation)


def fetch(group: Group | None, event: FetchGroupOffsets, builder: OutcomeBuilder) -> None:
    """Return offsets, in any state (O5); -1 for partitions without one."""
    offsets = group.offsets if group is not None else {}
    if event.partitions:
        _fetch_named(offsets, event, builder)
    else:
        _fetch_all(offsets, event, builder)


def _fetch_named(
    offsets: dict[TopicPartition, GroupOffset], event: FetchGroupOffsets, builder: OutcomeBuilder
) -> None:
    """The page token is the number of partitions already returned."""
    token = event.page_token
    if token and not (token.isascii() and token.isdecimal() and len(token) <= 9):
        builder.fail(event.call_id, bad_page_token())
        return
    start = int(token or "0")
    remaining = (
        offsets.get(at) or GroupOffset(at.topic, at.partition, NO_OFFSET)
        for at in event.partitions[start:]
    )
    page, more = _page(remaining, len(event.partitions))
    builder.complete(event.call_id, GroupOffsetPage(page, str(start + len(page)) if more else ""))


def _fetch_all(
    offsets: dict[TopicPartition, GroupOffset], event: FetchGroupOffsets, builder: OutcomeBuilder
) -> None:
    """The page token is the last partition of the previous page."""
    after: tuple[str, int] = ("", 0)
    if event.page_token:
        partition, _, topic = event.page_token.partition("/")
        if not (topic and partition.isascii() and partition.isdecimal() and len(partition) <= 10):
            builder.fail(event.call_id, bad_page_token())
            return
        after = (topic, int(partition))
    size = event.page_size or PAGE_SIZE_DEFAULT
    remaining = ((at.topic, at.partition) for at in offsets if (at.topic, at.partition) > after)
    first = heapq.nsmallest(size + 1, remaining)
    page, more = _page((offsets[TopicPartition(*at)] for at in first), size)
    token = f"{page[-1].partition}/{page[-1].topic}" if more else ""
    builder.complete(event.call_id, GroupOffsetPage(page, token))


def _page(offsets: Iterable[GroupOffset], size: int) -> tuple[tuple[GroupOffset, ...], bool]:
    """The offsets that fit into a page, at least one, and whether more follow."""
    page: list[GroupOffset] = []
    size_bytes = 0
    for offset in offsets:
        size_bytes += len(offset.topic.encode()) + len(offset.metadata.encode()) + _POSITION_BYTES
        if page and (len(page) == size or size_bytes > PAGE_BYTES_MAX):
            return tuple(page), True
        page.append(offset)
    return tuple(page), False


def delete(group: Group | None, event: DeleteGroupOffsets, builder: OutcomeBuilder) -> None:
    """Delete offsets of topics that no member subscribes to (A4)."""
    if group is None:
        builder.fail(event.call_id, group_not_found(event.group_id))
        return
    subscribed: frozenset[str] | None = frozenset()
    if group.state is not GroupState.EMPTY:
        if group.protocol_type != CONSUMER:
            builder.fail(event.call_id, non_empty_group(group.group_id, len(group.members)))
            return
        subscribed = subscribed_topics(group)
    results = []
    for at in event.partitions:
        if subscribed is None or at.topic in subscribed:
            outcome = GroupOffsetDeletion.GROUP_SUBSCRIBED_TO_TOPIC
        else:
            outcome = GroupOffsetDeletion.DELETED
            if at in group.offsets:
                builder.append(OffsetRecord(group.group_id, at, None))
        results.append(GroupOffsetDeleted(at, outcome))
    builder.complete(event.call_id, tuple(results))
