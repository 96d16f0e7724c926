"""Limits of a group's metadata, which the leader gets in one message, and of groups."""

import pytest

from drover.api.coordinator.v1 import coordinator_service_pb2 as pb
from drover.codec.coordinator import encode_join_outcome
from drover.errors import Reason, ResourceExhaustedError
from drover.model.group import GroupState, OfferedProtocol
from drover.rpc import MESSAGE_MAX_BYTES
from drover_coordinator.core.groups import machine
from drover_coordinator.core.groups.supported_protocols import RECORD_MAX_BYTES, RESPONSE_MAX_BYTES
from drover_coordinator.core.groups.validate import METADATA_MAX_BYTES
from tests.support.group_harness import SESSION_MS, Call, GroupHarness

#: Metadata of eight such members does not fit in one response.
BIG = METADATA_MAX_BYTES


def offer(*sizes: int, name: str = "p") -> tuple[OfferedProtocol, ...]:
    return tuple(OfferedProtocol(f"{name}{index}", bytes(size)) for index, size in enumerate(sizes))


def assert_no_room(call: Call, *words: str) -> None:
    assert call.reason is Reason.GROUP_MAX_SIZE_REACHED
    (error,) = call.errors
    assert isinstance(error, ResourceExhaustedError)
    for word in ("less metadata", *words):
        assert word in error.message
    assert int(error.metadata["sizeBytes"]) > int(error.metadata["maxBytes"])


def test_what_the_leader_is_told_fits_in_a_message(prompt_group: GroupHarness) -> None:
    group = prompt_group
    group.enter("m0", protocols=offer(BIG))
    for index in range(1, 7):
        group.enter(f"m{index}", protocols=offer(BIG))
    assert_no_room(group.first_join("m7", protocols=offer(BIG)), "'p0'", str(RESPONSE_MAX_BYTES))
    left = RESPONSE_MAX_BYTES - 7 * BIG - 8 * len("m0")
    assert_no_room(group.first_join("m8", protocols=offer(left)))
    group.enter("m9", protocols=offer(left - 8 * 16))
    leader = group.join("m0", protocols=offer(BIG))
    group.advance(0)
    assert len(leader.joined.members) == 8
    answer: pb.JoinGroupResponse = encode_join_outcome(leader.joined)
    assert (
        RESPONSE_MAX_BYTES - 256 < answer.ByteSize() < RESPONSE_MAX_BYTES + 256 < MESSAGE_MAX_BYTES
    )


def test_a_newcomer_without_room_holds_nobody_up(prompt_group: GroupHarness) -> None:
    group = prompt_group
    group.stable(*(f"m{index}" for index in range(7)), protocols=offer(BIG))
    small = group.first_join("late", protocols=offer(1))
    assert small.responses
    assert_no_room(group.join("late", protocols=offer(BIG)))  # its first join offered less metadata
    assert group.describe().state is GroupState.STABLE
    assert group.heartbeat("m0").response is False
    assert group.join("late", protocols=offer(1)).reason is Reason.UNKNOWN_MEMBER_ID


def test_a_newcomer_without_room_lets_the_rebalance_complete(prompt_group: GroupHarness) -> None:
    group = prompt_group
    names = [f"m{index}" for index in range(7)]
    group.stable(*names, protocols=offer(BIG))
    group.first_join("late", protocols=offer(1))
    joining = [group.join(name, protocols=offer(BIG)) for name in names]
    assert joining[0].waits  # for the member with a pending id
    assert_no_room(group.join("late", protocols=offer(BIG)))
    assert {call.joined.generation for call in joining} == {2}


def test_a_member_that_wants_more_than_fits_stays_what_it_was(prompt_group: GroupHarness) -> None:
    group = prompt_group
    names = [f"m{index}" for index in range(7)]
    group.stable(*names, protocols=offer(BIG - 10))
    entered = group.enter("small", protocols=offer(1))
    for name in names:
        group.join(name, protocols=offer(BIG - 10))
    assert entered.joined.generation == 2
    assert_no_room(group.join("small", protocols=offer(BIG)))
    assert group.describe().state is GroupState.COMPLETING_REBALANCE
    group.assign("m0", *names[1:], "small")
    assert group.heartbeat("small").response is False
    assert group.join("small", protocols=offer(100)).waits


def test_members_that_go_make_room(prompt_group: GroupHarness) -> None:
    group = prompt_group
    group.stable(*(f"m{index}" for index in range(7)), protocols=offer(BIG))
    assert_no_room(group.first_join("late", protocols=offer(BIG)))
    group.leave("m3")
    assert group.first_join("late", protocols=offer(BIG)).responses


def test_the_protocols_that_nobody_selects_are_bounded_too(prompt_group: GroupHarness) -> None:
    group = prompt_group
    share = BIG // 32
    count = 0
    while True:
        call = group.first_join(f"m{count}", protocols=offer(*[share] * 32))
        if not call.responses:
            break
        group.join(f"m{count}", protocols=offer(*[share] * 32))
        count += 1
    assert count == RECORD_MAX_BYTES // BIG
    assert_no_room(call, "all protocols")


def test_a_restart_counts_again(prompt_group: GroupHarness) -> None:
    group = prompt_group
    group.stable(*(f"m{index}" for index in range(7)), protocols=offer(BIG))
    group.restart()
    assert_no_room(group.first_join("late", protocols=offer(BIG)))
    assert group.first_join("late", protocols=offer(BIG // 2)).responses


def test_groups_are_bounded_and_those_that_are_there_go_on(
    prompt_group: GroupHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = prompt_group
    group.stable("a")
    monkeypatch.setattr(machine, "GROUPS_MAX", 3)
    for number in range(2):
        assert group.first_join("m", group_id=f"new-{number}").responses
    refused = group.first_join("m", group_id="one too many")
    assert refused.reason is Reason.QUEUE_FULL
    assert "ListGroups" in refused.errors[0].message
    assert group.describe("one too many").state is GroupState.DEAD
    assert group.first_join("b").responses
    group.advance(SESSION_MS)  # pending ids expire, and with them their groups
    assert group.first_join("m", group_id="one too many").responses
