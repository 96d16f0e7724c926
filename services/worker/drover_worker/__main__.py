"""``python -m drover_worker``."""

import asyncio

from drover.rpc.service import run_service
from drover_worker.settings import WorkerSettings
from drover_worker.worker import Worker

#: Tasks and engine have stop limits of their own, one after the other.
STOP_MAX_S = 120.0


async def serve(settings: WorkerSettings, stopping: asyncio.Event) -> None:
    """Run a worker until ``stopping`` is set."""
    await Worker(settings).run(stopping)


if __name__ == "__main__":
    run_service("worker", WorkerSettings, serve, stop_max_s=STOP_MAX_S)
