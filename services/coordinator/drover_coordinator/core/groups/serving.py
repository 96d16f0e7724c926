"""SyncGroup, Heartbeat, LeaveGroup and watches (rules S1 to S3, H1 to H3, L1 to L3)."""

from drover.errors import DroverError
from drover.model.group import (
    GroupState,
    LeaveOutcome,
    LeaveResult,
    LeavingMember,
    RebalanceInProgress,
    Synced,
    WatchedGroup,
)
from drover_coordinator.core.groups.events import (
    Heartbeat,
    LeaveGroup,
    SyncGroup,
    WatchOpened,
    WatchStarted,
)
from drover_coordinator.core.groups.failures import (
    inconsistent_protocol,
    not_available,
    superseded,
    too_many_watches,
    unknown_member,
)
from drover_coordinator.core.groups.fencing import refusal
from drover_coordinator.core.groups.group import Group
from drover_coordinator.core.groups.join import after_removal_of_pending, pending_key
from drover_coordinator.core.groups.member import Member
from drover_coordinator.core.groups.outcome_builder import Turn
from drover_coordinator.core.groups.rebalance import (
    after_removal,
    assignment_record,
    forget_members,
    parked_join_key,
    sync_key,
)
from drover_coordinator.core.groups.sessions import resume, set_session_timer, show_life
from drover_coordinator.core.groups.settings import (
    STALLED_MS,
    WATCHES_PER_MEMBER_MAX,
    GroupSettings,
)


def sync(group: Group, event: SyncGroup, turn: Turn) -> None:
    """Park until the leader's assignment is durable, or answer what is known (S1 to S3)."""
    refused = refusal(
        group, event.member_id, event.instance_id, event.generation
    ) or _wrong_protocol(group, event)
    if refused is not None:
        turn.fail(event.call_id, refused)
        return
    member = group.members[event.member_id]
    if group.state is GroupState.PREPARING_REBALANCE:
        turn.complete(event.call_id, RebalanceInProgress())
        show_life(group, member, turn)
        return
    group.unsynced.discard(member.member_id)
    if group.state is GroupState.STABLE:
        turn.complete(event.call_id, _synced(group, member.assignment))
        show_life(group, member, turn)
        if not group.unsynced:
            turn.cancel_timer(sync_key(group.group_id))
        return
    if member.sync_call_id is not None:
        turn.fail(member.sync_call_id, superseded(group.group_id, member.member_id))
    member.watch_broken = False
    member.sync_call_id = event.call_id
    if member.member_id == group.leader_id:
        assignments = {each.member_id: each.assignment for each in event.assignments}
        for each in group.members.values():
            if each.sync_call_id is not None:
                assignment = assignments.get(each.member_id, b"")
                turn.complete(each.sync_call_id, _synced(group, assignment))
        assignment_record(group, assignments, turn)


def _wrong_protocol(group: Group, event: SyncGroup) -> DroverError | None:
    if event.protocol_type and event.protocol_type != group.protocol_type:
        return inconsistent_protocol(
            "protocol_type", f"the group's is {group.protocol_type!r}, not {event.protocol_type!r}"
        )
    if event.protocol_name and event.protocol_name != group.protocol_name:
        return inconsistent_protocol(
            "protocol_name", f"{group.protocol_name!r} is selected, not {event.protocol_name!r}"
        )
    return None


def _synced(group: Group, assignment: bytes) -> Synced:
    return Synced(assignment, group.protocol_type, group.protocol_name)


def end_parked_sync(group: Group, member: Member, turn: Turn, settings: GroupSettings) -> None:
    """Nobody waits for the member's sync: it has to sync again, and its session counts."""
    member.sync_call_id = None
    group.unsynced.add(member.member_id)
    resume(group, member, turn, grace_ms=settings.disconnect_grace_ms)


def heartbeat(group: Group, event: Heartbeat, turn: Turn) -> None:
    """A sign of life, answered with whether the member has to join again (H1)."""
    refused = refusal(group, event.member_id, event.instance_id, event.generation)
    if refused is not None:
        turn.fail(event.call_id, refused)
        return
    show_life(group, group.members[event.member_id], turn)
    turn.complete(event.call_id, group.state is GroupState.PREPARING_REBALANCE)


