"""Serves from Kafka, sharing the shards with other coordinators if there are any."""

from collections.abc import Callable

from drover.log.kafka.client import KafkaClient
from drover.log.kafka.log import KafkaLog, KafkaLogSpec
from drover.log.log import Log
from drover.log.storage import KafkaStorage
from drover_coordinator.backends.kafka.control import LazyControlTopic
from drover_coordinator.backends.kafka.leases import KafkaLeases
from drover_coordinator.backends.kafka.offsets import KafkaOffsets
from drover_coordinator.sharding.shards import SingleOwner
from drover_coordinator.wiring import Parts


async def serve_on_kafka(
    parts: Parts, storage: KafkaStorage, on_bound: Callable[[str], None]
) -> None:
    """Serve until the process is to stop.

    The server listens at once; calls fail with COORDINATOR_LOAD_IN_PROGRESS until the brokers are
    reachable.
    """
    settings, stack = parts.settings, parts.stack
    client = KafkaClient(storage)
    stack.push_async_callback(client.close)
    control = LazyControlTopic(client, settings.group_shards)
    stack.push_async_callback(control.close)
    offsets = KafkaOffsets(control)
    stack.push_async_callback(offsets.close)

    async def open_log(shard: int) -> Log:
        spec = KafkaLogSpec(
            topic=storage.topics.control,
            partitions=[1 + shard],
            transactional_id=f"drover-groups-{storage.group_id}-{shard}",
            followed=False,
        )
        return await KafkaLog.open(client, await control.topic(), spec, parts.clock)

    loading = SingleOwner()
    shards = parts.shards(open_log, loading, resource=offsets)
    bound = await parts.listen(shards, offsets, tasks_group=storage.group_id)
    who = parts.identity(settings.coordinator_advertised or bound)
    machine = parts.ownership(who)
    shards.ownership = machine
    on_bound(bound)
    await parts.share(
        KafkaLeases(control, who),
        shards,
        machine=machine,
        who=who,
        on_serving=lambda: parts.server.set_serving(True),
        on_storage=parts.server.set_storage_serving,
    )
