"""Blobs of the status log that must stay readable: Drover's and Kafka Connect's.

``DROVER_BLESS=1`` writes missing blobs of Drover. It never rewrites an existing blob, because
logs in the field hold such bytes. Kafka Connect's blobs are status topics of real clusters,
without their long traces, in the order in which a consumer read them.
"""

import json
import os
from pathlib import Path

import pytest

from drover.log.log import LogRecord
from drover.model.failures import Failure, FailureCause, FailureHistory
from drover.model.ids import TaskId
from drover.model.status import RecordCounts, RunState, Status, TopicKey, TopicStatus
from drover_status_store.core.records import (
    AnyRecord,
    Mark,
    StatusRecord,
    TopicRecord,
    decode,
    encode,
    mark_text,
    with_mark,
)
from tests.support.status_store import StatusDriver

GOLDEN = Path(__file__).parent / "golden"
CONNECT = sorted((GOLDEN / "kafka_connect").glob("*.jsonl"))

ODD_TASK = TaskId("ünï:ço.dé-7", 34)
ODD_TOPIC = TopicKey("a:connector-b-1.x", "t.a_b-1")
MARK = Mark("3f0c4d2e", 17)

SAMPLES: dict[str, AnyRecord] = {
    **{
        f"connector-{state.lower()}": StatusRecord(
            "flights", Status("flights", state, "10.0.0.1:7411", 3), MARK
        )
        for state in RunState
        if state is not RunState.DESTROYED
    },
    "connector-removed": StatusRecord("flights", None, MARK),
    "task": StatusRecord(
        TaskId("flights", 0),
        Status(TaskId("flights", 0), RunState.RUNNING, "w:1", 3, version="1.2.0"),
        MARK,
    ),
    "task-with-counts": StatusRecord(
        TaskId("flights", 0),
        Status(
            TaskId("flights", 0),
            RunState.RUNNING,
            "w:1",
            3,
            counts=RecordCounts(2**53 - 1, 5, 4, 3, 2),
        ),
        MARK,
    ),
    "task-with-figures": StatusRecord(
        TaskId("flights", 0),
        Status(
            TaskId("flights", 0),
            RunState.RUNNING,
            "w:1",
            3,
            counts=RecordCounts(5, 5),
            figures={"behind_ms": -1, "slot_lag_bytes": 2**53 - 1},
        ),
        MARK,
    ),
    "task-with-failures": StatusRecord(
        TaskId("flights", 0),
        Status(
            TaskId("flights", 0),
            RunState.FAILED,
            "w:1",
            3,
            "Traceback …",
            failures=FailureHistory(
                17,
                (
                    Failure(1_700_000_000_000, FailureCause.ENGINE, "w:2", "killed by signal 9"),
                    Failure(1_700_000_060_000, FailureCause.PLUGIN, "w:1", 'ValueError: "ü"'),
                ),
                5,
                1_700_000_061_000,
            ),
        ),
        MARK,
    ),
    "task-odd": StatusRecord(
        ODD_TASK,
        Status(ODD_TASK, RunState.FAILED, "[::1]:7411", -1, 'Boom\n\t"ü😀"\\ \x00'),
        Mark("w-1", 2**63 - 1, safe=True),
    ),
    "task-of-nobodys-request": StatusRecord(
        TaskId("c", 1), Status(TaskId("c", 1), RunState.UNASSIGNED, "w:1", 0), Mark(safe=True)
    ),
    "task-removed": StatusRecord(TaskId("flights", 0), None, Mark()),
    "topic": TopicRecord(
        TopicKey("flights", "lines"),
        TopicStatus(TopicKey("flights", "lines"), 0, 1_700_000_000_000),
    ),
    "topic-odd": TopicRecord(ODD_TOPIC, TopicStatus(ODD_TOPIC, 2**31 - 1, 0)),
    "topic-removed": TopicRecord(TopicKey("flights", "lines"), None),
}
#: Formats that Drover reads and never writes: statuses without marks or plugin versions, and a
#: removal that was written as a value.
READ_ONLY: dict[str, AnyRecord] = {
    "read-without-version": StatusRecord("c", Status("c", RunState.RUNNING, "w:1", 1)),
    "read-destroyed": StatusRecord("c", None),
    "read-of-another-request": StatusRecord("c", Status("c", RunState.RUNNING, "w:1", 1)),
}


def read(path: Path) -> LogRecord:
    blob = json.loads(path.read_text())
    value = blob["value"]
    return LogRecord(
        blob["key"].encode(), None if value is None else value.encode(), blob["request_id"]
    )


def decoded(stored: LogRecord) -> AnyRecord:
    return with_mark(decode(stored.key, stored.value), stored.request_id)


@pytest.mark.parametrize("name", SAMPLES)
def test_golden_records_round_trip(name: str) -> None:
    path = GOLDEN / f"{name}.json"
    written = LogRecord(*encode(SAMPLES[name]), request_id=mark_text(SAMPLES[name]))
    if not path.exists() and os.environ.get("DROVER_BLESS"):
        blob = {
            "key": written.key.decode(),
            "value": None if written.value is None else written.value.decode(),
            "request_id": written.request_id,
        }
        path.write_text(json.dumps(blob, ensure_ascii=False, indent=1) + "\n")
    assert written == read(path)
    assert decoded(written) == SAMPLES[name]


@pytest.mark.parametrize("name", READ_ONLY)
def test_records_of_others_can_be_read(name: str) -> None:
    assert decoded(read(GOLDEN / f"{name}.json")) == READ_ONLY[name]


def test_every_golden_blob_is_checked() -> None:
    assert {path.stem for path in GOLDEN.glob("*.json")} == {*SAMPLES, *READ_ONLY}
    assert len(CONNECT) >= 2


def written_by_connect(path: Path) -> list[LogRecord]:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [
        LogRecord(row["key"].encode(), None if row["value"] is None else row["value"].encode())
        for row in rows
    ]


@pytest.mark.parametrize("path", CONNECT, ids=[path.stem for path in CONNECT])
def test_what_kafka_connect_wrote_is_what_drover_would_write(path: Path) -> None:
    for record in written_by_connect(path):
        assert LogRecord(*encode(decode(record.key, record.value))) == record


@pytest.mark.parametrize("path", CONNECT, ids=[path.stem for path in CONNECT])
def test_what_kafka_connect_did_is_understood(path: Path) -> None:
    driver = StatusDriver()
    present: dict[str, bytes] = {}
    most = 0
    for record in written_by_connect(path):
        key = record.key.decode()
        driver.log.append(record)
        driver.read()
        if record.value is not None:
            present[key] = record.value
        else:
            tasks = f"status-task-{key.removeprefix('status-connector-')}-"
            for gone in [each for each in present if each.rpartition("-")[0] + "-" == tasks]:
                del present[gone]
            present.pop(key, None)
        snapshot = driver.machine.snapshot()
        held: list[AnyRecord] = [
            StatusRecord(status.key, status) for status in snapshot.statuses.values()
        ]
        held += [TopicRecord(status.key, status) for status in snapshot.topics.values()]
        shown = dict(map(encode, held))
        assert {each.decode(): value for each, value in shown.items()} == present
        most = max(most, len(present))
    assert most > 5
    assert not driver.decide_repeats(), "statuses of Kafka Connect are not rewritten"
