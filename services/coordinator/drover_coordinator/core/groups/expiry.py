"""Expiry of offsets, and of empty groups without offsets (rule O6).

A sweep examines every group once, in steps of bounded size, so that other events are handled
between two steps.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from drover.model.group import GroupState
from drover.model.offsets import GroupOffset, TopicPartition
from drover_coordinator.core.groups.deletion import remove
from drover_coordinator.core.groups.events import ExpiryDue, ExpiryNotDurable
from drover_coordinator.core.groups.group import Group
from drover_coordinator.core.groups.outcome_builder import OutcomeBuilder
from drover_coordinator.core.groups.records import OffsetRecord
from drover_coordinator.core.groups.settings import GroupSettings
from drover_coordinator.core.groups.subscriptions import CONSUMER, subscribed_topics

EXPIRY_KEY = "expiry"
#: How many groups and offsets one step examines, counted together.
STEP_MAX = 1_000
#: The pause between two steps of a sweep.
STEP_PAUSE_MS = 10


@dataclass(slots=True)
class Sweep:
    """The progress of a sweep: the remaining groups, and the offsets left in the current one."""

    group_ids: Iterator[str]
    group_id: str | None = None
    partitions: list[TopicPartition] = field(default_factory=list)


def begin(groups: Mapping[str, Group]) -> Sweep:
    """A sweep over the groups that exist now."""
    return Sweep(iter(tuple(groups)))


def step(
    sweep: Sweep,
    groups: Mapping[str, Group],
    builder: OutcomeBuilder,
    settings: GroupSettings,
    floor: int,
) -> bool:
    """Examine the next groups and remove expired offsets; False when the sweep is done."""
    expired_groups: list[Group] = []
    budget = STEP_MAX
    while budget > 0:
        if sweep.group_id is None:
            sweep.group_id = next(sweep.group_ids, None)
            if sweep.group_id is None:
                break
            budget -= 1
            if (next_group := groups.get(sweep.group_id)) is not None:
                sweep.partitions = list(next_group.offsets)
        group = groups.get(sweep.group_id)
        if group is not None:
            examined, sweep.partitions = sweep.partitions[:budget], sweep.partitions[budget:]
            budget -= len(examined)
            expired = _expired(group, examined, builder.now_ms, settings.offsets_retention_ms)
            for at in expired:
                builder.append(OffsetRecord(group.group_id, at, None))
            if sweep.partitions:
                continue
            all_expired = len(group.offsets) == len(expired)
            if all_expired and group.state is GroupState.EMPTY and not group.pending:
                expired_groups.append(group)
        sweep.group_id = None
    remove(expired_groups, builder, floor)
    return budget <= 0


def set_timer(builder: OutcomeBuilder, *, in_ms: int, begins: bool) -> None:
    """Set the timer of the next step or sweep; if the append fails, the machine sets it again."""
    builder.set_timer(EXPIRY_KEY, builder.now_ms + in_ms, ExpiryDue(begins))
    if builder.records:
        builder.on_append_failed = ExpiryNotDurable()


def _expired(
    group: Group, examined: list[TopicPartition], now_ms: int, retention_ms: int
) -> list[TopicPartition]:
    """Which of ``examined`` have expired.

    Retention counts from the commit, or from the moment when the group became empty if that is
    later. In a stable group of consumers only offsets of topics without subscribers expire. In any
    other group with members no offset expires.
    """
    subscribed: frozenset[str] | None = frozenset()
    empty_since_ms = 0
    if group.state is GroupState.EMPTY:
        if group.protocol_type:
            empty_since_ms = group.state_time_ms
    elif group.state is GroupState.STABLE and group.protocol_type == CONSUMER:
        subscribed = subscribed_topics(group)
    else:
        subscribed = None
    if subscribed is None:
        return []

    def has_expired(offset: GroupOffset) -> bool:
        if offset.expire_time_ms is not None:
            return now_ms >= offset.expire_time_ms
        return now_ms - max(offset.commit_time_ms, empty_since_ms) >= retention_ms

    return [
        at
        for at in examined
        if at.topic not in subscribed
        and (offset := group.offsets.get(at)) is not None
        and has_expired(offset)
    ]
