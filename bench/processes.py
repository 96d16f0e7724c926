"""The measured servers, each in its own process: a coordinator, and its empty peer."""

import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import grpc.aio

from drover.api.coordinator.v1 import coordinator_service_pb2_grpc as pb_grpc
from drover.local.ports import free_ports

Stub: TypeAlias = "pb_grpc.CoordinatorServiceAsyncStub"
READY_TIMEOUT_S = 60


@dataclass(frozen=True, slots=True)
class Servers:
    """A client's stub for each; ``echo`` implements only Heartbeat, and does nothing."""

    coordinator: Stub
    echo: Stub


@contextlib.asynccontextmanager
async def running(
    module: str, env: Mapping[str, str] | None = None
) -> AsyncIterator["subprocess.Popen[str]"]:
    """``python -m module`` until the block ends."""
    process = subprocess.Popen(  # noqa: ASYNC220 - before any call is made
        [sys.executable, "-m", module],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, **(env or {})},
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(READY_TIMEOUT_S)
        if process.stdout:
            process.stdout.close()


@contextlib.asynccontextmanager
async def connected(address: str) -> AsyncIterator[Stub]:
    """A stub over a channel that is ready."""
    async with grpc.aio.insecure_channel(address) as channel:
        await asyncio.wait_for(channel.channel_ready(), READY_TIMEOUT_S)
        yield pb_grpc.CoordinatorServiceStub(channel)


@contextlib.asynccontextmanager
async def servers() -> AsyncIterator[Servers]:
    """Both servers, fresh: a coordinator without initial rebalance delay, and the echo server."""
    (port,) = free_ports("127.0.0.1", 1)
    listen = f"127.0.0.1:{port}"
    async with contextlib.AsyncExitStack() as stack:
        env = {
            "DROVER_STORAGE_URL": f"sqlite://{Path(stack.enter_context(_folder()))}",
            "DROVER_COORDINATOR_LISTEN": listen,
            "DROVER_INITIAL_REBALANCE_DELAY_MS": "0",
        }
        await stack.enter_async_context(running("drover_coordinator", env))
        process = await stack.enter_async_context(running("bench.echo_server"))
        assert process.stdout is not None
        address = await asyncio.to_thread(process.stdout.readline)
        yield Servers(
            coordinator=await stack.enter_async_context(connected(listen)),
            echo=await stack.enter_async_context(connected(address.strip())),
        )


def _folder() -> "tempfile.TemporaryDirectory[str]":
    return tempfile.TemporaryDirectory(prefix="drover-bench-")
