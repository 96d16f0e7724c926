"""Reading partitions of a topic: from a start to the last stable offset, and on."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass

from drover.errors import NotImplementedYetError
from drover.log.kafka.client import KafkaClient
from drover.log.kafka.records import KafkaRecord

EARLIEST = -2
"""As a start: the first record that is there."""


@dataclass(frozen=True, slots=True)
class ReadBatch:
    """Records in the order of each partition, and the position of every partition after them.

    A position is the next offset that is asked for. At the end of a partition it reaches the last
    stable offset, beyond transaction markers, which are no records; so a batch may be empty and
    tell of an end alone.
    """

    records: Sequence[KafkaRecord]
    positions: Mapping[int, int]


class TopicReader:
    """Reads committed records of some partitions of a topic, for one consumer of ``batches``.

    It joins no consumer group and outlives the loss of brokers: it goes on with the next offset.

    Args:
        client: The way to the brokers.
        topic: Which topic.
        starts: Where to begin in each partition to read: an offset, or ``EARLIEST``.
    """

    def __init__(self, client: KafkaClient, topic: str, starts: Mapping[int, int]) -> None:
        raise NotImplementedYetError("Kafka")

    def batches(self) -> AsyncIterator[ReadBatch]:
        """What comes, without end, in batches of at most 500 records; ends when closed.

        Raises:
            DataLossError: LOG_CORRUPT, records that were not read are gone: the topic was truncated,
                or deleted and made again. With topic, partition and offset.
            FailedPreconditionError: STORAGE_MISCONFIGURED, no such topic or not authorised.
        """
        raise NotImplementedYetError("Kafka")

    async def close(self) -> None:
        """Stop reading; idempotent."""


def read_to_end(
    client: KafkaClient, topic: str, starts: Mapping[int, int]
) -> AsyncIterator[ReadBatch]:
    """What is there from ``starts`` to the last stable offsets of this moment.

    Raises:
        UnavailableError: STORAGE_UNAVAILABLE, nothing came for the client's timeout.
        DataLossError, FailedPreconditionError: As ``TopicReader.batches``.
    """
    raise NotImplementedYetError("Kafka")
