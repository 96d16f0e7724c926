"""A Kafka Connect on loopback with scripted responses; a request other than GET ends the run."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from tests.support.http_api import Api, Reply, Request, running_api

FILE_SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"
FILE_SINK = "org.apache.kafka.connect.file.FileStreamSinkConnector"
STRING = "org.apache.kafka.connect.storage.StringConverter"
#: Converters, so that the worker's do not matter.
CONVERTERS = {"key.converter": STRING, "value.converter": STRING}


@dataclass
class ScriptedConnect:
    """The connectors by name as ``{"config", "status", "offsets", "topics"}``, and further
    responses by path.
    """

    connectors: dict[str, dict[str, Any]] = field(default_factory=dict)
    plugins: dict[str, str] = field(
        default_factory=lambda: {FILE_SOURCE: "source", FILE_SINK: "sink", STRING: "converter"}
    )
    settings: dict[str, list[dict[str, str]]] = field(default_factory=dict)
    replies: dict[str, list[Reply]] = field(default_factory=dict)
    wrong_methods: list[str] = field(default_factory=list)

    def add(
        self,
        name: str,
        config: Mapping[str, Any],
        *,
        kind: str = "source",
        state: str = "RUNNING",
        task_traces: tuple[str, ...] = ("",),
        offsets: Any = (),
        topics: tuple[str, ...] = (),
    ) -> None:
        """Add a connector; a trace makes its task FAILED."""
        tasks = [
            {
                "id": at,
                "state": "FAILED" if trace else state,
                "worker_id": "old:8083",
                **({"trace": trace} if trace else {}),
            }
            for at, trace in enumerate(task_traces)
        ]
        self.connectors[name] = {
            "info": {
                "name": name,
                "config": {"name": name, **config},
                "tasks": [{"connector": name, "task": at} for at in range(len(tasks))],
                "type": kind,
            },
            "status": {
                "name": name,
                "connector": {"state": state, "worker_id": "old:8083"},
                "tasks": tasks,
                "type": kind,
            },
            "offsets": list(offsets),
            "topics": list(topics),
        }

    def answer(self, request: Request) -> Reply:
        """The response to a request."""
        if request.method != "GET":
            self.wrong_methods.append(f"{request.method} {request.path}")
        scripted = self.replies.get(request.path)
        if scripted:
            return scripted.pop(0) if len(scripted) > 1 else scripted[0]
        return self._reply([unquote(each) for each in request.path.split("/")[1:]])

    def _reply(self, parts: list[str]) -> Reply:
        match parts:
            case [""]:
                return Reply({"version": "4.4.0", "commit": "c", "kafka_cluster_id": "k1"})
            case ["connectors"]:
                return Reply(
                    {
                        name: {"info": each["info"], "status": each["status"]}
                        for name, each in self.connectors.items()
                    }
                )
            case ["connectors", name, what] if name in self.connectors:
                return self._part(name, what)
            case ["connector-plugins"]:
                return Reply([{"class": k, "type": v} for k, v in self.plugins.items()])
            case ["connector-plugins", name, "config"] if name in self.plugins:
                return Reply(self.settings.get(name, []))
        return Reply({"error_code": 404, "message": "not found"}, 404)

    def _part(self, name: str, what: str) -> Reply:
        each = self.connectors[name]
        parts: dict[str, Any] = {
            "tasks": [
                {"id": {"connector": name, "task": task["id"]}, "config": {}}
                for task in each["status"]["tasks"]
            ],
            "topics": {name: {"topics": each["topics"]}},
            "offsets": {"offsets": each["offsets"]},
            "status": each["status"],
        }
        return Reply(parts[what])


@contextmanager
def scripted_connect(script: ScriptedConnect) -> Iterator[Api]:
    """The server for a while.

    Raises:
        AssertionError: It received another request than GET.
    """
    with running_api(script.answer) as api:
        yield api
    assert script.wrong_methods == []
