"""Third-party clients of Kafka Connect's REST API, unmodified."""

import asyncio
import json
import re
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from drover_gateway.rest.path import split_path
from drover_gateway.rest.table import RESOURCES, Router
from tests.support.fake_engine import SOURCE
from tests.support.gateways import running_gateway
from tests.support.repository import REPOSITORY
from tests.support.waiting import wait_until_async
from tests.support.worker_cluster import WorkerCluster

CONFIG = {"connector.class": SOURCE, "tasks.max": "1", "topic": "t"}
CURL = shutil.which("curl")
README = REPOSITORY / "README.md"

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def base(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """The URL of a REST API over a cluster."""
    async with WorkerCluster(tmp_path_factory.mktemp("clients")) as cluster:
        await cluster.settled_workers(1)
        async with running_gateway([cluster.workers[0].address]) as gateway:
            yield gateway.url


async def run(*argv: str, stdin: bytes = b"") -> str:
    """The output of a command that succeeds."""
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate(stdin)
    assert process.returncode == 0, (argv, out.decode(), err.decode())
    return out.decode()


async def test_the_python_client_kafkaconnect(base: str, tmp_path: Path) -> None:
    async def client(*arguments: str) -> str:
        command = "from kafkaconnect.cli import main; main()"
        return await run(sys.executable, "-c", command, "--connect", base, *arguments)

    config = tmp_path / "config.json"
    config.write_text(json.dumps(CONFIG))
    assert '"error_count": 0' in await client("upload", "--dry-run", "--name", "k", str(config))
    assert '"name": "k"' in await client("upload", "--name", "k", str(config))
    assert json.loads(await client("list")) == ["k"]
    assert json.loads(await client("info", "k"))["config"]["topic"] == "t"
    assert json.loads(await client("config", "k"))["connector.class"] == SOURCE
    assert json.loads(await client("status", "k"))["name"] == "k"
    assert isinstance(json.loads(await client("tasks", "k")), list)
    assert json.loads(await client("topics", "k")) == {"k": {"topics": []}}
    assert SOURCE in await client("plugins")
    for command in ("restart", "pause", "resume", "delete"):
        assert (await client(command, "k")).strip() == ""
    assert "not found" in await client("status", "k")


@pytest.mark.skipif(CURL is None, reason="needs curl")
async def test_an_empty_chunked_body_without_a_type_is_no_body(base: str) -> None:
    """As Spring's WebClient sends it, with which kafka-ui pauses, stops and restarts connectors."""

    async def status(method: str, path: str, *, body: bytes = b"") -> str:
        headers = ("-H", "Transfer-Encoding: chunked", "-H", "Content-Type:")
        shown = ("-s", "-o", "/dev/null", "-w", "%{http_code}")
        argv = ("curl", *shown, "-X", method, "-T", "-", *headers, f"{base}/connectors{path}")
        return await run(*argv, stdin=body)

    created = json.dumps({"name": "e", "config": CONFIG})
    await run("curl", "-sS", "--json", created, f"{base}/connectors")
    assert await status("GET", "/e") == "200"
    assert await status("POST", "/e/restart") == "204"
    assert await status("POST", "/e/restart?includeTasks=true") == "202"
    assert await status("PUT", "/e/pause") == "202"
    assert await status("PUT", "/e/pause", body=b"{}") == "415"
    assert await status("PUT", "/e/config", body=b"{}") == "415"
    assert await status("PUT", "/e/config") == "400"
    assert await status("PUT", "/e/resume") == "202"
    assert await status("PUT", "/e/stop") == "204"
    assert await status("PUT", "/none/stop") == "404"
    assert await status("DELETE", "/e") == "204"


@pytest.mark.skipif(CURL is None, reason="needs curl")
async def test_the_commands_of_the_readme(base: str) -> None:
    section = README.read_text(encoding="utf-8").partition("## Use your Kafka Connect tools")[2]
    commands = re.findall(r"^\$ (curl .*)$", section.partition("\n## ")[0], re.M)
    assert len(commands) == 2
    connectors, plugins = [
        json.loads(await run("bash", "-c", each.replace("http://127.0.0.1:8083", base)))
        for each in commands
    ]
    assert isinstance(connectors, list)
    assert SOURCE in {each["class"] for each in plugins}


@pytest.mark.skipif(CURL is None, reason="needs curl")
async def test_the_requests_of_kafkas_documentation_by_curl(base: str) -> None:
    """All requests of its user guide, and the requests for loggers of KIP-495 and KIP-976."""
    requested: set[tuple[str, str]] = set()

    async def curl(method: str, path: str, body: object = None) -> Any:
        match = Router(admin=True).find(split_path(path.partition("?")[0].encode()))
        assert match is not None
        requested.add((method, match.resource.path))
        data = () if body is None else ("-H", "Content-Type: application/json", "-d", "@-")
        text = await run(
            *("curl", "-sS", "--fail-with-body", "-X", method, f"{base}{path}", *data),
            stdin=b"" if body is None else json.dumps(body).encode(),
        )
        return json.loads(text) if text else None

    async def reaches(state: str) -> None:
        async def reached() -> bool:
            status = await curl("GET", "/connectors/c/status")
            found = {status["connector"]["state"], *(each["state"] for each in status["tasks"])}
            return found == {state}

        await wait_until_async(reached)

    assert (await curl("GET", "/"))["version"] == "4.4.0"
    assert (await curl("GET", "/health"))["status"] == "healthy"
    await curl("POST", "/connectors", {"name": "c", "config": CONFIG, "initial_state": "PAUSED"})
    await reaches("PAUSED")
    assert await curl("PUT", "/connectors/c/resume") is None
    await reaches("RUNNING")
    assert "c" in await curl("GET", "/connectors")
    expanded = await curl("GET", "/connectors?expand=status&expand=info")
    assert expanded["c"].keys() == {"status", "info"}
    assert (await curl("GET", "/connectors/c"))["tasks"] == [{"connector": "c", "task": 0}]
    assert await curl("GET", "/connectors/c/config") == {**CONFIG, "name": "c"}
    assert (await curl("PUT", "/connectors/c/config", CONFIG))["type"] == "source"
    patched = await curl("PATCH", "/connectors/c/config", {"topic": "u", "tasks.max": None})
    assert patched["config"] == {"connector.class": SOURCE, "topic": "u", "name": "c"}
    (task,) = await curl("GET", "/connectors/c/tasks")
    assert task["id"] == {"connector": "c", "task": 0}
    assert (await curl("GET", "/connectors/c/tasks/0/status"))["id"] == 0
    assert await curl("POST", "/connectors/c/restart") is None
    restart = "/connectors/c/restart?includeTasks=true&onlyFailed=false"
    assert (await curl("POST", restart))["connector"]["state"] == "RESTARTING"
    assert await curl("POST", "/connectors/c/tasks/0/restart") is None
    await reaches("RUNNING")
    assert await curl("GET", "/connectors/c/topics") == {"c": {"topics": []}}
    assert await curl("PUT", "/connectors/c/topics/reset") is None
    assert await curl("PUT", "/connectors/c/pause") is None
    await reaches("PAUSED")
    assert await curl("PUT", "/connectors/c/stop") is None
    await reaches("STOPPED")
    offset = {"partition": {"filename": "test.txt"}, "offset": {"position": 30}}
    changed = await curl("PATCH", "/connectors/c/offsets", {"offsets": [offset]})
    assert "altered successfully" in changed["message"]
    assert await curl("GET", "/connectors/c/offsets") == {"offsets": [offset]}
    removed = {"offsets": [{**offset, "offset": None}]}
    assert (
        "altered successfully" in (await curl("PATCH", "/connectors/c/offsets", removed))["message"]
    )
    assert "reset successfully" in (await curl("DELETE", "/connectors/c/offsets"))["message"]
    assert await curl("GET", "/connectors/c/offsets") == {"offsets": []}
    assert SOURCE in {each["class"] for each in await curl("GET", "/connector-plugins")}
    settings = await curl("GET", f"/connector-plugins/{SOURCE}/config")
    assert "tasks.max" in {each["name"] for each in settings}
    validate = f"/connector-plugins/{SOURCE}/config/validate"
    assert (await curl("PUT", validate, {**CONFIG, "name": "c"}))["error_count"] == 0
    assert "drover" in await curl("GET", "/admin/loggers")
    level = {"level": "DEBUG"}
    assert "drover" in await curl("PUT", "/admin/loggers/drover", level)
    assert (await curl("GET", "/admin/loggers/drover"))["level"] == "DEBUG"
    assert await curl("PUT", "/admin/loggers/drover?scope=cluster", {"level": "INFO"}) is None
    assert await curl("DELETE", "/connectors/c") is None
    missing = await run("curl", "-sS", f"{base}/connectors/c/status")
    assert json.loads(missing) == {
        "error_code": 404,
        "message": "No status found for connector c",
    }
    assert requested == {
        (operation.method, resource.path)
        for resource in RESOURCES
        for operation in resource.operations
        if not operation.internal and resource.path != "/openapi.json"
    }
