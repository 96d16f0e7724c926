"""Machines on which a service or a cluster cannot start: each prints one clear line and an exit
code.
"""

import os
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from drover.clock import SystemClock
from drover.dataplane.store import EmbeddedStore
from drover.log.directory import DataDirectory
from drover.log.log import LogRecord
from drover.log.sqlite import SqliteLog
from drover_coordinator.backends.embedded.lease_file import LeaseFile
from tests.support.addresses import free_address, free_addresses
from tests.support.child_process import ChildProcess
from tests.support.cluster import run_drover
from tests.support.idle_worker import STORY_VARIABLE
from tests.support.service_process import (
    SERVICES,
    ServiceProcess,
    assert_one_clear_line,
    fill,
    run_to_its_end,
    service_environment,
    small_disk,
)
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

STORES = ("coordinator", "config-store", "status-store")
FILES = {
    "groups-3.db": "coordinator",
    "coordinators.db": "coordinator",
    "data.db": "coordinator",
    "config.db": "config-store",
    "status.db": "status-store",
}


@contextmanager
def held_port() -> Iterator[str]:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        yield f"127.0.0.1:{holder.getsockname()[1]}"


# Ports


@pytest.mark.parametrize("service", SERVICES)
async def test_a_port_in_use(service: str, tmp_path: Path) -> None:
    variable = f"DROVER_{service.upper().replace('-', '_')}_LISTEN"
    with held_port() as address:
        done = await run_to_its_end(service, tmp_path / "data", {variable: address})
    assert_one_clear_line(done, service, f"cannot listen on {address}", "the port is in use")


async def test_a_cluster_whose_port_is_in_use(tmp_path: Path) -> None:
    with held_port() as address:
        for variable in ("DROVER_CONFIG_STORE_LISTEN", "DROVER_WORKER_LISTEN"):
            done = await run_drover("up", cwd=tmp_path, env={variable: address})
            assert (done.exit_code, done.out, len(done.err.splitlines())) == (1, "", 1)
            assert f"cannot listen on {address}" in done.err


# A worker without a cluster


async def test_a_worker_whose_cluster_is_not_there_runs_on_and_serves_once_it_is(
    tmp_path: Path,
) -> None:
    names = ("coordinator", "config-store", "status-store")
    addresses = dict(zip(names, free_addresses(3), strict=True))
    told = {f"DROVER_{n.upper().replace('-', '_')}_ADDRESS": at for n, at in addresses.items()}
    environment = {**service_environment("worker", tmp_path), **told}
    at = free_address()
    worker = ChildProcess(
        "the worker",
        [sys.executable, "-m", "tests.support.idle_worker"],
        log_path=tmp_path / "worker.log",
        environment={
            **environment,
            "DROVER_WORKER_LISTEN": at,
            STORY_VARIABLE: str(tmp_path / "story.txt"),
        },
    )
    with ExitStack() as stack:
        stack.callback(worker.kill)
        worker.start(ready=lambda: health_told(at).startswith(f"1 {at} NOT_SERVING: "))
        why = (
            "the worker has not joined its group 'drover' yet:"
            " the config log has not been read: DROVER_CONFIG_STORE_ADDRESS"
        )
        assert health_told(at) == f"1 {at} NOT_SERVING: {why}\n"
        wait_until(lambda: "the worker is NOT_SERVING" in worker.log(), describe=worker.shown_log)
        assert why in worker.log()
        assert "Traceback" not in worker.log()
        pid = worker.pid
        for name, address in addresses.items():
            service = ServiceProcess(name, tmp_path, environment, address=address)
            stack.callback(service.process.kill)
            service.start()
        wait_until(lambda: health_told(at) == f"0 {at} SERVING\n", describe=worker.shown_log)
        assert (worker.is_alive, worker.pid) == (True, pid)


def health_told(address: str) -> str:
    """The exit code and output of the containers' health check command."""
    done = subprocess.run(
        [sys.executable, "-m", "drover.local.health", address],
        capture_output=True,
        text=True,
        check=False,
    )
    return f"{done.returncode} {done.stdout}"


# Java


def java_that_says(directory: Path, version: str) -> dict[str, str]:
    java = directory / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f'#!/bin/sh\necho \'openjdk version "{version}"\' >&2\n[ "$1" = -version ]\n')
    java.chmod(0o755)
    return {"JAVA_HOME": str(directory)}


def without_java(directory: Path) -> dict[str, str]:
    directory.mkdir()
    for tool in ("sh", "bash", "env", "dirname", "sed", "tr"):
        (directory / tool).symlink_to(f"/usr/bin/{tool}")
    return {"JAVA_HOME": "", "PATH": str(directory)}


async def test_a_worker_without_java(tmp_path: Path) -> None:
    done = await run_to_its_end("worker", tmp_path / "data", without_java(tmp_path / "bin"))
    assert_one_clear_line(done, "worker", "no Java found", "install Java 17 or newer", "JAVA_HOME")


