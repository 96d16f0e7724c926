"""How many partitions topics have; those that are missing are made here."""

from collections.abc import Collection

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import NewTopic

from drover.dataplane.topics import require_valid
from drover.errors import Reason, UnavailableError
from drover.log.kafka.client import KafkaClient

#: Of a topic that was made this moment not every broker knows at once.
_LOOKS_MAX = 50


def partition_counts(client: KafkaClient, topics: Collection[str]) -> dict[str, int]:
    """The topics that exist; asking makes none.

    Raises:
        DroverError: What KafkaClient.translated says.
    """
    try:
        states = client.topics_now(topics)
    except (KafkaException, TimeoutError) as error:
        named = ", ".join(sorted(topics))
        raise client.translated(error, doing=f"asking about {named}", topic=named) from error
    return {topic: state.partition_count for topic, state in states.items()}


def ensure_topic(client: KafkaClient, topic: str, partition_count: int) -> int:
    """How many partitions the topic has, which is made if it is missing; else it is left alone.

    Raises:
        InvalidArgumentError: INVALID_REQUEST, a name or count that cannot be.
        DroverError: What KafkaClient.translated says.
    """
    found = partition_counts(client, [topic])
    if topic in found:
        return found[topic]
    require_valid(topic, partition_count)
    wanted = NewTopic(
        topic,
        num_partitions=partition_count,
        replication_factor=client.storage.topics.replication_factor,
    )
    (future,) = client.admin.create_topics([wanted], request_timeout=client.timeout_s).values()
    try:
        client.waited(future)
    except (KafkaException, TimeoutError) as error:
        code = None if isinstance(error, TimeoutError) else error.args[0].code()
        if code != KafkaError.TOPIC_ALREADY_EXISTS:
            raise client.translated(
                error, doing=f"the topic {topic} cannot be made", topic=topic
            ) from error
    for _ in range(_LOOKS_MAX):
        found = partition_counts(client, [topic])
        if found.get(topic):
            return found[topic]
    raise UnavailableError(
        Reason.STORAGE_UNAVAILABLE, f"topic {topic!r} was created, but no broker knows it yet"
    )
