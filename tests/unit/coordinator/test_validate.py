"""Input checks: one error lists all violations; rule G1 orders them and decides its reason."""

from dataclasses import replace

import pytest

from drover.errors import DroverError, InvalidArgumentError, Reason
from drover.model.group import GroupState, LeavingMember, MemberAssignment, OfferedProtocol
from drover.model.ids import TaskId, Term
from drover.model.offsets import TaskOffsets
from drover_coordinator.core.groups.events import (
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    ListGroups,
    SyncGroup,
)
from drover_coordinator.core.groups.settings import GroupSettings
from drover_coordinator.core.groups.validate import (
    METADATA_MAX_BYTES,
    check_claim,
    check_commit,
    check_fetch,
    check_group,
    check_heartbeat,
    check_join,
    check_leave,
    check_list,
    check_member,
    check_states,
    check_sync,
)

GOOD = JoinGroup(
    call_id="1",
    group_id="g",
    member_id="",
    new_member_id="n",
    client_id="worker",
    client_host="host",
    session_timeout_ms=10_000,
    rebalance_timeout_ms=60_000,
    protocol_type="connect",
    protocols=(OfferedProtocol("default", b"x"),),
    parked_until_ms=0,
)


def join_error(**changes: object) -> InvalidArgumentError | None:
    return check_join(replace(GOOD, **changes), GroupSettings())  # type: ignore[arg-type]


def fields(error: DroverError | None) -> list[str]:
    assert isinstance(error, InvalidArgumentError)
    return [violation.field for violation in error.violations]


def test_a_good_join_passes() -> None:
    assert join_error() is None
    assert join_error(group_id="a" * 255, client_id="", member_id="m" * 292) is None
    assert join_error(group_id="группа ☃") is None


@pytest.mark.parametrize("group_id", ["", "a" * 256, "a\nb", "a\0b", "\x7f", "x" * 1_000_000])
def test_group_ids_that_are_refused(group_id: str) -> None:
    error = join_error(group_id=group_id)
    assert error is not None
    assert error.reason is Reason.INVALID_GROUP_ID
    assert len(error.message) < 500


def test_every_violation_is_told_and_the_first_gives_the_reason() -> None:
    error = join_error(
        group_id="",
        member_id="m" * 293,
        client_id="c" * 256,
        session_timeout_ms=1,
        rebalance_timeout_ms=0,
        protocol_type="",
        protocols=(OfferedProtocol("", b""), OfferedProtocol("p", b""), OfferedProtocol("p", b"")),
    )
    assert error is not None
    assert error.reason is Reason.INVALID_GROUP_ID
    assert fields(error) == [
        "group_id",
        "session_timeout",
        "protocol_type",
        "protocols[0].name",
        "protocols[2].name",
        "rebalance_timeout",
        "member_id",
        "client_id",
    ]
    assert "(and 7 more)" in error.message


@pytest.mark.parametrize(
    ("changes", "reason", "field"),
    [
        ({"session_timeout_ms": -1}, Reason.INVALID_SESSION_TIMEOUT, "session_timeout"),
        ({"session_timeout_ms": 0}, Reason.INVALID_SESSION_TIMEOUT, "session_timeout"),
        ({"session_timeout_ms": 5_999}, Reason.INVALID_SESSION_TIMEOUT, "session_timeout"),
        ({"session_timeout_ms": 1_800_001}, Reason.INVALID_SESSION_TIMEOUT, "session_timeout"),
        ({"session_timeout_ms": 10**15}, Reason.INVALID_SESSION_TIMEOUT, "session_timeout"),
        ({"rebalance_timeout_ms": -1}, Reason.INVALID_REQUEST, "rebalance_timeout"),
        ({"rebalance_timeout_ms": 0}, Reason.INVALID_REQUEST, "rebalance_timeout"),
        ({"rebalance_timeout_ms": 3_600_001}, Reason.INVALID_REQUEST, "rebalance_timeout"),
        ({"protocol_type": ""}, Reason.INCONSISTENT_GROUP_PROTOCOL, "protocol_type"),
        ({"protocols": ()}, Reason.INCONSISTENT_GROUP_PROTOCOL, "protocols"),
        (
            {"protocols": tuple(OfferedProtocol(str(n), b"") for n in range(33))},
            Reason.INCONSISTENT_GROUP_PROTOCOL,
            "protocols",
        ),
        (
            {"protocols": (OfferedProtocol("p", bytes(METADATA_MAX_BYTES + 1)),)},
            Reason.INCONSISTENT_GROUP_PROTOCOL,
            "protocols",
        ),
        ({"member_id": "a\tb"}, Reason.INVALID_REQUEST, "member_id"),
        ({"client_id": "a\rb"}, Reason.INVALID_REQUEST, "client_id"),
        ({"instance_id": ""}, Reason.INVALID_REQUEST, "instance_id"),
        ({"instance_id": "i" * 256}, Reason.INVALID_REQUEST, "instance_id"),
        ({"instance_id": "a\0b"}, Reason.INVALID_REQUEST, "instance_id"),
    ],
)
def test_each_fault_of_a_join(changes: dict[str, object], reason: Reason, field: str) -> None:
    error = join_error(**changes)
    assert error is not None
    assert error.reason is reason
    assert fields(error) == [field]


