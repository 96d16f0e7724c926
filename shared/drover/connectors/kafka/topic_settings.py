"""The settings that copies of topics get from their originals."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from drover.connectors.kafka.cluster import TIMEOUT_S, client_settings
from drover.connectors.kafka.settings import CONSUMER_PREFIX, PREFIX

_log = logging.getLogger(__name__)

#: The settings of a topic that have the same meaning in every cluster. Timestamps must be copied,
#: so message.timestamp.* is not among them; nor are the number and the place of replicas.
_COPIED_SETTINGS = frozenset(
    (
        "cleanup.policy",
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.type",
        "compression.zstd.level",
        "delete.retention.ms",
        "file.delete.delay.ms",
        "flush.messages",
        "flush.ms",
        "index.interval.bytes",
        "max.compaction.lag.ms",
        "max.message.bytes",
        "min.cleanable.dirty.ratio",
        "min.compaction.lag.ms",
        "preallocate",
        "retention.bytes",
        "retention.ms",
        "segment.bytes",
        "segment.index.bytes",
        "segment.jitter.ms",
        "segment.ms",
    )
)


def topic_settings(config: Mapping[str, Any], topics: Sequence[str]) -> dict[str, dict[str, str]]:
    """The settings of each topic that were set for it and can be copied. A topic is missing, with a
    warning in the log, if the brokers do not return them.
    """
    from confluent_kafka.admin import AdminClient, ConfigResource, ConfigSource, ResourceType

    client: dict[str, Any] = {**client_settings(config, PREFIX, CONSUMER_PREFIX), "log_level": 0}
    found: dict[str, dict[str, str]] = {}
    resources = [ConfigResource(ResourceType.TOPIC, each) for each in topics]
    admin = AdminClient(client)  # a local name, because requests end with their client
    asked = admin.describe_configs(resources) if resources else {}
    for resource, future in asked.items():
        try:
            entries = future.result(TIMEOUT_S)
        except Exception as error:  # noqa: BLE001 - copying does not need the settings
            _log.warning("the settings of topic %s are not known: %s", resource.name, error)
            continue
        found[resource.name] = {
            name: each.value
            for name, each in entries.items()
            if each.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
            and each.value is not None
            and name in _COPIED_SETTINGS
        }
    return found
