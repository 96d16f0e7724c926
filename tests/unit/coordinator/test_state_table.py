"""The table of requests by state in ARCHITECTURE.md drives the machine."""

from collections.abc import Callable

import pytest

from drover.errors import Reason
from drover.model.group import (
    GroupState,
    Joined,
    LeaveOutcome,
    LeaveResult,
    MemberIdRequired,
    OfferedProtocol,
    RebalanceInProgress,
    Synced,
)
from services.coordinator.core.events import Unloaded, WatchStarted
from tests.support.architecture import table
from tests.support.group_harness import DISK_FULL, Call, GroupHarness

CHANGED = (OfferedProtocol("default", b"changed"),)

#: The columns, and what DescribeGroup says there.
STATES = {
    "no group": GroupState.DEAD,
    "EMPTY": GroupState.EMPTY,
    "PREPARING": GroupState.PREPARING_REBALANCE,
    "COMPLETING": GroupState.COMPLETING_REBALANCE,
    "STABLE": GroupState.STABLE,
    "DEAD": GroupState.DEAD,
}
TABLE = table("Request")


def in_state(state: str) -> GroupHarness:
    """A group with leader a and follower b, as far as the state has members."""
    group = GroupHarness()
    if state == "no group":
        return group
    if state == "COMPLETING":
        group.completing("a", "b")
        return group
    group.stable("a", "b")
    if state == "EMPTY":
        group.leave("a", "b")
    elif state == "PREPARING":
        group.first_join("c")
        group.join("c")
        group.first_join("d")  # keeps the phase open
    elif state == "DEAD":
        group.handle(Unloaded(DISK_FULL))
    return group


REQUESTS: dict[str, Callable[[GroupHarness], Call]] = {
    "join, first": lambda group: group.first_join("n"),
    "join, id that was handed out": lambda group: group.join("p"),
    "join, unknown id": lambda group: group.join("ghost"),
    "join, leader unchanged": lambda group: group.join("a"),
    "join, follower unchanged": lambda group: group.join("b"),
    "join, follower changed": lambda group: group.join("b", protocols=CHANGED),
    "sync, follower": lambda group: group.sync("b", 1),
    "sync, leader": lambda group: group.sync("a", 1, {"a": b"A"}),
    "sync, append refused": lambda group: group.sync("a", 1, {"a": b"A"}),
    "sync, wrong generation": lambda group: group.sync("a", 7),
    "heartbeat": lambda group: group.heartbeat("a", 1),
    "heartbeat, wrong generation": lambda group: group.heartbeat("a", 7),
    "leave, member": lambda group: group.leave("b"),
    "leave, id that was handed out": lambda group: group.leave("p"),
    "claim": lambda group: group.check_member("a", 1),
    "watch": lambda group: group.watch("a"),
}


def make(request: str, group: GroupHarness, state: str) -> Call:
    """Make the request that a row of the table names."""
    if "handed out" in request and state not in ("no group", "DEAD"):
        group.first_join("p")
    if request == "sync, append refused":
        group.append_error = DISK_FULL
    return REQUESTS[request](group)


def answer(call: Call, assigned: bytes) -> str:
    """The answer, in the words of the table; ``assigned`` is what the caller had already."""
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
            return "member"
        case WatchStarted():
            return "watching"
        case response:
            return f"not in the table: {response}"


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("request_name", REQUESTS)
def test_every_request_in_every_state(request_name: str, state: str) -> None:
    group = in_state(state)
    call = make(request_name, group, state)
    said, _, moved_to = TABLE[request_name][state].partition(" → ")
    assert answer(call, b"to-b" if "follower" in request_name else b"to-a") == said
    assert group.describe().state is STATES[moved_to or state]


def test_the_table_names_these_requests_and_states() -> None:
    assert list(TABLE) == list(REQUESTS)
    assert all(list(row) == list(STATES) for row in TABLE.values())


@pytest.mark.parametrize("state", STATES)
def test_the_states_are_what_they_are_called(state: str) -> None:
    assert in_state(state).describe().state is STATES[state]


def test_errors_carry_what_the_caller_needs() -> None:
    group = in_state("STABLE")
    error = group.heartbeat("ghost", 1).errors[0]
    assert error.code == "NOT_FOUND"
    assert error.reason is Reason.UNKNOWN_MEMBER_ID
    assert error.metadata == {"groupId": "g", "memberId": "ghost"}
    assert "join again" in error.message
