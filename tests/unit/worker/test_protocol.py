from dataclasses import replace

import pytest

from drover.errors import InvalidArgumentError
from drover.model.ids import TaskId
from drover_worker.core.rebalance.protocol import (
    Assignment,
    AssignmentError,
    MemberMetadata,
    decode_assignment,
    decode_metadata,
    encode_assignment,
    encode_metadata,
)


def test_metadata_carries_url_and_config_offset() -> None:
    data = encode_metadata(MemberMetadata("worker:7411", 42))
    assert data == b'{"version":0,"worker_url":"worker:7411","config_offset":42}'
    assert decode_metadata(data) == MemberMetadata("worker:7411", 42)


def test_an_internal_url_is_a_field_more_and_none_is_no_field() -> None:
    metadata = MemberMetadata("worker:7411", 42, "worker:7421")
    assert decode_metadata(encode_metadata(metadata)) == metadata
    assignment = Assignment(AssignmentError.NO_ERROR, "m", "w:1", 1)
    assert b"internal" not in encode_assignment(assignment)
    assignment = replace(assignment, leader_internal_url="w:2")
    assert decode_assignment(encode_assignment(assignment)) == assignment


def test_a_draining_member_says_so_and_others_say_nothing_of_it() -> None:
    metadata = MemberMetadata("worker:7411", 42, held=("a",), draining=True)
    assert decode_metadata(encode_metadata(metadata)) == metadata
    assert b"draining" not in encode_metadata(replace(metadata, draining=False))


def test_an_assignment_comes_back_as_it_was_sent() -> None:
    assignment = Assignment(
        error=AssignmentError.NO_ERROR,
        leader_id="m-1",
        leader_url="worker:7411",
        config_offset=7,
        connectors=("a", "b"),
        tasks=(TaskId("a", 0), TaskId("a", 10), TaskId("c", 2)),
    )
    assert decode_assignment(encode_assignment(assignment)) == assignment


def test_a_connector_itself_is_index_minus_one_among_its_tasks() -> None:
    assignment = Assignment(AssignmentError.NO_ERROR, "m", "w:1", 1, ("a",), (TaskId("a", 3),))
    assert encode_assignment(assignment).endswith(b'"work":{"a":[-1,3]}}')


def test_fields_of_a_later_version_are_ignored() -> None:
    data = b'{"version":1,"worker_url":"w:1","config_offset":1,"delay":5}'
    assert decode_metadata(data) == MemberMetadata("w:1", 1)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b"\xff",
        b'{"worker_url":"w:1","config_offset":"1"}',
        b'{"worker_url":7,"config_offset":1}',
        b'{"worker_url":"w:1","config_offset":true}',
    ],
)
def test_malformed_metadata_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidArgumentError, match="member metadata"):
        decode_metadata(data)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b'{"error":0,"leader_id":"m","leader_url":"w","config_offset":1,"work":[]}',
        b'{"error":9,"leader_id":"m","leader_url":"w","config_offset":1,"work":{}}',
        b'{"error":0,"leader_id":"m","leader_url":"w","config_offset":1,"work":{"a":["x"]}}',
    ],
)
def test_a_malformed_assignment_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidArgumentError, match="assignment"):
        decode_assignment(data)
