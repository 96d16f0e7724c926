"""How records of the config log are decoded, and which cannot be."""

import pytest

from drover.log.connect_json import UnreadableRecordError
from drover.model.config import SessionKey, TargetState
from drover.model.ids import TaskId
from drover_config_store.core.records import (
    IGNORED,
    VALUE_MAX_BYTES,
    CommitRecord,
    ConfigRecord,
    ConnectorRecord,
    LoggerLevelRecord,
    RestartRecord,
    SessionKeyRecord,
    TargetStateRecord,
    TaskCountRecord,
    TaskRecord,
    decode,
    encode,
)


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
    "key",
    [
        "task-c-0",
        "commit-c",
        "restart-connector-c",
        "tasks-fencing-c",
        "session-key",
        "logger-cluster-a",
    ],
)
def test_only_configs_and_target_states_are_removed_by_a_null(key: str) -> None:
    with pytest.raises(UnreadableRecordError, match="null"):
        _decoded(key, None)


@pytest.mark.parametrize(
    ("key", "value", "record"),
    [
        (
            "connector-c",
            '{"properties":{"a":"1"},"version":9}',
            ConnectorRecord("c", {"a": "1"}),
        ),
        ("task-c-0", ' { "more" : [1], "properties" : {} } ', TaskRecord(TaskId("c", 0), {})),
        ("commit-c", '{"more":null,"tasks":2}', CommitRecord("c", 2)),
        (
            "target-state-c",
            '{"state":"PAUSED","state.v2":"STOPPED","state.v3":"X"}',
            TargetStateRecord("c", TargetState.STOPPED),
        ),
        ("tasks-fencing-c", '{"task-count":0,"more":1}', TaskCountRecord("c", 0)),
        (
            "session-key",
            '{"creation-timestamp":5,"algorithm":"A","key":"","more":1}',
            SessionKeyRecord(SessionKey(b"", "A", 5)),
        ),
        ("logger-cluster-a.b-c", '{"level":"odd","by":"x"}', LoggerLevelRecord("a.b-c", "odd")),
    ],
)
def test_fields_of_newer_versions_and_their_order_do_not_matter(
    key: str, value: str, record: ConfigRecord
) -> None:
    assert _decoded(key, value) == record


@pytest.mark.parametrize("key", ["connector-c", "task-c-0", "target-state-c", "logger-cluster-a"])
def test_a_value_over_one_mebibyte_is_not_served(key: str) -> None:
    values = {
        "target-state-c": '{"state":"PAUSED"%s}',
        "logger-cluster-a": '{"level":"INFO"%s}',
    }
    value = values.get(key, '{"properties":{}%s}')
    allowed = value % (" " * (VALUE_MAX_BYTES - len(value) + 2))
    _decoded(key, allowed)
    with pytest.raises(UnreadableRecordError, match=f"{VALUE_MAX_BYTES + 1} bytes"):
        _decoded(key, allowed + " ")


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
        ("restart-connector-", "{}"),
        ("target-state-", '{"state":"PAUSED"}'),
        ("tasks-fencing-c", "{}"),
        ("tasks-fencing-c", '{"task-count":"1"}'),
        ("tasks-fencing-c", '{"task-count":-1}'),
        ("tasks-fencing-", '{"task-count":1}'),
        ("session-key", "garbage"),
        ("session-key", "{}"),
        ("session-key", '{"key":"%","algorithm":"A","creation-timestamp":1}'),
        ("session-key", '{"key":"ü","algorithm":"A","creation-timestamp":1}'),
        ("session-key", '{"key":1,"algorithm":"A","creation-timestamp":1}'),
        ("session-key", '{"key":"bWFnaWM=","creation-timestamp":1}'),
        ("session-key", '{"key":"bWFnaWM=","algorithm":"\\ud800","creation-timestamp":1}'),
        ("session-key", '{"key":"bWFnaWM=","algorithm":"A"}'),
        ("session-key", '{"key":"bWFnaWM=","algorithm":"A","creation-timestamp":1.5}'),
        (
            "session-key",
            '{"key":"bWFnaWM=","algorithm":"A","creation-timestamp":9999999999999999}',
        ),
        ("session-key-2", '{"key":"bWFnaWM=","algorithm":"A","creation-timestamp":1}'),
        ("logger-cluster-", '{"level":"INFO"}'),
        ("logger-cluster-a", "{}"),
        ("logger-cluster-a", '{"level":""}'),
        ("logger-cluster-a", '{"level":3}'),
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
    with pytest.raises(ValueError, match="cannot be written"):
        encode(IGNORED)


def test_what_is_wrong_with_a_session_key_is_told_without_the_key() -> None:
    for value in (
        '{"key":"c2VjcmV0*"',
        '{"key":"c2VjcmV0*","algorithm":"A","creation-timestamp":1}',
    ):
        with pytest.raises(UnreadableRecordError) as error:
            _decoded("session-key", value)
        assert "c2Vj" not in str(error.value)
    assert "secret" not in repr(SessionKeyRecord(SessionKey(b"secret", "A", 1)))
