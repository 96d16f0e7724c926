"""`make run`, with the small sample and a short feed."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.timeout(1200)]

ROOT = Path(__file__).parents[2]


async def run_demo(cwd: Path, *options: str, env: dict[str, str] | None = None) -> tuple[int, str]:
    for directory in ("examples", "tests"):  # the sample is among the tests' data
        (cwd / directory).symlink_to(ROOT / directory)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "examples.flights", *options),
        cwd=cwd,
        env={**os.environ, "COLUMNS": "200", **(env or {})},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        output, _ = await asyncio.wait_for(process.communicate(), 1100)
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()
    assert process.returncode is not None
    return process.returncode, output.decode()


async def test_every_row_arrives_though_two_workers_are_killed(tmp_path: Path) -> None:
    code, output = await run_demo(tmp_path, "--sample", "--feed-s", "15")
    assert code == 0, output
    assert output.count("kill -9 worker-") == 2
    assert "which runs flights-sink-0" in output
    assert "which runs flights-source-0" in output
    assert "Every row arrived exactly once" in output
    assert "3,286 in " in output  # of 3,368 flights, 82 were cancelled
    assert "flights.csv:1124" in output  # the sample contains one bad line
    assert list((tmp_path / ".drover").glob("run-*")) == []


async def test_without_java_the_demo_fails_with_one_line(tmp_path: Path) -> None:
    code, output = await run_demo(tmp_path, "--sample", env={"JAVA_HOME": str(tmp_path)})
    assert code == 1
    assert output.startswith("FAILED: JAVA_HOME is")
    assert len(output.splitlines()) == 1
