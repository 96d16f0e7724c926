"""The table of requests by state in docs/group-states.md drives the machine."""

from collections.abc import Callable

import pytest

from drover.errors import Reason
from drover.model.group import (
    GroupDescription,
    GroupState,
    Joined,
    LeaveOutcome,
    LeaveResult,
    LeavingMember,
    MemberIdRequired,
    OfferedProtocol,
    RebalanceInProgress,
    Synced,
)
from drover.model.offsets import (
    GroupCommit,
    GroupCommitOutcome,
    GroupOffsetDeleted,
    GroupOffsetDeletion,
    GroupOffsetPage,
    TopicPartition,
)
from drover_coordinator.core.groups.events import DeleteGroup, DescribeGroup, Unloaded, WatchStarted
from tests.support.group_harness import DISK_FULL, GROUP, Call, GroupHarness
from tests.support.group_tables import table

CHANGED = (OfferedProtocol("default", b"changed"),)
A0, POSITION = TopicPartition("a", 0), 41
BOTH = (OfferedProtocol("default", b"meta"), OfferedProtocol("other", b"meta"))

#: The columns, with the state that DescribeGroup returns.
STATES = {
    "no group": GroupState.DEAD,
    "EMPTY": GroupState.EMPTY,
    "PREPARING": GroupState.PREPARING_REBALANCE,
    "COMPLETING": GroupState.COMPLETING_REBALANCE,
    "STABLE": GroupState.STABLE,
    "DEAD": GroupState.DEAD,
}
TABLE = table("Request")


def in_state(state: str, *, static: bool = False) -> GroupHarness:
    """A group in ``state`` with a committed offset; its members are leader a and follower b.

    If they are static, a has the instance id A, and b the instance id B.
    """
    group = GroupHarness()
    if state == "no group":
        return group
    group.commit_offsets({A0: POSITION})
    if static:
        group.join_static("a", "A", protocols=BOTH)
        group.join_static("b", "B", protocols=BOTH)
        group.advance(2 * group.settings.initial_rebalance_delay_ms)
    else:
        group.completing("a", "b", protocols=BOTH)
    if state == "COMPLETING":
        return group
    group.assign("a", "b")
    if state == "EMPTY":
        group.leave("a", "b")
    elif state == "PREPARING":
        group.first_join("c", protocols=BOTH)
        group.join("c", protocols=BOTH)
        group.first_join("d", protocols=BOTH)  # its pending id keeps the phase open
    elif state == "DEAD":
        group.handle(Unloaded(DISK_FULL))
    return group


REQUESTS: dict[str, Callable[[GroupHarness], Call]] = {
    "join, first": lambda group: group.first_join("n"),
    "join, pending id": lambda group: group.join("p"),
    "join, unknown id": lambda group: group.join("ghost"),
    "join, leader unchanged": lambda group: group.join("a", protocols=BOTH),
    "join, follower unchanged": lambda group: group.join("b", protocols=BOTH),
    "join, follower changed": lambda group: group.join("b", protocols=CHANGED),
    "join, instance id, first": lambda group: group.join_static("n", "N"),
    "join, instance id of a member": lambda group: group.join_static("b2", "B"),
    "join, instance id of a member, another protocol": lambda group: group.join_static(
        "b2", "B", protocols=BOTH[1:]
    ),
    "join, instance id of a member, append refused": lambda group: group.join_static("b2", "B"),
    "join, fenced id": lambda group: group.join("ghost", instance_id="B"),
    "sync, follower": lambda group: group.sync("b", 1),
    "sync, leader": lambda group: group.sync("a", 1, {"a": b"A"}),
    "sync, append refused": lambda group: group.sync("a", 1, {"a": b"A"}),
    "sync, wrong generation": lambda group: group.sync("a", 7),
    "sync, fenced id": lambda group: group.sync("ghost", 1, instance_id="B"),
    "heartbeat": lambda group: group.heartbeat("a", 1),
    "heartbeat, wrong generation": lambda group: group.heartbeat("a", 7),
    "heartbeat, fenced id": lambda group: group.heartbeat("ghost", 1, instance_id="B"),
    "leave, member": lambda group: group.leave("b"),
    "leave, pending id": lambda group: group.leave("p"),
    "leave, instance id": lambda group: group.leave(LeavingMember("", "B")),
    "leave, fenced id": lambda group: group.leave(LeavingMember("ghost", "B")),
    "claim": lambda group: group.check_member("a", 1),
    "watch": lambda group: group.watch("a"),
    "describe": lambda group: group.submit(DescribeGroup(group.call_id(), GROUP)),
    "commit, member": lambda group: group.commit_offsets({A0: 1}, "a", 1),
    "commit, no member": lambda group: group.commit_offsets({A0: 1}),
    "commit, wrong generation": lambda group: group.commit_offsets({A0: 1}, "a", 7),
    "commit, fenced id": lambda group: group.commit_offsets({A0: 1}, "ghost", 1, instance_id="B"),
    "commit, append refused": lambda group: group.commit_offsets({A0: 1}),
    "fetch offsets": lambda group: group.fetch_offsets(A0),
    "delete offsets": lambda group: group.delete_offsets(A0),
    "delete group": lambda group: group.delete_group(),
}


