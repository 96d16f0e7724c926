"""The transcript in the README, run with a real grpcurl."""

import asyncio
import json
import os
import re
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.shared_cluster import SharedCluster

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.timeout(1200)]

ROOT = Path(__file__).parents[2]
VERSION = "v1.9.3"
TOOLS = ROOT / ".drover" / "tools" / f"grpcurl-{VERSION}"
BUILD_TIMEOUT_S = 280
STATUS_ATTEMPTS = 500
SHOWN_ADDRESS = "localhost:7411"
SHOWN_FILE = "/tmp/in.txt"


@dataclass(frozen=True)
class Step:
    command: str
    output: str


def transcript() -> list[Step]:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    block = re.search(
        r"<!-- run by tests/e2e/test_grpcurl.py -->\n```console\n(.*?)```", text, re.S
    )
    assert block is not None
    parts = re.split(r"^\$ (.*)\n", block[1], flags=re.MULTILINE)
    return [Step(parts[i], parts[i + 1]) for i in range(1, len(parts), 2)]


async def run(*arguments: str, env: dict[str, str] | None = None) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        *arguments,
        env={**os.environ, **(env or {})},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await asyncio.wait_for(process.communicate(), BUILD_TIMEOUT_S)
    assert process.returncode is not None
    return process.returncode, output.decode()


@pytest.fixture
async def grpcurl() -> Path:
    """A real grpcurl, built once; without Go the test is skipped, except where CI is set."""
    binary = TOOLS / "grpcurl"
    if binary.exists():
        return binary
    go = shutil.which("go")
    if go is None:
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail("CI must have Go, which builds grpcurl")
        pytest.skip("Go, which builds grpcurl, is not installed")
    module = f"github.com/fullstorydev/grpcurl/cmd/grpcurl@{VERSION}"
    code, output = await run(go, "install", module, env={"GOBIN": str(TOOLS)})
    assert code == 0, output
    return binary


def holds(actual: Any, shown: Any) -> bool:
    """Whether the response contains everything shown; it may have more fields."""
    if isinstance(shown, dict):
        return isinstance(actual, dict) and all(
            key in actual and holds(actual[key], value) for key, value in shown.items()
        )
    if isinstance(shown, list):
        return (
            isinstance(actual, list)
            and len(actual) == len(shown)
            and all(map(holds, actual, shown))
        )
    return bool(actual == shown)


def test_an_answer_may_have_more_fields_but_none_may_differ() -> None:
    assert holds({"a": [{"b": 1, "c": 2}], "d": 3}, {"a": [{"b": 1}]})
    assert not holds({"a": [{"b": 1}]}, {"a": [{"b": 2}]})
    assert not holds({"a": []}, {"a": [{"b": 1}]})
    assert not holds({}, {"a": 1})


def is_as_shown(output: str, shown: str) -> bool:
    if not shown.startswith("{"):
        return output == shown
    return holds(json.loads(output), json.loads(shown))


@pytest.mark.asyncio(loop_scope="session")
async def test_the_transcript_of_the_readme_is_true(
    unharmed: SharedCluster, tmp_path: Path, grpcurl: Path
) -> None:
    steps = transcript()
    assert len(steps) == 5
    file = tmp_path / "in.txt"
    file.write_text("a line\n")
    address = unharmed.cluster.workers[0]
    for step in steps:
        command = step.command.replace(SHOWN_ADDRESS, address).replace(SHOWN_FILE, str(file))
        program, *arguments = shlex.split(command)
        assert program == "grpcurl"
        shown = step.output.replace(SHOWN_FILE, str(file))

        # tasks start after a moment
        attempts = STATUS_ATTEMPTS if "Status" in step.command else 1
        output = ""
        for _ in range(attempts):
            code, output = await run(str(grpcurl), *arguments)
            assert code == 0, output
            if is_as_shown(output, shown):
                break
        else:
            pytest.fail(f"{step.command}\n{output}")
