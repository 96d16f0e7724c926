"""Checks of a request's content that do not depend on the group's state; they list all violations.

Existing groups and members have valid ids, so calls to them skip the check of ids.
``GroupsMachine`` checks the ids of other calls, to distinguish an invalid id from an unknown one.
"""

import re
from collections.abc import Iterable, Sequence

from drover.errors import InvalidArgumentError, Reason, Violation
from drover.model.group import GroupState, LeavingMember
from drover.model.ids import TaskId
from drover.model.names import TOPIC_NAME, existing_name_violations
from drover.model.offset_json import large_numbers, validate
from drover.model.offsets import CommittedOffset, TaskOffsets, TopicPartition
from drover.model.pages import PAGE_SIZE_MAX
from drover.model.times import TIME_MAX_MS
from drover_coordinator.core.groups.events import (
    CommitGroupOffsets,
    DeleteGroup,
    DeleteGroupOffsets,
    FetchGroupOffsets,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    ListGroups,
    SyncGroup,
)
from drover_coordinator.core.groups.settings import REBALANCE_TIMEOUT_MAX_MS, GroupSettings

ID_MAX_CHARS = 255
#: A member id is the client id or the instance id, a dash and a UUID.
MEMBER_ID_MAX_CHARS = ID_MAX_CHARS + 37
PROTOCOL_MAX_COUNT = 32
#: DeleteOffsets names partitions only: ``offsets[0].partition_json`` is its ``partition_json[0]``.
_DELETED = re.compile(r"offsets(\[\d+\])\.(partition_json)")
METADATA_MAX_BYTES = 512 * 1024
LEAVING_MAX_COUNT = 10_000
COMMIT_MAX_TASKS = 10_000
COMMIT_MAX_PARTITIONS = 10_000
OFFSETS_PAGE_MAX_SIZE = 10_000
TOPIC_MAX_CHARS = 249

#: The reason of the error is that of the first violation; earlier checks come first (rule G1).
Faults = list[tuple[Reason, Violation]]


def check_join(event: JoinGroup, settings: GroupSettings) -> InvalidArgumentError | None:
    """Check the group id, then the session timeout (J1), the protocols (J5), and the rest."""
    faults = _group_id_faults(event.group_id)
    low_ms, high_ms = settings.session_timeout_min_ms, settings.session_timeout_max_ms
    if not low_ms <= event.session_timeout_ms <= high_ms:
        faults.append(
            _fault(
                Reason.INVALID_SESSION_TIMEOUT,
                "session_timeout",
                f"must be from {low_ms} to {high_ms} ms, not {event.session_timeout_ms} ms",
            )
        )
    faults += _protocol_faults(event)
    if not 1 <= event.rebalance_timeout_ms <= REBALANCE_TIMEOUT_MAX_MS:
        faults.append(
            _fault(
                Reason.INVALID_REQUEST,
                "rebalance_timeout",
                f"must be from 1 to {REBALANCE_TIMEOUT_MAX_MS} ms, "
                f"not {event.rebalance_timeout_ms} ms",
            )
        )
    faults += _text_faults("member_id", event.member_id, MEMBER_ID_MAX_CHARS, may_be_empty=True)
    faults += _instance_faults("instance_id", event.instance_id)
    faults += _text_faults("client_id", event.client_id, ID_MAX_CHARS, may_be_empty=True)
    return _error("JoinGroup", faults)


def check_sync(event: SyncGroup) -> InvalidArgumentError | None:
    """Check the leader's assignments and the instance id; ``check_member`` checks the other ids."""
    faults = _instance_faults("instance_id", event.instance_id)
    member_ids = [each.member_id for each in event.assignments]
    faults += [
        _invalid(f"assignments[{index}].member_id", f"{member_id!r} is assigned twice")
        for index, member_id in _repeated(member_ids)
    ]
    return _error("SyncGroup", faults)


def check_heartbeat(event: Heartbeat) -> InvalidArgumentError | None:
    """Check the instance id."""
    return _error("Heartbeat", _instance_faults("instance_id", event.instance_id))


