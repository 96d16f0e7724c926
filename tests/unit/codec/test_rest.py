"""The admin API's messages as the JSON of Kafka Connect's REST API."""

import json

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.codec import rest

CONNECTOR = pb.Connector(
    name="orders",
    config={"name": "orders", "topic": "ü"},
    type=pb.CONNECTOR_TYPE_SINK,
    task_indexes=[0, 1],
)


def test_a_connector() -> None:
    assert json.loads(rest.connector_json(CONNECTOR)) == {
        "name": "orders",
        "config": {"name": "orders", "topic": "ü"},
        "tasks": [{"connector": "orders", "task": 0}, {"connector": "orders", "task": 1}],
        "type": "sink",
    }
    assert rest.connector(pb.Connector(name="x"), {"a": "b"}) == {
        "name": "x",
        "config": {"a": "b"},
        "tasks": [],
        "type": "unknown",
    }


def test_a_status_has_a_trace_and_a_version_only_if_there_is_one() -> None:
    status = pb.ConnectorStatus(
        name="orders",
        type=pb.CONNECTOR_TYPE_SOURCE,
        connector=pb.ConnectorState(
            state=pb.RUN_STATE_RUNNING, worker_id="w:1", plugin_version="1.2"
        ),
        tasks=[
            pb.TaskState(task=3, state=pb.RUN_STATE_FAILED, worker_id="w:2", trace="lost"),
            pb.TaskState(task=4, state=pb.RUN_STATE_UNASSIGNED),
        ],
    )
    assert json.loads(rest.status_json(status)) == {
        "name": "orders",
        "connector": {"state": "RUNNING", "worker_id": "w:1", "version": "1.2"},
        "tasks": [
            {"id": 3, "state": "FAILED", "worker_id": "w:2", "trace": "lost"},
            {"id": 4, "state": "UNASSIGNED", "worker_id": ""},
        ],
        "type": "source",
    }


def test_offsets_keep_their_digits() -> None:
    offsets = [
        pb.ConnectorOffset(partition_json='{"a":1.50}', offset_json='{"n":12345678901234567890}'),
        pb.ConnectorOffset(partition_json="{}"),
    ]
    assert rest.offsets_json(offsets) == (
        b'{"offsets":[{"partition":{"a":1.50},"offset":{"n":12345678901234567890}},'
        b'{"partition":{},"offset":null}]}'
    )
    assert rest.offsets_json([]) == b'{"offsets":[]}'


def test_plugins_have_their_names_in_kafka_connect() -> None:
    listing = pb.ListPluginsResponse(
        plugins=[
            pb.Plugin(
                class_name="drover.Source",
                aliases=["Source", "org.apache.Source"],
                type=pb.CONNECTOR_TYPE_SOURCE,
                version="1",
            )
        ],
        record_plugins=[
            pb.RecordPlugin(kind="transforms", class_name="drover.Cast", version="1"),
            pb.RecordPlugin(kind="header_converter", class_name="drover.Json", version="1"),
        ],
    )
    connectors = [
        {"class": "drover.Source", "type": "source", "version": "1"},
        {"class": "org.apache.Source", "type": "source", "version": "1"},
    ]
    assert rest.plugins(listing, connectors_only=True) == connectors
    assert rest.plugins(listing, connectors_only=False) == [
        *connectors,
        {"class": "drover.Cast", "type": "transformation", "version": "1"},
        {"class": "drover.Json", "type": "header_converter", "version": "1"},
    ]


def test_a_setting_without_a_group_has_no_place_in_it() -> None:
    key = rest.config_key(pb.ConfigKey(name="file", type="STRING", importance="HIGH"))
    assert key == {
        "name": "file",
        "type": "STRING",
        "required": False,
        "default_value": None,
        "importance": "HIGH",
        "documentation": "",
        "group": None,
        "order_in_group": -1,
        "width": "NONE",
        "display_name": "file",
        "dependents": [],
    }


def test_a_validation() -> None:
    response = pb.ValidateConfigResponse(
        error_count=1,
        groups=["File", "", "Common"],
        values=[
            pb.ConfigValue(
                key=pb.ConfigKey(name="file", default_value="x", group="File", order=2),
                value="y",
                errors=["is wrong"],
                recommended_values=["z"],
                visible=True,
            ),
            pb.ConfigValue(key=pb.ConfigKey(name="topic")),
        ],
    )
    shown = rest.validation("FileStreamSource", response)
    assert (shown["name"], shown["error_count"]) == ("FileStreamSource", 1)
    assert shown["groups"] == ["Common", "File"]
    assert shown["configs"][0]["definition"]["default_value"] == "x"
    assert [each["value"] for each in shown["configs"]] == [
        {
            "name": "file",
            "value": "y",
            "recommended_values": ["z"],
            "errors": ["is wrong"],
            "visible": True,
        },
        {"name": "topic", "value": None, "recommended_values": [], "errors": [], "visible": False},
    ]


def test_levels_have_kafka_connects_names() -> None:
    changed = pb.Logger(name="b", level="WARNING")
    changed.last_change_time.FromMilliseconds(7)
    assert rest.loggers([changed, pb.Logger(name="a", level="INFO")]) == {
        "a": {"level": "INFO", "last_modified": None},
        "b": {"level": "WARN", "last_modified": 7},
    }
