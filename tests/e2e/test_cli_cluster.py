"""The drover command, the supervisor and a real cluster together."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest
import requests

from drover.local.process import descendants, wait_until_gone
from drover.local.state import read_state
from tests.support.cluster import run_drover

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.timeout(1200)]

ROOT = Path(__file__).parents[2]


@asynccontextmanager
async def drover_up(cwd: Path, *options: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """``drover up`` as a separate process, once it reports that the cluster is up."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "drover.cli.main", "up", "--workers", "1"),
        *("--timeout", "600", *options),
        cwd=cwd,
        env={**os.environ, "PYTHONUNBUFFERED": "1", "DROVER_PORT_BASE": "0"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(660):
            while b"the cluster is up" not in (line := await process.stdout.readline()):
                assert line, f"drover up ended with {await process.wait()}"
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


async def console_url(up: asyncio.subprocess.Process) -> str:
    """The address that the second command of "Look at it" in the README opens."""
    assert up.stdout is not None
    async with asyncio.timeout(60):
        while not (line := (await up.stdout.readline()).decode()).startswith("Console: "):
            assert line
    return line.split()[1]


async def test_up_serves_the_command_and_down_ends_it(tmp_path: Path) -> None:
    async with drover_up(tmp_path) as up:
        tree = [psutil.Process(up.pid), *descendants(up.pid)]
        assert len(tree) >= 5
        info = await run_drover("cluster", "info", "-o", "json", cwd=tmp_path)
        assert info.exit_code == 0, info.err
        assert json.loads(info.out)["group_id"] == "drover"
        groups = await run_drover("group", "list", "-o", "json", cwd=tmp_path)
        assert groups.exit_code == 0, groups.err
        page = await asyncio.to_thread(requests.get, await console_url(up), timeout=60)
        assert page.ok, page.text
        assert "<title>Overview · Drover</title>" in page.text

        second = await run_drover("up", cwd=tmp_path)
        assert second.exit_code == 1
        assert f"a cluster (pid {up.pid}) already runs in .drover/up" in second.err
        assert len(second.err.splitlines()) == 1

        elsewhere, worker = tmp_path / "elsewhere", json.loads(info.out)["worker_id"]
        elsewhere.mkdir()
        base = int(worker.rpartition(":")[2]) - 11  # gives the first workers the same ports
        beside = await run_drover("up", "--port-base", str(base), cwd=elsewhere)
        assert beside.exit_code == 1
        assert f"a cluster already runs at {worker}, with its data in sqlite://" in beside.err
        assert f"{tmp_path}/.drover/up/data" in beside.err
        assert "--port-base" in beside.err
        assert len(beside.err.splitlines()) == 1
        assert not (elsewhere / ".drover").exists()

        down = await run_drover("down", cwd=tmp_path)
        assert (down.exit_code, down.err) == (0, "")
        assert "stopped the cluster in .drover/up\n" in down.out
        assert await up.wait() == 0
    assert await wait_until_gone(tree, 30) == []
    assert (tmp_path / ".drover" / "up" / "data").is_dir()
    deleted = await run_drover("down", "--delete-data", cwd=tmp_path)
    assert (deleted.exit_code, deleted.err) == (0, "")
    assert "to delete: .drover/up, " in deleted.out
    assert not (tmp_path / ".drover" / "up").exists()


async def test_ctrl_c_stops_up_in_good_order_and_keeps_the_data(tmp_path: Path) -> None:
    async with drover_up(tmp_path, "--dir", "here") as up:
        tree = descendants(up.pid)
        up.send_signal(signal.SIGINT)
        assert await up.wait() == 0
    assert await wait_until_gone(tree, 30) == []
    assert (tmp_path / "here" / "data").is_dir()
    assert read_state(tmp_path / "here") is None


async def test_a_directory_that_cannot_be_used_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = await run_drover("up", "--dir", "file/below", cwd=tmp_path)
    assert done.exit_code == 1
    assert done.err.startswith("drover: cannot use ")
    assert len(done.err.splitlines()) == 1


async def test_without_java_up_says_what_to_install(tmp_path: Path) -> None:
    done = await run_drover("up", cwd=tmp_path, env={"JAVA_HOME": str(tmp_path)})
    assert done.exit_code == 1
    assert "install Java 17 or newer" in done.err
    assert len(done.err.splitlines()) == 1


async def test_a_damaged_log_is_one_clear_line_with_the_file(tmp_path: Path) -> None:
    data = tmp_path / "cluster" / "data"
    data.mkdir(parents=True)
    (data / "config.db").write_bytes(b"this is no database" * 1000)
    done = await run_drover("up", "--dir", "cluster", cwd=tmp_path)
    assert done.exit_code == 1
    assert "config-store stopped at its start" in done.err
    assert "config.db is damaged" in done.err
    assert len(done.err.splitlines()) == 1


async def test_a_wrong_setting_is_one_clear_line_with_its_name(tmp_path: Path) -> None:
    env = {"DROVER_SESSION_TIMEOUT_MS": "soon"}
    done = await run_drover("up", "--dir", "cluster", cwd=tmp_path, env=env)
    assert done.exit_code == 1
    assert "stopped at its start (exit 2): drover worker: DROVER_SESSION_TIMEOUT_MS" in done.err
    assert len(done.err.splitlines()) == 1
