"""A rebalance: from one generation to the next (rules B1 to B5).

1. ``prepare``: members have to join; parked syncs get REBALANCE_IN_PROGRESS.
2. ``complete``: all have joined or time is up; the next generation is appended to the log.
3. ``generation_replayed``: it is durable; joins complete, and the group waits for the leader's
   sync.
4. ``assignment_replayed``: the leader's assignment is durable; the group is stable.

Steps 3 and 4 run when the record is replayed, so no response precedes its record. They set all
timers of the new phase. The event that appends the record must not set them, because its
instructions and the replay's have no defined order.
"""

from drover.errors import DroverError
from drover.model.group import GroupState, RebalanceInProgress, WatchedGroup
from drover_coordinator.core.groups.events import (
    AssignmentNotDurable,
    GenerationNotDurable,
    GroupChanged,
    MemberRemoved,
    RebalanceDue,
    SyncDue,
    member_channel,
    watch_channel,
)
from drover_coordinator.core.groups.group import Group, InitialDelay
from drover_coordinator.core.groups.member import Member
from drover_coordinator.core.groups.outcome_builder import OutcomeBuilder
from drover_coordinator.core.groups.records import GroupMetadata, GroupRecord
from drover_coordinator.core.groups.sessions import resume, session_key, set_session_timer
from drover_coordinator.core.groups.settings import APPEND_RETRY_MS, GroupSettings


def rebalance_key(group_id: str) -> str:
    """The key of the timer that ends the wait for joins."""
    return f"rebalance\0{group_id}"


def sync_key(group_id: str) -> str:
    """The key of the timer that ends the wait for syncs."""
    return f"sync\0{group_id}"


def parked_join_key(group_id: str, member_id: str) -> str:
    """The key of the timer that completes a parked join before its deadline."""
    return f"join\0{group_id}\0{member_id}"


def announce(group: Group, builder: OutcomeBuilder) -> None:
    """Notify the watchers of the group's state and generation."""
    group.change += 1
    watched = WatchedGroup(
        created=False,
        state=group.state,
        generation=group.generation,
        rejoin_needed=group.state is GroupState.PREPARING_REBALANCE,
    )
    builder.notify(watch_channel(group.group_id), GroupChanged(group.change, watched))


def remove_members(group: Group, members: list[Member], builder: OutcomeBuilder) -> None:
    """Remove members whose parked calls were completed or failed."""
    for member in members:
        group.remove(member)
        builder.cancel_timer(session_key(group.group_id, member.member_id))
        channel = member_channel(group.group_id, member.member_id)
        builder.notify(channel, MemberRemoved(member.member_id))


def prepare(group: Group, builder: OutcomeBuilder, settings: GroupSettings) -> None:
    """Start a rebalance (B1, B2, B3)."""
    if group.state is GroupState.EMPTY:
        delay_ms = settings.initial_rebalance_delay_ms
        remaining_ms = max(group.max_rebalance_timeout_ms - delay_ms, 0)
        group.initial_delay = InitialDelay(delay_ms, remaining_ms)
    else:
        delay_ms = group.max_rebalance_timeout_ms
    if group.state is GroupState.COMPLETING_REBALANCE:
        _release_syncs(group, builder, settings)
    group.unsynced.clear()  # SyncDue checks it, so its timer need not be cancelled
    group.transition(GroupState.PREPARING_REBALANCE, builder.now_ms)
    _wait_for_joins(group, builder, delay_ms)
    announce(group, builder)


def _release_syncs(group: Group, builder: OutcomeBuilder, settings: GroupSettings) -> None:
    for member in group.members.values():
        if member.sync_call_id is not None:
            builder.complete(member.sync_call_id, RebalanceInProgress())
            member.sync_call_id = None
            resume(group, member, builder, grace_ms=settings.disconnect_grace_ms)


def _wait_for_joins(group: Group, builder: OutcomeBuilder, delay_ms: int) -> None:
    group.rebalance_due_ms = builder.now_ms + delay_ms
    set_rebalance_timer(group, builder)


def set_rebalance_timer(group: Group, builder: OutcomeBuilder) -> None:
    """Set the timer that ends the wait for joins at ``rebalance_due_ms``."""
    builder.set_timer(
        rebalance_key(group.group_id), group.rebalance_due_ms, RebalanceDue(group.group_id)
    )


def maybe_complete(group: Group, builder: OutcomeBuilder, settings: GroupSettings) -> None:
    """Complete the rebalance if all members have joined and no initial delay is running."""
    preparing = group.state is GroupState.PREPARING_REBALANCE
    if preparing and group.initial_delay is None and group.all_joined:
        complete(group, builder, settings)


def after_removal(group: Group, builder: OutcomeBuilder, settings: GroupSettings) -> None:
    """Start a rebalance after members were removed, or complete the one that waited for them."""
    if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
        prepare(group, builder, settings)
    maybe_complete(group, builder, settings)


def rebalance_due(group: Group, builder: OutcomeBuilder, settings: GroupSettings) -> None:
    """End the wait for joins, or start another round of the initial delay (B2, B3)."""
    if group.state is not GroupState.PREPARING_REBALANCE or builder.now_ms < group.rebalance_due_ms:
        return
    delay = group.initial_delay
    if delay is not None and delay.member_joined and delay.remaining_ms:
        next_ms = min(delay.round_ms, delay.remaining_ms)
        remaining_ms = max(delay.remaining_ms - delay.round_ms, 0)
        group.initial_delay = InitialDelay(next_ms, remaining_ms)
        _wait_for_joins(group, builder, next_ms)
        return
    complete(group, builder, settings)


