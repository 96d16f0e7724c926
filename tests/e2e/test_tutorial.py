"""docs/tutorial.md, run as documented: the package, its tests, and both in a cluster."""

import os
import re
import sys
from pathlib import Path

import pytest

from tests.e2e.test_examples import COMMAND_TIMEOUT_S, run, steps
from tests.support.shared_cluster import SharedCluster
from tests.support.tutorial import PAGE, write_package
from tests.support.waiting import wait_until_async

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.timeout(1200)]

PYTHON = Path(sys.executable)
#: Steps that the test has already done in its own environment.
DONE_BEFORE = ("python -m venv", "drover connector new", "cd ", "pip install", "drover up")


def commands() -> list[tuple[str, str]]:
    """The commands of the page with their expected output."""
    found = steps("docs/tutorial.md", marked_by="tests/e2e/test_tutorial.py")
    return [step for step in found if not step[0].startswith(DONE_BEFORE)]


def test_the_page_has_its_steps() -> None:
    names = [command for command, _ in commands()]
    assert names.count("python -m pytest") == 3
    assert [each for each in names if each.startswith("drover connector create")] != []
    assert len(re.findall("<!-- (?:added|the file)", PAGE.read_text())) == 12


async def test_the_tests_of_the_package_pass_as_they_are_and_with_what_the_page_adds(
    tmp_path: Path,
) -> None:
    folder = write_package(tmp_path)
    program = f"cd {folder} && {PYTHON} -m pytest -q -p no:cacheprovider"
    printed = await run("bash", "-c", program)
    assert "6 passed" in printed


@pytest.mark.asyncio(loop_scope="session")
async def test_the_connectors_of_the_page_run_in_a_cluster(
    unharmed: SharedCluster, tmp_path: Path
) -> None:
    folder = write_package(tmp_path / "package")
    here = tmp_path.as_posix()
    for definition in folder.glob("*.yaml"):
        definition.write_text(definition.read_text().replace("/tmp/", f"{here}/"))
    env = {
        "DROVER_ADDRESS": unharmed.cluster.workers[0],
        "COLUMNS": "160",
        "PATH": f"{PYTHON.parent}{os.pathsep}{os.environ['PATH']}",
    }
    try:
        for command, shown in commands():
            if command == "python -m pytest":
                continue
            real = f"cd {folder} && {command.replace('/tmp/', f'{here}/')}"
            if not shown:
                await run("bash", "-c", real, env=env)
                continue

            async def prints(real: str = real, shown: str = shown) -> bool:
                printed = await run("bash", "-c", f"{real} || true", env=env)
                return printed.splitlines() == shown.splitlines()

            await wait_until_async(prints, timeout_s=COMMAND_TIMEOUT_S, describe=command)
    finally:
        for name in ("station", "weather"):
            await unharmed.client.delete_connector(name)
