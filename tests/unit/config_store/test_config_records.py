"""The bytes of the config log: equal to Kafka Connect's, both ways."""

import pytest

from drover.log.connect_json import UnreadableRecordError
from drover.model.config import TargetState
from drover.model.ids import TaskId
from services.config_store.core.records import (
    IGNORED,
    CommitRecord,
    ConfigRecord,
    ConnectorRecord,
    RestartRecord,
    TargetStateRecord,
    TaskRecord,
    decode,
    encode,
)

#: each kind of record as Kafka Connect's JsonConverter writes it without schemas
GOLDEN: list[tuple[ConfigRecord, str, str | None]] = [
    (
        ConnectorRecord("flights", {"tasks.max": "2", "connector.class": "FileStreamSource"}),
        "connector-flights",
        '{"properties":{"connector.class":"FileStreamSource","tasks.max":"2"}}',
    ),
    (ConnectorRecord("empty", {}), "connector-empty", '{"properties":{}}'),
    (
        ConnectorRecord("ünï-ço.dé", {"topic": 'Straße\n"1"\\'}),
        "connector-ünï-ço.dé",
        '{"properties":{"topic":"Straße\\n\\"1\\"\\\\"}}',
    ),
    (ConnectorRecord("flights", None), "connector-flights", None),
    (
        TaskRecord(TaskId("flights", 0), {"file": "/data/f.csv"}),
        "task-flights-0",
        '{"properties":{"file":"/data/f.csv"}}',
    ),
    (
        TaskRecord(TaskId("my-conn-12.x", 34), {}),
        "task-my-conn-12.x-34",
        '{"properties":{}}',
    ),
    (CommitRecord("flights", 2), "commit-flights", '{"tasks":2}'),
    (CommitRecord("commit-task-1", 0), "commit-commit-task-1", '{"tasks":0}'),
    (
        TargetStateRecord("flights", TargetState.STARTED),
        "target-state-flights",
        '{"state":"STARTED","state.v2":"STARTED"}',
    ),
    (
        TargetStateRecord("flights", TargetState.PAUSED),
        "target-state-flights",
        '{"state":"PAUSED","state.v2":"PAUSED"}',
    ),
    (
        TargetStateRecord("flights", TargetState.STOPPED),
        "target-state-flights",
        '{"state":"PAUSED","state.v2":"STOPPED"}',
    ),
    (TargetStateRecord("flights", None), "target-state-flights", None),
    (
        RestartRecord("flights", only_failed=True, include_tasks=False),
        "restart-connector-flights",
        '{"include-tasks":false,"only-failed":true}',
    ),
]


@pytest.mark.parametrize(("record", "key", "value"), GOLDEN)
def test_golden_records_round_trip(record: ConfigRecord, key: str, value: str | None) -> None:
    data = None if value is None else value.encode()
    assert encode(record) == (key.encode(), data)
    assert decode(key.encode(), data) == record


def _decoded(key: str, value: str | None) -> ConfigRecord:
    return decode(key.encode(), None if value is None else value.encode())


@pytest.mark.parametrize(
    ("key", "connector", "task"),
    [
        ("task-a-0", "a", 0),
        ("task-a-b-1", "a-b", 1),
        ("task-a-1-2", "a-1", 2),
        ("task--7", "", None),
        ("task-.-10", ".", 10),
        ("task---3", "-", 3),
    ],
)
def test_a_task_is_what_follows_the_last_dash(key: str, connector: str, task: int | None) -> None:
    if task is None:
        with pytest.raises(UnreadableRecordError):
            _decoded(key, '{"properties":{}}')
    else:
        assert _decoded(key, '{"properties":{}}') == TaskRecord(TaskId(connector, task), {})


@pytest.mark.parametrize(
    ("value", "state"),
    [
        ('{"state":"PAUSED"}', TargetState.PAUSED),
        ('{"state":"STARTED"}', TargetState.STARTED),
        ('{"state":"PAUSED","state.v2":"STOPPED"}', TargetState.STOPPED),
        ('{"state":"STARTED","state.v2":"PAUSED"}', TargetState.PAUSED),
        ('{"state":"PAUSED","state.v2":"FROZEN"}', TargetState.PAUSED),
        ('{"state":"PAUSED","state.v2":7}', TargetState.PAUSED),
        ('{"state.v2":"STOPPED"}', TargetState.STOPPED),
    ],
)
def test_target_states_of_both_versions(value: str, state: TargetState) -> None:
    assert _decoded("target-state-c", value) == TargetStateRecord("c", state)