async def test_a_worker_with_a_java_that_is_too_old(tmp_path: Path) -> None:
    home = tmp_path / "java"
    done = await run_to_its_end("worker", tmp_path / "data", java_that_says(home, "11.0.2"))
    assert_one_clear_line(
        done, "worker", f"{home}/bin/java is Java 11, too old", "install Java 17 or newer"
    )


async def test_a_cluster_without_a_java_for_it(tmp_path: Path) -> None:
    for env in (without_java(tmp_path / "bin"), java_that_says(tmp_path / "java", "11.0.2")):
        done = await run_drover("up", cwd=tmp_path, env=env)
        assert (done.exit_code, done.out, len(done.err.splitlines())) == (1, "", 1)
        assert "install Java 17 or newer" in done.err
    assert not (tmp_path / ".drover").exists()


# The data directory


@pytest.mark.parametrize("service", STORES)
async def test_a_file_where_the_data_directory_should_be(service: str, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file")
    done = await run_to_its_end(service, tmp_path / "data")
    assert_one_clear_line(done, service, tmp_path / "data", "DROVER_STORAGE_URL")
    done = await run_to_its_end(service, tmp_path / "data" / "below")
    assert_one_clear_line(done, service, tmp_path / "data", "DROVER_STORAGE_URL")


@pytest.mark.parametrize("service", STORES)
async def test_a_directory_that_nobody_can_make(service: str) -> None:
    done = await run_to_its_end(service, Path("/proc/drover-test"))
    assert_one_clear_line(done, service, "/proc/drover-test", "DROVER_STORAGE_URL")


@pytest.mark.parametrize("service", STORES)
async def test_a_read_only_data_directory(service: str, tmp_path: Path) -> None:
    with small_disk(tmp_path / "data", "1m", read_only=True) as directory:
        done = await run_to_its_end(service, directory)
        assert_one_clear_line(done, service, directory, "read-only file system")
        assert list(directory.iterdir()) == []


@pytest.mark.parametrize(
    ("service", "leave_bytes"),
    [*((service, 0) for service in STORES), ("coordinator", 4096), ("coordinator", 16 * 1024)],
)
async def test_a_full_data_directory(service: str, leave_bytes: int, tmp_path: Path) -> None:
    with small_disk(tmp_path / "data", "1m") as directory:
        filler = fill(directory, leave_bytes=leave_bytes)
        done = await run_to_its_end(service, directory)
        assert_one_clear_line(done, service, directory, "space")
        filler.unlink()
        # files of the failed start do not hinder the next one: it fails later, at the port
        with held_port() as address:
            variable = f"DROVER_{service.upper().replace('-', '_')}_LISTEN"
            done = await run_to_its_end(service, directory, {variable: address})
        assert_one_clear_line(done, service, "the port is in use")


async def test_a_cluster_on_a_full_disk(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "256k") as disk:
        fill(disk)
        done = await run_drover("up", "--dir", str(disk / "cluster"), cwd=tmp_path)
        assert (done.exit_code, len(done.err.splitlines())) == (1, 1)
        assert "No space left on device" in done.err
        assert str(disk) in done.err


@pytest.mark.parametrize("service", STORES)
async def test_a_second_service_on_the_same_data_directory(service: str, tmp_path: Path) -> None:
    with DataDirectory(tmp_path).lock(service):
        done = await run_to_its_end(service, tmp_path)
    assert_one_clear_line(done, service, f"another {service} (pid {os.getpid()})", tmp_path)


# Damaged files


async def write_good_file(path: Path) -> None:
    """Write a file large enough that its first half is damaged."""
    if path.name == "data.db":
        store = EmbeddedStore(path)
        for number in range(200):
            store.ensure_topic(f"topic-{number}-{'x' * 100}", 4)
        store.close()
        return
    if path.name == "coordinators.db":
        leases = LeaseFile(path)
        leases.begin(1_000)
        leases.close()
        return
    log = await SqliteLog.open(path, SystemClock())
    await log.append(
        [LogRecord(f"key-{number}".encode(), os.urandom(400)) for number in range(200)]
    )
    await log.close()


@pytest.mark.parametrize(
    ("file", "how"),
    [
        *((file, how) for file in FILES for how in ("garbage", "truncated", "another program's")),
        # an empty file of these counts as new
        *((file, "empty") for file in FILES if file not in ("data.db", "coordinators.db")),
    ],
)
async def test_a_damaged_file(file: str, how: str, tmp_path: Path) -> None:
    path = tmp_path / file
    if how == "garbage":
        path.write_bytes(b"this is no database" * 1000)
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "another program's":
        with sqlite3.connect(path) as connection:
            connection.execute("CREATE TABLE recipes (name TEXT)")
        connection.close()
    else:
        await write_good_file(path)
        os.truncate(path, path.stat().st_size // 2)
    before = path.read_bytes()
    done = await run_to_its_end(FILES[file], tmp_path)
    assert_one_clear_line(done, FILES[file], path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("file", FILES)
async def test_a_directory_where_a_file_should_be(file: str, tmp_path: Path) -> None:
    (tmp_path / file).mkdir()
    done = await run_to_its_end(FILES[file], tmp_path)
    assert_one_clear_line(done, FILES[file], tmp_path / file)
