"""``python -m drover_coordinator``: read the settings, wire, serve until SIGTERM."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial

from drover.clock import SystemClock
from drover.log.directory import DataDirectory
from drover.log.storage import EmbeddedStorage
from drover.metrics.endpoint import Metrics, serving_metrics
from drover.rpc.server import RpcServer
from drover.rpc.service import run_service
from drover.rpc.storage_metrics import volume_samples
from drover_coordinator.backends.embedded.wiring import serve_embedded
from drover_coordinator.backends.kafka.wiring import serve_on_kafka
from drover_coordinator.backlog_probe import connect_to_itself
from drover_coordinator.settings import CoordinatorSettings
from drover_coordinator.wiring import Parts


async def serve(
    settings: CoordinatorSettings,
    stopping: asyncio.Event,
    *,
    on_bound: Callable[[str], None] = lambda address: None,
) -> None:
    """Serve until ``stopping``; health is NOT_SERVING until the logs are read.

    Resources are closed in the reverse order of opening, on success and failure alike.
    ``on_bound`` is called with the bound address, whose port may have been chosen by the system.
    """
    storage = settings.storage()
    async with AsyncExitStack() as stack:
        metrics = Metrics("coordinator")
        security = settings.open_security()
        server = RpcServer(
            listen=settings.coordinator_listen, internal=True, security=security, metrics=metrics
        )
        metrics.add(server.health_samples)
        await stack.enter_async_context(serving_metrics(settings.metrics_listen, metrics))
        connect = connect_to_itself(security.certificate)
        parts = Parts(settings, SystemClock(), server, stack, stopping, connect)
        if isinstance(storage, EmbeddedStorage):
            metrics.add(partial(volume_samples, storage.directory))
            await serve_embedded(parts, DataDirectory(storage.directory), on_bound)
        else:
            await serve_on_kafka(parts, storage, on_bound)


if __name__ == "__main__":
    run_service("coordinator", CoordinatorSettings, serve)
