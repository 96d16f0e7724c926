"""The table of requests by state, as data that drives the machine."""

import pytest

from drover.errors import Reason
from drover.model.group import (
    GroupState,
    Joined,
    LeaveOutcome,
    MemberIdRequired,
    OfferedProtocol,
    RebalanceInProgress,
    Synced,
)
from services.coordinator.core.events import Unloaded
from tests.support.group_harness import DISK_FULL, Call, GroupHarness

CHANGED = (OfferedProtocol("default", b"changed"),)
LEFT, UNKNOWN = LeaveOutcome.LEFT, LeaveOutcome.UNKNOWN_MEMBER_ID

STATES = ("no group", "empty", "preparing", "completing", "stable", "dead")

#: Outcome in each state, in the order of STATES. "->" is the state after the request.
TABLE = {
    "join, first": (
        "id required -> EMPTY",
        "id required -> EMPTY",
        "id required -> PREPARING_REBALANCE",
        "id required -> COMPLETING_REBALANCE",
        "id required -> STABLE",
        "COORDINATOR_NOT_AVAILABLE -> DEAD",
    ),
    "join, id that was handed out": (
        "UNKNOWN_MEMBER_ID -> DEAD",
        "parked -> PREPARING_REBALANCE",
        "parked -> PREPARING_REBALANCE",
        "parked -> PREPARING_REBALANCE",
        "parked -> PREPARING_REBALANCE",
        "COORDINATOR_NOT_AVAILABLE -> DEAD",
    ),
    "join, unknown id": (
        "UNKNOWN_MEMBER_ID -> DEAD",
        "UNKNOWN_MEMBER_ID -> EMPTY",
        "UNKNOWN_MEMBER_ID -> PREPARING_REBALANCE",
        "UNKNOWN_MEMBER_ID -> COMPLETING_REBALANCE",
        "UNKNOWN_MEMBER_ID -> STABLE",
        "COORDINATOR_NOT_AVAILABLE -> DEAD",
    ),
    "join, leader unchanged": (
        "UNKNOWN_MEMBER_ID -> DEAD",
        "UNKNOWN_MEMBER_ID -> EMPTY",
        "parked -> PREPARING_REBALANCE",
        "joined 1 -> COMPLETING_REBALANCE",
        "parked -> PREPARING_REBALANCE",
        "COORDINATOR_NOT_AVAILABLE -> DEAD",
    ),
    "join, follower unchanged": (
        "UNKNOWN_MEMBER_ID -> DEAD",
        "UNKNOWN_MEMBER_ID -> EMPTY",
        "parked -> PREPARING_REBALANCE",
        "joined 1 -> COMPLETING_REBALANCE",
        "joined 1 -> STABLE",
        "COORDINATOR_NOT_AVAILABLE -> DEAD",
    ),
    "join, follower changed": (
        "UNKNOWN_MEMBER_ID -> DEAD",
        "UNKNOWN_MEMBER_ID -> EMPTY",
        "parked -> PREPARING_REBALANCE",
        "parked -> PREPARING_REBALANCE",
        "parked -> PREPARING_REBALANCE",
        "COORDINATOR_NOT_AVAILABLE -> DEAD",
    ),
    "sync, follower": (
        "UNKNOWN_MEMBER_ID -> DEAD",
        "UNKNOWN_MEMBER_ID -> EMPTY",
        "rebalance in progress -> PREPARING_REBALANCE",
        "parked -> COMPLETING_REBALANCE",
        "synced to-b -> STABLE",
        "COORDINATOR_NOT_AVAILABLE -> DEAD",
    ),
    "sync, leader": (
        "UNKNOWN_MEMBER_ID -> DEAD",
        "UNKNOWN_MEMBER_ID -> EMPTY",
        "rebalance in progress -> PREPARING_REBALANCE",
        "synced A -> STABLE",
        "synced to-a -> STABLE",
        "COORDINATOR_NOT_AVAILABLE -> DEAD",
    ),
    "sync, append refused": (
        "UNKNOWN_MEMBER_ID -> DEAD",
        "UNKNOWN_MEMBER_ID -> EMPTY",
        "rebalance in progress -> PREPARING_REBALANCE",
        "STORAGE_UNAVAILABLE -> PREPARING_REBALANCE",
        "synced to-a -> STABLE",
        "COORDINATOR_NOT_AVAILABLE -> DEAD",
    ),
    "sync, wrong generation": (
        "UNKNOWN_MEMBER_ID -> DEAD",
        "UNKNOWN_MEMBER_ID -> EMPTY",
        "ILLEGAL_GENERATION -> PREPARING_REBALANCE",
        "ILLEGAL_GENERATION -> COMPLETING_REBALANCE",
        "ILLEGAL_GENERATION -> STABLE",
        "COORDINATOR_NOT_AVAILABLE -> DEAD",
    ),
    "heartbeat": (
        "UNKNOWN_MEMBER_ID -> DEAD",
        "UNKNOWN_MEMBER_ID -> EMPTY",
        "True -> PREPARING_REBALANCE",
        "False -> COMPLETING_REBALANCE",
        "False -> STABLE",
        "COORDINATOR_NOT_AVAILABLE -> DEAD",
    ),
    "heartbeat, wrong generation": (
        "UNKNOWN_MEMBER_ID -> DEAD",
        "UNKNOWN_MEMBER_ID -> EMPTY",
        "ILLEGAL_GENERATION -> PREPARING_REBALANCE",
        "ILLEGAL_GENERATION -> COMPLETING_REBALANCE",
        "ILLEGAL_GENERATION -> STABLE",
        "COORDINATOR_NOT_AVAILABLE -> DEAD",
    ),
    "leave, member": (
        "UNKNOWN_MEMBER_ID -> DEAD",
        "UNKNOWN_MEMBER_ID -> EMPTY",
        "LEFT -> PREPARING_REBALANCE",
        "LEFT -> PREPARING_REBALANCE",
        "LEFT -> PREPARING_REBALANCE",
        "COORDINATOR_NOT_AVAILABLE -> DEAD",
    ),
    "leave, id that was handed out": (
        "UNKNOWN_MEMBER_ID -> DEAD",
        "LEFT -> EMPTY",
        "LEFT -> PREPARING_REBALANCE",
        "LEFT -> COMPLETING_REBALANCE",
        "LEFT -> STABLE",
        "COORDINATOR_NOT_AVAILABLE -> DEAD",
    ),
    "claim": (
        "UNKNOWN_MEMBER_ID -> DEAD",
        "UNKNOWN_MEMBER_ID -> EMPTY",
        "None -> PREPARING_REBALANCE",
        "None -> COMPLETING_REBALANCE",
        "None -> STABLE",
        "COORDINATOR_NOT_AVAILABLE -> DEAD",
    ),
    "watch": (
        "UNKNOWN_MEMBER_ID -> DEAD",
        "UNKNOWN_MEMBER_ID -> EMPTY",
        "watching -> PREPARING_REBALANCE",
        "watching -> COMPLETING_REBALANCE",
        "watching -> STABLE",
        "COORDINATOR_NOT_AVAILABLE -> DEAD",
    ),
}


