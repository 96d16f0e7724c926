"""``python -m services.coordinator``: read the settings, wire, serve until SIGTERM."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from typing import Any

from drover.api.coordinator.v1 import coordinator_service_pb2_grpc as pb_grpc
from drover.clock import Clock, SystemClock
from drover.dataplane.store import EmbeddedStore
from drover.errors import DroverError, Reason, UnavailableError
from drover.log.directory import DataDirectory, storage_directory
from drover.rpc.log_service import load
from drover.rpc.server import RpcServer
from drover.rpc.service import run_service
from services.coordinator.core.events import Unloaded
from services.coordinator.core.ownership import Ownership, OwnershipSettings
from services.coordinator.leases import Identity, LeaseFile, SharedLeases, lock_address
from services.coordinator.listening import checking
from services.coordinator.offsets import OffsetStore
from services.coordinator.retention import RetentionTimer
from services.coordinator.server import SERVICE_NAME, CoordinatorServicer
from services.coordinator.settings import UNLIMITED, CoordinatorSettings
from services.coordinator.shards import Alone, GroupRuntime, Roles, Shards
from services.coordinator.shards_setup import open_shards
from services.coordinator.shards_sharing import Sharing

DRAIN_GRACE_S = 5.0
#: Tried three times; with the wait for its turn shorter than the deadlines of the calls.
STORE_BUSY_TIMEOUT_MS = 1_500


async def serve(
    settings: CoordinatorSettings,
    stopping: asyncio.Event,
    *,
    on_bound: Callable[[str], None] = lambda address: None,
) -> None:
    """Serve until ``stopping``; health says NOT_SERVING until the logs are read.

    What is opened is closed in the opposite order, whatever happens. ``on_bound`` is told the
    address, which port 0 leaves open.
    """
    directory = DataDirectory(storage_directory(settings.storage_url))
    directory.prepare()
    clock = SystemClock()
    async with AsyncExitStack() as stack:
        stack.enter_context(directory.lock("coordinator", shared=bool(settings.coordinators)))
        leases = await asyncio.to_thread(open_shards, directory, settings.group_shards)
        stack.callback(leases.close)
        store = await asyncio.to_thread(
            EmbeddedStore, directory.path / "data.db", busy_timeout_ms=STORE_BUSY_TIMEOUT_MS
        )
        offsets = OffsetStore(store)
        stack.push_async_callback(offsets.close)
        server = RpcServer(listen=settings.coordinator_listen, internal=True)
        parts = _Parts(settings, clock, directory, server, offsets, stack, stopping)
        if settings.coordinators:
            await _serve_shared(parts, leases, on_bound)
        else:
            await _serve_alone(parts, on_bound)


@dataclass(frozen=True, slots=True)
class _Parts:
    """What both ways to serve are made of."""

    settings: CoordinatorSettings
    clock: Clock
    directory: DataDirectory
    server: RpcServer
    offsets: OffsetStore
    stack: AsyncExitStack
    stopping: asyncio.Event

    def shards(self, roles: Roles) -> Shards:
        """The shards, closed at the end."""
        shards = Shards(
            self.directory.path,
            shard_count=self.settings.group_shards,
            settings=self.settings.groups(),
            clock=self.clock,
            roles=roles,
        )
        self.stack.push_async_callback(shards.close_all)
        return shards

    async def listen(self, shards: Shards) -> str:
        """Answer calls; drained at the end."""
        servicer = CoordinatorServicer(shards, self.offsets, self.clock)
        self.server.add(pb_grpc.add_CoordinatorServiceServicer_to_server, servicer, SERVICE_NAME)
        bound = await self.server.start()
        self.stack.push_async_callback(self.server.drain, DRAIN_GRACE_S)

        await self.stack.enter_async_context(checking(bound, shards.hold_timers))
        return bound

    async def say_serving(self) -> None:
        """Health says so, and what runs beside the calls begins."""
        await self.server.set_serving(True)
        retention = RetentionTimer(
            self.offsets,
            retention_ms=_limit(self.settings.topic_retention_ms),
            retention_bytes=_limit(self.settings.topic_retention_bytes),
        )
        self.stack.push_async_callback(retention.close)
        retention.start()


async def _serve_alone(parts: _Parts, on_bound: Callable[[str], None]) -> None:
    """All shards are this process's: read them, one after the other."""
    alone = Alone()
    shards = parts.shards(alone)
    bound = await parts.listen(shards)
    alone.address = parts.settings.coordinator_advertised or bound
    on_bound(bound)
    runtimes: list[GroupRuntime] = []
    for shard in range(parts.settings.group_shards):
        runtimes.append(await shards.open(shard))
        if not await load(runtimes[-1], parts.stopping):
            return
        alone.loaded.add(shard)
    await parts.say_serving()
    await parts.stopping.wait()
    for runtime in runtimes:
        with suppress(DroverError):  # too busy: the parked calls hear it from the drain
            await runtime.post(Unloaded(_shutting_down()))


async def _serve_shared(parts: _Parts, leases: LeaseFile, on_bound: Callable[[str], None]) -> None:
    """The shards are shared with the coordinators that use the same directory."""
    settings = parts.settings
    address = settings.coordinator_advertised or settings.coordinator_listen
    parts.stack.enter_context(await lock_address(parts.directory, address))
    sharing_settings = OwnershipSettings(settings.coordinator_lease_ms)
    who = Identity(address, uuid.uuid4().hex, sharing_settings.lease_ms)
    machine = Ownership(
        address=address,
        incarnation=who.incarnation,
        shard_count=settings.group_shards,
        settings=sharing_settings,
    )
    shared = SharedLeases(parts.directory, leases, who, parts.clock)
    parts.stack.push_async_callback(shared.close)
    shards = parts.shards(machine)
    on_bound(await parts.listen(shards))
    sharing = Sharing(
        machine, shared, shards, who=who, clock=parts.clock, settings=sharing_settings
    )
    running = sharing.start()
    parts.stack.push_async_callback(sharing.stop)
    if await _first_of(running, sharing.wait_until_settled(), parts.stopping):
        await parts.say_serving()
        await _first_of(running, asyncio.Event().wait(), parts.stopping)


async def _first_of(
    running: "asyncio.Task[None]", event: Awaitable[Any], stopping: asyncio.Event
) -> bool:
    """Wait for ``event``, or ``stopping`` (False); raises what ended ``running`` before that."""
    waits = [asyncio.ensure_future(event), asyncio.ensure_future(stopping.wait())]
    try:
        await asyncio.wait({running, *waits}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await _cancelled(waits)
    if running.done():
        await running
    return not stopping.is_set()


async def _cancelled(tasks: Iterable["asyncio.Future[Any]"]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _limit(setting: int) -> int | None:
    return None if setting == UNLIMITED else setting


def _shutting_down() -> UnavailableError:
    return UnavailableError(
        Reason.DRAINING, "the coordinator is shutting down; try again when it is back"
    )


if __name__ == "__main__":
    run_service("coordinator", CoordinatorSettings, serve)
