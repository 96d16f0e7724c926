"""A service process that serves until it is killed, or that fails at its start."""

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from drover.rpc.server import STORAGE_HEALTH
from tests.support.addresses import free_address
from tests.support.child_process import ChildProcess
from tests.support.forked import Finished, run_forked
from tests.support.waiting import wait_until

SERVICES = ("coordinator", "config-store", "status-store", "worker")
END_TIMEOUT_S = 120
_HEALTH_TIMEOUT_S = 30


class ServiceProcess:
    """A service that keeps its address over restarts; it ends with the tests."""

    def __init__(
        self,
        service: str,
        directory: Path,
        environment: Mapping[str, str],
        *,
        address: str = "",
        open_files: int | None = None,
    ) -> None:
        """``open_files`` limits its open files, if it differs from the tests' limit."""
        self.address = address or free_address()
        command = command_of(service)
        self.process = ChildProcess(
            f"the {service} at {self.address}",
            command if open_files is None else limited(command, open_files),
            log_path=directory / f"{service}-{self.address.rpartition(':')[2]}.log",
            environment={**environment, listen_variable(service): self.address},
        )

    def launch(self) -> None:
        """Start it without waiting until it serves."""
        self.process.start(ready=lambda: True)

    def start(self, *, serving: bool = True) -> None:
        """Start it; returns once it serves, or at least listens."""
        self.process.start(ready=lambda: self.health() in ((True,) if serving else (True, False)))

    def health(self, name: str = "") -> bool | None:
        """Whether its health check is SERVING; None without a response."""
        with grpc.insecure_channel(self.address) as connection:
            stub: Any = health_pb2_grpc.HealthStub(connection)
            try:
                answer = stub.Check(
                    health_pb2.HealthCheckRequest(service=name), timeout=_HEALTH_TIMEOUT_S
                )
            except grpc.RpcError:
                return None
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)

    def wait_for_storage(self, *, serving: bool) -> None:
        """Wait until the health of its storage is as given."""
        wait_until(lambda: self.health(STORAGE_HEALTH) is serving, describe=self.process.shown_log)

    def said(self, event: str) -> int:
        """How often its log contains this event."""
        log = self.process.log()
        return log.count(f'"event": "{event}"') + log.count(f'"event":"{event}"')

    def assert_unharmed(self) -> None:
        """It runs, and has logged no defect."""
        assert self.process.is_alive, self.process.shown_log()
        log = self.process.log()
        for sign in ("Traceback", "defect", '"level": "error"', '"level":"error"'):
            assert sign not in log, log[max(0, log.index(sign) - 500) :][:2_000]


async def run_to_its_end(
    service: str, directory: Path, env: Mapping[str, str] | None = None
) -> Finished:
    """Start a service on ``directory``; its log events are left out of what it says."""
    done = await asyncio.to_thread(
        run_forked,
        ("-m", module_of(service)),
        env={**service_environment(service, directory), **(env or {})},
        timeout_s=END_TIMEOUT_S,
    )
    assert "Traceback" not in done.err, done.err
    said = [line for line in done.err.splitlines() if line and not line.startswith("{")]
    return done._replace(err="\n".join(said))


def service_environment(service: str, directory: Path) -> dict[str, str]:
    """The complete environment of a service."""
    return {
        **os.environ,
        "DROVER_STORAGE_URL": f"sqlite://{directory}",
        listen_variable(service): "127.0.0.1:0",
    }


def command_of(service: str) -> list[str]:
    """What starts it."""
    return [sys.executable, "-m", module_of(service)]


def module_of(service: str) -> str:
    """What Python runs."""
    return f"drover_{service.replace('-', '_')}"


def limited(command: Sequence[str], open_files: int) -> list[str]:
    """The command with a limit of open files, also for its children."""
    return ["/bin/sh", "-c", f'ulimit -n {open_files}; exec "$@"', "sh", *command]


def listen_variable(service: str) -> str:
    """The variable with its listen address."""
    return f"DROVER_{service.upper().replace('-', '_')}_LISTEN"


def assert_one_clear_line(done: Finished, service: str, *parts: object, exit_code: int = 1) -> None:
    """Check for one line with the service, the fault and the place; and for the exit code."""
    assert done.out == ""
    assert len(done.err.splitlines()) == 1, done.err
    assert done.err.startswith(f"drover {service}: ")
    for part in parts:
        assert str(part) in done.err
    assert done.exit_code == exit_code


@contextmanager
def small_disk(mount_point: Path, size: str, *, read_only: bool = False) -> Iterator[Path]:
    """A separate in-memory file system; skips the test where none may be mounted."""
    mount_point.mkdir(parents=True)
    options = f"size={size}" + (",ro" if read_only else "")
    mount = shutil.which("mount")
    if mount is None or os.geteuid() != 0:
        pytest.skip("a disk to fill needs root, who may mount one")
    made = subprocess.run(
        [mount, "-t", "tmpfs", "-o", options, "drover-test", str(mount_point)],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode != 0:
        pytest.skip(f"a disk to fill cannot be mounted: {made.stderr.strip()}")
    try:
        yield mount_point
    finally:
        # processes that still have a file open there end later
        subprocess.run(["umount", "--lazy", str(mount_point)], check=True)


def fill(directory: Path, *, leave_bytes: int = 0) -> Path:
    """Fill a file system; removing the returned file frees the space."""
    filler = directory / "filler"
    with suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(64 * 1024))
    with suppress(OSError), filler.open("ab", buffering=0) as file:
        while True:
            file.write(bytes(512))
    if leave_bytes:
        os.truncate(filler, filler.stat().st_size - leave_bytes)
    return filler
