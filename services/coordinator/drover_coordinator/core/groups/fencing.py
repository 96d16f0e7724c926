"""The check of a member's ids and generation (rule G2) in every call of a member."""

from drover.errors import DroverError
from drover.model.group import GroupState
from drover_coordinator.core.groups.failures import (
    fenced_instance,
    illegal_generation,
    not_available,
    unknown_member,
)
from drover_coordinator.core.groups.group import Group


def member_error(
    group: Group, member_id: str, instance_id: str | None, generation: int | None
) -> DroverError | None:
    """The error of a member's call, or None if it is valid.

    ``instance_id`` and ``generation`` are None if the call has none. Fencing is checked first: a
    fenced process has to end, while an unknown member or one of another generation has to rejoin.
    """
    if group.state is GroupState.DEAD:
        return not_available(group.group_id)
    if instance_id is not None:
        holder = group.holder(instance_id)
        if holder is not None and holder.member_id != member_id:
            return fenced_instance(group.group_id, member_id, instance_id)
        if holder is None:
            return unknown_member(group.group_id, member_id)
    if member_id not in group.members:
        return unknown_member(group.group_id, member_id)
    if generation is not None and generation != group.generation:
        return illegal_generation(group.group_id, generation, group.generation)
    return None
