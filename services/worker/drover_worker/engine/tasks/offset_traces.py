"""Asks a sink's plugin how far its output was written, for topic partitions without an offset."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from drover.config.patterns import Pattern
from drover.connector import SinkConnector
from drover.connector.catalogue import PluginRegistry
from drover.connector.settings import TOPICS, TOPICS_REGEX, parse_config
from drover.dataplane.plane import DataPlane
from drover.model.offsets import CommittedOffset, TopicPartition
from drover.model.sink_offsets import sink_offset
from drover_worker.engine.core.sink_starts import starts_of


@dataclass(frozen=True, slots=True)
class TracedOffsets:
    """The offsets behind the last records in the output, and the partitions whose lost offsets the
    output does not show.
    """

    offsets: Sequence[CommittedOffset]
    untraced: Sequence[TopicPartition]


def trace_offsets(
    registry: PluginRegistry,
    plane: DataPlane,
    config: Mapping[str, str],
    committed: Sequence[CommittedOffset],
) -> TracedOffsets:
    """The traces of a sink in the topics that exist now. Runs plugin code.

    Args:
        registry: The installed plugins.
        plane: The topics.
        config: The whole config.
        committed: The committed offsets and marks.

    Raises:
        PluginNotFoundError: connector.class names a class that is not installed.
        InvalidArgumentError: INVALID_CONFIG.
        UnavailableError: STORAGE_UNAVAILABLE.
        Exception: The plugin cannot read its output.
    """
    kind = registry.find_of(config)
    if not issubclass(kind, SinkConnector):
        raise TypeError("only sinks have output that can be traced")
    parsed = parse_config(kind, config).require_valid()
    topics = _topics(parsed, plane)
    starts = starts_of(committed, plane.topic_ids(topics, fresh=True))
    partitions = [
        TopicPartition(topic, partition)
        for topic, count in sorted(plane.partition_counts(topics).items())
        for partition in range(count)
    ]
    missing = {
        key: starts.output_ids.get(key, "") for key in partitions if key not in starts.offsets
    }
    traced = kind.traced_offsets(parsed["name"], parsed, missing) if missing else {}
    return TracedOffsets(
        [sink_offset(key, traced[key]) for key in sorted(traced.keys() & missing.keys())],
        sorted(starts.marks.keys() - traced.keys()),
    )


def _topics(parsed: Mapping[str, Any], plane: DataPlane) -> Collection[str]:
    if parsed[TOPICS_REGEX] is None:
        named: list[str] = parsed[TOPICS]
        return named
    return [*filter(Pattern(parsed[TOPICS_REGEX]).matches, plane.topics())]
