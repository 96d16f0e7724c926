"""Messages of the admin API as the JSON of Kafka Connect's REST API 4.4, and back.

The fields and their order are as in Kafka Connect's ``runtime/rest/entities``.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.codec.connect import decode_connector_type
from drover.model.config import TargetState

#: The initial states of a connector in Kafka Connect's API.
INITIAL_STATES: Mapping[str, TargetState] = {
    "RUNNING": TargetState.STARTED,
    "PAUSED": TargetState.PAUSED,
    "STOPPED": TargetState.STOPPED,
}
#: Kafka Connect's types of plugins, by Drover's kinds.
_PLUGIN_TYPES: Mapping[str, str] = {
    "converter": "converter",
    "header_converter": "header_converter",
    "transforms": "transformation",
    "predicates": "predicate",
}
_RUN_STATE_PREFIX = "RUN_STATE_"
#: Kafka Connect's names of levels, where Python's differ.
_LEVELS: Mapping[str, str] = {"WARNING": "WARN", "CRITICAL": "FATAL"}


def to_json(value: Any) -> bytes:
    """A value as JSON in UTF-8."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "replace")


def connector(message: pb.Connector, config: Mapping[str, str] | None = None) -> dict[str, Any]:
    """A connector (``ConnectorInfo``); ``config`` replaces the message's config."""
    return {
        "name": message.name,
        "config": dict(message.config if config is None else config),
        "tasks": [{"connector": message.name, "task": index} for index in message.task_indexes],
        "type": _type(message.type),
    }


def connector_json(message: pb.Connector) -> bytes:
    """As ``connector``, as JSON."""
    return to_json(connector(message))


def status(message: pb.ConnectorStatus) -> dict[str, Any]:
    """The states of a connector and its tasks (``ConnectorStateInfo``)."""
    return {
        "name": message.name,
        "connector": _state(message.connector),
        "tasks": [task_status(each) for each in message.tasks],
        "type": _type(message.type),
    }


def status_json(message: pb.ConnectorStatus) -> bytes:
    """As ``status``, as JSON."""
    return to_json(status(message))


def task_status(message: pb.TaskState) -> dict[str, Any]:
    """The state of a task (``ConnectorStateInfo.TaskState``)."""
    return {"id": message.task, **_state(message)}


def tasks(
    name: str, messages: Iterable[pb.TaskInfo], configs: Mapping[int, Mapping[str, str]]
) -> list[dict[str, Any]]:
    """A connector's tasks (``TaskInfo``); ``configs`` replace the configs of some, by index."""
    return [
        {
            "id": {"connector": name, "task": each.task},
            "config": dict(configs.get(each.task, each.config)),
        }
        for each in messages
    ]


def offsets_json(messages: Iterable[pb.ConnectorOffset]) -> bytes:
    """A connector's offsets (``ConnectorOffsets``) with the digits that they are stored with."""
    entries = ",".join(
        f'{{"partition":{each.partition_json},"offset":'
        f"{each.offset_json if each.HasField('offset_json') else 'null'}}}"
        for each in messages
    )
    return f'{{"offsets":[{entries}]}}'.encode("utf-8", "replace")


def plugins(message: pb.ListPluginsResponse, *, connectors_only: bool) -> list[dict[str, str]]:
    """The plugins (``PluginInfo``): connectors, then transforms, predicates and converters.

    A plugin that has the name of a class of Kafka Connect is listed under this name, and a
    connector under its own name too, since both can be in ``connector.class``.
    """
    found = [
        {"class": name, "type": _type(each.type), "version": each.version}
        for each in message.plugins
        for name in _class_names(each.class_name, each.aliases)
    ]
    found.sort(key=lambda each: (each["type"], each["class"]))
    if not connectors_only:
        for kind in ("transforms", "predicates", "converter", "header_converter"):
            found += sorted(
                (
                    {"class": name, "type": _PLUGIN_TYPES[kind], "version": each.version}
                    for each in message.record_plugins
                    if each.kind == kind
                    for name in _class_names(each.class_name, each.aliases)
                ),
                key=lambda each: each["class"],
            )
    unique = {(each["class"], each["type"], each["version"]): each for each in found}
    return list(unique.values())


def config_key(message: pb.ConfigKey) -> dict[str, Any]:
    """A setting (``ConfigKeyInfo``)."""
    return {
        "name": message.name,
        "type": message.type,
        "required": message.required,
        "default_value": message.default_value if message.HasField("default_value") else None,
        "importance": message.importance,
        "documentation": message.documentation,
        "group": message.group or None,
        "order_in_group": message.order if message.group else -1,
        "width": message.width or "NONE",
        "display_name": message.display_name or message.name,
        "dependents": list(message.dependents),
    }


def validation(class_name: str, message: pb.ValidateConfigResponse) -> dict[str, Any]:
    """The result of a validation (``ConfigInfos``), without its warnings.

    ``error_count`` includes faults of several settings together, which no setting lists.
    """
    return {
        "name": class_name,
        "error_count": message.error_count,
        "groups": sorted(each for each in message.groups if each),
        "configs": [
            {
                "definition": config_key(each.key),
                "value": {
                    "name": each.key.name,
                    "value": each.value if each.HasField("value") else None,
                    "recommended_values": list(each.recommended_values),
                    "errors": list(each.errors),
                    "visible": each.visible,
                },
            }
            for each in message.values
        ],
    }


def loggers(messages: Iterable[pb.Logger]) -> dict[str, dict[str, Any]]:
    """Loggers by name (``LoggerLevel``)."""
    return {each.name: logger(each) for each in sorted(messages, key=lambda each: each.name)}


def logger(message: pb.Logger) -> dict[str, Any]:
    """The level of a logger, and when it was changed, in milliseconds since 1970."""
    changed = message.HasField("last_change_time")
    return {
        "level": _LEVELS.get(message.level, message.level),
        "last_modified": message.last_change_time.ToMilliseconds() if changed else None,
    }


def _state(message: pb.ConnectorState | pb.TaskState) -> dict[str, Any]:
    found = {
        "state": pb.RunState.Name(message.state).removeprefix(_RUN_STATE_PREFIX),
        "worker_id": message.worker_id,
    }
    if message.plugin_version:
        found["version"] = message.plugin_version
    if message.trace:
        found["trace"] = message.trace
    return found


def _type(number: pb.ConnectorType.ValueType) -> str:
    return decode_connector_type(number) or "unknown"


def _class_names(class_name: str, aliases: Sequence[str]) -> list[str]:
    """The full names of a class: aliases with a dot are names of the class in Kafka Connect."""
    return [class_name, *(each for each in aliases if "." in each)]
