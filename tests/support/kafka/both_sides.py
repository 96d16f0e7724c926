"""A connector's state in Kafka Connect and in Drover, in one form."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from drover.errors import DroverError
from drover.model.config import ConfigSnapshot
from drover.model.ids import TaskId
from drover.model.offsets import CommittedOffset
from drover.model.status import Status, StatusSnapshot
from tests.support.kafka.clients import read_all
from tests.support.kafka.connect_rest import ConnectRest, ConnectRestError
from tests.support.kafka.drover_services import DroverServices
from tests.support.waiting import wait_until

SAME_TIMEOUT_S = 60
#: The shown state, by connector name.
Shown = Mapping[str, Mapping[str, object]]


def shown_by_connect(rest: ConnectRest, name: str) -> dict[str, object]:
    """Read the state through the REST interface alone."""
    status = rest.status(name)
    return {
        "config": rest.get(name)["config"],
        "task configs": rest.task_configs(name),
        "connector": _state(status["connector"]),
        "tasks": {task["id"]: _state(task) for task in status["tasks"]},
        "topics": sorted(rest.topics(name)),
        "offsets": _in_order(rest.offsets(name)),
    }


def shown_by_drover(
    configs: ConfigSnapshot,
    statuses: StatusSnapshot,
    offsets: Iterable[CommittedOffset],
    name: str,
) -> dict[str, object]:
    """Read the state through the APIs of the two stores and the coordinator."""
    entry = configs.connectors[name]
    return {
        "config": dict(entry.config or {}),
        "task configs": [
            dict(configs.task_configs[TaskId(name, index)])
            for index in range(max(0, entry.task_count))
        ],
        "connector": _of(statuses.statuses[name]),
        "tasks": {
            key.task: _of(status)
            for key, status in statuses.statuses.items()
            if isinstance(key, TaskId) and key.connector == name
        },
        "topics": sorted(key.topic for key in statuses.topics if key.connector == name),
        "offsets": _in_order(
            {
                "partition": json.loads(each.partition_json),
                "offset": json.loads(each.offset_json or "null"),
            }
            for each in offsets
        ),
    }


def wait_until_same(rest: ConnectRest, drover: DroverServices, *names: str) -> Shown:
    """Wait until both show the same state for these connectors, and return it."""
    seen: list[tuple[object, object]] = []

    def same() -> Shown | None:
        try:
            connect = {name: shown_by_connect(rest, name) for name in names}
            configs, statuses = drover.configs(), drover.statuses()
            held = {
                name: shown_by_drover(configs, statuses, drover.offsets(name), name)
                for name in names
            }
        except (ConnectRestError, DroverError, KeyError) as error:
            seen[:] = [(error, None)]
            return None
        seen[:] = [(connect, held)]
        return held if connect == held else None

    shown = wait_until(
        same, timeout_s=SAME_TIMEOUT_S, describe=lambda: f"both sides agree: {_unlike(*seen[-1])}"
    )
    assert shown is not None
    return shown


def last_values(bootstrap: str, topic: str) -> dict[str, Any]:
    """The result of compaction: the last value of each key as JSON, without tombstones."""
    kept = {record.key: record.value for record in read_all(bootstrap, topic)}
    return {
        key.decode(): json.loads(value)
        for key, value in kept.items()
        if key is not None and value is not None
    }


def _state(shown: Mapping[str, Any]) -> tuple[str, ...]:
    version, trace = shown.get("version") or "", shown.get("trace") or ""
    return shown["state"], shown["worker_id"], version, trace


def _of(status: Status) -> tuple[str, ...]:
    return status.state.value, status.worker_id, status.version, status.trace


def _in_order(offsets: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return sorted(offsets, key=lambda each: json.dumps(each, sort_keys=True))


def _unlike(connect: object, drover: object) -> str:
    """The differences only."""
    if not isinstance(connect, dict) or not isinstance(drover, dict):
        return repr(connect)
    lines = []
    for name, shown in connect.items():
        for what, value in shown.items():
            if value != drover[name][what]:
                lines.append(f"{name}, {what}: Connect {value!r}, Drover {drover[name][what]!r}")
    return "\n".join(lines)
