"""Third-party clients of Kafka Connect's REST API, unmodified."""

import asyncio
import json
import re
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.support.fake_engine import SOURCE
from tests.support.gateways import running_gateway
from tests.support.repository import REPOSITORY
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
async def test_the_curl_commands_of_kafkas_documentation(base: str) -> None:
    async def curl(method: str, path: str, body: object = None) -> str:
        data = () if body is None else ("-H", "Content-Type: application/json", "-d", "@-")
        return await run(
            *("curl", "-sS", "--fail-with-body", "-X", method, f"{base}{path}", *data),
            stdin=b"" if body is None else json.dumps(body).encode(),
        )

    assert json.loads(await curl("GET", "/"))["version"] == "4.4.0"
    assert json.loads(await curl("GET", "/health"))["status"] == "healthy"
    body = {"name": "c", "config": CONFIG}
    assert json.loads(await curl("POST", "/connectors", body))["name"] == "c"
    assert "c" in json.loads(await curl("GET", "/connectors"))
    expanded = json.loads(await curl("GET", "/connectors?expand=status&expand=info"))
    assert expanded["c"].keys() == {"status", "info"}
    assert json.loads(await curl("PUT", "/connectors/c/config", CONFIG))["type"] == "source"
    patched = json.loads(await curl("PATCH", "/connectors/c/config", {"topic": "u"}))
    assert patched["config"]["topic"] == "u"
    assert json.loads(await curl("GET", "/connectors/c/offsets")) == {"offsets": []}
    validate = f"/connector-plugins/{SOURCE}/config/validate"
    assert json.loads(await curl("PUT", validate, {**CONFIG, "name": "c"}))["error_count"] == 0
    level = {"level": "DEBUG"}
    assert "drover" in json.loads(await curl("PUT", "/admin/loggers/drover", level))
    assert json.loads(await curl("GET", "/admin/loggers/drover"))["level"] == "DEBUG"
    assert await curl("PUT", "/admin/loggers/drover?scope=cluster", {"level": "INFO"}) == ""
    for verb in ("pause", "resume", "stop"):
        assert await curl("PUT", f"/connectors/c/{verb}") == ""
    assert await curl("DELETE", "/connectors/c") == ""
    missing = await run("curl", "-sS", f"{base}/connectors/c/status")
    assert json.loads(missing) == {
        "error_code": 404,
        "message": "No status found for connector c",
    }
