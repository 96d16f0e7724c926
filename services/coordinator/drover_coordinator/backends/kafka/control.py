"""The control topic, opened once the brokers are reachable."""

import asyncio

from drover.log.kafka.client import KafkaClient
from drover.log.kafka.control import ControlTopic
from drover.log.kafka.topics import control_topic, ensure_topics, offset_topic


class LazyControlTopic:
    """Opens the control topic at its first use.

    Args:
        client: Closed by its creator.
        group_shards: How many shards of groups the cluster has.
    """

    def __init__(self, client: KafkaClient, group_shards: int) -> None:
        self.client = client
        self.group_shards = group_shards
        self._lock = asyncio.Lock()
        self._topic: ControlTopic | None = None
        self._offset_partition_count = 0

    @property
    def offset_partition_count(self) -> int:
        """How many partitions the topic of offsets has; known once ``topic`` has returned."""
        return self._offset_partition_count

    async def topic(self) -> ControlTopic:
        """The topic; at the first call it is checked, and the other topics are created.

        Raises:
            UnavailableError: STORAGE_UNAVAILABLE, retry.
            DroverError: The topics belong to another cluster or a newer version, or are
                misconfigured.
        """
        async with self._lock:
            if self._topic is None:
                self._topic = await self._open()
            return self._topic

    async def close(self) -> None:
        """Stop reading; idempotent."""
        if self._topic is not None:
            await self._topic.close()

    async def _open(self) -> ControlTopic:
        storage = self.client.storage
        # check partition 0 first, to create nothing in another cluster's topics
        opened = await ControlTopic.open(self.client)
        try:
            await opened.check_cluster(storage.group_id, self.group_shards)
            specs = [control_topic(storage, self.group_shards), offset_topic(storage)]
            states = await ensure_topics(self.client, specs)
        except BaseException:
            await opened.close()
            raise
        self._offset_partition_count = states[storage.topics.offset].partition_count
        return opened
