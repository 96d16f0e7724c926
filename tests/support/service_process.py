"""A service as a process that is expected to end at its start, and what it says then."""

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.support.cluster import Finished

SERVICES = ("coordinator", "config-store", "status-store", "worker")
END_TIMEOUT_S = 120


async def run_to_its_end(
    service: str, directory: Path, env: Mapping[str, str] | None = None
) -> Finished:
    """Start a service on ``directory``; its log events are left out of what it says."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", f"drover_{service.replace('-', '_')}"),
        env={**service_environment(service, directory), **(env or {})},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(), END_TIMEOUT_S)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    text = err.decode()
    assert "Traceback" not in text, text
    said = [line for line in text.splitlines() if line and not line.startswith("{")]
    return Finished(process.returncode, out.decode(), "\n".join(said))


def service_environment(service: str, directory: Path) -> dict[str, str]:
    """Everything a service has to be told to run by itself."""
    variable = f"DROVER_{service.upper().replace('-', '_')}_LISTEN"
    return {
        **os.environ,
        "DROVER_STORAGE_URL": f"sqlite://{directory}",
        variable: "127.0.0.1:0",
    }


def assert_one_clear_line(done: Finished, service: str, *parts: object, exit_code: int = 1) -> None:
    """One line that names the service, what is wrong, and where; and the right exit code."""
    assert done.out == ""
    assert len(done.err.splitlines()) == 1, done.err
    assert done.err.startswith(f"drover {service}: ")
    for part in parts:
        assert str(part) in done.err
    assert done.exit_code == exit_code


@contextmanager
def small_disk(mount_point: Path, size: str, *, read_only: bool = False) -> Iterator[Path]:
    """A file system of its own in memory; skips the test where none may be mounted."""
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
        # what still has a file open there ends with its process
        subprocess.run(["umount", "--lazy", str(mount_point)], check=True)


def fill(directory: Path, *, leave_bytes: int = 0) -> Path:
    """Use up the space of a file system; removing the returned file gives it back."""
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
