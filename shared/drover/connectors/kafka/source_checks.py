"""Checks, before a KafkaSource runs, what Kafka would reject of it."""

from collections.abc import Collection, Mapping
from itertools import islice
from typing import Any

from drover.connector import TOPIC_NAME, SkippedCheck, Violation
from drover.connectors.kafka.access import ClusterAccess, read_faults
from drover.connectors.kafka.cluster import client_settings
from drover.connectors.kafka.settings import (
    ALIAS,
    CONSUMER_PREFIX,
    PREFIX,
    SERVERS,
    SYNC_CONFIGS,
    TOPICS,
    target_of,
)


def copying_faults(topics: Collection[str], config: Mapping[str, Any]) -> list[Violation]:
    """Faults of copying topics of the source cluster: names of copies, and the user's rights."""
    return [*_name_faults(topics, config), *_access_faults(topics, config)]


def _name_faults(topics: Collection[str], config: Mapping[str, Any]) -> list[Violation]:
    """The first copy whose name Kafka does not accept, such as that of a long alias."""
    found = (
        Violation(ALIAS, f"names the copy of {topic}, which {fault}")
        for topic in sorted(topics)
        for fault in TOPIC_NAME.faults(target_of(topic, config))
    )
    return [*islice(found, 1)]


def _access_faults(topics: Collection[str], config: Mapping[str, Any]) -> list[Violation]:
    """What the cluster would reject of reading the topics."""
    from confluent_kafka import KafkaException

    try:
        access = ClusterAccess(client_settings(config, PREFIX, CONSUMER_PREFIX))
        synced = config[SYNC_CONFIGS]
        return [*read_faults(access, topics, TOPICS, reads_settings=synced)]
    except (KafkaException, TimeoutError) as error:
        text = f"the rights in the source cluster were not checked: {error}"
        return [SkippedCheck(SERVERS, text)]
