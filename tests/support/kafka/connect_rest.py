"""The part of Kafka Connect's REST interface that tests use."""

import json
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from tests.support.waiting import wait_until

CALL_TIMEOUT_S = 30
_CONFLICT = 409
_NOT_FOUND = 404


class ConnectRestError(Exception):
    """Kafka Connect rejected a call; ``status`` is the HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status
        self.message = message


class ConnectRest:
    """Calls to one worker; a call during a rebalance (409) is retried for a while."""

    def __init__(self, url: str) -> None:
        self.url = url
        # a proxy of the environment cannot reach this machine's loopback
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def call(self, method: str, path: str, body: object = None) -> Any:
        """The response's JSON; None for an empty response.

        Raises:
            ConnectRestError: The worker rejected the call, and not because of a rebalance.
            OSError: No worker responds.
        """

        def answer() -> tuple[Any] | None:
            try:
                return (self._once(method, path, body),)
            except ConnectRestError as error:
                if error.status != _CONFLICT or "rebalanc" not in error.message:
                    raise
                return None

        (value,) = wait_until(answer, describe=f"an answer to {method} {path}") or (None,)
        return value

    def is_healthy(self) -> bool:
        """Whether the worker has joined its group, read its topics, and responds."""
        try:
            answer = self._once("GET", "/health", None)
        except (OSError, ConnectRestError):
            return False
        return bool(answer["status"] == "healthy")

    def create(
        self, name: str, config: Mapping[str, str], *, initial_state: str | None = None
    ) -> dict[str, Any]:
        """POST /connectors; ``initial_state`` is RUNNING, PAUSED or STOPPED."""
        body: dict[str, object] = {"name": name, "config": dict(config)}
        if initial_state is not None:
            body["initial_state"] = initial_state
        made: dict[str, Any] = self.call("POST", "/connectors", body)
        return made

    def put_config(self, name: str, config: Mapping[str, str]) -> dict[str, Any]:
        """Create the connector, or replace its whole config."""
        made: dict[str, Any] = self.call("PUT", _of(name, "config"), dict(config))
        return made

    def names(self) -> list[str]:
        """All connectors."""
        found: list[str] = self.call("GET", "/connectors")
        return sorted(found)

    def get(self, name: str) -> dict[str, Any]:
        """The connector with its config, its tasks' ids and its type."""
        found: dict[str, Any] = self.call("GET", _of(name))
        return found

    def task_configs(self, name: str) -> list[dict[str, str]]:
        """The tasks' configs, in the order of the tasks."""
        tasks: list[dict[str, Any]] = self.call("GET", _of(name, "tasks"))
        ordered = sorted(tasks, key=lambda task: int(task["id"]["task"]))
        return [task["config"] for task in ordered]

    def pause(self, name: str) -> None:
        """Pause: tasks remain and do nothing."""
        self.call("PUT", _of(name, "pause"))

    def resume(self, name: str) -> None:
        """Resume after a pause or a stop."""
        self.call("PUT", _of(name, "resume"))

    def stop(self, name: str) -> None:
        """Stop: tasks end, the config remains; offsets may now be altered."""
        self.call("PUT", _of(name, "stop"))

    def restart(self, name: str, *, include_tasks: bool = True, only_failed: bool = False) -> Any:
        """Restart the connector and, on request, its tasks."""
        query = f"includeTasks={_flag(include_tasks)}&onlyFailed={_flag(only_failed)}"
        return self.call("POST", f"{_of(name, 'restart')}?{query}")

    def delete(self, name: str) -> None:
        """Delete the connector; its offsets remain."""
        self.call("DELETE", _of(name))

    def status(self, name: str) -> dict[str, Any]:
        """The states and workers of the connector and its tasks, from the status topic."""
        found: dict[str, Any] = self.call("GET", _of(name, "status"))
        return found

    def offsets(self, name: str) -> list[dict[str, Any]]:
        """Pairs of ``partition`` and ``offset``."""
        found: list[dict[str, Any]] = self.call("GET", _of(name, "offsets"))["offsets"]
        return found

    def alter_offsets(self, name: str, offsets: Sequence[Mapping[str, object]]) -> None:
        """Set some of a stopped connector's offsets: pairs of ``partition`` and ``offset``."""
        self.call("PATCH", _of(name, "offsets"), {"offsets": list(offsets)})

    def reset_offsets(self, name: str) -> None:
        """Remove a stopped connector's offsets."""
        self.call("DELETE", _of(name, "offsets"))

    def topics(self, name: str) -> list[str]:
        """The topics that the connector has used."""
        found: list[str] = self.call("GET", _of(name, "topics"))[name]["topics"]
        return found

    def set_logger(self, logger: str, level: str, *, scope: str = "cluster") -> Any:
        """PUT /admin/loggers; ``scope`` is worker or cluster."""
        return self.call("PUT", f"/admin/loggers/{logger}?scope={scope}", {"level": level})

    def wait_until_running(self, name: str, *, tasks: int = 1) -> dict[str, Any]:
        """Wait for the status in which the connector and exactly ``tasks`` tasks are RUNNING."""
        return self.wait_until_state(name, "RUNNING", tasks=tasks)

    def wait_until_state(self, name: str, state: str, *, tasks: int) -> dict[str, Any]:
        """Wait for the status in which the connector and exactly ``tasks`` tasks are in the
        state.
        """
        last: list[object] = ["nothing"]

        def reached() -> dict[str, Any] | None:
            try:
                status = self.status(name)
            except ConnectRestError as error:
                if error.status != _NOT_FOUND:
                    raise
                last[0] = error
                return None
            last[0] = status
            states = [status["connector"]["state"], *(task["state"] for task in status["tasks"])]
            return status if states == [state] * (1 + tasks) else None

        status = wait_until(
            reached, timeout_s=60, describe=lambda: f"{name} is {state}, but: {last[0]}"
        )
        assert status is not None
        return status

    def _once(self, method: str, path: str, body: object) -> Any:
        request = urllib.request.Request(
            f"{self.url}{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json", "Accept": "application/json"},
            method=method,
        )
        try:
            with self._opener.open(request, timeout=CALL_TIMEOUT_S) as answer:
                text = answer.read()
        except urllib.error.HTTPError as refusal:
            with refusal:
                raise ConnectRestError(refusal.code, _message(refusal.read())) from None
        return json.loads(text) if text else None


def _of(name: str, what: str = "") -> str:
    path = f"/connectors/{quote(name, safe='')}"
    return f"{path}/{what}" if what else path


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _message(body: bytes) -> str:
    try:
        return str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        return body.decode(errors="replace")[:500]
