"""A log-backed service in this process: real gRPC on a free port, a real SQLite log."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc.aio

from drover.client import channel
from drover.clock import Clock, SystemClock
from drover.log.log import Log
from drover.log.sqlite import SqliteLog
from drover.rpc.server import RpcServer
from drover.runtime.runtime import Runtime


@dataclass(frozen=True, slots=True)
class RunningService:
    """The parts of the service that tests use."""

    address: str
    channel: grpc.aio.Channel
    log: SqliteLog
    runtime: Runtime[Any]
    server: RpcServer


@asynccontextmanager
async def running_service(
    path: Path,
    wire: Callable[[Log, Clock, RpcServer], Runtime[Any]],
    *,
    load: bool = True,
) -> AsyncIterator[RunningService]:
    """Serve the log at ``path``; without ``load``, as during the loading of the log."""
    clock = SystemClock()
    log = await SqliteLog.open(path, clock)
    server = RpcServer(listen="127.0.0.1:0", internal=True)
    runtime = wire(log, clock, server)
    try:
        address = await server.start()
        if load:
            await runtime.load()
            await server.set_serving(True)
        async with channel(address) as connection:
            yield RunningService(address, connection, log, runtime, server)
    finally:
        await server.drain(0)
        await runtime.close()
        await log.close()
