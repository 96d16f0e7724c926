"""The eager round-robin assignment, and the leader's rule about config offsets."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import cycle

from drover.model.ids import TaskId
from drover_worker.core.rebalance.protocol import Assignment, AssignmentError, MemberMetadata


@dataclass(slots=True)
class MemberWork:
    """The connectors and tasks of one member."""

    connectors: list[str] = field(default_factory=list)
    tasks: list[TaskId] = field(default_factory=list)


def assign_eager(
    member_ids: Iterable[str], task_counts: Mapping[str, int]
) -> dict[str, MemberWork]:
    """Assign connectors, then tasks, to the members round robin.

    The order is by connector name, member id and task index. The first task goes to the member
    after the last connector's. ``task_counts`` has the number of tasks of every connector.
    """
    work = {member_id: MemberWork() for member_id in sorted(member_ids)}
    if not work:
        return work
    members = cycle(work.values())
    names = sorted(task_counts)
    for name in names:
        next(members).connectors.append(name)
    for name in names:
        for index in range(task_counts[name]):
            next(members).tasks.append(TaskId(name, index))
    return work


def perform_assignment(
    *,
    members: Mapping[str, MemberMetadata],
    leader_id: str,
    task_counts: Mapping[str, int],
    config_offset: int,
) -> dict[str, Assignment]:
    """The leader's assignment of each member, by member id.

    A draining member gets no work, even if it is the only member.
    """
    mismatch = config_mismatch(members, leader_id, config_offset)
    if mismatch is not None:
        return dict.fromkeys(members, mismatch)
    leader = members[leader_id]
    takers = [member_id for member_id, member in members.items() if not member.draining]
    assigned = assign_eager(takers, task_counts)
    nothing = MemberWork()
    return {
        member_id: Assignment(
            error=AssignmentError.NO_ERROR,
            leader_id=leader_id,
            leader_url=leader.worker_url,
            leader_internal_url=leader.internal_url,
            config_offset=config_offset,
            connectors=tuple(assigned.get(member_id, nothing).connectors),
            tasks=tuple(assigned.get(member_id, nothing).tasks),
        )
        for member_id in sorted(members)
    }


def config_mismatch(
    members: Mapping[str, MemberMetadata], leader_id: str, config_offset: int
) -> Assignment | None:
    """The assignment of every member if the leader may not assign; None if it may.

    A leader that has read less of the config log (``config_offset``) than some member could assign
    removed work, or miss new work. Then every member gets an assignment without work, with
    CONFIG_MISMATCH and the offset to reach.
    """
    leader = members[leader_id]
    offset_max = max(member.config_offset for member in members.values())
    if config_offset >= offset_max:
        return None
    return Assignment(
        error=AssignmentError.CONFIG_MISMATCH,
        leader_id=leader_id,
        leader_url=leader.worker_url,
        leader_internal_url=leader.internal_url,
        config_offset=offset_max,
    )