def check_member(
    what: str, group_id: str, member_id: str, instance_id: str | None = None
) -> InvalidArgumentError | None:
    """Check the ids of a member's call."""
    faults = _group_id_faults(group_id)
    faults += _text_faults("member_id", member_id, MEMBER_ID_MAX_CHARS)
    faults += _instance_faults("instance_id", instance_id)
    return _error(what, faults)


def check_group(what: str, group_id: str) -> InvalidArgumentError | None:
    """Check the group id of a call that adds no member; it may be empty (G1)."""
    return _error(what, _group_id_faults(group_id, may_be_empty=True))


def check_leave(event: LeaveGroup) -> InvalidArgumentError | None:
    """Check the batch of members that leave."""
    faults = _group_id_faults(event.group_id)
    count = len(event.leaving)
    if not 1 <= count <= LEAVING_MAX_COUNT:
        faults.append(
            _invalid("members", f"must have 1 to {LEAVING_MAX_COUNT} members, not {count}")
        )
    for index, each in enumerate(event.leaving[:LEAVING_MAX_COUNT]):
        faults += _leaver_faults(index, each)
    return _error("LeaveGroup", faults)


def check_states(states: Sequence[GroupState | None]) -> InvalidArgumentError | None:
    """Check the states of a filter; an unknown state is None."""
    faults = [
        _invalid(f"states[{index}]", f"must be one of {', '.join(GroupState)}")
        for index, state in enumerate(states)
        if state is None
    ]
    return _error("ListGroups", faults)


def check_claim(
    group_id: str, member_id: str, task: TaskId, request_id: str
) -> InvalidArgumentError | None:
    """Check the ids of a claim."""
    faults = _group_id_faults(group_id)
    faults += _text_faults("member_id", member_id, MEMBER_ID_MAX_CHARS)
    faults += _task_faults("task", task)
    faults += _text_faults("request_id", request_id, ID_MAX_CHARS)
    return _error("ClaimTask", faults)


def check_commit(group_id: str, tasks: Sequence[TaskOffsets]) -> InvalidArgumentError | None:
    """Check the tasks of a commit; the store checks their offsets one by one."""
    faults = _group_id_faults(group_id, may_be_empty=True)
    count = len(tasks)
    if not 1 <= count <= COMMIT_MAX_TASKS:
        faults.append(_invalid("tasks", f"must have 1 to {COMMIT_MAX_TASKS} tasks, not {count}"))
    for index, each in enumerate(tasks[:COMMIT_MAX_TASKS]):
        faults += _task_faults(f"tasks[{index}].task", each.task)
        faults += _consumer_group_faults(f"tasks[{index}].consumer_group", each.consumer_group)
    return _error("CommitOffsets", faults)


def check_fetch(group_id: str, connector: str, consumer_group: str) -> InvalidArgumentError | None:
    """Check the group, connector and consumer group of a fetch."""
    faults = _group_id_faults(group_id, may_be_empty=True)
    faults += _connector_faults("connector", connector)
    faults += _consumer_group_faults("consumer_group", consumer_group)
    return _error("FetchOffsets", faults)


def check_offsets_change(
    call: str,
    ids: tuple[str, str, str, str],
    offsets: Sequence[CommittedOffset] | None,
    offsets_topic: str = "",
) -> InvalidArgumentError | None:
    """Check the ids and offsets of a change.

    Args:
        call: The name of the RPC.
        ids: The ids of group, member, connector and consumer group.
        offsets: The offsets to write; None to delete all.
        offsets_topic: The connector's own offsets topic; empty if it has none.
    """
    group_id, member_id, connector, consumer_group = ids
    faults = _group_id_faults(group_id)
    faults += _text_faults("member_id", member_id, MEMBER_ID_MAX_CHARS)
    faults += _connector_faults("connector", connector)
    faults += _consumer_group_faults("consumer_group", consumer_group)
    if offsets is not None and not offsets:
        faults.append(_invalid("offsets", "must have at least one"))
    if offsets_topic and not TOPIC_NAME.fullmatch(offsets_topic):
        faults.append(_invalid("offsets_topic", "must be empty or a valid topic name"))
    found = validate(offsets or ())
    if call == "AlterOffsets":
        found += large_numbers(offsets or ())
    for each in found:
        field = each.field if call == "AlterOffsets" else _DELETED.sub(r"\2\1", each.field)
        faults.append(_invalid(field, each.description))
    return _error(call, faults)