@pytest.mark.parametrize(
    "text",
    ["\0", "a\tb", "a\nb", "\x7f", "\x1b[31m", "\u202e", "\ufeff", "\ue000", "x" * 1_000_000],
    ids=lambda text: repr(text[:3]),
)
def test_odd_texts_are_refused_wherever_they_come(text: str) -> None:
    odd_protocol = (OfferedProtocol(text, b""),)
    for field in ("group_id", "member_id", "instance_id", "client_id", "protocol_type"):
        assert fields(join_error(**{field: text})) == [field]
    assert fields(join_error(protocols=odd_protocol)) == ["protocols[0].name"]
    assert fields(check_member("Heartbeat", text, text)) == ["group_id", "member_id"]
    leaving = (LeavingMember(text),)
    assert fields(check_leave(LeaveGroup("1", "g", leaving))) == ["members[0].member_id"]
    assert fields(check_group("DescribeGroup", text)) == ["group_id"]


def test_member_calls_check_their_ids() -> None:
    assert check_member("Heartbeat", "g", "m") is None
    error = check_member("Heartbeat", "", "")
    assert fields(error) == ["group_id", "member_id"]
    assert error is not None
    assert error.reason is Reason.INVALID_GROUP_ID
    assert fields(check_member("Heartbeat", "g", "m" * 10_000)) == ["member_id"]


@pytest.mark.parametrize("instance_id", ["", "i" * 256, "x" * 1_000_000, "a\nb"])
def test_every_call_of_a_member_checks_its_instance_id(instance_id: str) -> None:
    assert fields(check_sync(SyncGroup("1", "g", "m", 1, instance_id=instance_id))) == [
        "instance_id"
    ]
    assert fields(check_heartbeat(Heartbeat("1", "g", "m", 1, instance_id))) == ["instance_id"]
    assert fields(check_member("Heartbeat", "g", "m", instance_id)) == ["instance_id"]
    leaving = (LeavingMember("m", instance_id), LeavingMember("", "i"))
    assert fields(check_leave(LeaveGroup("1", "g", leaving))) == ["members[0].instance_id"]


def test_good_instance_ids_pass() -> None:
    for instance_id in (None, "i", "i" * 255, "место ☃"):
        assert join_error(instance_id=instance_id) is None
        assert check_sync(SyncGroup("1", "g", "m", 1, instance_id=instance_id)) is None
        assert check_heartbeat(Heartbeat("1", "g", "m", 1, instance_id)) is None


def test_reading_calls_take_an_empty_group_id_but_no_wild_one() -> None:
    assert check_group("DescribeGroup", "") is None
    assert fields(check_group("DescribeGroup", "\n")) == ["group_id"]


def test_sync_refuses_members_that_are_assigned_twice() -> None:
    assignments = tuple(MemberAssignment(each, b"") for each in ("a", "b", "a", "b"))
    event = SyncGroup("1", "g", "a", 1, assignments=assignments)
    assert fields(check_sync(event)) == ["assignments[2].member_id", "assignments[3].member_id"]
    assert check_sync(replace(event, assignments=assignments[:2])) is None
    assert check_sync(replace(event, assignments=())) is None


def test_leave_needs_members() -> None:
    assert fields(check_leave(LeaveGroup("1", "g", ()))) == ["members"]
    leaving = (LeavingMember("a"), LeavingMember(""))
    assert fields(check_leave(LeaveGroup("1", "", leaving))) == [
        "group_id",
        "members[1].member_id",
    ]
    many = tuple(LeavingMember(str(index)) for index in range(10_001))
    assert fields(check_leave(LeaveGroup("1", "g", many))) == ["members"]


def test_lists_refuse_unknown_states_and_wild_pages() -> None:
    assert check_states([GroupState.STABLE]) is None
    assert fields(check_states([None, GroupState.STABLE, None])) == ["states[0]", "states[2]"]
    assert fields(check_list(ListGroups("1", page_size=-1, page_token="\0"))) == [
        "page_size",
        "page_token",
    ]


def test_claims_commits_and_fetches() -> None:
    assert check_claim("g", "m", TaskId("c", 0), "r") is None
    assert fields(check_claim("", "", TaskId("", -1), "")) == [
        "group_id",
        "member_id",
        "task.connector",
        "task.task",
        "request_id",
    ]
    good, bad = (TaskOffsets(each, Term(1, 1), ()) for each in (TaskId("c", 0), TaskId("", -1)))
    assert check_commit("", [good]) is None
    assert fields(check_commit("g", [])) == ["tasks"]
    assert fields(check_commit("g", [good, replace(bad, consumer_group="\0")])) == [
        "tasks[1].task.connector",
        "tasks[1].task.task",
        "tasks[1].consumer_group",
    ]
    assert check_fetch("", "c", "") is None
    assert fields(check_fetch("\0", "", "x\n")) == ["group_id", "connector", "consumer_group"]
