"""WatchGroup: streams that announce rebalances; a broken one shortens its member's session."""

from drover.model.group import GroupState, WatchedGroup
from drover_coordinator.core.groups.events import WatchOpened, WatchStarted
from drover_coordinator.core.groups.failures import too_many_watches
from drover_coordinator.core.groups.fencing import member_error
from drover_coordinator.core.groups.group import Group
from drover_coordinator.core.groups.member import Member
from drover_coordinator.core.groups.outcome_builder import OutcomeBuilder
from drover_coordinator.core.groups.sessions import extend_session, set_session_end
from drover_coordinator.core.groups.settings import WATCHES_PER_MEMBER_MAX, GroupSettings


def watch_opened(group: Group, event: WatchOpened, builder: OutcomeBuilder) -> None:
    """Open a watch for a member and restart its session."""
    error = member_error(group, event.member_id, None, None)
    if error is not None:
        builder.fail(event.call_id, error)
        return
    member = group.members[event.member_id]
    if len(member.watches) >= WATCHES_PER_MEMBER_MAX:
        builder.fail(event.call_id, too_many_watches(group.group_id, member.member_id))
        return
    member.watches.add(event.call_id)
    member.watch_broken = False
    extend_session(group, member, builder)
    preparing = group.state is GroupState.PREPARING_REBALANCE
    watched = WatchedGroup(
        created=True,
        state=group.state,
        generation=group.generation,
        rejoin_needed=preparing and member.join_call_id is None,
    )
    builder.complete(event.call_id, WatchStarted(watched, group.change))


def stream_broken(
    group: Group, member: Member, watch_id: str, builder: OutcomeBuilder, settings: GroupSettings
) -> None:
    """Close a watch whose client disconnected.

    Without another watch the member's session ends after the disconnect grace, whatever else the
    member sends.
    """
    if watch_id not in member.watches:
        return  # the watch was rejected
    member.watches.remove(watch_id)
    if member.watches:
        return
    member.watch_broken = True
    left_ms = member.alive_until_ms - builder.now_ms
    if not member.is_parked and left_ms > settings.disconnect_grace_ms:
        set_session_end(group, member, builder, settings.disconnect_grace_ms)
