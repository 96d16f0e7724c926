"""Blobs of the config log that must stay readable: Drover's and Kafka Connect's.

``DROVER_BLESS=1`` writes missing blobs of Drover. It never rewrites an existing blob, because
logs in the field hold such bytes. Kafka Connect's blobs are complete config topics of a real
cluster, with another session key.
"""

import json
import os
from pathlib import Path

import pytest

from drover.machine import Replayed
from drover.model.config import (
    ConfigVersion,
    ConnectorConfigRemoved,
    DeadLettersChanged,
    SessionKey,
    TargetState,
    TargetStateChanged,
)
from drover.model.ids import TaskId
from drover_config_store.core.machine import ConfigMachine
from drover_config_store.core.records import (
    CommitRecord,
    ConfigRecord,
    ConnectorRecord,
    DeadLettersRecord,
    LoggerLevelRecord,
    RestartRecord,
    SessionKeyRecord,
    TargetStateRecord,
    TaskCountRecord,
    TaskRecord,
    decode,
    encode,
)

GOLDEN = Path(__file__).parent / "golden"
CONNECT = sorted((GOLDEN / "kafka_connect").glob("*.jsonl"))

SAMPLES: dict[str, ConfigRecord] = {
    "connector": ConnectorRecord(
        "flights", {"tasks.max": "2", "connector.class": "FileStreamSource"}
    ),
    "connector-empty": ConnectorRecord("empty", {}),
    "connector-odd": ConnectorRecord(
        "ünï-ço.dé",
        {"topic": 'Straße\n"1"\\', "password": "${file:/run/secrets:pw}", "n": "\x00😀"},
    ),
    "connector-removed": ConnectorRecord("flights", None),
    "task": TaskRecord(TaskId("flights", 0), {"file": "/data/f.csv"}),
    "task-odd": TaskRecord(TaskId("my-conn-12.x", 34), {}),
    "commit": CommitRecord("flights", 2),
    "commit-odd": CommitRecord("commit-task-1", 0),
    "target-state-v1-started": TargetStateRecord("flights", TargetState.STARTED),
    "target-state-v1-paused": TargetStateRecord("flights", TargetState.PAUSED),
    "target-state-v1-stopped": TargetStateRecord("flights", TargetState.STOPPED),
    "target-state-removed": TargetStateRecord("flights", None),
    "dead-letters": DeadLettersRecord(
        "flights",
        '[{"topic":"dead","topic_id":"","replayed":{"0":[[0,2]]},"discarded":{"0":[[2,3]]}}]',
        DeadLettersChanged("flights", "dead", "0:2-3", discarded=True, reason="größe"),
    ),
    "restart": RestartRecord("flights", only_failed=True, include_tasks=False),
    "task-count": TaskCountRecord("flights", 3),
    "session-key": SessionKeyRecord(SessionKey(bytes(range(32)), "HmacSHA256", 1_700_000_000_000)),
    "logger": LoggerLevelRecord("org.example.a-b", "DEBUG"),
}
#: Formats that Drover reads and never writes.
READ_ONLY = {"target-state-v0": TargetStateRecord("flights", TargetState.PAUSED)}


def read(path: Path) -> tuple[bytes, bytes | None]:
    blob = json.loads(path.read_text())
    value = blob["value"]
    return blob["key"].encode(), None if value is None else value.encode()


@pytest.mark.parametrize("name", SAMPLES)
def test_golden_records_round_trip(name: str) -> None:
    path = GOLDEN / f"{name}.json"
    key, value = encode(SAMPLES[name])
    if not path.exists() and os.environ.get("DROVER_BLESS"):
        blob = {"key": key.decode(), "value": None if value is None else value.decode()}
        path.write_text(json.dumps(blob, ensure_ascii=False, indent=1) + "\n")
    assert (key, value) == read(path)
    assert decode(key, value) == SAMPLES[name]


@pytest.mark.parametrize("name", READ_ONLY)
def test_older_records_can_be_read(name: str) -> None:
    assert decode(*read(GOLDEN / f"{name}.json")) == READ_ONLY[name]


def test_every_golden_blob_is_checked() -> None:
    assert {path.stem for path in GOLDEN.glob("*.json")} == {*SAMPLES, *READ_ONLY}
    assert len(CONNECT) >= 2


def written_by_connect(path: Path) -> list[tuple[int, bytes, bytes | None]]:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [
        (
            row["offset"],
            row["key"].encode(),
            None if row["value"] is None else row["value"].encode(),
        )
        for row in rows
    ]


@pytest.mark.parametrize("path", CONNECT, ids=[path.stem for path in CONNECT])
def test_what_kafka_connect_wrote_means_the_same_when_drover_writes_it(path: Path) -> None:
    for _, key, value in written_by_connect(path):
        again_key, again_value = encode(decode(key, value))
        assert again_key == key
        if value is None or again_value is None:
            assert value is again_value
            continue
        assert json.loads(again_value) == json.loads(value)
        if not key.startswith(
            (b"connector-", b"task-")
        ):  # the order of a config's settings is free
            assert again_value == value


@pytest.mark.parametrize("path", CONNECT, ids=[path.stem for path in CONNECT])
def test_what_kafka_connect_did_is_understood(path: Path) -> None:
    machine = ConfigMachine(versions_max=100)
    rows = written_by_connect(path)
    seen: dict[str, object] = {}
    for offset, key, value in rows:
        machine.replay(Replayed(offset, decode(key, value), timestamp_ms=offset))
        machine.validate()
        snapshot = machine.snapshot()
        assert not any(entry.inconsistent for entry in snapshot.connectors.values())
        if key == b"connector-sink" and value is None:
            break
        seen = {name: entry.target_state for name, entry in snapshot.connectors.items()}
    assert seen == {
        "sink": TargetState.STARTED,
        "bad-1.x": TargetState.STARTED,
        "paused": TargetState.PAUSED,
        "stopped": TargetState.STOPPED,
    }
    snapshot = machine.snapshot()
    assert TaskId("bad-1.x", 0) in snapshot.task_configs
    assert snapshot.session_key is not None
    assert len(snapshot.session_key.key) == 32
    assert snapshot.logger_levels == {"org.apache.kafka.connect.file": "DEBUG"}
    history = machine.connector_history("src")
    assert [type(entry.change) for entry in history].count(ConfigVersion) == 3
    assert isinstance(history[-1].change, ConnectorConfigRemoved)
    states = [e.change.target_state for e in history if isinstance(e.change, TargetStateChanged)]
    assert states == [
        TargetState.PAUSED,
        TargetState.PAUSED,
        TargetState.STARTED,
        TargetState.STOPPED,
        TargetState.STARTED,
    ]
    assert {entry.author for entry in history} == {""}


def test_a_leader_of_kafka_connect_that_fences_clears_what_is_pending() -> None:
    machine = ConfigMachine()
    pending: list[bool] = []
    for offset, key, value in written_by_connect(GOLDEN / "kafka_connect/4.3.1-exactly-once.jsonl"):
        machine.replay(Replayed(offset, decode(key, value)))
        entry = machine.snapshot().connectors.get("src")
        if entry is not None and key in (b"commit-src", b"tasks-fencing-src"):
            pending.append(entry.fencing_pending)
    assert pending == [True, False] * 4
