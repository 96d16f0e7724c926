"""The stores as processes: signals, kill -9, and one clear line when they cannot start."""

import os
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from drover.client import ConfigStoreClient, channel
from drover.model.ids import Term
from tests.support.addresses import free_address
from tests.support.waiting import wait_until

pytestmark = pytest.mark.e2e

STORES = ["config_store", "status_store"]


def command(store: str) -> list[str]:
    return [sys.executable, "-m", f"drover_{store}"]


def environment(store: str, directory: Path, address: str, **more: str) -> dict[str, str]:
    return {
        **os.environ,
        "DROVER_STORAGE_URL": f"sqlite://{directory}",
        f"DROVER_{store.upper()}_LISTEN": address,
        **more,
    }


@contextmanager
def running(store: str, directory: Path, address: str) -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen(
        command(store),
        env=environment(store, directory, address),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until(lambda: is_serving(address), describe=f"{store} serves")
        yield process
    finally:
        process.kill()
        process.wait()


def is_serving(address: str) -> bool:
    with grpc.insecure_channel(address) as connection:
        check = vars(health_pb2_grpc.HealthStub(connection))["Check"]
        try:
            answer = check(health_pb2.HealthCheckRequest(), timeout=5)
        except grpc.RpcError:
            return False
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


def fail_to_start(store: str, directory: Path, address: str, **more: str) -> tuple[int, str]:
    """Exit code and the one line on stderr that is not a log event."""
    finished = subprocess.run(
        command(store),
        env=environment(store, directory, address, **more),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "Traceback" not in finished.stderr
    lines = [line for line in finished.stderr.splitlines() if line.startswith("drover ")]
    assert len(lines) == 1, finished.stderr
    return finished.returncode, lines[0]


async def test_a_request_repeated_after_kill_9_gets_the_same_answer(tmp_path: Path) -> None:
    address = free_address()

    async def create() -> tuple[int, int]:
        async with channel(address) as connection:
            client = ConfigStoreClient(connection)
            claim = await client.claim_writer(owner="w:1", term=Term(1, 1))
            written = await client.put_connector_config(
                name="a",
                config={"x": "1"},
                writer_epoch=claim.writer_epoch,
                expected_revision=0,
                request_id="create-a",
            )
            assert await client.get_end_offset() == 1
            return claim.writer_epoch, written.revision

    with running("config_store", tmp_path, address) as process:
        first = await create()
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    with running("config_store", tmp_path, address):
        assert await create() == first


@pytest.mark.parametrize("store", STORES)
def test_sigterm_ends_it_in_good_order(store: str, tmp_path: Path) -> None:
    with running(store, tmp_path, free_address()) as process:
        process.terminate()
        assert process.wait(60) == 0


@pytest.mark.parametrize("store", STORES)
def test_a_second_one_on_the_same_directory_is_refused(store: str, tmp_path: Path) -> None:
    with running(store, tmp_path, free_address()) as process:
        code, line = fail_to_start(store, tmp_path, free_address())
    assert code == 1
    assert f"pid {process.pid}" in line
    assert str(tmp_path) in line


@pytest.mark.parametrize("store", STORES)
def test_a_port_in_use_is_told(store: str, tmp_path: Path) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        address = f"127.0.0.1:{holder.getsockname()[1]}"
        code, line = fail_to_start(store, tmp_path, address)
    assert code == 1
    assert address in line
    assert "in use" in line


@pytest.mark.parametrize(
    ("store", "file_name"), [("config_store", "config.db"), ("status_store", "status.db")]
)
def test_a_damaged_file_is_told(store: str, file_name: str, tmp_path: Path) -> None:
    (tmp_path / file_name).write_bytes(b"this is no database" * 1_000)
    code, line = fail_to_start(store, tmp_path, free_address())
    assert code == 1
    assert file_name in line
    with pytest.raises(sqlite3.DatabaseError):
        sqlite3.connect(tmp_path / file_name).execute("PRAGMA schema_version").fetchone()


@pytest.mark.parametrize("store", STORES)
def test_bad_settings_are_told(store: str, tmp_path: Path) -> None:
    code, line = fail_to_start(store, tmp_path, "nowhere")
    assert code == 2
    assert f"DROVER_{store.upper()}_LISTEN" in line
    code, line = fail_to_start(
        store, tmp_path, free_address(), DROVER_STORAGE_URL="mysql://host/db"
    )
    assert code == 2
    assert "DROVER_STORAGE_URL" in line
