"""JoinGroup (rules J1 to J9)."""

from dataclasses import replace

from drover.errors import DroverError
from drover.model.group import GroupState, MemberIdRequired, RetryJoin
from drover_coordinator.core.groups.events import (
    CreationNotDurable,
    JoinGroup,
    ParkedJoinDue,
    PendingDue,
    StaticMemberJoin,
)
from drover_coordinator.core.groups.failures import (
    group_full,
    group_has_no_room,
    inconsistent_protocol,
    not_available,
)
from drover_coordinator.core.groups.fencing import member_error
from drover_coordinator.core.groups.group import Group
from drover_coordinator.core.groups.member import Member
from drover_coordinator.core.groups.outcome_builder import OutcomeBuilder
from drover_coordinator.core.groups.rebalance import (
    after_removal,
    maybe_complete,
    parked_join_key,
    prepare,
    remove_members,
)
from drover_coordinator.core.groups.records import GroupRecord
from drover_coordinator.core.groups.sessions import extend_session, resume, set_session_timer
from drover_coordinator.core.groups.settings import NEW_MEMBER_JOIN_TIMEOUT_MS, GroupSettings
from drover_coordinator.core.groups.static_members import (
    persist_static_member,
    replace_static_member,
)
from drover_coordinator.core.groups.supported_protocols import SizeViolation


def pending_key(group_id: str, member_id: str) -> str:
    """The key of the timer that expires a pending member id."""
    return f"pending\0{group_id}\0{member_id}"


def join(group: Group, event: JoinGroup, builder: OutcomeBuilder, settings: GroupSettings) -> None:
    """Handle a join.

    The checks are in Kafka's order, except that a call with an instance id is first checked for a
    fenced or unknown member.
    """
    if group.state is GroupState.DEAD:
        builder.fail(event.call_id, not_available(group.group_id))
        return
    known, error = group.holder(event.instance_id), None
    if event.member_id:
        known = group.members.get(event.member_id)
        if event.instance_id is not None or event.member_id not in group.pending:
            error = member_error(group, event.member_id, event.instance_id, None)
    if error is not None and event.instance_id is not None:
        builder.fail(event.call_id, error)
    elif not group.accepts(known, settings.group_max_size):
        _fail_for_size(group, known, event, builder, settings)
    elif not group.supports(event.protocol_type, event.protocols):
        builder.fail(event.call_id, _inconsistent(group, event))
    elif error is not None:
        builder.fail(event.call_id, error)
    elif (violation := _size_violation(group, known, event)) is not None:
        _fail_for_bytes(group, violation, event, builder, settings)
    elif event.member_id and known is not None:
        _rejoin(group, known, event, builder, settings)
    elif event.member_id:
        del group.pending[event.member_id]
        builder.cancel_timer(pending_key(group.group_id, event.member_id))
        _add(group, _newcomer(event, event.member_id, builder), event, builder, settings)
    elif event.instance_id is not None:
        _join_static(group, known, event, builder, settings)
    else:
        _issue_member_id(group, event, builder, settings)


def _inconsistent(group: Group, event: JoinGroup) -> DroverError:
    if event.protocol_type != group.protocol_type:
        return inconsistent_protocol(
            "protocol_type",
            f"must be the group's, {group.protocol_type!r}, not {event.protocol_type!r}",
        )
    return inconsistent_protocol("protocols", "must include one that every member supports")


def _fail_for_size(
    group: Group,
    known: Member | None,
    event: JoinGroup,
    builder: OutcomeBuilder,
    settings: GroupSettings,
) -> None:
    """Reject a join of a full group (J3).

    A rejected member or pending id is removed, so that the rebalance does not wait for it.
    """
    builder.fail(event.call_id, group_full(group.group_id, settings.group_max_size))
    if known is not None:
        remove_members(group, [known], builder)
        after_removal(group, builder, settings)
    elif group.pending.pop(event.member_id, None) is not None:
        builder.cancel_timer(pending_key(group.group_id, event.member_id))
        after_removal_of_pending(group, builder, settings)


def _size_violation(group: Group, known: Member | None, event: JoinGroup) -> SizeViolation | None:
    return group.supported_protocols.size_violation(
        known,
        member_id=event.member_id or event.new_member_id,
        instance_id=event.instance_id,
        protocols=event.protocols,
    )


def _fail_for_bytes(
    group: Group,
    violation: SizeViolation,
    event: JoinGroup,
    builder: OutcomeBuilder,
    settings: GroupSettings,
) -> None:
    """Reject a join whose metadata does not fit.

    A member keeps its earlier protocols. A pending id is removed, so that the rebalance does not
    wait for it.
    """
    builder.fail(event.call_id, group_has_no_room(group.group_id, violation))
    if group.pending.pop(event.member_id, None) is not None:
        builder.cancel_timer(pending_key(group.group_id, event.member_id))
        after_removal_of_pending(group, builder, settings)


def _issue_member_id(
    group: Group, event: JoinGroup, builder: OutcomeBuilder, settings: GroupSettings
) -> None:
    """Issue a member id to join with, so that a lost response leaves no orphaned member (J6)."""
    if len(group.pending) >= settings.group_max_size:
        builder.fail(event.call_id, group_full(group.group_id, settings.group_max_size))
        return
    until_ms = builder.now_ms + event.session_timeout_ms
    group.pending[event.new_member_id] = until_ms
    builder.set_timer(
        pending_key(group.group_id, event.new_member_id),
        until_ms,
        PendingDue(group.group_id, event.new_member_id),
    )
    builder.complete(event.call_id, MemberIdRequired(event.new_member_id))
    if group.hard is None and group.state is GroupState.EMPTY:
        builder.append(
            GroupRecord(group.group_id, group.as_created(builder.now_ms)),
            CreationNotDurable(group.group_id, event.new_member_id),
        )


