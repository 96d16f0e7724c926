"""SyncGroup (rules S1 to S3)."""

from drover.errors import DroverError
from drover.model.group import GroupState, RebalanceInProgress, Synced
from drover_coordinator.core.groups.events import SyncGroup
from drover_coordinator.core.groups.failures import inconsistent_protocol, superseded
from drover_coordinator.core.groups.fencing import member_error
from drover_coordinator.core.groups.group import Group
from drover_coordinator.core.groups.member import Member
from drover_coordinator.core.groups.outcome_builder import OutcomeBuilder
from drover_coordinator.core.groups.rebalance import assignment_record, sync_key
from drover_coordinator.core.groups.sessions import extend_session, resume
from drover_coordinator.core.groups.settings import GroupSettings


def sync(group: Group, event: SyncGroup, builder: OutcomeBuilder) -> None:
    """Park until the assignment is durable, or respond with a durable one (S1 to S3)."""
    error = member_error(
        group, event.member_id, event.instance_id, event.generation
    ) or _wrong_protocol(group, event)
    if error is not None:
        builder.fail(event.call_id, error)
        return
    member = group.members[event.member_id]
    if group.state is GroupState.PREPARING_REBALANCE:
        builder.complete(event.call_id, RebalanceInProgress())
        extend_session(group, member, builder)
        return
    group.unsynced.discard(member.member_id)
    if group.state is GroupState.STABLE:
        builder.complete(event.call_id, _synced(group, member.assignment))
        extend_session(group, member, builder)
        if not group.unsynced:
            builder.cancel_timer(sync_key(group.group_id))
        return
    if member.sync_call_id is not None:
        builder.fail(member.sync_call_id, superseded(group.group_id, member.member_id))
    member.sync_call_id = event.call_id
    if member.member_id == group.leader_id:
        assignments = {each.member_id: each.assignment for each in event.assignments}
        for each in group.members.values():
            if each.sync_call_id is not None:
                assignment = assignments.get(each.member_id, b"")
                builder.complete(each.sync_call_id, _synced(group, assignment))
        assignment_record(group, assignments, builder)


def _wrong_protocol(group: Group, event: SyncGroup) -> DroverError | None:
    if event.protocol_type and event.protocol_type != group.protocol_type:
        return inconsistent_protocol(
            "protocol_type",
            f"must be the group's, {group.protocol_type!r}, not {event.protocol_type!r}",
        )
    if event.protocol_name and event.protocol_name != group.protocol_name:
        return inconsistent_protocol(
            "protocol_name",
            f"must be the selected one, {group.protocol_name!r}, not {event.protocol_name!r}",
        )
    return None


def _synced(group: Group, assignment: bytes) -> Synced:
    return Synced(assignment, group.protocol_type, group.protocol_name)


def end_parked_sync(
    group: Group, member: Member, builder: OutcomeBuilder, settings: GroupSettings
) -> None:
    """Handle the cancellation of a parked sync: restart the session; the member must sync again."""
    member.sync_call_id = None
    group.unsynced.add(member.member_id)
    resume(group, member, builder, grace_ms=settings.disconnect_grace_ms)
