"""A rebalance: from one generation to the next (rules B1 to B5).

1. ``prepare``: members have to join; parked syncs are answered that a rebalance began.
2. ``complete``: all have joined or time is up; the next generation is appended to the log.
3. ``generation_began``: it is durable; joins are answered, the group waits for the leader's sync.
4. ``assignment_came``: the leader's assignment is durable; the group is stable.

Steps 3 and 4 run when the record is replayed, so no response precedes its record. They set all
timers of the new phase; the event that appends the record sets none of those, as the two have no
order.
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
    """The key of the timer that answers a parked join before its deadline."""
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


def forget_members(group: Group, members: list[Member], builder: OutcomeBuilder) -> None:
    """Remove members; their parked calls have been answered."""
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
    _wait(group, builder, delay_ms)
    announce(group, builder)


def _release_syncs(group: Group, builder: OutcomeBuilder, settings: GroupSettings) -> None:
    for member in group.members.values():
        if member.sync_call_id is not None:
            builder.complete(member.sync_call_id, RebalanceInProgress())
            member.sync_call_id = None
            resume(group, member, builder, grace_ms=settings.disconnect_grace_ms)


def _wait(group: Group, builder: OutcomeBuilder, delay_ms: int) -> None:
    group.rebalance_due_ms = builder.now_ms + delay_ms
    wait_again(group, builder)


def wait_again(group: Group, builder: OutcomeBuilder) -> None:
    """Set the timer of the wait for joins again, for the same time."""
    builder.set_timer(
        rebalance_key(group.group_id), group.rebalance_due_ms, RebalanceDue(group.group_id)
    )


def maybe_complete(group: Group, builder: OutcomeBuilder, settings: GroupSettings) -> None:
    """Complete early if all have joined; the initial delay is never cut short."""
    preparing = group.state is GroupState.PREPARING_REBALANCE
    if preparing and group.initial_delay is None and group.all_joined:
        complete(group, builder, settings)


def after_removal(group: Group, builder: OutcomeBuilder, settings: GroupSettings) -> None:
    """Members or pending ids were removed: start a rebalance, or complete the one that waits."""
    if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
        prepare(group, builder, settings)
    maybe_complete(group, builder, settings)


def rebalance_due(group: Group, builder: OutcomeBuilder, settings: GroupSettings) -> None:
    """End the wait for joins, or start another round of the initial delay (B2, B3)."""
    if group.state is not GroupState.PREPARING_REBALANCE or builder.now_ms < group.rebalance_due_ms:
        return
    delay = group.initial_delay
    if delay is not None and delay.joined_meanwhile and delay.remaining_ms:
        next_ms = min(delay.round_ms, delay.remaining_ms)
        remaining_ms = max(delay.remaining_ms - delay.round_ms, 0)
        group.initial_delay = InitialDelay(next_ms, remaining_ms)
        _wait(group, builder, next_ms)
        return
    complete(group, builder, settings)


def complete(group: Group, builder: OutcomeBuilder, settings: GroupSettings) -> None:
    """End the wait: remove members that have not joined, append the next generation (B4).

    A static member that has not joined stays until its session ends, as it may be restarting. If
    only such members are left the wait continues: their generation would have no leader.
    """
    group.initial_delay = None
    absent = [member for member in group.members.values() if member.join_call_id is None]
    joined_count = len(group.members) - len(absent)
    static = [member for member in absent if member.instance_id is not None]
    room_count = max(settings.group_max_size - joined_count, 0)  # J3: the last ones are removed
    dynamic = [member for member in absent if member.instance_id is None]
    forget_members(group, [*dynamic, *static[room_count:]], builder)
    if group.members and not joined_count:
        _wait(group, builder, group.max_rebalance_timeout_ms)
        return
    builder.cancel_timer(rebalance_key(group.group_id))
    metadata = group.as_next_generation(builder.now_ms)
    for member in group.members.values():
        if member.join_call_id is not None:
            builder.complete(member.join_call_id, group.joined(member, metadata))
    builder.append(GroupRecord(group.group_id, metadata), GenerationNotDurable(group.group_id))


def generation_began(
    group: Group, metadata: GroupMetadata, builder: OutcomeBuilder, settings: GroupSettings
) -> None:
    """A generation is durable; its joins are being answered.

    Absent static members are in it too; their sessions are not extended. None of its members is new
    any more, so the time limit of new members no longer applies.
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


def assignment_came(
    group: Group, metadata: GroupMetadata, builder: OutcomeBuilder, settings: GroupSettings
) -> None:
    """The assignment of a generation is durable; its syncs are being answered."""
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
    forget_members(group, late, builder)
    after_removal(group, builder, settings)


def generation_not_durable(group: Group, builder: OutcomeBuilder, settings: GroupSettings) -> None:
    """The append failed, and so did the joins; their members may join again.

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
    _wait(group, builder, group.max_rebalance_timeout_ms or APPEND_RETRY_MS)
    announce(group, builder)


def assignment_not_durable(group: Group, builder: OutcomeBuilder, settings: GroupSettings) -> None:
    """The append failed, and so did the syncs; start another rebalance (S2)."""
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
    """Stop serving the group (P4): parked calls fail with ``error``."""
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