def _newcomer(event: JoinGroup, member_id: str, builder: OutcomeBuilder) -> Member:
    return Member(
        member_id=member_id,
        client_id=event.client_id,
        client_host=event.client_host,
        session_timeout_ms=event.session_timeout_ms,
        rebalance_timeout_ms=event.rebalance_timeout_ms,
        protocols=event.protocols,
        instance_id=event.instance_id,
        is_new=True,
        new_until_ms=builder.now_ms + NEW_MEMBER_JOIN_TIMEOUT_MS,
    )


def _add(
    group: Group, member: Member, event: JoinGroup, builder: OutcomeBuilder, settings: GroupSettings
) -> None:
    """Add a new member and park its join for the next generation (J7)."""
    group.add(member, event.protocol_type)
    if group.initial_delay is not None:
        group.initial_delay.member_joined = True
    _park_and_rebalance(group, member, event, builder, settings)


def _join_static(
    group: Group,
    before: Member | None,
    event: JoinGroup,
    builder: OutcomeBuilder,
    settings: GroupSettings,
) -> None:
    """Join a static member for the first time, or after its process restarted (J9).

    It needs no member id first, because a retry replaces the member of the first attempt. In a
    stable group whose protocol stays the same, a restarted process gets the present generation
    without a rebalance.
    """
    member = _newcomer(event, event.new_member_id, builder)
    if before is None:
        _add(group, member, event, builder, settings)
        persist_static_member(group, StaticMemberJoin(member.member_id, None), builder)
        return
    member.is_new = before.is_new
    static_join = replace_static_member(group, before, member, builder)
    stays_stable = (
        group.state is GroupState.STABLE and group.select_protocol() == group.protocol_name
    )
    if not stays_stable:
        _park_and_rebalance(group, member, event, builder, settings)
        persist_static_member(group, static_join, builder)
        return
    resume(group, member, builder, grace_ms=0)
    persist_static_member(group, static_join, builder)
    joined = group.joined(member, group.as_member_replaced(member))
    builder.complete(event.call_id, replace(joined, skip_assignment=bool(joined.members)))


def _rejoin(
    group: Group, member: Member, event: JoinGroup, builder: OutcomeBuilder, settings: GroupSettings
) -> None:
    """Handle a member's rejoin: join a rebalance, start one, or repeat the response (J8)."""
    changed = member.protocols != event.protocols
    leads = member.member_id == group.leader_id
    repeats_response = not changed and (
        group.state is GroupState.COMPLETING_REBALANCE
        or (group.state is GroupState.STABLE and not leads)
    )
    if repeats_response:
        assert group.hard is not None
        builder.complete(event.call_id, group.joined(member, group.hard))
        extend_session(group, member, builder)
        return
    if member.join_call_id is not None:  # the member's earlier call is obsolete
        builder.complete(member.join_call_id, RetryJoin(member.member_id))
    if changed:
        group.update_protocols(member, event.protocols)
    member.client_id = event.client_id
    member.client_host = event.client_host
    member.session_timeout_ms = event.session_timeout_ms
    member.rebalance_timeout_ms = event.rebalance_timeout_ms
    _park_and_rebalance(group, member, event, builder, settings)


def _park_and_rebalance(
    group: Group, member: Member, event: JoinGroup, builder: OutcomeBuilder, settings: GroupSettings
) -> None:
    if group.state is not GroupState.PREPARING_REBALANCE:
        prepare(group, builder, settings)
    group.park_join(member, event.call_id)
    maybe_complete(group, builder, settings)
    if builder.records:
        return  # the replay of the append completes it soon
    builder.set_timer(
        parked_join_key(group.group_id, member.member_id),
        event.parked_until_ms,
        ParkedJoinDue(group.group_id, member.member_id, event.call_id),
    )
    if member.is_new:
        member.alive_until_ms = member.new_until_ms
        set_session_timer(group, member, builder)


def end_parked_join(
    group: Group, member: Member, builder: OutcomeBuilder, settings: GroupSettings
) -> None:
    """Complete a parked join with RetryJoin and restart the session; the rebalance continues."""
    builder.complete(group.unpark_join(member), RetryJoin(member.member_id))
    builder.cancel_timer(parked_join_key(group.group_id, member.member_id))
    resume(group, member, builder, grace_ms=settings.disconnect_grace_ms)


def creation_not_durable(
    group: Group, member_id: str, error: DroverError, builder: OutcomeBuilder
) -> None:
    """Remove the pending id or first member of a group that could not be created; fail its join."""
    group.pending.pop(member_id, None)
    member = group.members.get(member_id)
    if member is not None:  # a static member, which needs no pending id
        builder.fail(group.unpark_join(member), error)
        group.remove(member)
        group.initial_delay = None
        group.transition(GroupState.EMPTY, builder.now_ms)


def after_removal_of_pending(
    group: Group, builder: OutcomeBuilder, settings: GroupSettings
) -> None:
    """Complete a rebalance that waited for the id, or remove a group that never had a member."""
    if group.is_unused and group.state is GroupState.EMPTY:
        if group.hard is not None:
            builder.append(GroupRecord(group.group_id, None))
    else:
        maybe_complete(group, builder, settings)
