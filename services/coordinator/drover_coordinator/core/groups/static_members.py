"""Static members (KIP-345): a place that is named by an instance id and outlives processes (J9).

The process that joins last with an instance id has its place; the one before is fenced. Who has it
is durable before anybody hears of it, so that no crash gives it back to one who was fenced.
"""

from drover.errors import DroverError
from drover.model.group import GroupState
from drover_coordinator.core.groups.events import (
    CreationNotDurable,
    GenerationNotDurable,
    MemberRemoved,
    Seat,
    SeatNotDurable,
    member_channel,
)
from drover_coordinator.core.groups.failures import fenced_instance
from drover_coordinator.core.groups.group import Group
from drover_coordinator.core.groups.member import Member
from drover_coordinator.core.groups.outcome_builder import OutcomeBuilder
from drover_coordinator.core.groups.rebalance import announce, parked_join_key, wait_again
from drover_coordinator.core.groups.records import GroupRecord
from drover_coordinator.core.groups.sessions import resume, session_key, set_session_timer


def take_seat(group: Group, before: Member, member: Member, builder: OutcomeBuilder) -> Seat:
    """Put ``member`` in the place of ``before``, whose calls and watches end."""
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
        resume(group, before, builder, grace_ms=0)  # should it get its place back
    group.exchange(before, member)
    builder.cancel_timer(session_key(group.group_id, before.member_id))
    builder.notify(
        member_channel(group.group_id, before.member_id),
        MemberRemoved(before.member_id, fenced_instance_id=instance_id),
    )
    return Seat(member.member_id, before)


def keep_seat(group: Group, seat: Seat, builder: OutcomeBuilder) -> None:
    """Make durable who has the place, unless the log knows of none under that instance id."""
    holder = group.members[seat.member_id]
    assert holder.instance_id is not None
    if builder.records:  # the next generation, which says it
        builder.on_append_failed = GenerationNotDurable(group.group_id, seat)
    elif group.hard is None:
        builder.append(
            GroupRecord(group.group_id, group.as_created(builder.now_ms)),
            CreationNotDurable(group.group_id, seat.member_id),
        )
    elif group.logged_holder(holder.instance_id) is not None:
        builder.append(
            GroupRecord(group.group_id, group.as_handed_over(holder)),
            SeatNotDurable(group.group_id, seat),
        )


def give_back(group: Group, seat: Seat) -> None:
    """The new holder could not be stored: all is as if it had not joined."""
    member = group.members[seat.member_id]
    if member.join_call_id is not None:
        group.unpark_join(member)
    if seat.before is None:
        group.remove(member)
    else:
        group.exchange(member, seat.before)


def seat_not_durable(group: Group, seat: Seat, error: DroverError, builder: OutcomeBuilder) -> None:
    """Tell the one that joined, and go on with who was there before.

    The timers and notifications of the failed event were dropped, so set them again. A
    rebalance that it began goes on: the members cannot be told that it did not.
    """
    call_id = group.members[seat.member_id].join_call_id
    if call_id is not None:
        builder.fail(call_id, error)
    give_back(group, seat)
    if group.state is not GroupState.PREPARING_REBALANCE:
        return
    for member in group.members.values():
        if not member.is_parked:
            set_session_timer(group, member, builder)
    wait_again(group, builder)
    announce(group, builder)
