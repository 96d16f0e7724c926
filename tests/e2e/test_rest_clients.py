"""Clients of Kafka Connect's REST API against a whole cluster, with the requests of each."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import requests
from pydantic import TypeAdapter

from tests.support.each import check_each
from tests.support.gateways import running_gateway
from tests.support.kafka_connect_api import FILE_SOURCE
from tests.support.kafka_ui_client import ApiError, KafkaUiClient, Setting, Validation
from tests.support.shared_cluster import SharedCluster
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]


@asynccontextmanager
async def gateway_of(shared: SharedCluster) -> AsyncIterator[str]:
    """The URL of a REST API over the workers of the cluster."""
    async with running_gateway(list(shared.cluster.workers)) as gateway:
        yield gateway.url


async def test_every_operation_of_kafka_ui(unharmed: SharedCluster) -> None:
    async with gateway_of(unharmed) as url:
        ui = KafkaUiClient(url)
        try:
            await asyncio.to_thread(use_kafka_ui, ui, unharmed.directory)
            await asyncio.to_thread(check_errors_of_kafka_ui, ui)
        finally:
            await asyncio.to_thread(requests.delete, f"{url}/connectors/by-kafka-ui", timeout=60)


def use_kafka_ui(ui: KafkaUiClient, directory: Path) -> None:
    name = "by-kafka-ui"
    lines = directory / "by-kafka-ui.txt"
    lines.write_text("a line\n")
    # its editor sends numbers as they are in the JSON text of the user
    config: dict[str, Any] = {
        "connector.class": FILE_SOURCE,
        "tasks.max": 1,
        "file": str(lines),
        "topic": name,
    }
    stored = {**config, "tasks.max": "1", "name": name}

    assert ui.cluster_info().version == "4.4.0"
    assert FILE_SOURCE in {each.class_name for each in ui.plugins()}
    assert ui.validate(FILE_SOURCE, {**config, "name": name}).error_count == 0
    faulty = ui.validate("FileStreamSource", {**config, "name": name, "tasks.max": "none"})
    (tasks_max,) = [each for each in faulty.configs if each.definition.name == "tasks.max"]
    assert (faulty.error_count, len(tasks_max.value.errors)) == (1, 1)

    created = ui.create(name, config)
    assert (created.name, created.config, created.type) == (name, stored, "source")
    wait_for_states(ui, name, "RUNNING", "RUNNING")
    assert ui.connector(name).config == ui.config(name) == stored
    wait_until(lambda: ui.topics(name)[name].topics == [name])
    expanded = ui.connectors()[name]
    assert [each.task for each in expanded.info.tasks] == [0]
    assert [each.id for each in expanded.status.tasks] == [0]
    (task,) = ui.tasks(name)
    assert (task.id.connector, task.id.task) == (name, 0)
    assert ui.task_status(name, 0).state == "RUNNING"

    with pytest.raises(ApiError, match="400 Connectors must be in the STOPPED state"):
        ui.reset_offsets(name)
    ui.restart(name)
    ui.restart_task(name, 0)
    ui.pause(name)
    wait_for_states(ui, name, "PAUSED", "PAUSED")
    ui.resume(name)
    wait_for_states(ui, name, "RUNNING", "RUNNING")
    assert ui.set_config(name, {**stored, "topic": "other"}).config["topic"] == "other"
    wait_until(lambda: ui.offsets(name)["offsets"])
    ui.stop(name)
    wait_for_states(ui, name, "STOPPED")
    ui.reset_offsets(name)
    assert ui.offsets(name) == {"offsets": []}
    ui.delete(name)
    assert name not in ui.connectors()


def wait_for_states(ui: KafkaUiClient, name: str, *wanted: str) -> None:
    """Wait for the state of a connector, and of its tasks."""

    def states() -> list[str]:
        status = ui.status(name)
        return [status.connector.state, *(each.state for each in status.tasks)]

    wait_until(lambda: states() == list(wanted), describe=states)


def check_errors_of_kafka_ui(ui: KafkaUiClient) -> None:
    source = {"connector.class": FILE_SOURCE}
    named = {**source, "name": "flow-source"}
    calls: dict[str, tuple[int, Callable[[], object]]] = {
        "connector": (404, lambda: ui.connector("none")),
        "delete": (404, lambda: ui.delete("none")),
        "config": (404, lambda: ui.config("none")),
        "offsets": (404, lambda: ui.offsets("none")),
        "reset offsets": (404, lambda: ui.reset_offsets("none")),
        "status": (404, lambda: ui.status("none")),
        "restart": (404, lambda: ui.restart("none")),
        "pause": (404, lambda: ui.pause("none")),
        "resume": (404, lambda: ui.resume("none")),
        "stop": (404, lambda: ui.stop("none")),
        "tasks": (404, lambda: ui.tasks("none")),
        "status of a task": (404, lambda: ui.task_status("none", 0)),
        "status of no task": (404, lambda: ui.task_status("flow-source", 7)),
        "restart of a task": (404, lambda: ui.restart_task("none", 0)),
        "restart of no task": (404, lambda: ui.restart_task("flow-source", 7)),
        "invalid config": (400, lambda: ui.create("none", source)),
        "invalid change": (400, lambda: ui.set_config("flow-source", source)),
        "another name": (400, lambda: ui.set_config("none", named)),
        "unknown class": (400, lambda: ui.create("none", {"connector.class": "No"})),
        "another class": (400, lambda: ui.validate("FileStreamSink", source)),
        "unknown plugin": (400, lambda: ui.validate("No", {"connector.class": "No"})),
        "a nested value": (400, lambda: ui.create("none", {**source, "topic": {"a": 1}})),
        "existing": (409, lambda: ui.create("flow-source", ui.config("flow-source"))),
    }

    def check(case: str) -> None:
        status, call = calls[case]
        with pytest.raises(ApiError) as caught:
            call()
        assert (caught.value.status, bool(caught.value.message)) == (status, True)

    check_each(calls, check, str)
    assert ui.topics("none")["none"].topics == []


async def test_every_plugin_that_is_listed_can_be_described_and_validated(
    unharmed: SharedCluster,
) -> None:
    """With the config by which AKHQ reads the settings of each connector class, under the path that
    kcctl uses: the part of the class after the last dot.
    """
    async with gateway_of(unharmed) as url:
        await asyncio.to_thread(describe_and_validate_all, url)


def describe_and_validate_all(url: str) -> None:
    def classes(query: str) -> list[str]:
        listed = requests.get(f"{url}/connector-plugins{query}", timeout=60).json()
        return [each["class"] for each in listed]

    def describe(class_name: str) -> None:
        found = requests.get(f"{url}/connector-plugins/{class_name}/config", timeout=60)
        assert found.status_code == 200, found.text
        assert isinstance(found.json(), list)

    def answers(class_name: str) -> list[requests.Response]:
        """Empty while the engine abandons it: on a busy machine the first import takes long."""
        path = class_name.rpartition(".")[2]
        body = {"connector.class": class_name, "topics": "getPlugins"}
        target = f"{url}/connector-plugins/{path}/config/validate"
        found = requests.put(target, json=body, timeout=120)
        return [] if "was abandoned" in found.text else [found]

    def validate(class_name: str) -> None:
        (found,) = wait_until(partial(answers, class_name))
        assert found.status_code == 200, found.text
        settings = TypeAdapter(Validation).validate_json(found.content).configs
        assert {"name", "connector.class", "tasks.max"} <= {name_of(each) for each in settings}

    connectors, plugins = classes(""), classes("?connectorsOnly=false")
    assert set(connectors) < set(plugins)
    check_each(plugins, describe, str)
    check_each(connectors, validate, str)


def name_of(setting: Setting) -> str:
    return setting.definition.name
