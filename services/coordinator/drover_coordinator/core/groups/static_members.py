"""Static members (KIP-345): members that keep their place across restarts by instance id (J9).

The last process to join with an instance id replaces the member that has it, which is fenced. The
replacement is durable before any response, so that no crash restores a fenced process.
"""

from drover.errors import DroverError
from drover.model.group import GroupState
from drover_coordinator.core.groups.events import (
    CreationNotDurable,
    GenerationNotDurable,
    MemberRemoved,
    StaticMemberJoin,
    StaticMemberNotDurable,
    member_channel,
)
from drover_coordinator.core.groups.failures import fenced_instance
from drover_coordinator.core.groups.group import Group
from drover_coordinator.core.groups.member import Member
from drover_coordinator.core.groups.outcome_builder import OutcomeBuilder
from drover_coordinator.core.groups.rebalance import announce, parked_join_key, set_rebalance_timer
from drover_coordinator.core.groups.records import GroupRecord
from drover_coordinator.core.groups.sessions import resume, session_key, set_session_timer


def replace_static_member(
    group: Group, before: Member, member: Member, builder: OutcomeBuilder
) -> StaticMemberJoin:
    """Replace ``before`` by ``member``; the calls and watches of ``before`` end with an error."""
    instance_id = before.instance_id
    assert instance_id is not None
    fenced = fenced_instance(group.group_id, before.member_id, instance_id)
    was_parked = before.is_parked
    if before.join_call_id is not None:
        builder.fail(group.unpark_join(before), fenced)
        builder.cancel_timer(parked_join_key(group.group_id, before.member_id))
    if before.sync_call_id is not None:
        builder.fail(before.sync_call_id, fenced)
        before.sync_call_id = None
        group.unsynced.add(before.member_id)
    if was_parked:
        resume(group, before, builder, grace_ms=0)  # in case the append fails and it is restored
    group.replace_member(before, member)
    builder.cancel_timer(session_key(group.group_id, before.member_id))
    builder.notify(
        member_channel(group.group_id, before.member_id),
        MemberRemoved(before.member_id, fenced_instance_id=instance_id),
    )
    return StaticMemberJoin(member.member_id, before)


def persist_static_member(
    group: Group, static_join: StaticMemberJoin, builder: OutcomeBuilder
) -> None:
    """Append the new holder of the instance id, if the log has an earlier holder or no group."""
    holder = group.members[static_join.member_id]
    assert holder.instance_id is not None
    if builder.records:  # the next generation's record includes it
        builder.on_append_failed = GenerationNotDurable(group.group_id, static_join)
    elif group.hard is None:
        builder.append(
            GroupRecord(group.group_id, group.as_created(builder.now_ms)),
            CreationNotDurable(group.group_id, static_join.member_id),
        )
    elif group.durable_holder(holder.instance_id) is not None:
        builder.append(
            GroupRecord(group.group_id, group.as_member_replaced(holder)),
            StaticMemberNotDurable(group.group_id, static_join),
        )


def undo_static_join(group: Group, static_join: StaticMemberJoin) -> None:
    """Undo a join that could not be appended: restore the replaced member, if any."""
    member = group.members[static_join.member_id]
    if member.join_call_id is not None:
        group.unpark_join(member)
    if static_join.replaced is None:
        group.remove(member)
    else:
        group.replace_member(member, static_join.replaced)


def static_member_not_durable(
    group: Group, static_join: StaticMemberJoin, error: DroverError, builder: OutcomeBuilder
) -> None:
    """Fail the join and restore the replaced member.

    The timers and notifications of the failed event were dropped, so set them again. A rebalance
    that the join started continues, since members may have been notified of it.
    """
    call_id = group.members[static_join.member_id].join_call_id
    if call_id is not None:
        builder.fail(call_id, error)
    undo_static_join(group, static_join)
    if group.state is not GroupState.PREPARING_REBALANCE:
        return
    for member in group.members.values():
        if not member.is_parked:
            set_session_timer(group, member, builder)
    set_rebalance_timer(group, builder)
    announce(group, builder)