def complete(group: Group, builder: OutcomeBuilder, settings: GroupSettings) -> None:
    """End the wait for joins: remove absent members, append the next generation (B4).

    An absent static member stays until its session ends, as it may be restarting. If only absent
    static members remain, the wait continues: their generation would have no leader.
    """
    group.initial_delay = None
    absent = [member for member in group.members.values() if member.join_call_id is None]
    joined_count = len(group.members) - len(absent)
    static = [member for member in absent if member.instance_id is not None]
    room_count = max(settings.group_max_size - joined_count, 0)  # J3: the last ones are removed
    dynamic = [member for member in absent if member.instance_id is None]
    remove_members(group, [*dynamic, *static[room_count:]], builder)
    if group.members and not joined_count:
        _wait_for_joins(group, builder, group.max_rebalance_timeout_ms)
        return
    builder.cancel_timer(rebalance_key(group.group_id))
    metadata = group.as_next_generation(builder.now_ms)
    for member in group.members.values():
        if member.join_call_id is not None:
            builder.complete(member.join_call_id, group.joined(member, metadata))
    builder.append(GroupRecord(group.group_id, metadata), GenerationNotDurable(group.group_id))


def generation_replayed(
    group: Group, metadata: GroupMetadata, builder: OutcomeBuilder, settings: GroupSettings
) -> None:
    """Start a generation once its record is durable; the runtime then completes the joins.

    It includes absent static members, whose sessions are not extended. Its members are no longer
    new, so the time limit of new members ends.
    """
    joined = [member for member in group.members.values() if member.join_call_id is not None]
    for member in joined:
        group.unpark_join(member)
        builder.cancel_timer(parked_join_key(group.group_id, member.member_id))
    group.apply(metadata)
    if not group.members:
        group.transition(GroupState.EMPTY, builder.now_ms)
        announce(group, builder)
        return
    group.transition(GroupState.COMPLETING_REBALANCE, builder.now_ms)
    for member in group.members.values():
        member.is_new = False
    for member in joined:
        resume(group, member, builder, grace_ms=settings.disconnect_grace_ms)
    group.unsynced = {member.member_id for member in joined}
    builder.set_timer(
        sync_key(group.group_id),
        builder.now_ms + group.max_rebalance_timeout_ms,
        SyncDue(group.group_id, group.generation),
    )
    announce(group, builder)


def assignment_replayed(
    group: Group, metadata: GroupMetadata, builder: OutcomeBuilder, settings: GroupSettings
) -> None:
    """Make the group stable once its assignment is durable; the runtime then completes syncs."""
    group.apply(metadata)
    group.transition(GroupState.STABLE, builder.now_ms)
    for member in group.members.values():
        if member.sync_call_id is not None:
            member.sync_call_id = None
            resume(group, member, builder, grace_ms=settings.disconnect_grace_ms)
    if not group.unsynced:
        builder.cancel_timer(sync_key(group.group_id))
    announce(group, builder)


def sync_due(
    group: Group, generation: int, builder: OutcomeBuilder, settings: GroupSettings
) -> None:
    """Remove members that have not synced in time (B5)."""
    if group.generation != generation or not group.unsynced:
        return
    late = [group.members[member_id] for member_id in sorted(group.unsynced)]
    remove_members(group, late, builder)
    after_removal(group, builder, settings)


def generation_not_durable(group: Group, builder: OutcomeBuilder, settings: GroupSettings) -> None:
    """Wait for joins again after the append of a generation failed, and so its joins.

    The timers and notifications of the failed event were dropped, so set them again.
    """
    if group.state is not GroupState.PREPARING_REBALANCE:
        return
    for member in group.members.values():
        if member.join_call_id is not None:
            group.unpark_join(member)
            builder.cancel_timer(parked_join_key(group.group_id, member.member_id))
            resume(group, member, builder, grace_ms=settings.disconnect_grace_ms)
        set_session_timer(group, member, builder)
    group.initial_delay = None
    _wait_for_joins(group, builder, group.max_rebalance_timeout_ms or APPEND_RETRY_MS)
    announce(group, builder)


def assignment_not_durable(group: Group, builder: OutcomeBuilder, settings: GroupSettings) -> None:
    """Start another rebalance after the append of an assignment failed, and so its syncs (S2)."""
    if group.state is not GroupState.COMPLETING_REBALANCE:
        return
    for member in group.members.values():
        if member.sync_call_id is not None:
            member.sync_call_id = None
            resume(group, member, builder, grace_ms=settings.disconnect_grace_ms)
        set_session_timer(group, member, builder)
    prepare(group, builder, settings)


def assignment_record(group: Group, assignments: dict[str, bytes], builder: OutcomeBuilder) -> None:
    """Append the leader's assignment."""
    metadata = group.as_assigned(assignments, builder.now_ms)
    builder.append(GroupRecord(group.group_id, metadata), AssignmentNotDurable(group.group_id))


def end_service(group: Group, error: DroverError, builder: OutcomeBuilder) -> None:
    """Stop serving the group (P4) and fail its parked calls with ``error``."""
    if group.state is GroupState.DEAD:
        return
    for member in group.members.values():
        if member.join_call_id is not None:
            builder.fail(group.unpark_join(member), error)
        if member.sync_call_id is not None:
            builder.fail(member.sync_call_id, error)
            member.sync_call_id = None
    group.pending.clear()
    group.unsynced.clear()
    group.initial_delay = None
    group.transition(GroupState.DEAD, builder.now_ms)
