"""The parts of a coordinator that are the same wherever it keeps what it knows."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass

from drover.api.coordinator.v1 import coordinator_service_pb2_grpc as pb_grpc
from drover.clock import Clock
from drover.log.log import Log
from drover.rpc.server import RpcServer
from drover.rpc.stopping import unless_stopped
from drover_coordinator.backlog_probe import checking
from drover_coordinator.core.ownership.lease_table import Identity
from drover_coordinator.core.ownership.machine import Ownership, OwnershipSettings
from drover_coordinator.offset_store import OffsetStore
from drover_coordinator.server import SERVICE_NAME, CoordinatorServicer
from drover_coordinator.settings import CoordinatorSettings
from drover_coordinator.sharding.leases import LeaseStore, SharedLeases
from drover_coordinator.sharding.shard_manager import Sharing
from drover_coordinator.sharding.shards import Companion, Roles, Shards

DRAIN_GRACE_S = 5.0


@dataclass(frozen=True, slots=True)
class Parts:
    """What a coordinator is made of; what they open is closed by ``stack``, last to first."""

    settings: CoordinatorSettings
    clock: Clock
    server: RpcServer
    stack: AsyncExitStack
    stopping: asyncio.Event

    def shards(
        self,
        open_log: Callable[[int], Awaitable[Log]],
        roles: Roles,
        companion: Companion | None = None,
    ) -> Shards:
        """The shards, closed at the end."""
        shards = Shards(
            open_log,
            shard_count=self.settings.group_shards,
            settings=self.settings.groups(),
            clock=self.clock,
            roles=roles,
            companion=companion,
        )
        self.stack.push_async_callback(shards.close_all)
        return shards

    async def listen(self, shards: Shards, offsets: OffsetStore, *, tasks_group: str = "") -> str:
        """Answer calls, and return where; drained at the end.

        ``tasks_group`` is the only group whose members have tasks; any group's if it is empty.
        """
        servicer = CoordinatorServicer(shards, offsets, self.clock, tasks_group=tasks_group)
        self.server.add(pb_grpc.add_CoordinatorServiceServicer_to_server, servicer, SERVICE_NAME)
        bound = await self.server.start()
        self.stack.push_async_callback(self.server.drain, DRAIN_GRACE_S)
        await self.stack.enter_async_context(checking(bound, shards.hold_timers))
        return bound

    def identity(self, address: str) -> Identity:
        """This run of the coordinator that others reach at ``address``."""
        return Identity(address, uuid.uuid4().hex, self.settings.coordinator_lease_ms)

    def ownership(self, who: Identity) -> Ownership:
        """What decides which shards this coordinator serves."""
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
        """Take part in the sharing of shards until the process is to stop.

        Args:
            store: The table of leases; closed at the end.
            shards: What is shared.
            machine: The roles of ``shards``.
            who: The machine's.
            on_serving: Called once the shards that are this coordinator's are loaded.
            on_storage: Called with whether the table can be used, when that changes.
        """
        leases = SharedLeases(store, self.clock)
        self.stack.push_async_callback(leases.close)
        sharing = Sharing(
            machine,
            leases,
            shards,
            who=who,
            clock=self.clock,
            settings=OwnershipSettings(who.lease_ms),
            on_storage=on_storage,
        )
        sharing.start()
        self.stack.push_async_callback(sharing.stop)

        async def take_part() -> None:
            await sharing.wait_until_settled()
            await on_serving()
            await sharing.wait_until_ended()

        await unless_stopped(take_part(), self.stopping)
