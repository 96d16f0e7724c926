"""How a group goes: on an operator's word (rule A3), and what it leaves behind."""

from collections.abc import Iterable, Sequence

from drover.model.group import GroupState
from drover_coordinator.core.groups.events import DeleteGroup
from drover_coordinator.core.groups.failures import group_not_found, non_empty_group
from drover_coordinator.core.groups.group import Group
from drover_coordinator.core.groups.outcome_builder import Turn
from drover_coordinator.core.groups.records import FloorRecord, GroupRecord, OffsetRecord


def delete(group: Group | None, event: DeleteGroup, turn: Turn, floor: int) -> None:
    """Remove a group without members, and its offsets. Ids that were handed out go with it."""
    if group is None:
        turn.fail(event.call_id, group_not_found(event.group_id))
        return
    if group.state is not GroupState.EMPTY:
        turn.fail(event.call_id, non_empty_group(group.group_id, len(group.members)))
        return
    for partition in group.offsets:
        turn.append(OffsetRecord(group.group_id, partition, None))
    remove([group], turn, floor)
    turn.complete(event.call_id, None)


def remove(groups: Sequence[Group], turn: Turn, floor: int) -> None:
    """Remove groups without members whose offsets are gone or go in this turn.

    Args:
        groups: Who goes.
        turn: Where the records go, all into one append.
        floor: The log's generation floor; raised to the highest generation of those that go.
    """
    highest = highest_generation(groups)
    if highest > floor:
        turn.append(FloorRecord(highest))
    for group in groups:
        turn.append(GroupRecord(group.group_id, None))


def highest_generation(groups: Iterable[Group]) -> int:
    """The highest generation among them; 0 if there is none."""
    return max((group.generation for group in groups), default=0)
