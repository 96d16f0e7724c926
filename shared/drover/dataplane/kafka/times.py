"""Finds offsets by time, with the brokers' index of timestamps (KIP-79)."""

from collections.abc import Collection
from contextlib import closing

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from drover.dataplane.kafka.clients import shared_client
from drover.dataplane.plane import PartitionKey
from drover.log.kafka.errors import UNKNOWN_TOPIC
from drover.log.storage import KafkaStorage

#: librdkafka's offset for a partition without a record at or after the time.
_NONE = -1


def offsets_for_time(
    storage: KafkaStorage, partitions: Collection[PartitionKey], time_ms: int
) -> dict[PartitionKey, int | None]:
    """The first offset of each existing partition whose timestamp is at or after ``time_ms``, in
    milliseconds since 1970; None if there is none below the last stable offset.

    Raises:
        DroverError: As KafkaClient.translated.
    """
    if not partitions:
        return {}
    client = shared_client(storage)
    topics = ", ".join(sorted({topic for topic, _ in partitions}))
    asked = [TopicPartition(*each, time_ms) for each in partitions]
    try:
        # a consumer that was kept would have old leader epochs after a restart of brokers
        with closing(client.consumer({})) as consumer:
            return answered(consumer.offsets_for_times(asked, timeout=client.timeout_s))
    except KafkaException as error:
        raise client.translated(
            error,
            doing=f"the offsets of {topics} at a time cannot be found",
            topic=topics,
            operation="Describe",
        ) from error


def answered(answers: Collection[TopicPartition]) -> dict[PartitionKey, int | None]:
    """The offsets of a response; partitions that do not exist are left out.

    Raises:
        KafkaException: A partition has an error, or no answer.
    """
    found: dict[PartitionKey, int | None] = {}
    for each in answers:
        if each.error is not None:
            if each.error.code() in UNKNOWN_TOPIC:
                continue
            raise KafkaException(each.error)
        if each.offset < _NONE:
            raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
        found[each.topic, each.partition] = None if each.offset == _NONE else each.offset
    return found
