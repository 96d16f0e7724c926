"""Partition 0 of the control topic: who the cluster is, who claimed which log, leases."""

from collections.abc import Mapping

from drover.errors import NotImplementedYetError
from drover.log.kafka.client import KafkaClient

CONTROL_PARTITION = 0


class ControlTopic:
    """The newest value of each key of partition 0. Make it with ``open``; one for each process.

    Whoever writes there uses a writer of its own: to compare and set is to ``begin`` it,
    ``refresh``, decide, and write.
    """

    def __init__(self, client: KafkaClient) -> None:
        self.topic = client.storage.topics.control

    @classmethod
    async def open(cls, client: KafkaClient, group_shards: int | None = None) -> "ControlTopic":
        """Make the topic if it is missing, or the partitions that it lacks, and read partition 0.

        Args:
            client: The way to the brokers; it stays the caller's.
            group_shards: How many shards of groups there are, from whom it is known.

        Raises:
            FailedPreconditionError: STORAGE_MISCONFIGURED.
            UnavailableError: STORAGE_UNAVAILABLE.
            DataLossError: LOG_CORRUPT.
        """
        raise NotImplementedYetError("Kafka")

    async def check_cluster(self, group_id: str, group_shards: int | None) -> None:
        """Write the record that says whose topics these are, or compare with the one there.

        Args:
            group_id: The cluster's name.
            group_shards: How many shards of groups there are; None for those who have none, which
                leaves the number to who knows it.

        Raises:
            FailedPreconditionError: STORAGE_OWNED, the topics belong to another cluster;
                STORAGE_MISCONFIGURED, another number of shards, or not authorised.
            DataLossError: LOG_CORRUPT, a newer Drover wrote the topic.
            UnavailableError: STORAGE_UNAVAILABLE.
        """
        raise NotImplementedYetError("Kafka")

    async def refresh(self) -> None:
        """Return once everything is known that was written before the call.

        Raises:
            UnavailableError: STORAGE_UNAVAILABLE.
            DataLossError: LOG_CORRUPT.
            FailedPreconditionError: STORAGE_MISCONFIGURED.
        """
        raise NotImplementedYetError("Kafka")

    def value(self, key: str) -> bytes | None:
        """The newest value of ``key`` as of the last look; None if there is none."""
        raise NotImplementedYetError("Kafka")

    def values(self, prefix: str) -> Mapping[str, bytes]:
        """The newest values by key, of keys that begin with ``prefix``."""
        raise NotImplementedYetError("Kafka")

    async def close(self) -> None:
        """Stop reading; idempotent."""
