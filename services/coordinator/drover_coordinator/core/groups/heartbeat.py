"""Heartbeat and session timeouts (rules H1 to H3)."""

from drover.model.group import GroupState
from drover_coordinator.core.groups.events import Heartbeat
from drover_coordinator.core.groups.fencing import member_error
from drover_coordinator.core.groups.group import Group
from drover_coordinator.core.groups.leave import fail_parked_calls
from drover_coordinator.core.groups.member import Member
from drover_coordinator.core.groups.outcome_builder import OutcomeBuilder
from drover_coordinator.core.groups.rebalance import after_removal, remove_members
from drover_coordinator.core.groups.sessions import extend_session, resume, set_session_timer
from drover_coordinator.core.groups.settings import STALLED_MS, GroupSettings


def heartbeat(group: Group, event: Heartbeat, builder: OutcomeBuilder) -> None:
    """Extend the session; the response is True if the member has to rejoin (H1)."""
    error = member_error(group, event.member_id, event.instance_id, event.generation)
    if error is not None:
        builder.fail(event.call_id, error)
        return
    extend_session(group, group.members[event.member_id], builder)
    builder.complete(event.call_id, group.state is GroupState.PREPARING_REBALANCE)


def session_due(
    group: Group, member: Member, builder: OutcomeBuilder, settings: GroupSettings
) -> None:
    """Remove the member if its session has timed out (H2, H3).

    A late timer means that this process was stopped or starved and may have missed heartbeats, so
    the session starts again.
    """
    late_ms = builder.now_ms - (member.timer_at_ms or builder.now_ms)
    member.timer_at_ms = None
    if member.is_parked and not member.is_new:
        return  # a parked member is alive; the end of its call sets the timer again
    if late_ms >= STALLED_MS:
        resume(group, member, builder, grace_ms=settings.disconnect_grace_ms)
        return
    if builder.now_ms < member.alive_until_ms:
        set_session_timer(group, member, builder)
        return
    if member.watch_broken:
        group.note_disconnected(member.member_id)
    fail_parked_calls(group, member, builder)
    remove_members(group, [member], builder)
    after_removal(group, builder, settings)
