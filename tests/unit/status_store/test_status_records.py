"""The bytes of the status log: equal to Kafka Connect's, both ways."""

import pytest

from drover.log.connect_json import UnreadableRecordError
from drover.model.ids import TaskId
from drover.model.status import RecordCounts, RunState, Status
from drover_status_store.core.records import (
    IGNORED,
    AnyRecord,
    StatusRecord,
    decode,
    encode,
)
from drover_status_store.core.validate import TRACE_MAX_BYTES

#: each kind of record as versions of Kafka Connect before plugins had versions wrote it
GOLDEN: list[tuple[StatusRecord, str, str | None]] = [
    (
        StatusRecord("flights", Status("flights", RunState.RUNNING, "10.0.0.1:7411", 3)),
        "status-connector-flights",
        '{"state":"RUNNING","trace":null,"worker_id":"10.0.0.1:7411","generation":3}',
    ),
    (
        StatusRecord(
            TaskId("my-conn-12.x", 34),
            Status(TaskId("my-conn-12.x", 34), RunState.FAILED, "w:1", 0, 'ü\n"x"'),
        ),
        "status-task-my-conn-12.x-34",
        '{"state":"FAILED","trace":"ü\\n\\"x\\"","worker_id":"w:1","generation":0}',
    ),
    (StatusRecord("flights", None), "status-connector-flights", None),
    (StatusRecord(TaskId("c", 0), None), "status-task-c-0", None),
    *(
        (
            StatusRecord("c", Status("c", state, "w:1", 1)),
            "status-connector-c",
            f'{{"state":"{state}","trace":null,"worker_id":"w:1","generation":1}}',
        )
        for state in RunState
        if state is not RunState.DESTROYED
    ),
]


@pytest.mark.parametrize(("record", "key", "value"), GOLDEN)
def test_older_records_can_be_read(record: StatusRecord, key: str, value: str | None) -> None:
    assert decode(key.encode(), None if value is None else value.encode()) == record
    assert encode(record)[0] == key.encode()


def _decoded(key: str, value: str) -> AnyRecord:
    return decode(key.encode(), value.encode())


def test_fields_that_connect_may_leave_out() -> None:
    record = _decoded("status-connector-c", '{"state":"RUNNING","generation":1,"worker_id":null}')
    assert record == StatusRecord("c", Status("c", RunState.RUNNING, "", 1))


@pytest.mark.parametrize(
    ("told", "counts"),
    [
        ('{"read_count":7,"written_count":5,"rated_count":2}', RecordCounts(7, 5)),
        ("{}", RecordCounts()),
        ("null", None),
        ("7", None),
        ('{"read_count":-1}', None),
        ('{"read_count":true}', None),
        ('{"read_count":9007199254740992}', None),
        ('{"read_count":null}', None),
    ],
)
def test_counts_that_are_none_leave_the_status_as_it_is(
    told: str, counts: RecordCounts | None
) -> None:
    value = f'{{"state":"RUNNING","worker_id":"w:1","generation":1,"counts":{told}}}'
    task = TaskId("c", 0)
    status = Status(task, RunState.RUNNING, "w:1", 1, counts=counts)
    assert _decoded("status-task-c-0", value) == StatusRecord(task, status)


@pytest.mark.parametrize(
    ("told", "figures"),
    [
        ('{"a_ms":-7,"b_bytes":5}', {"a_ms": -7, "b_bytes": 5}),
        ("null", {}),
        ("[1]", {}),
        ('{"a":1}', {}),
        ('{"a_ms":true}', {}),
        ('{"a_ms":1.5}', {}),
        ('{"a_ms":9007199254740992}', {}),
        ("{" + ",".join(f'"a{n}_ms":1' for n in range(17)) + "}", {}),
    ],
)
def test_figures_that_are_none_leave_the_status_as_it_is(
    told: str, figures: dict[str, int]
) -> None:
    value = f'{{"state":"RUNNING","worker_id":"w:1","generation":1,"figures":{told}}}'
    task = TaskId("c", 0)
    status = Status(task, RunState.RUNNING, "w:1", 1, figures=figures)
    assert _decoded("status-task-c-0", value) == StatusRecord(task, status)


def test_destroyed_as_a_value_removes() -> None:
    value = '{"state":"DESTROYED","trace":null,"worker_id":"w","generation":1}'
    assert _decoded("status-connector-c", value) == StatusRecord("c", None)


def test_a_trace_of_another_writer_is_cut_when_it_is_read() -> None:
    value = f'{{"state":"FAILED","trace":"{"x" * 200_000}","worker_id":"w","generation":1}}'
    record = _decoded("status-connector-c", value)
    assert isinstance(record, StatusRecord)
    assert record.status is not None
    assert len(record.status.trace.encode()) <= TRACE_MAX_BYTES


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("", "{}"),
        ("status-", "{}"),
        ("status-connector-", '{"state":"RUNNING","generation":1}'),
        ("status-task-0", '{"state":"RUNNING","generation":1}'),
        ("status-task-c-x", '{"state":"RUNNING","generation":1}'),
        ("status-connector-c", "nonsense"),
        ("status-connector-c", '"RUNNING"'),
        ("status-connector-c", '{"generation":1}'),
        ("status-connector-c", '{"state":"SLEEPING","generation":1}'),
        ("status-connector-c", '{"state":7,"generation":1}'),
        ("status-connector-c", '{"state":"RUNNING"}'),
        ("status-connector-c", '{"state":"RUNNING","generation":"1"}'),
        ("status-connector-c", '{"state":"RUNNING","generation":99999999999}'),
        ("status-connector-c", '{"state":"RUNNING","generation":1,"trace":7}'),
        ("status-connector-c", '{"state":"RUNNING","generation":1,"worker_id":"\\ud800"}'),
    ],
)
def test_unreadable_records_say_so(key: str, value: str) -> None:
    with pytest.raises(UnreadableRecordError):
        _decoded(key, value)


def test_ignored_records_are_never_written() -> None:
    with pytest.raises(ValueError, match="cannot be written"):
        encode(IGNORED)


@pytest.mark.parametrize(
    "told",
    [
        "null",
        "7",
        "[]",
        "{}",
        '{"config_offset":1,"failures":7,"count":1,"restart_ms":0,"no_restart_reason":""}',
        '{"config_offset":1,"failures":[{}],"count":1,"restart_ms":0,"no_restart_reason":""}',
        '{"config_offset":1,"failures":[],"count":-1,"restart_ms":0,"no_restart_reason":""}',
        '{"config_offset":1,"failures":[],"count":true,"restart_ms":0,"no_restart_reason":""}',
        '{"config_offset":1,"failures":[],"count":1,"restart_ms":0,"no_restart_reason":7}',
        '{"config_offset":1,"failures":[],"count":1,"restart_ms":9007199254740992,'
        '"no_restart_reason":""}',
    ],
)
def test_failures_that_are_none_leave_the_status_as_it_is(told: str) -> None:
    value = f'{{"state":"FAILED","worker_id":"w:1","generation":1,"failures":{told}}}'
    task = TaskId("c", 0)
    assert _decoded("status-task-c-0", value) == StatusRecord(
        task, Status(task, RunState.FAILED, "w:1", 1)
    )
