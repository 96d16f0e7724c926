"""``python -m services.coordinator``: read the settings, wire, serve until SIGTERM."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress

from drover.api.coordinator.v1 import coordinator_service_pb2_grpc as pb_grpc
from drover.clock import SystemClock
from drover.dataplane.store import EmbeddedStore
from drover.errors import DroverError, Reason, UnavailableError
from drover.log.directory import DataDirectory, storage_directory
from drover.log.sqlite import SqliteLog
from drover.rpc.log_service import load
from drover.rpc.server import RpcServer
from drover.rpc.service import run_service
from drover.runtime.runtime import Runtime
from services.coordinator.core.events import Unloaded
from services.coordinator.core.machine import GroupsMachine
from services.coordinator.offsets import OffsetStore
from services.coordinator.records import decode_record, encode_record
from services.coordinator.retention import RetentionTimer
from services.coordinator.server import SERVICE_NAME, CoordinatorServicer
from services.coordinator.settings import UNLIMITED, CoordinatorSettings

DRAIN_GRACE_S = 5.0
#: Tried three times; with the wait for its turn shorter than the deadlines of the calls.
STORE_BUSY_TIMEOUT_MS = 1_500


async def serve(
    settings: CoordinatorSettings,
    stopping: asyncio.Event,
    *,
    on_bound: Callable[[str], None] = lambda address: None,
) -> None:
    """Serve until ``stopping``; health says NOT_SERVING while the log is read.

    What is opened is closed in the opposite order, whatever happens. ``on_bound`` is told the
    address, which port 0 leaves open.
    """
    directory = DataDirectory(storage_directory(settings.storage_url))
    directory.prepare()
    clock = SystemClock()
    async with AsyncExitStack() as stack:
        stack.enter_context(directory.lock("coordinator"))
        store = await asyncio.to_thread(
            EmbeddedStore, directory.path / "data.db", busy_timeout_ms=STORE_BUSY_TIMEOUT_MS
        )
        offsets = OffsetStore(store)
        stack.push_async_callback(offsets.close)
        log = await SqliteLog.open(directory.path / "groups.db", clock)
        stack.push_async_callback(log.close)
        runtime = Runtime(
            GroupsMachine(settings.groups()),
            log,
            encode=encode_record,
            decode=decode_record,
            clock=clock,
            name="coordinator",
        )
        stack.push_async_callback(runtime.close)
        server = RpcServer(listen=settings.coordinator_listen, internal=True)
        servicer = CoordinatorServicer(runtime, offsets, clock)
        server.add(pb_grpc.add_CoordinatorServiceServicer_to_server, servicer, SERVICE_NAME)
        bound = await server.start()
        on_bound(bound)
        stack.push_async_callback(server.drain, DRAIN_GRACE_S)
        servicer.address = settings.coordinator_advertised or bound
        if await load(runtime, stopping):
            await server.set_serving(True)
            retention = RetentionTimer(
                offsets,
                retention_ms=_limit(settings.topic_retention_ms),
                retention_bytes=_limit(settings.topic_retention_bytes),
            )
            stack.push_async_callback(retention.close)
            retention.start()
            await stopping.wait()
            with suppress(DroverError):  # too busy: the parked calls hear it from the drain
                await runtime.post(Unloaded(_shutting_down()))


def _limit(setting: int) -> int | None:
    return None if setting == UNLIMITED else setting


def _shutting_down() -> UnavailableError:
    return UnavailableError(
        Reason.DRAINING, "the coordinator is shutting down; try again when it is back"
    )


if __name__ == "__main__":
    run_service("coordinator", CoordinatorSettings, serve)
