"""Clients in other languages: built with the commands of the docs, then run against a cluster."""

import asyncio
import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.support.repository import REPOSITORY, tracked_files
from tests.support.shared_cluster import SharedCluster

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.faults("clients"),
    pytest.mark.timeout(1800),
]

_PAGE = "docs/clients.md"
_SHOWN_ADDRESS = "localhost:7411"
_TIMEOUT_S = 1500


def section(title: str) -> tuple[str, str]:
    """The commands of a language, and the output of the last one."""
    text = (REPOSITORY / _PAGE).read_text(encoding="utf-8")
    part = text.split(f"## {title}\n")[1].split("\n## ")[0]
    (commands,) = re.findall(r"^```sh\n(.*?)^```", part, re.M | re.S)
    (printed,) = re.findall(r"^```text\n(.*?)^```", part, re.M | re.S)
    return commands, printed


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize(
    ("language", "tool", "name"),
    [
        ("Go", "go", "orders-by-go"),
        ("TypeScript", "npm", "orders-by-typescript"),
    ],
)
async def test_a_client_calls_a_cluster(
    unharmed: SharedCluster, tmp_path: Path, language: str, tool: str, name: str
) -> None:
    if shutil.which(tool) is None:
        if os.environ.get("CI"):
            pytest.fail(f"CI must have {tool}, for the client in {language}")
        pytest.skip(f"{tool} is not installed, which makes the client in {language}")
    for path in tracked_files():
        if path.is_relative_to("protos") or path.is_relative_to("examples/clients"):
            target = tmp_path / path
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(REPOSITORY / path, target)
    commands, printed = section(language)
    process = await asyncio.create_subprocess_exec(
        *("bash", "-euc", commands.replace(_SHOWN_ADDRESS, unharmed.cluster.workers[0])),
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        output, _ = await asyncio.wait_for(process.communicate(), _TIMEOUT_S)
        assert process.returncode == 0, output.decode()
        assert output.decode().endswith(printed), output.decode()
    finally:
        if process.returncode is None:
            process.kill()
        await unharmed.client.delete_connector(name)