def make(request: str, group: GroupHarness, state: str) -> Call:
    """Send the request that a row of the table names."""
    if "pending" in request and state not in ("no group", "DEAD"):
        group.first_join("p")
    if "append refused" in request:
        group.append_error = DISK_FULL
    return REQUESTS[request](group)


def answer(call: Call, assigned: bytes) -> str:
    """The outcome in the table's words; ``assigned`` is the caller's earlier assignment."""
    if call.waits:
        return "parked"
    if call.errors:
        return str(call.reason)
    match call.response:
        case Joined(generation=1):
            return "joined"
        case MemberIdRequired():
            return "id required"
        case RebalanceInProgress():
            return "rebalance in progress"
        case Synced(assignment=b"A"):
            return "new assignment"
        case Synced(assignment=assignment) if assignment == assigned:
            return "assignment"
        case (LeaveResult(outcome=LeaveOutcome.LEFT),):
            return "left"
        case (LeaveResult(outcome=outcome),):
            return str(outcome)
        case bool(rejoin):
            return "rejoin" if rejoin else "fine"
        case None:
            return "removed" if isinstance(call.event, DeleteGroup) else "member"
        case GroupCommit(rebalance_in_progress=True, outcomes=()):
            return "rebalance in progress"
        case GroupCommit(outcomes=((_, GroupCommitOutcome.COMMITTED),)):
            return "committed"
        case GroupOffsetPage(offsets=(offset,)):
            return "offsets" if offset.offset == POSITION else str(offset.offset)
        case (GroupOffsetDeleted(outcome=GroupOffsetDeletion.DELETED),):
            return "deleted"
        case WatchStarted():
            return "watching"
        case GroupDescription(state=GroupState.DEAD, members=()):
            return "DEAD"
        case GroupDescription(members=()):
            return "no members"
        case GroupDescription(members=members):
            shown = all(each.metadata and each.assignment for each in members)
            hidden = not any(each.metadata or each.assignment for each in members)
            assert shown is not hidden
            return "everything" if shown else "no metadata"
        case response:
            return f"not in the table: {response}"


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("request_name", REQUESTS)
def test_every_request_in_every_state(request_name: str, state: str) -> None:
    group = in_state(state, static="instance" in request_name or "fenced" in request_name)
    call = make(request_name, group, state)
    said, _, moved_to = TABLE[request_name][state].partition(" → ")
    assert answer(call, b"to-b" if "follower" in request_name else b"to-a") == said
    assert group.describe().state is STATES[moved_to or state]


def test_the_table_names_these_requests_and_states() -> None:
    assert list(TABLE) == list(REQUESTS)
    assert all(list(row) == list(STATES) for row in TABLE.values())
    assert set(STATES.values()) == set(GroupState)


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("state", STATES)
def test_the_states_are_what_they_are_called(state: str, static: bool) -> None:
    assert in_state(state, static=static).describe().state is STATES[state]


def test_errors_carry_what_the_caller_needs() -> None:
    group = in_state("STABLE")
    error = group.heartbeat("ghost", 1).errors[0]
    assert error.code == "NOT_FOUND"
    assert error.reason is Reason.UNKNOWN_MEMBER_ID
    assert error.metadata == {"groupId": "g", "memberId": "ghost"}
    assert "rejoin" in error.message
