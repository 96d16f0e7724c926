"""The coordinator's claims and offsets on Kafka, without a coordinator."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from drover.log.kafka.client import KafkaClient
from drover.log.storage import KafkaStorage
from drover.model.group import shard_of
from drover_coordinator.backends.kafka.control import LazyControlTopic
from drover_coordinator.backends.kafka.leases import KafkaLeases
from drover_coordinator.backends.kafka.offsets import KafkaOffsets
from drover_coordinator.core.ownership.lease_table import Identity
from drover_coordinator.sharding.shards import Fencing
from tests.support.kafka.clients import CALL_TIMEOUT_S
from tests.support.kafka.logs import storage_on

SHARDS = 2


@dataclass
class CoordinatorStore:
    """One process's access to the store; ``lost`` counts how often it lost the shard."""

    control: LazyControlTopic
    offsets: KafkaOffsets
    lost: list[int] = field(default_factory=list)

    @classmethod
    @asynccontextmanager
    async def opened(cls, storage: KafkaStorage) -> AsyncIterator["CoordinatorStore"]:
        """Open the store without loading a shard."""
        client = KafkaClient(storage, timeout_s=CALL_TIMEOUT_S)
        control = LazyControlTopic(client, SHARDS)
        made = cls(control, KafkaOffsets(control))
        try:
            yield made
        finally:
            await made.offsets.close()
            await control.close()
            await client.close()

    @property
    def shard(self) -> int:
        """The shard of the workers' group."""
        return shard_of(self.control.client.storage.group_id, SHARDS)

    async def load(self, epoch: int, owner: str = "a:1/run") -> None:
        """Become the owner."""
        fencing = Fencing(owner, epoch, lost=lambda: self.lost.append(epoch))
        await self.offsets.load(self.shard, fencing)

    async def unload(self) -> None:
        """Release the ownership."""
        await self.offsets.unload(self.shard, None)

    def leases(self, who: Identity) -> KafkaLeases:
        """The table of leases; the caller closes it."""
        return KafkaLeases(self.control, who)


def small_storage(bootstrap: str, prefix: str) -> KafkaStorage:
    """Few partitions, which are created and read quickly."""
    storage = storage_on(bootstrap, prefix)
    return replace(storage, topics=replace(storage.topics, offset_partitions=3))