def check_tasks_group(group_id: str, tasks_group: str) -> InvalidArgumentError | None:
    """Check that members of the group may claim tasks: on Kafka only those of the workers' group.

    ``tasks_group`` is empty if members of any group may claim tasks.
    """
    if tasks_group and group_id != tasks_group:
        what = f"must be {tasks_group!r}, the workers' group (DROVER_GROUP_ID), not {group_id!r}"
        return InvalidArgumentError.listing([Violation("group_id", what)])
    return None


def check_group_commit(event: CommitGroupOffsets) -> InvalidArgumentError | None:
    """Check a group's commit; ``group_offsets.commit`` checks the size of each metadata."""
    faults = _group_id_faults(event.group_id, may_be_empty=True)
    faults += _text_faults("member_id", event.member_id, MEMBER_ID_MAX_CHARS, may_be_empty=True)
    faults += _instance_faults("instance_id", event.instance_id)
    count = len(event.offsets)
    if not 1 <= count <= COMMIT_MAX_PARTITIONS:
        faults.append(
            _invalid("offsets", f"must have 1 to {COMMIT_MAX_PARTITIONS} partitions, not {count}")
        )
    offsets = event.offsets[:COMMIT_MAX_PARTITIONS]
    for index, each in enumerate(offsets):
        field = f"offsets[{index}]"
        faults += _partition_faults(field, each.topic, each.partition)
        if each.offset < 0:
            faults.append(_invalid(f"{field}.offset", f"must be 0 or more, not {each.offset}"))
        if each.leader_epoch is not None and each.leader_epoch < 0:
            faults.append(
                _invalid(f"{field}.leader_epoch", f"must be 0 or more, not {each.leader_epoch}")
            )
        if each.expire_time_ms is not None and not 0 <= each.expire_time_ms <= TIME_MAX_MS:
            faults.append(_invalid(f"{field}.expire_time", "must be from 1970 to 9999"))
    for index, at in _repeated(f"{each.topic}-{each.partition}" for each in offsets):
        faults.append(_invalid(f"offsets[{index}]", f"{at} is committed twice"))
    return _error("CommitGroupOffsets", faults)


def check_group_fetch(event: FetchGroupOffsets) -> InvalidArgumentError | None:
    """Check the group and partitions of a fetch."""
    faults = _group_id_faults(event.group_id, may_be_empty=True)
    faults += _partition_list_faults(event.partitions, least=0)
    if not 0 <= event.page_size <= OFFSETS_PAGE_MAX_SIZE:
        faults.append(
            _invalid(
                "page_size", f"must be from 0 to {OFFSETS_PAGE_MAX_SIZE}, not {event.page_size}"
            )
        )
    return _error("FetchGroupOffsets", faults)


def check_group_deletion(event: DeleteGroup) -> InvalidArgumentError | None:
    """Check the group to delete; the group with the empty id may have offsets."""
    return check_group("DeleteGroup", event.group_id)


def check_offsets_deletion(event: DeleteGroupOffsets) -> InvalidArgumentError | None:
    """Check the offsets to delete."""
    faults = _group_id_faults(event.group_id, may_be_empty=True)
    faults += _partition_list_faults(event.partitions, least=1)
    return _error("DeleteGroupOffsets", faults)


def check_list(event: ListGroups) -> InvalidArgumentError | None:
    """Check the page of a list."""
    faults: Faults = []
    if not 0 <= event.page_size <= PAGE_SIZE_MAX:
        faults.append(
            _invalid("page_size", f"must be from 0 to {PAGE_SIZE_MAX}, not {event.page_size}")
        )
    faults += _text_faults("page_token", event.page_token, ID_MAX_CHARS, may_be_empty=True)
    return _error("ListGroups", faults)


def _leaver_faults(index: int, leaving: LeavingMember) -> Faults:
    field = f"members[{index}]"
    is_static = leaving.instance_id is not None
    faults = _text_faults(
        f"{field}.member_id", leaving.member_id, MEMBER_ID_MAX_CHARS, may_be_empty=is_static
    )
    return faults + _instance_faults(f"{field}.instance_id", leaving.instance_id)


