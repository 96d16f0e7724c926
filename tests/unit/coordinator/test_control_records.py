"""The coordinator's JSON in the control topic: its form, and values that cannot be read."""

from dataclasses import replace
from typing import Any, TypeGuard

import pytest

from drover.log.connect_json import UnreadableRecordError
from drover.model.claims import NOBODY, TaskClaim
from drover.model.ids import TaskId, Term
from drover.model.offsets import TopicPartition
from drover.model.sink_outputs import OutputMark, SinkOutput
from drover_coordinator.backends.kafka.control_records import (
    OwnerRecord,
    decode_claims_record,
    decode_table,
    encode_changes,
    encode_claims_record,
)
from drover_coordinator.core.claims.task_claims import (
    ClaimRecord,
    ClaimsRecord,
    CommitRecord,
    MarkRecord,
)
from drover_coordinator.core.ownership.lease_table import LeaseTable, apply_writes
from drover_coordinator.core.ownership.machine import Lease, Peer
from tests.support.lease_courses import COURSES

TASK = TaskId('c-"1"', 7)

#: Logs in the field hold such bytes: add entries, never change one.
GOLDEN: dict[bytes, tuple[bytes, ClaimsRecord | OwnerRecord]] = {
    b'["owner"]': (b'{"owner":"a:1/run","epoch":7}', OwnerRecord("a:1/run", 7)),
    b'["commit","c-\\"1\\"",7]': (
        b'{"generation":3,"sequence":9,"number":12}',
        CommitRecord(TASK, Term(3, 9), 12),
    ),
    b'["claim","c-\\"1\\"",7]': (
        b'{"generation":3,"sequence":9,"owner":"m","task_config_generation":5,'
        b'"requests":{"r1":[2,8],"r2":[3,9]}}',
        ClaimRecord(TASK, TaskClaim(Term(3, 9), "m", 5), (("r1", Term(2, 8)), ("r2", Term(3, 9)))),
    ),
    b'["claim","own",0]': (
        b'{"generation":1,"sequence":2,"owner":"m","task_config_generation":3,"requests":{},'
        b'"own_producer":true}',
        ClaimRecord(TaskId("own", 0), TaskClaim(Term(1, 2), "m", 3, own_producer=True)),
    ),
    b'["mark","c","connect-c","t",4]': (
        b'{"topic_id":"3Db5QLSqSZieL3rJBUUegA","output_id":"0a1b2c3d","offset":7,"is_reset":false,'
        b'"marked_ms":99}',
        MarkRecord(
            "c",
            "connect-c",
            TopicPartition("t", 4),
            OutputMark(SinkOutput("3Db5QLSqSZieL3rJBUUegA", "0a1b2c3d"), 7),
            99,
        ),
    ),
    b'["mark","c","g","t",0]': (
        b'{"topic_id":"","output_id":"0a1b2c3d","offset":0,"is_reset":true,"marked_ms":0}',
        MarkRecord(
            "c", "g", TopicPartition("t", 0), OutputMark(SinkOutput("", "0a1b2c3d"), 0, True)
        ),
    ),
    '["claim","é",0]'.encode(): (
        b'{"generation":1,"sequence":2,"owner":"","task_config_generation":-1,"requests":{}}',
        ClaimRecord(TaskId("é", 0), TaskClaim(Term(1, 2), NOBODY, -1)),
    ),
}


@pytest.mark.parametrize("key", GOLDEN)
def test_a_record_of_claims_is_these_bytes(key: bytes) -> None:
    value, record = GOLDEN[key]
    assert encode_claims_record(record) == (key, value)
    assert decode_claims_record(key, value) == record
    gone = decode_claims_record(key, None)
    assert gone == (replace(record, mark=None, marked_ms=0) if is_mark(record) else None)


def is_mark(record: object) -> TypeGuard[MarkRecord]:
    return isinstance(record, MarkRecord)


def test_a_mark_that_is_forgotten_is_a_tombstone() -> None:
    forgotten = MarkRecord("c", "g", TopicPartition("t", 0), None, 5)
    key, value = encode_claims_record(forgotten)
    assert (key, value) == (b'["mark","c","g","t",0]', None)
    assert decode_claims_record(key, value) == replace(forgotten, marked_ms=0)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"claim", b"{}"),
        (b"\xff", b"{}"),
        (b"[]", b"{}"),
        (b"[1]", b"{}"),
        (b'["owner"]', b"[]"),
        (b'["owner"]', b'{"owner":1,"epoch":1}'),
        (b'["owner"]', b'{"owner":"a","epoch":true}'),
        (b'["commit","c",0]', b'{"generation":1,"sequence":1}'),
        (b'["mark","c","g","t",0]', b'{"topic_id":"a","output_id":"","offset":"1"}'),
        (b'["mark","c","g","t",0]', b'{"topic_id":"a","offset":1,"marked_ms":1}'),
        (b'["claim","c",0]', b'{"generation":1,"sequence":1,"owner":"m"}'),
        (
            b'["claim","c",0]',
            b'{"generation":1,"sequence":1,"owner":"m","task_config_generation":1,"requests":[]}',
        ),
        (
            b'["claim","c",0]',
            b'{"generation":1,"sequence":1,"owner":"m","task_config_generation":1,'
            b'"requests":{"r":[1]}}',
        ),
    ],
)
def test_what_is_no_record_of_claims(key: bytes, value: bytes) -> None:
    with pytest.raises(UnreadableRecordError):
        decode_claims_record(key, value)


def test_a_kind_of_a_later_version_is_passed_over() -> None:
    assert decode_claims_record(b'["claim of a stream","c",0]', b"{}") is None


@pytest.mark.parametrize("course", COURSES)
def test_a_course_of_leases_on_a_compacted_topic(course: str) -> None:
    """Each step reads only the newest value of each key."""
    values: dict[str, bytes] = {}
    for who, writes in COURSES[course].steps:
        before = decode_table(values, 2, _fail)
        for key, value in encode_changes(apply_writes(before, who, writes), before):
            values.pop(key.decode(), None)
            if value is not None:
                values[key.decode()] = value
    assert decode_table(values, 2, _fail) == COURSES[course].table


def test_leases_are_these_bytes() -> None:
    table = LeaseTable((Lease("a:1", "run", 3, 8),), {"a:1": Peer("run", 5, 3_000)})
    assert encode_changes(table, LeaseTable((Lease(),), {"b:1": Peer("run")})) == [
        (b"lease:0", b'{"owner":"a:1","incarnation":"run","epoch":3,"renewals":8}'),
        (b"coordinator:a:1", b'{"incarnation":"run","beats":5,"lease_ms":3000}'),
        (b"coordinator:b:1", None),
    ]


def test_what_cannot_be_read_of_leases_counts_as_not_there_and_is_told() -> None:
    good = b'{"owner":"a:1","incarnation":"run","epoch":3,"renewals":8}'
    values: dict[str, Any] = {
        "lease:0": b"no json",
        "lease:1": good,
        "lease:2": good,  # the table has two shards
        "lease:x": good,
        "coordinator:a:1": b'{"incarnation":"run","beats":"5","lease_ms":3000}',
        "claim:topic:1": b"another's",
    }
    told: list[str] = []
    table = decode_table(values, 2, lambda key, why: told.append(key))
    assert table == LeaseTable((Lease(), Lease("a:1", "run", 3, 8)))
    assert told == ["lease:0", "lease:2", "lease:x", "coordinator:a:1"]


def _fail(key: str, why: str) -> None:
    raise AssertionError((key, why))
