"""The MCP server of ``drover mcp`` on a real cluster, called by the real client."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

from tests.support.shared_cluster import SharedCluster
from tests.support.waiting import wait_until_async

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.timeout(1_200)]

NAME = "agents-lines"


def _stdio(shared: SharedCluster, *options: str) -> StdioServerParameters:
    address = ",".join(shared.cluster.workers)
    return StdioServerParameters(
        command=sys.executable,
        args=["-P", "-m", "drover.cli.main", "mcp", "--address", address, *options],
        env={"PYTHONPATH": os.environ.get("PYTHONPATH", "")},
    )


async def _call(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    found = await client.call_tool(tool, arguments)
    assert not found.is_error, found.content
    structured: dict[str, Any] | None = found.structured_content
    assert structured is not None
    return structured


async def _fails(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    found = await client.call_tool(tool, arguments)
    assert found.is_error
    document: dict[str, Any] = json.loads(found.content[0].text)  # type: ignore[union-attr]
    return document


async def _applied(client: Client, action: dict[str, Any]) -> dict[str, Any]:
    plan = await _call(client, "plan", action=action)
    return await _call(client, "apply", action=action, plan_hash=plan["plan_hash"])


@pytest.mark.asyncio(loop_scope="session")
async def test_an_agent_creates_looks_after_and_deletes_a_connector(
    unharmed: SharedCluster, tmp_path: Path
) -> None:
    source = tmp_path / "in.txt"
    source.write_text("one\ntwo\n")
    config = {"connector.class": "FileStreamSource", "file": str(source), "topic": NAME}
    async with Client(_stdio(unharmed, "--write")) as client:
        assert (await _call(client, "validate_config", config=config))["error_count"] == 1
        plan = await _call(client, "plan", action={"kind": "put", "name": NAME, "config": config})
        assert plan["changes"][0] == "creates the connector"
        missing = await _fails(client, "connector_status", name=NAME)
        assert missing["reason"] == "CONNECTOR_NOT_FOUND"
        wrong = await _fails(
            client,
            "apply",
            action={"kind": "put", "name": NAME, "config": {**config, "topic": "other"}},
            plan_hash=plan["plan_hash"],
        )
        assert wrong["reason"] == "PLAN_CHANGED"
        put = {"kind": "put", "name": NAME, "config": config}
        await _call(client, "apply", action=put, plan_hash=plan["plan_hash"])
        await unharmed.cluster.wait_for_task(NAME)

        async def records() -> list[str]:
            found = await _call(client, "read_topic", topic=NAME, last=5)
            return [each["untrusted_value"] for each in found["records"]]

        await wait_until_async(
            lambda: _has_topic(client), timeout_s=120, describe="the topic exists"
        )
        await wait_until_async(
            lambda: _equal(records, ["one", "two"]), timeout_s=120, describe="both lines are read"
        )
        listed = await _call(client, "list_connectors", name_contains=NAME)
        assert [each["name"] for each in listed["connectors"]] == [NAME]
        await _applied(client, {"kind": "patch", "name": NAME, "settings": {"tasks.max": "2"}})
        history = await _call(client, "connector_history", name=NAME)
        assert history["changes"][0]["author"].startswith("mcp:")
        await _applied(client, {"kind": "stop", "name": NAME})
        await wait_until_async(
            lambda: _stopped(client), timeout_s=120, describe="the connector is stopped"
        )
        status = await _call(client, "connector_status", name=NAME)
        assert json.loads(status["offsets"][0]["untrusted_offset"])["position"] == 8
        await _applied(client, {"kind": "reset_offsets", "name": NAME})
        explained = await _call(client, "explain_failure", name=NAME)
        assert explained["failures"] == []
        info = await _call(client, "cluster_info")
        assert len(info["workers"]) == len(unharmed.cluster.workers)
        plugins = await _call(client, "list_plugins", kind="source")
        assert "FileStreamSource" in json.dumps(plugins)
        described = await _call(client, "describe_plugin", class_name="FileStreamSource")
        assert "file" in [each["name"] for each in described["settings"]]
        await _applied(client, {"kind": "delete", "name": NAME})
        assert (await _fails(client, "get_connector", name=NAME))["code"] == "NOT_FOUND"


async def _equal(read: Any, expected: list[str]) -> bool:
    found = await read()
    return [json.loads(each) if each.startswith('"') else each for each in found] == expected


async def _has_topic(client: Client) -> bool:
    found = await _call(client, "list_topics", name_contains=NAME)
    return bool(found["topics"])


async def _stopped(client: Client) -> bool:
    status = await _call(client, "connector_status", name=NAME)
    return [each["state"] for each in status["instances"]] == ["STOPPED"]


@pytest.mark.asyncio(loop_scope="session")
async def test_on_stdio_nothing_is_written_by_default(unharmed: SharedCluster) -> None:
    async with Client(_stdio(unharmed)) as client:
        tools = {each.name for each in (await client.list_tools()).tools}
        assert "apply" not in tools
        assert "plan" in tools
        assert client.server_capabilities.resources is None
        assert client.server_capabilities.prompts is None
        name = unharmed.flow.source
        plan = await _call(client, "plan", action={"kind": "delete", "name": name})
        await _fails(
            client, "apply", action={"kind": "delete", "name": name}, plan_hash=plan["plan_hash"]
        )
        found = await _call(client, "get_connector", name=name)
        assert found["name"] == name