def leave(group: Group, event: LeaveGroup, turn: Turn, settings: GroupSettings) -> None:
    """Remove members at once, with one rebalance for all of them (L1 to L3)."""
    if group.state is GroupState.DEAD:
        turn.fail(event.call_id, not_available(group.group_id))
        return
    gone: dict[str, Member] = {}
    freed = False
    results = []
    for leaving in event.leaving:
        member_id, outcome = _who_leaves(group, leaving)
        if member_id in gone:
            outcome = LeaveOutcome.UNKNOWN_MEMBER_ID
        elif outcome is LeaveOutcome.LEFT and member_id in group.pending:
            del group.pending[member_id]
            turn.cancel_timer(pending_key(group.group_id, member_id))
            freed = True
        elif outcome is LeaveOutcome.LEFT:
            gone[member_id] = group.members[member_id]
            _refuse_parked(group, gone[member_id], turn)
        results.append(LeaveResult(member_id, outcome, leaving.instance_id))
    turn.complete(event.call_id, tuple(results))
    forget_members(group, list(gone.values()), turn)
    if gone:
        after_removal(group, turn, settings)
    elif freed:
        after_removal_of_pending(group, turn, settings)


def _who_leaves(group: Group, leaving: LeavingMember) -> tuple[str, LeaveOutcome]:
    """Whom a leaver means, by its member id, its instance id, or both (L1)."""
    member_id = leaving.member_id
    if leaving.instance_id is not None:
        holder = group.holder(leaving.instance_id)
        if holder is None:
            return member_id, LeaveOutcome.UNKNOWN_MEMBER_ID
        if member_id and member_id != holder.member_id:
            return member_id, LeaveOutcome.FENCED_INSTANCE_ID
        return holder.member_id, LeaveOutcome.LEFT
    known = member_id in group.pending or member_id in group.members
    return member_id, LeaveOutcome.LEFT if known else LeaveOutcome.UNKNOWN_MEMBER_ID


def unknown_leavers(leaving: tuple[LeavingMember, ...]) -> tuple[LeaveResult, ...]:
    """The results of leaving a group that does not exist (L2)."""
    return tuple(
        LeaveResult(each.member_id, LeaveOutcome.UNKNOWN_MEMBER_ID, each.instance_id)
        for each in leaving
    )


def _refuse_parked(group: Group, member: Member, turn: Turn) -> None:
    """The member goes: its calls that wait hear that it is unknown."""
    for call_id in (member.join_call_id, member.sync_call_id):
        if call_id is not None:
            turn.fail(call_id, unknown_member(group.group_id, member.member_id))
    turn.cancel_timer(parked_join_key(group.group_id, member.member_id))


def session_due(group: Group, member: Member, turn: Turn, settings: GroupSettings) -> None:
    """A member may have been silent for too long (H2, H3).

    A timer that comes late says that this process was stopped or starved: it has not listened, so
    the member gets its time again.
    """
    late_ms = turn.now_ms - (member.timer_at_ms or turn.now_ms)
    member.timer_at_ms = None
    if member.is_parked and not member.is_new:
        return  # counts as alive; whoever ends the wait sets the timer again
    if late_ms >= STALLED_MS:
        resume(group, member, turn, grace_ms=settings.disconnect_grace_ms)
        return
    if turn.now_ms < member.alive_until_ms:
        set_session_timer(group, member, turn)
        return
    _refuse_parked(group, member, turn)
    forget_members(group, [member], turn)
    after_removal(group, turn, settings)


def watch_opened(group: Group, event: WatchOpened, turn: Turn) -> None:
    """A member watches: its process is alive."""
    refused = refusal(group, event.member_id, None, None)
    if refused is not None:
        turn.fail(event.call_id, refused)
        return
    member = group.members[event.member_id]
    if len(member.watches) >= WATCHES_PER_MEMBER_MAX:
        turn.fail(event.call_id, too_many_watches(group.group_id, member.member_id))
        return
    member.watches.add(event.call_id)
    show_life(group, member, turn)
    preparing = group.state is GroupState.PREPARING_REBALANCE
    watched = WatchedGroup(
        created=True,
        state=group.state,
        generation=group.generation,
        rejoin_needed=preparing and member.join_call_id is None,
    )
    turn.complete(event.call_id, WatchStarted(watched, group.change))
