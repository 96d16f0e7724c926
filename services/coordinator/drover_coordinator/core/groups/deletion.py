"""Deletion of groups (rule A3), which raises the log's generation floor."""

from collections.abc import Iterable, Sequence

from drover.model.group import GroupState
from drover_coordinator.core.groups.events import DeleteGroup
from drover_coordinator.core.groups.failures import group_not_found, non_empty_group
from drover_coordinator.core.groups.group import Group
from drover_coordinator.core.groups.outcome_builder import OutcomeBuilder
from drover_coordinator.core.groups.records import FloorRecord, GroupRecord, OffsetRecord


def delete(group: Group | None, event: DeleteGroup, builder: OutcomeBuilder, floor: int) -> None:
    """Delete a group without members, its offsets and its pending member ids."""
    if group is None:
        builder.fail(event.call_id, group_not_found(event.group_id))
        return
    if group.state is not GroupState.EMPTY:
        builder.fail(event.call_id, non_empty_group(group.group_id, len(group.members)))
        return
    for partition in group.offsets:
        builder.append(OffsetRecord(group.group_id, partition, None))
    remove([group], builder, floor)
    builder.complete(event.call_id, None)


def remove(groups: Sequence[Group], builder: OutcomeBuilder, floor: int) -> None:
    """Append the tombstones of groups without members.

    The caller removes their offsets in the same append.

    Args:
        groups: The groups to remove.
        builder: Collects the records, all for one append.
        floor: The log's generation floor; raised to the highest generation among ``groups``.
    """
    highest = highest_generation(groups)
    if highest > floor:
        builder.append(FloorRecord(highest))
    for group in groups:
        builder.append(GroupRecord(group.group_id, None))


def highest_generation(groups: Iterable[Group]) -> int:
    """The highest generation among ``groups``; 0 without groups."""
    return max((group.generation for group in groups), default=0)
