"""Session timeouts of members.

The timer is lazy: a heartbeat only moves ``alive_until_ms``, and a timer that fires before that is
set again. So a heartbeat sets no timer.
"""

from drover_coordinator.core.groups.events import SessionDue
from drover_coordinator.core.groups.group import Group
from drover_coordinator.core.groups.member import Member
from drover_coordinator.core.groups.outcome_builder import OutcomeBuilder


def session_key(group_id: str, member_id: str) -> str:
    """The key of a member's session timer. Ids contain no control characters."""
    return f"session\0{group_id}\0{member_id}"


def set_session_end(group: Group, member: Member, builder: OutcomeBuilder, timeout_ms: int) -> None:
    """Let the session end ``timeout_ms`` from now."""
    member.alive_until_ms = builder.now_ms + timeout_ms
    if member.timer_at_ms is None or member.timer_at_ms > member.alive_until_ms:
        set_session_timer(group, member, builder)


def set_session_timer(group: Group, member: Member, builder: OutcomeBuilder) -> None:
    """Set the session timer to the end of the session, replacing the present one."""
    member.timer_at_ms = member.alive_until_ms
    builder.set_timer(
        session_key(group.group_id, member.member_id),
        member.alive_until_ms,
        SessionDue(group.group_id, member.member_id),
    )


def extend_session(group: Group, member: Member, builder: OutcomeBuilder) -> None:
    """Restart the session, because the member's process has sent a request.

    A request that arrives after the break of the member's watch may have been sent before it, so
    only a new watch shows that the process lives.
    """
    if not member.is_parked and not member.watch_broken:
        resume(group, member, builder, grace_ms=0)


def resume(group: Group, member: Member, builder: OutcomeBuilder, *, grace_ms: int) -> None:
    """Restart the session after the member's parked call has ended.

    The session lasts only ``grace_ms`` if the member's watch broke while the call was parked.
    """
    timeout_ms = grace_ms if member.watch_broken else member.session_timeout_ms
    if member.is_new:
        timeout_ms = min(timeout_ms, max(member.new_until_ms - builder.now_ms, 0))
    set_session_end(group, member, builder, timeout_ms)
