"""A coordinator as a process of its own, whose memory can be seen and which can be killed."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio
import psutil
from grpc_health.v1 import health_pb2, health_pb2_grpc

from drover.client import CoordinatorClient, channel
from tests.support.addresses import free_address
from tests.support.waiting import wait_until_async

MIB = 1024 * 1024


class CoordinatorProcess:
    """Start, kill, and start again at the same address."""

    def __init__(self, directory: Path, **settings: object) -> None:
        self.address = free_address()
        self.log_path = directory / "coordinator.log"
        self._environment = {
            **os.environ,
            "DROVER_STORAGE_URL": f"sqlite://{directory}",
            "DROVER_COORDINATOR_LISTEN": self.address,
            "DROVER_INITIAL_REBALANCE_DELAY_MS": "50",
            **{f"DROVER_{key.upper()}": str(value) for key, value in settings.items()},
        }
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Returns once it serves."""
        await self.launch()
        await wait_until_async(self._serves, describe=self.log, timeout_s=60)

    async def launch(self) -> None:
        """Start it, and leave it to it when it will serve."""
        with self.log_path.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "drover_coordinator"),
                env=self._environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    async def kill(self) -> None:
        """Without a word: SIGKILL."""
        assert self._process is not None
        self._process.kill()
        await self._process.wait()

    async def stop(self) -> None:
        """In good order; a second call does nothing."""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(30):
                await self._process.wait()

    def memory_bytes(self) -> int:
        """What the process holds now."""
        assert self._process is not None
        return int(psutil.Process(self._process.pid).memory_info().rss)

    def log(self) -> str:
        """What it has written so far."""
        return self.log_path.read_text(errors="replace")

    def assert_unharmed(self) -> None:
        """It runs, and has met no defect."""
        assert self._process is not None
        assert self._process.returncode is None, self.log()[-2_000:]
        log = self.log()
        for sign in ("Traceback", "defect", '"level": "error"', '"level":"error"'):
            assert sign not in log, log[max(0, log.index(sign) - 500) :][:2_000]

    @asynccontextmanager
    async def client(self) -> AsyncIterator[CoordinatorClient]:
        """A client on a connection of its own."""
        async with channel(self.address) as connection:
            yield CoordinatorClient(connection)

    async def _serves(self) -> bool:
        assert self._process is not None
        assert self._process.returncode is None, self.log()
        async with channel(self.address) as connection:
            stub: Any = health_pb2_grpc.HealthStub(connection)
            try:
                answer = await stub.Check(health_pb2.HealthCheckRequest(), timeout=10)
            except grpc.aio.AioRpcError:
                return False
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


@asynccontextmanager
async def coordinator_process(
    directory: Path, **settings: object
) -> AsyncIterator[CoordinatorProcess]:
    """It runs, and is stopped in good order and unharmed at the end."""
    running = CoordinatorProcess(directory, **settings)
    await running.start()
    try:
        yield running
        running.assert_unharmed()
    finally:
        await running.stop()
