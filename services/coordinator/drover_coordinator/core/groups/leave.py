"""LeaveGroup (rules L1 to L3)."""

from drover.model.group import GroupState, LeaveOutcome, LeaveResult, LeavingMember
from drover_coordinator.core.groups.events import LeaveGroup
from drover_coordinator.core.groups.failures import not_available, unknown_member
from drover_coordinator.core.groups.group import Group
from drover_coordinator.core.groups.join import after_removal_of_pending, pending_key
from drover_coordinator.core.groups.member import Member
from drover_coordinator.core.groups.outcome_builder import OutcomeBuilder
from drover_coordinator.core.groups.rebalance import after_removal, parked_join_key, remove_members
from drover_coordinator.core.groups.settings import GroupSettings


def leave(
    group: Group, event: LeaveGroup, builder: OutcomeBuilder, settings: GroupSettings
) -> None:
    """Remove members before their sessions end, with one rebalance for all (L1 to L3)."""
    if group.state is GroupState.DEAD:
        builder.fail(event.call_id, not_available(group.group_id))
        return
    leavers: dict[str, Member] = {}
    removed_pending = False
    results = []
    for leaving in event.leaving:
        member_id, outcome = _find_leaver(group, leaving)
        if member_id in leavers:
            outcome = LeaveOutcome.UNKNOWN_MEMBER_ID
        elif outcome is LeaveOutcome.LEFT and member_id in group.pending:
            del group.pending[member_id]
            builder.cancel_timer(pending_key(group.group_id, member_id))
            removed_pending = True
        elif outcome is LeaveOutcome.LEFT:
            leavers[member_id] = group.members[member_id]
            fail_parked_calls(group, leavers[member_id], builder)
        results.append(LeaveResult(member_id, outcome, leaving.instance_id))
    builder.complete(event.call_id, tuple(results))
    remove_members(group, list(leavers.values()), builder)
    if leavers:
        after_removal(group, builder, settings)
    elif removed_pending:
        after_removal_of_pending(group, builder, settings)


def _find_leaver(group: Group, leaving: LeavingMember) -> tuple[str, LeaveOutcome]:
    """Find a leaving member by member id, instance id or both (L1)."""
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
    """The results of LeaveGroup for a group that does not exist (L2)."""
    return tuple(
        LeaveResult(each.member_id, LeaveOutcome.UNKNOWN_MEMBER_ID, each.instance_id)
        for each in leaving
    )


def fail_parked_calls(group: Group, member: Member, builder: OutcomeBuilder) -> None:
    """Fail the parked calls of a removed member with UNKNOWN_MEMBER_ID."""
    for call_id in (member.join_call_id, member.sync_call_id):
        if call_id is not None:
            builder.fail(call_id, unknown_member(group.group_id, member.member_id))
    builder.cancel_timer(parked_join_key(group.group_id, member.member_id))