def _instance_faults(field: str, instance_id: str | None) -> Faults:
    return [] if instance_id is None else _text_faults(field, instance_id, ID_MAX_CHARS)


def _protocol_faults(event: JoinGroup) -> Faults:
    faults = _text_faults("protocol_type", event.protocol_type, ID_MAX_CHARS)
    count = len(event.protocols)
    if not 1 <= count <= PROTOCOL_MAX_COUNT:
        faults.append(
            _invalid("protocols", f"must have 1 to {PROTOCOL_MAX_COUNT} protocols, not {count}")
        )
    names = [protocol.name for protocol in event.protocols[:PROTOCOL_MAX_COUNT]]
    for index, name in enumerate(names):
        faults += _text_faults(f"protocols[{index}].name", name, ID_MAX_CHARS)
    for index, name in _repeated(names):
        faults.append(_invalid(f"protocols[{index}].name", f"{name!r} is offered twice"))
    size_bytes = sum(len(protocol.metadata) for protocol in event.protocols)
    if size_bytes > METADATA_MAX_BYTES:
        faults.append(
            _invalid(
                "protocols",
                f"must have at most {METADATA_MAX_BYTES} bytes of metadata, not {size_bytes}",
            )
        )
    return [(Reason.INCONSISTENT_GROUP_PROTOCOL, violation) for _, violation in faults]


def _partition_list_faults(partitions: Sequence[TopicPartition], *, least: int) -> Faults:
    faults: Faults = []
    if not least <= len(partitions) <= COMMIT_MAX_PARTITIONS:
        faults.append(
            _invalid(
                "partitions",
                f"must have {least} to {COMMIT_MAX_PARTITIONS} partitions, not {len(partitions)}",
            )
        )
    for index, at in enumerate(partitions[:COMMIT_MAX_PARTITIONS]):
        faults += _partition_faults(f"partitions[{index}]", at.topic, at.partition)
    return faults


def _partition_faults(field: str, topic: str, partition: int) -> Faults:
    faults = _text_faults(f"{field}.topic", topic, TOPIC_MAX_CHARS)
    if partition < 0:
        faults.append(_invalid(f"{field}.partition", f"must be 0 or more, not {partition}"))
    return faults


def _consumer_group_faults(field: str, group_id: str) -> Faults:
    return _text_faults(field, group_id, ID_MAX_CHARS, may_be_empty=True)


def _task_faults(field: str, task: TaskId) -> Faults:
    faults = _connector_faults(f"{field}.connector", task.connector)
    if task.task < 0:
        faults.append(_invalid(f"{field}.task", f"must be 0 or more, not {task.task}"))
    return faults


def _group_id_faults(group_id: str, *, may_be_empty: bool = False) -> Faults:
    faults = _text_faults("group_id", group_id, ID_MAX_CHARS, may_be_empty=may_be_empty)
    return [(Reason.INVALID_GROUP_ID, violation) for _, violation in faults]


def _connector_faults(field: str, connector: str) -> Faults:
    found = existing_name_violations(connector, field)
    return [(Reason.INVALID_REQUEST, violation) for violation in found]


def _text_faults(field: str, text: str, max_chars: int, *, may_be_empty: bool = False) -> Faults:
    least = 0 if may_be_empty else 1
    if not least <= len(text) <= max_chars:
        return [_invalid(field, f"must have {least} to {max_chars} characters, not {len(text)}")]
    if not text.isprintable():
        return [_invalid(field, "must contain printable characters only")]
    return []


def _repeated(names: Iterable[str]) -> list[tuple[int, str]]:
    seen: set[str] = set()
    repeated = []
    for index, name in enumerate(names):
        if name in seen:
            repeated.append((index, name))
        seen.add(name)
    return repeated


def _invalid(field: str, description: str) -> tuple[Reason, Violation]:
    return _fault(Reason.INVALID_REQUEST, field, description)


def _fault(reason: Reason, field: str, description: str) -> tuple[Reason, Violation]:
    return reason, Violation(field, description)


def _error(what: str, faults: Faults) -> InvalidArgumentError | None:
    if not faults:
        return None
    first = faults[0][1]
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    return InvalidArgumentError(
        faults[0][0],
        f"{what}: {first.field} {first.description}{more}",
        violations=[violation for _, violation in faults],
    )
