"""The first connectors of the README and of docs/connectors.md, run as they stand there."""

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.support.cluster import EmbeddedCluster, embedded_cluster
from tests.support.repository import REPOSITORY
from tests.support.waiting import wait_until_async

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.spark,
    pytest.mark.timeout(1200),
    pytest.mark.xdist_group("examples"),
]

EXAMPLES = REPOSITORY / "examples"
PACKAGE = EXAMPLES / "json_files"
#: What the test has done before, in a place of its own.
DONE_BEFORE = ("source ", "pip install ", "drover up")
COMMAND_TIMEOUT_S = 300


def steps(page: str) -> list[tuple[str, str]]:
    """The commands of a page that are marked as run by this test, with what they print."""
    text = (REPOSITORY / page).read_text(encoding="utf-8")
    marked = r"<!-- run by tests/e2e/test_examples.py -->\n```console\n(.*?)```"
    found = []
    for block in re.findall(marked, text, re.S):
        parts = re.split(r"^\$ (.*)\n", block, flags=re.MULTILINE)
        found += [(parts[i], parts[i + 1]) for i in range(1, len(parts), 2)]
    return [step for step in found if not step[0].startswith(DONE_BEFORE)]


async def run(*arguments: str, env: dict[str, str] | None = None) -> str:
    """What a command prints; it must succeed."""
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


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[EmbeddedCluster]:
    """A cluster beside which the example package is installed, and nothing of the repository."""
    directory = tmp_path_factory.mktemp("examples")
    site = directory / "site"
    await run(
        *(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"),
        *("--no-build-isolation", "--target", str(site), str(PACKAGE)),
    )
    env = {"PYTHONPATH": str(site)}
    async with embedded_cluster(directory / "cluster", workers=1, env=env) as started:
        await started.wait_until_members()
        yield started


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("page", ["README.md", "docs/connectors.md"])
async def test_the_commands_of_the_page_work(
    page: str, cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    here = tmp_path.as_posix()
    definitions = tmp_path / "examples"
    definitions.mkdir()
    for definition in EXAMPLES.glob("*.yaml"):
        text = definition.read_text(encoding="utf-8").replace("/tmp/", f"{here}/")
        (definitions / definition.name).write_text(text)
    env = {
        "DROVER_ADDRESS": cluster.workers[0],
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    wanted = steps(page)
    assert len(wanted) >= 5
    for command, shown in wanted:
        real = command.replace("/tmp/", f"{here}/").replace(" examples/", f" {here}/examples/")
        if not shown:
            await run("bash", "-c", real, env=env)
            continue

        async def prints(command: str = real, shown: str = shown) -> bool:
            return await run("bash", "-c", f"{command} || true", env=env) == shown

        await wait_until_async(prints, timeout_s=COMMAND_TIMEOUT_S, describe=command)


async def test_the_tests_of_the_example_pass() -> None:
    said = await run(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(PACKAGE))
    assert " passed" in said


def test_the_connector_of_the_readme_is_that_of_the_example_and_has_at_most_40_lines() -> None:
    text = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    found = re.search(r"<!-- the source of (\S+) -->\n```python\n(.*?)```", text, re.S)
    assert found is not None
    shown = found[2]
    assert len([line for line in shown.splitlines() if line.strip()]) <= 40
    classes = shown[shown.index("class ") :]
    assert classes in (REPOSITORY / found[1]).read_text(encoding="utf-8")
