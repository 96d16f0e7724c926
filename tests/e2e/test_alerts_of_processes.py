"""Alerts of a real Prometheus when processes lose a resource that they need."""

import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path

import pytest

from drover.errors import Reason
from drover.testing import raises_reason
from tests.support.addresses import free_address
from tests.support.alerts import wait_until_fired, wait_until_over, wait_until_silent
from tests.support.certificates import init_certificates, tls_settings
from tests.support.prometheus import Prometheus, running_prometheus
from tests.support.repository import REPOSITORY
from tests.support.service_process import ServiceProcess, fill, small_disk
from tests.support.store_process import Leader, at, writing

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900), pytest.mark.faults("coordinator")]

OPEN_FILES, CROWD = 300, 400
LOCKED_S, LEFT_S = 1.5, 0.05


async def test_a_store_whose_disk_is_full(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "16m") as disk:
        async with watched_store(tmp_path, storage=disk) as (store, prometheus), writing(store):
            filler = fill(disk)
            await wait_until_fired(prometheus, "DroverStorageAlmostFull", "DroverAppendsFail")
            filler.unlink()
            await wait_until_over(prometheus, "DroverStorageAlmostFull")


async def test_a_store_whose_log_another_program_locks_again_and_again(tmp_path: Path) -> None:
    shorter = {"DroverAppendsSlow": ("5m", "20s")}
    async with watched_store(tmp_path, replaced=shorter) as (store, prometheus), writing(store):
        with locked_again_and_again(tmp_path / "config.db"):
            await wait_until_fired(prometheus, "DroverAppendsSlow")
        await wait_until_over(prometheus, "DroverAppendsSlow")


async def test_a_store_whose_log_is_damaged(tmp_path: Path) -> None:
    file = tmp_path / "config.db"
    shorter = {"DroverCallsFailByDefects": ("5m", "10s")}
    async with watched_store(tmp_path, replaced=shorter) as (store, prometheus):
        async with at(store) as client:
            leader = Leader(client)
            await leader.write("a")
            backup = damage(file)
            with raises_reason(Reason.LOG_CORRUPT, str(file)):
                await leader.write("b")
        await wait_until_fired(prometheus, "DroverCallsFailByDefects")
        store.process.kill()
        for beside in ("-wal", "-shm"):
            file.with_name(file.name + beside).unlink(missing_ok=True)
        file.write_bytes(backup)
        store.start()
        await wait_until_over(prometheus, "DroverCallsFailByDefects")


async def test_a_store_to_which_too_many_connect(tmp_path: Path) -> None:
    async with watched_store(tmp_path, open_files=OPEN_FILES) as (store, prometheus):
        with crowd(store.address, CROWD):
            await wait_until_fired(prometheus, "DroverOpenFilesAlmostOut")
        await wait_until_over(prometheus, "DroverOpenFilesAlmostOut")


async def test_a_store_whose_certificate_ends_tomorrow(tmp_path: Path) -> None:
    directory = tmp_path / "certificates"
    init_certificates(directory, days=60)
    settings = {f"DROVER_{name.upper()}": value for name, value in tls_settings(directory).items()}
    async with watched_store(tmp_path, environment=settings) as (_, prometheus):
        init_certificates(directory, days=1, renew=True)
        await wait_until_fired(prometheus, "DroverCertificateEnds")
        init_certificates(directory, days=60, renew=True)
        await wait_until_over(prometheus, "DroverCertificateEnds")


@asynccontextmanager
async def watched_store(
    directory: Path,
    *,
    storage: Path | None = None,
    environment: Mapping[str, str] | None = None,
    replaced: Mapping[str, tuple[str, str]] | None = None,
    open_files: int | None = None,
) -> AsyncIterator[tuple[ServiceProcess, Prometheus]]:
    """A serving config store and a Prometheus that scrapes it; no alert fires yet."""
    metrics = free_address()
    told = {
        "DROVER_STORAGE_URL": f"sqlite://{storage or directory}",
        "DROVER_METRICS_LISTEN": metrics,
        **(environment or {}),
    }
    (directory / "prometheus").mkdir()
    store = ServiceProcess("config-store", directory, told, open_files=open_files)
    store.launch()
    try:
        with running_prometheus(
            directory / "prometheus", [metrics], replaced=replaced or {}
        ) as prometheus:
            await wait_until_silent(prometheus, [metrics])
            yield store, prometheus
    finally:
        store.process.stop()


@contextmanager
def locked_again_and_again(file: Path) -> Iterator[None]:
    """Another connection holds a log's lock for more than a second at a time, with short gaps."""
    ended = threading.Event()

    def lock() -> None:
        with closing(sqlite3.connect(file, isolation_level=None, timeout=30)) as other:
            while not ended.is_set():
                other.execute("BEGIN IMMEDIATE")
                ended.wait(LOCKED_S)
                other.execute("ROLLBACK")
                ended.wait(LEFT_S)

    thread = threading.Thread(target=lock)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def damage(file: Path) -> bytes:
    """Overwrite a log in use, and make its process reread it; returns the former content."""
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("UPDATE claim SET epoch = epoch")
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        content = file.read_bytes()
        with file.open("r+b") as raw:
            raw.seek(100)  # the pages, not the header: as when a disk returns wrong data
            raw.write(b"\xff" * (len(content) - 100))
    return content


@contextmanager
def crowd(address: str, count: int) -> Iterator[None]:
    """Open ``count`` silent connections; closed ones are reopened."""
    command = [sys.executable, "-m", "tests.support.half_open", address, "silent", str(count)]
    # the process ends at the end of its standard input
    with subprocess.Popen(
        command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    ):
        yield
