"""JoinGroup (rules J1 to J9)."""

from dataclasses import replace

from drover.errors import DroverError
from drover.model.group import GroupState, MemberIdRequired, RetryJoin
from drover_coordinator.core.groups.events import (
    CreationNotDurable,
    JoinGroup,
    ParkedJoinDue,
    PendingDue,
    Seat,
)
from drover_coordinator.core.groups.failures import (
    group_full,
    group_has_no_room,
    inconsistent_protocol,
    not_available,
)
from drover_coordinator.core.groups.fencing import refusal
from drover_coordinator.core.groups.group import Group
from drover_coordinator.core.groups.member import Member
from drover_coordinator.core.groups.outcome_builder import OutcomeBuilder
from drover_coordinator.core.groups.rebalance import (
    after_removal,
    forget_members,
    maybe_complete,
    parked_join_key,
    prepare,
)
from drover_coordinator.core.groups.records import GroupRecord
from drover_coordinator.core.groups.sessions import resume, set_session_timer, show_life
from drover_coordinator.core.groups.settings import NEW_MEMBER_JOIN_TIMEOUT_MS, GroupSettings
from drover_coordinator.core.groups.static_members import keep_seat, take_seat
from drover_coordinator.core.groups.supported_protocols import Excess


def pending_key(group_id: str, member_id: str) -> str:
    """The key of the timer after which an id that was handed out is good no longer."""
    return f"pending\0{group_id}\0{member_id}"


def join(group: Group, event: JoinGroup, builder: OutcomeBuilder, settings: GroupSettings) -> None:
    """Take a join, in the order of checks that upstream has; only that whoever has an instance id
    hears first that it is fenced, or unknown.
    """
    if group.state is GroupState.DEAD:
        builder.fail(event.call_id, not_available(group.group_id))
        return
    known, refused = group.holder(event.instance_id), None
    if event.member_id:
        known = group.members.get(event.member_id)
        if event.instance_id is not None or event.member_id not in group.pending:
            refused = refusal(group, event.member_id, event.instance_id, None)
    if refused is not None and event.instance_id is not None:
        builder.fail(event.call_id, refused)
    elif not group.accepts(known, settings.group_max_size):
        _refuse_for_size(group, known, event, builder, settings)
    elif not group.supports(event.protocol_type, event.protocols):
        builder.fail(event.call_id, _inconsistent(group, event))
    elif refused is not None:
        builder.fail(event.call_id, refused)
    elif (excess := _excess(group, known, event)) is not None:
        _refuse_for_bytes(group, excess, event, builder, settings)
    elif event.member_id and known is not None:
        _join_again(group, known, event, builder, settings)
    elif event.member_id:
        del group.pending[event.member_id]
        builder.cancel_timer(pending_key(group.group_id, event.member_id))
        _add(group, _newcomer(event, event.member_id, builder), event, builder, settings)
    elif event.instance_id is not None:
        _join_static(group, known, event, builder, settings)
    else:
        _hand_out_id(group, event, builder, settings)


def _inconsistent(group: Group, event: JoinGroup) -> DroverError:
    if event.protocol_type != group.protocol_type:
        return inconsistent_protocol(
            "protocol_type", f"the group's is {group.protocol_type!r}, not {event.protocol_type!r}"
        )
    return inconsistent_protocol("protocols", "no offered protocol is spoken by every member")


def _refuse_for_size(
    group: Group,
    known: Member | None,
    event: JoinGroup,
    builder: OutcomeBuilder,
    settings: GroupSettings,
) -> None:
    """The last ones to join are kept out; a member that lost its place is removed, and nobody
    waits for an id that found none (J3).
    """
    builder.fail(event.call_id, group_full(group.group_id, settings.group_max_size))
    if known is not None:
        forget_members(group, [known], builder)
        after_removal(group, builder, settings)
    elif group.pending.pop(event.member_id, None) is not None:
        builder.cancel_timer(pending_key(group.group_id, event.member_id))
        after_removal_of_pending(group, builder, settings)


def _excess(group: Group, known: Member | None, event: JoinGroup) -> Excess | None:
    return group.offers.excess(
        known,
        member_id=event.member_id or event.new_member_id,
        instance_id=event.instance_id,
        protocols=event.protocols,
    )