def in_state(state: str) -> GroupHarness:
    """A group with leader a and follower b, as far as the state has members."""
    group = GroupHarness()
    if state == "no group":
        return group
    if state == "completing":
        group.completing("a", "b")
        return group
    group.stable("a", "b")
    if state == "empty":
        group.leave("a", "b")
    elif state == "preparing":
        group.first_join("c")
        group.join("c")
        group.first_join("d")  # keeps the phase open
    elif state == "dead":
        group.handle(Unloaded(DISK_FULL))
    return group


def request(group: GroupHarness, name: str, state: str) -> Call:
    """Make the request that a row of the table names."""
    if "handed out" in name and state not in ("no group", "dead"):
        group.first_join("p")
    if name == "sync, append refused":
        group.append_error = DISK_FULL
    calls = {
        "join, first": lambda: group.first_join("n"),
        "join, id that was handed out": lambda: group.join("p"),
        "join, unknown id": lambda: group.join("ghost"),
        "join, leader unchanged": lambda: group.join("a"),
        "join, follower unchanged": lambda: group.join("b"),
        "join, follower changed": lambda: group.join("b", protocols=CHANGED),
        "sync, follower": lambda: group.sync("b", 1),
        "sync, leader": lambda: group.sync("a", 1, {"a": b"A"}),
        "sync, append refused": lambda: group.sync("a", 1, {"a": b"A"}),
        "sync, wrong generation": lambda: group.sync("a", 7),
        "heartbeat": lambda: group.heartbeat("a", 1),
        "heartbeat, wrong generation": lambda: group.heartbeat("a", 7),
        "leave, member": lambda: group.leave("b"),
        "leave, id that was handed out": lambda: group.leave("p"),
        "claim": lambda: group.check_member("a", 1),
        "watch": lambda: group.watch("a"),
    }
    return calls[name]()


def answer(call: Call) -> str:
    """The answer, in the words of the table."""
    if call.waits:
        return "parked"
    if call.errors:
        return str(call.reason)
    match call.response:
        case Joined(generation=generation):
            return f"joined {generation}"
        case MemberIdRequired():
            return "id required"
        case RebalanceInProgress():
            return "rebalance in progress"
        case Synced(assignment=assignment):
            return f"synced {assignment.decode()}"
        case tuple(results):
            return str(results[0].outcome)
        case None | bool():
            return str(call.response)
        case _:
            return "watching"


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("name", TABLE)
def test_every_request_in_every_state(name: str, state: str) -> None:
    group = in_state(state)
    call = request(group, name, state)
    came_of_it = f"{answer(call)} -> {group.describe().state}"
    assert came_of_it == TABLE[name][STATES.index(state)]


@pytest.mark.parametrize("state", STATES)
def test_the_states_are_what_they_are_called(state: str) -> None:
    expected = {
        "no group": GroupState.DEAD,
        "empty": GroupState.EMPTY,
        "preparing": GroupState.PREPARING_REBALANCE,
        "completing": GroupState.COMPLETING_REBALANCE,
        "stable": GroupState.STABLE,
        "dead": GroupState.DEAD,
    }
    assert in_state(state).describe().state is expected[state]


def test_errors_carry_what_the_caller_needs() -> None:
    group = in_state("stable")
    error = group.heartbeat("ghost", 1).errors[0]
    assert error.code == "NOT_FOUND"
    assert error.reason is Reason.UNKNOWN_MEMBER_ID
    assert error.metadata == {"groupId": "g", "memberId": "ghost"}
    assert "join again" in error.message
