"""The first connectors of the README and of docs/connectors.md, run as documented."""

import asyncio
import os
import re
import sys
from pathlib import Path

import pytest

from tests.support.postgres import PASSWORD, binaries, running_postgres
from tests.support.repository import REPOSITORY
from tests.support.shared_cluster import SharedCluster
from tests.support.waiting import wait_until_async

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.spark,
    pytest.mark.timeout(1200),
]

EXAMPLES = REPOSITORY / "examples"
#: Steps that the test has already done in its own environment.
DONE_BEFORE = ("source ", "pip install ", "drover up")
COMMAND_TIMEOUT_S = 300


def steps(
    page: str, more: str = "", *, marked_by: str = "tests/e2e/test_examples.py"
) -> list[tuple[str, str]]:
    """The commands of a page that are marked as run by a test, with their expected output."""
    text = (REPOSITORY / page).read_text(encoding="utf-8")
    marked = rf"<!-- run by {marked_by}{more} -->\n```console\n(.*?)```"
    found = []
    for block in re.findall(marked, text, re.S):
        parts = re.split(r"^\$ (.*)\n", block, flags=re.MULTILINE)
        found += [(parts[i], parts[i + 1]) for i in range(1, len(parts), 2)]
    return [step for step in found if not step[0].startswith(DONE_BEFORE)]


async def run(*arguments: str, env: dict[str, str] | None = None) -> str:
    """The output of a command that must succeed."""
    process = await asyncio.create_subprocess_exec(
        *arguments,
        cwd=REPOSITORY,
        env={**os.environ, **(env or {})},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await asyncio.wait_for(process.communicate(), COMMAND_TIMEOUT_S)
    assert process.returncode == 0, f"{arguments}: {output.decode()}"
    return output.decode()


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize("page", ["README.md", "docs/connectors.md"])
async def test_the_commands_of_the_page_work(
    page: str, unharmed: SharedCluster, tmp_path: Path
) -> None:
    wanted = steps(page)
    assert len(wanted) >= 5
    await run_steps(wanted, unharmed, tmp_path)


@pytest.mark.asyncio(loop_scope="session")
async def test_a_table_of_postgresql_becomes_one_of_iceberg(
    unharmed: SharedCluster, tmp_path: Path
) -> None:
    found = binaries()
    if found is None and not os.environ.get("CI"):
        pytest.skip("PostgreSQL is not installed")
    wanted = steps("README.md", " with PostgreSQL")
    assert len(wanted) == 5
    with running_postgres() as server:
        server.execute("CREATE DATABASE shop")
        env = {
            "PATH": os.pathsep.join(
                [str(Path(sys.executable).parent), str(found), os.environ["PATH"]]
            ),
            "PGHOST": "127.0.0.1",
            "PGPORT": str(server.port),
            "PGUSER": "drover",
            "PGPASSWORD": PASSWORD,
        }
        own = {
            "port: 5432": f"port: {server.port}",
            "password: drover": f"password: {PASSWORD}",
        }
        await run_steps(wanted, unharmed, tmp_path, env, own)


async def run_steps(
    wanted: list[tuple[str, str]],
    unharmed: SharedCluster,
    tmp_path: Path,
    env: dict[str, str] | None = None,
    replaced: dict[str, str] | None = None,
) -> None:
    """Run commands in the test's own folder; repeat each until it prints the documented output."""
    here = tmp_path.as_posix()
    definitions = tmp_path / "examples"
    definitions.mkdir()
    for definition in EXAMPLES.glob("*.yaml"):
        text = definition.read_text(encoding="utf-8").replace("/tmp/", f"{here}/")
        for old, new in (replaced or {}).items():
            text = text.replace(old, new)
        (definitions / definition.name).write_text(text)
    env = {
        "DROVER_ADDRESS": unharmed.cluster.workers[0],
        "COLUMNS": "160",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        **(env or {}),
    }
    try:
        for command, shown in wanted:
            real = command.replace("/tmp/", f"{here}/").replace(" examples/", f" {here}/examples/")
            if not shown:
                await run("bash", "-c", real, env=env)
                continue

            async def prints(command: str = real, shown: str = shown) -> bool:
                printed = await run("bash", "-c", f"{command} || true", env=env)
                return [line.rstrip() for line in printed.splitlines()] == shown.splitlines()

            await wait_until_async(prints, timeout_s=COMMAND_TIMEOUT_S, describe=command)
    finally:
        flow = (unharmed.flow.source, unharmed.flow.sink)
        for each in await unharmed.client.list_connectors():
            if each.name not in flow:
                await unharmed.client.delete_connector(each.name)


def test_the_connector_of_the_readme_is_that_of_the_example_and_has_at_most_40_lines() -> None:
    text = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    found = re.search(r"<!-- the source of (\S+) -->\n```python\n(.*?)```", text, re.S)
    assert found is not None
    shown = found[2]
    assert len([line for line in shown.splitlines() if line.strip()]) <= 40
    classes = shown[shown.index("class ") :]
    assert classes in (REPOSITORY / found[1]).read_text(encoding="utf-8")