@pytest.mark.parametrize(
    ("value", "only_failed", "include_tasks"),
    [
        ('{"include-tasks":true,"only-failed":true}', True, True),
        ('{"include-tasks":"true","only-failed":1}', False, False),
        ('{"only-failed":true}', True, False),
        ("{}", False, False),
    ],
)
def test_restart_flags_that_are_no_booleans_are_false(
    value: str, only_failed: bool, include_tasks: bool
) -> None:
    expected = RestartRecord("c", only_failed=only_failed, include_tasks=include_tasks)
    assert _decoded("restart-connector-c", value) == expected


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("session-key", '{"key":"bWFnaWM=","algorithm":"HmacSHA256","creation-timestamp":1}'),
        ("session-key", "garbage"),
        ("tasks-fencing-c", '{"task-count":3}'),
        ("logger-cluster-org.apache.kafka", '{"level":"DEBUG"}'),
        ("task-c-0", None),
        ("commit-c", None),
        ("restart-connector-c", None),
    ],
)
def test_kinds_and_tombstones_without_effect_are_ignored(key: str, value: str | None) -> None:
    assert _decoded(key, value) == IGNORED


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("", "{}"),
        ("nonsense", "{}"),
        ("connector-", '{"properties":{}}'),
        ("connector-c", ""),
        ("connector-c", "not json"),
        ("connector-c", "[]"),
        ("connector-c", "null"),
        ("connector-c", "{}"),
        ("connector-c", '{"properties":[]}'),
        ("connector-c", '{"properties":{"a":1}}'),
        ("connector-c", '{"properties":{"a":"\\ud800"}}'),
        ("connector-c", '{"properties":{"\\udc00":"a"}}'),
        ("connector-c", "[" * 100_000),
        ("task-c", '{"properties":{}}'),
        ("task-c-x", '{"properties":{}}'),
        ("task-c-٣", '{"properties":{}}'),
        ("task-c-99999999999", '{"properties":{}}'),
        ("task-c-4294967296", '{"properties":{}}'),
        ("commit-c", "{}"),
        ("commit-c", '{"tasks":"2"}'),
        ("commit-c", '{"tasks":-1}'),
        ("commit-c", '{"tasks":true}'),
        ("commit-c", '{"tasks":2.0}'),
        ("commit-c", '{"tasks":99999999999}'),
        ("target-state-c", "{}"),
        ("target-state-c", '{"state":"FROZEN"}'),
        ("target-state-c", '"PAUSED"'),
        ("restart-connector-c", "true"),
    ],
)
def test_unreadable_records_say_so(key: str, value: str) -> None:
    with pytest.raises(UnreadableRecordError):
        _decoded(key, value)


def test_keys_and_values_that_are_no_text_are_unreadable() -> None:
    with pytest.raises(UnreadableRecordError):
        decode(b"connector-\xff", b'{"properties":{}}')
    with pytest.raises(UnreadableRecordError):
        decode(b"connector-c", b'{"properties":{"a":"\xff"}}')


def test_a_null_setting_counts_as_absent() -> None:
    record = _decoded("connector-c", '{"properties":{"a":"1","b":null}}')
    assert record == ConnectorRecord("c", {"a": "1"})


def test_whole_characters_may_be_escaped() -> None:
    record = _decoded("connector-c", '{"properties":{"a":"\\u00fc\\ud83d\\ude00"}}')
    assert record == ConnectorRecord("c", {"a": "ü😀"})


def test_a_config_that_was_read_cannot_be_changed() -> None:
    record = _decoded("connector-c", '{"properties":{"a":"1"}}')
    assert isinstance(record, ConnectorRecord)
    with pytest.raises(TypeError):
        record.config["a"] = "2"  # type: ignore[index]


def test_equal_configs_are_equal_bytes() -> None:
    one = encode(ConnectorRecord("c", {"a": "1", "b": "2"}))
    assert one == encode(ConnectorRecord("c", {"b": "2", "a": "1"}))


def test_ignored_records_are_never_written() -> None:
    with pytest.raises(ValueError, match="never written"):
        encode(IGNORED)
