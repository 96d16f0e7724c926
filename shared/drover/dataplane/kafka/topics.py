"""Partition counts of topics; creates missing topics."""

from collections.abc import Collection

from confluent_kafka import KafkaException
from confluent_kafka.admin import NewPartitions, NewTopic
from tenacity import Retrying, retry_if_not_result, stop_after_attempt, wait_fixed

from drover.dataplane.topic_creation import TopicRule
from drover.dataplane.topics import require_valid
from drover.errors import Reason, UnavailableError
from drover.log.kafka.client import KafkaClient, TopicState
from drover.log.kafka.new_topics import make_topic
from drover.log.kafka.topics import BETWEEN_LOOKS_S, LOOKS

#: How long a partition count is cached; new partitions appear after this time.
KNOWN_TOPIC_S = 30.0


def topic_states(client: KafkaClient, topics: Collection[str]) -> dict[str, TopicState]:
    """The existing ones of ``topics``; never creates one.

    Raises:
        DroverError: As KafkaClient.translated.
    """
    try:
        return client.topics_now(topics)
    except (KafkaException, TimeoutError) as error:
        named = ", ".join(sorted(topics))
        raise client.translated(
            error, doing=f"asking about {named}", topic=named, operation="Describe"
        ) from error


def partition_counts(client: KafkaClient, topics: Collection[str]) -> dict[str, int]:
    """The partition counts of existing topics; never creates one.

    Raises:
        DroverError: As KafkaClient.translated.
    """
    states = topic_states(client, topics)
    return {topic: state.partition_count for topic, state in states.items()}


def new_topic(topic: str, rule: TopicRule, partition_count: int) -> NewTopic:
    """The request for a topic by a rule; partition count -1 is the brokers' default."""
    return NewTopic(
        topic,
        num_partitions=partition_count,
        # the brokers' default, which may differ from that of the cluster's own topics
        replication_factor=-1 if rule.replication_factor is None else rule.replication_factor,
        config=dict(rule.config),
    )


def ensure_topic(client: KafkaClient, topic: str, rule: TopicRule, *, at_least: int = 0) -> int:
    """The partition count of a topic, which is created if missing. An existing topic gets the
    rule's partition count if it has fewer partitions than ``at_least``; otherwise it is unchanged.

    Raises:
        InvalidArgumentError: INVALID_REQUEST, an invalid name or count.
        DroverError: As KafkaClient.translated.
    """
    found = partition_counts(client, [topic])
    if found.get(topic, 0) >= max(1, at_least):
        return found[topic]
    # -1 is the brokers' default
    count = max(rule.partition_count, at_least) if at_least else rule.partition_count
    require_valid(topic, max(1, count))
    try:
        if topic in found:
            client.add_partitions_now(NewPartitions(topic, count))
        else:
            wanted = new_topic(topic, rule, count)
            make_topic(client, wanted, rule.settings)
    except (KafkaException, TimeoutError) as error:
        doing = f"the topic {topic} cannot get {count} partitions"
        raise client.translated(error, doing=doing, topic=topic, operation="Alter") from error
    looks = Retrying(
        retry=retry_if_not_result(lambda seen: seen >= max(1, at_least)),
        wait=wait_fixed(BETWEEN_LOOKS_S),
        stop=stop_after_attempt(LOOKS),
        retry_error_callback=lambda _: 0,
    )
    seen: int = looks(lambda: partition_counts(client, [topic]).get(topic, 0))
    if not seen:
        raise UnavailableError(
            Reason.STORAGE_UNAVAILABLE,
            f"topic {topic!r} was created or got partitions, but the brokers do not return it yet",
        )
    return seen
