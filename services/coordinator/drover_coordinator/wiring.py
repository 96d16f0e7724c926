"""The parts of a coordinator that do not depend on its backend."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial

from drover.api.coordinator.v1 import coordinator_service_pb2_grpc as pb_grpc
from drover.client.secure import Connect, plaintext
from drover.clock import Clock
from drover.log.log import Log
from drover.rpc.server import RpcServer
from drover.rpc.stopping import unless_stopped
from drover_coordinator.backlog_probe import probing
from drover_coordinator.core.ownership.lease_table import Identity
from drover_coordinator.core.ownership.machine import Ownership, OwnershipSettings
from drover_coordinator.metrics import shard_samples
from drover_coordinator.offset_store import OffsetStore
from drover_coordinator.server import SERVICE_NAME, CoordinatorServicer
from drover_coordinator.settings import CoordinatorSettings
from drover_coordinator.sharding.leases import LeaseClient, LeaseStore
from drover_coordinator.sharding.shard_manager import ShardManager
from drover_coordinator.sharding.shards import OwnershipView, ShardResource, Shards

DRAIN_GRACE_S = 5.0


@dataclass(frozen=True, slots=True)
class Parts:
    """The common parts of a coordinator. ``stack`` closes what its methods open, last first."""

    settings: CoordinatorSettings
    clock: Clock
    server: RpcServer
    stack: AsyncExitStack
    stopping: asyncio.Event
    #: Opens a channel to this process.
    connect: Connect = plaintext

    def shards(
        self,
        open_log: Callable[[int], Awaitable[Log]],
        ownership: OwnershipView,
        resource: ShardResource | None = None,
    ) -> Shards:
        """Create the shards; ``stack`` closes them."""
        shards = Shards(
            open_log,
            shard_count=self.settings.group_shards,
            settings=self.settings.groups(),
            clock=self.clock,
            ownership=ownership,
            resource=resource,
        )
        self.stack.push_async_callback(shards.close_all)
        self.server.metrics.add(partial(shard_samples, shards))
        return shards

    async def listen(self, shards: Shards, offsets: OffsetStore, *, tasks_group: str = "") -> str:
        """Start the server and return its host:port; ``stack`` drains it.

        Only members of ``tasks_group`` may claim tasks; members of any group if it is empty.
        """
        servicer = CoordinatorServicer(shards, offsets, self.clock, tasks_group=tasks_group)
        self.server.add(pb_grpc.add_CoordinatorServiceServicer_to_server, servicer, SERVICE_NAME)
        bound = await self.server.start()
        self.stack.push_async_callback(self.server.drain, DRAIN_GRACE_S)
        await self.stack.enter_async_context(probing(bound, shards.hold_timers, self.connect))
        return bound

    def identity(self, address: str) -> Identity:
        """A new identity for this run, with the ``address`` that other coordinators use."""
        return Identity(address, uuid.uuid4().hex, self.settings.coordinator_lease_ms)

    def ownership(self, who: Identity) -> Ownership:
        """The machine that decides which shards this coordinator serves."""
        return Ownership(
            address=who.address,
            incarnation=who.incarnation,
            shard_count=self.settings.group_shards,
            settings=OwnershipSettings(who.lease_ms),
        )

    async def share(
        self,
        store: LeaseStore,
        shards: Shards,
        *,
        machine: Ownership,
        who: Identity,
        on_serving: Callable[[], Awaitable[None]],
        on_storage: Callable[[bool], Awaitable[None]] | None = None,
    ) -> None:
        """Share the shards with other coordinators until the process is to stop.

        Args:
            store: The table of leases; ``stack`` closes it.
            shards: Loaded when a lease is claimed, unloaded when it is lost or released.
            machine: The ``ownership`` of ``shards``.
            who: The identity that the machine was created with.
            on_serving: Called once the shards that this coordinator owns are loaded.
            on_storage: Called when the table becomes reachable (True) or unreachable (False).
        """
        leases = LeaseClient(store, self.clock)
        self.stack.push_async_callback(leases.close)
        manager = ShardManager(
            machine,
            leases,
            shards,
            who=who,
            clock=self.clock,
            settings=OwnershipSettings(who.lease_ms),
            on_storage=on_storage,
        )
        manager.start()
        self.stack.push_async_callback(manager.stop)

        async def take_part() -> None:
            await manager.wait_until_settled()
            await on_serving()
            await manager.wait_until_ended()

        await unless_stopped(take_part(), self.stopping)