def _refuse_for_bytes(
    group: Group, excess: Excess, event: JoinGroup, builder: OutcomeBuilder, settings: GroupSettings
) -> None:
    """Keep out what the leader could not be told. A member stays what it was with what it offered
    before, and nobody waits for a newcomer.
    """
    builder.fail(event.call_id, group_has_no_room(group.group_id, excess))
    if group.pending.pop(event.member_id, None) is not None:
        builder.cancel_timer(pending_key(group.group_id, event.member_id))
        after_removal_of_pending(group, builder, settings)


def _hand_out_id(
    group: Group, event: JoinGroup, builder: OutcomeBuilder, settings: GroupSettings
) -> None:
    """A newcomer gets its id first, so that a lost answer leaves no ghost behind (J6)."""
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
    """A newcomer becomes a member and waits for a generation (J7)."""
    group.add(member, event.protocol_type)
    if group.initial_delay is not None:
        group.initial_delay.joined_meanwhile = True
    _park_and_rebalance(group, member, event, builder, settings)


def _join_static(
    group: Group,
    before: Member | None,
    event: JoinGroup,
    builder: OutcomeBuilder,
    settings: GroupSettings,
) -> None:
    """A static member joins for the first time, or its process has started again (J9).

    It needs no id first: whoever repeats the call takes its own place. While the group is stable
    and goes on with its protocol, a process that started again is given the generation and the
    assignment that it had.
    """
    member = _newcomer(event, event.new_member_id, builder)
    if before is None:
        _add(group, member, event, builder, settings)
        keep_seat(group, Seat(member.member_id, None), builder)
        return
    member.is_new = before.is_new
    seat = take_seat(group, before, member, builder)
    goes_on = group.state is GroupState.STABLE and group.select_protocol() == group.protocol_name
    if not goes_on:
        _park_and_rebalance(group, member, event, builder, settings)
        keep_seat(group, seat, builder)
        return
    resume(group, member, builder, grace_ms=0)
    keep_seat(group, seat, builder)
    joined = group.joined(member, group.as_handed_over(member))
    builder.complete(event.call_id, replace(joined, skip_assignment=bool(joined.members)))


def _join_again(
    group: Group, member: Member, event: JoinGroup, builder: OutcomeBuilder, settings: GroupSettings
) -> None:
    """A member joins again: into the rebalance, to begin one, or only to hear the answer once more
    (J8).
    """
    changed = member.protocols != event.protocols
    leads = member.member_id == group.leader_id
    answered_again = not changed and (
        group.state is GroupState.COMPLETING_REBALANCE
        or (group.state is GroupState.STABLE and not leads)
    )
    if answered_again:
        assert group.hard is not None
        builder.complete(event.call_id, group.joined(member, group.hard))
        show_life(group, member, builder)
        return
    if member.join_call_id is not None:  # the caller of the earlier one has given up
        builder.complete(member.join_call_id, RetryJoin(member.member_id))
    if changed:
        group.offer(member, event.protocols)
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
    member.watch_broken = False
    group.park_join(member, event.call_id)
    maybe_complete(group, builder, settings)
    if builder.records:
        return  # the call is not parked for long
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
    """Answer a parked join though the rebalance goes on; from now on the session counts."""
    builder.complete(group.unpark_join(member), RetryJoin(member.member_id))
    builder.cancel_timer(parked_join_key(group.group_id, member.member_id))
    resume(group, member, builder, grace_ms=settings.disconnect_grace_ms)


def creation_not_durable(
    group: Group, member_id: str, error: DroverError, builder: OutcomeBuilder
) -> None:
    """The one who came first hears it, and nobody has come."""
    group.pending.pop(member_id, None)
    member = group.members.get(member_id)
    if member is not None:  # it had no id to fetch first
        builder.fail(group.unpark_join(member), error)
        group.remove(member)
        group.initial_delay = None
        group.transition(GroupState.EMPTY, builder.now_ms)


def after_removal_of_pending(
    group: Group, builder: OutcomeBuilder, settings: GroupSettings
) -> None:
    """A rebalance may be complete now; a group that nobody ever was in is forgotten."""
    if group.is_unused and group.state is GroupState.EMPTY:
        if group.hard is not None:
            builder.append(GroupRecord(group.group_id, None))
    else:
        maybe_complete(group, builder, settings)
