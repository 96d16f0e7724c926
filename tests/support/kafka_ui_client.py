"""The calls of kafka-ui's client for Kafka Connect (https://github.com/kafbat/kafka-ui).

Its client is generated from a contract and reads each answer into types: a field that has another
type, or a state that is not in an enum, is an error. The models below have these types.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar
from urllib.parse import quote

import requests
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

ResultT = TypeVar("ResultT")
TaskRunState = Literal["RUNNING", "FAILED", "PAUSED", "RESTARTING", "UNASSIGNED"]
Level = Literal["LOW", "MEDIUM", "HIGH"]
_JSON = "application/json"


class _Model(BaseModel):
    model_config = ConfigDict(strict=True)


class ClusterInfo(_Model):
    version: str
    commit: str
    kafka_cluster_id: str


class TaskId(_Model):
    connector: str
    task: int


class Connector(_Model):
    name: str
    config: dict[str, str]
    tasks: list[TaskId]
    type: Literal["source", "sink", "unknown"]


class TaskStatus(_Model):
    id: int
    state: TaskRunState
    worker_id: str
    trace: str | None = None


class ConnectorState(_Model):
    state: TaskRunState | Literal["STOPPED"]
    worker_id: str
    trace: str | None = None


class ConnectorStatus(_Model):
    name: str
    connector: ConnectorState
    tasks: list[TaskStatus]


class Expanded(_Model):
    info: Connector
    status: ConnectorStatus


class Task(_Model):
    id: TaskId
    config: dict[str, str]


class Topics(_Model):
    topics: list[str]


class Plugin(_Model):
    class_name: str = Field(alias="class")


class Definition(_Model):
    name: str
    type: Literal[
        "BOOLEAN", "CLASS", "DOUBLE", "INT", "LIST", "LONG", "PASSWORD", "SHORT", "STRING"
    ]
    required: bool
    default_value: str | None
    importance: Level
    documentation: str
    group: str | None
    width: Literal["SHORT", "MEDIUM", "LONG", "NONE"]
    display_name: str
    dependents: list[str]
    order: int | None = None


class Value(_Model):
    name: str
    value: str | None
    recommended_values: list[str]
    errors: list[str]
    visible: bool


class Setting(_Model):
    definition: Definition
    value: Value


class Validation(_Model):
    name: str
    error_count: int
    groups: list[str]
    configs: list[Setting]


class Error(_Model):
    error_code: int
    message: str


class ApiError(Exception):
    """An answer that is not a success, with the message that kafka-ui shows."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status} {message}")
        self.status = status
        self.message = message


@dataclass(frozen=True)
class KafkaUiClient:
    """A client of the API at ``url``; each method is one operation."""

    url: str

    def cluster_info(self) -> ClusterInfo:
        return self._read(ClusterInfo, "GET", "/")

    def connectors(self) -> dict[str, Expanded]:
        query = {"expand": ["info", "status"]}
        return self._read(dict[str, Expanded], "GET", "/connectors", query)

    def create(self, name: str, config: Mapping[str, Any]) -> Connector:
        body = {"name": name, "config": config}
        return self._read(Connector, "POST", "/connectors", body=body)

    def connector(self, name: str) -> Connector:
        return self._read(Connector, "GET", _path(name))

    def delete(self, name: str) -> None:
        self._call("DELETE", _path(name))

    def config(self, name: str) -> dict[str, str]:
        return self._read(dict[str, str], "GET", f"{_path(name)}/config")

    def set_config(self, name: str, config: Mapping[str, Any]) -> Connector:
        return self._read(Connector, "PUT", f"{_path(name)}/config", body=config)

    def offsets(self, name: str) -> dict[str, Any]:
        return self._read(dict[str, Any], "GET", f"{_path(name)}/offsets")

    def reset_offsets(self, name: str) -> None:
        self._call("DELETE", f"{_path(name)}/offsets")

    def status(self, name: str) -> ConnectorStatus:
        return self._read(ConnectorStatus, "GET", f"{_path(name)}/status")

    def restart(self, name: str) -> None:
        query = {"includeTasks": "false", "onlyFailed": "false"}
        self._call("POST", f"{_path(name)}/restart", query)

    def pause(self, name: str) -> None:
        self._call("PUT", f"{_path(name)}/pause")

    def resume(self, name: str) -> None:
        self._call("PUT", f"{_path(name)}/resume")

    def stop(self, name: str) -> None:
        self._call("PUT", f"{_path(name)}/stop")

    def tasks(self, name: str) -> list[Task]:
        return self._read(list[Task], "GET", f"{_path(name)}/tasks")

    def topics(self, name: str) -> dict[str, Topics]:
        return self._read(dict[str, Topics], "GET", f"{_path(name)}/topics")

    def task_status(self, name: str, task: int) -> TaskStatus:
        return self._read(TaskStatus, "GET", f"{_path(name)}/tasks/{task}/status")

    def restart_task(self, name: str, task: int) -> None:
        self._call("POST", f"{_path(name)}/tasks/{task}/restart")

    def plugins(self) -> list[Plugin]:
        return self._read(list[Plugin], "GET", "/connector-plugins")

    def validate(self, plugin: str, config: Mapping[str, Any]) -> Validation:
        path = f"/connector-plugins/{quote(plugin, safe='')}/config/validate"
        return self._read(Validation, "PUT", path, body=config)

    def _read(
        self,
        kind: type[ResultT],
        method: str,
        path: str,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
    ) -> ResultT:
        response = self._call(method, path, query, body, accept=_JSON)
        assert response.headers["Content-Type"] == _JSON
        return TypeAdapter(kind).validate_json(response.content)

    def _call(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        accept: str = "*/*",
    ) -> requests.Response:
        # its HTTP client sends an empty chunked body, without a type, where there is none
        data = iter(()) if body is None and method in ("PUT", "POST") else None
        response = requests.request(
            method,
            self.url + path,
            params=query,
            data=data,
            json=body,
            headers={"Accept": accept},
            timeout=60,
        )
        if response.ok:
            return response
        error = TypeAdapter(Error).validate_json(response.content)
        assert error.error_code == response.status_code
        raise ApiError(response.status_code, error.message)


def _path(name: str) -> str:
    return f"/connectors/{quote(name, safe='')}"
