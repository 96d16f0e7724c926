"""Sink offsets: a connector's offsets that are stored in its consumer group. Pure.

The form is Kafka Connect's: partition ``{"kafka_topic": T, "kafka_partition": P}``, offset
``{"kafka_offset": N}``; numbers may be strings.
"""

import json
import re
from collections.abc import Mapping

from drover.model.names import TOPIC_NAME
from drover.model.offsets import CommittedOffset, TopicPartition

TOPIC, PARTITION, OFFSET = "kafka_topic", "kafka_partition", "kafka_offset"
PARTITION_MAX = 2**31 - 1
OFFSET_MAX = 2**63 - 1
_NUMBER = re.compile(r"[0-9]{1,19}")


class SinkOffsetError(ValueError):
    """An offset has a sink's keys, but invalid values; the message states the error."""


def group_of(connector: str) -> str:
    """The default consumer group of a sink, with Kafka Connect's name."""
    return f"connect-{connector}"


def is_sink_partition(partition: Mapping[str, object]) -> bool:
    """Whether a partition is a topic partition, as in sinks' offsets."""
    return partition.keys() == {TOPIC, PARTITION}


def parse_sink_offset(offset: CommittedOffset) -> tuple[TopicPartition, int] | None:
    """The partition and position that a task commits; None if it is not a sink's offset.

    Raises:
        SinkOffsetError: The partition is a sink's, but the position is invalid.
    """
    partition = json.loads(offset.partition_json)
    if not is_sink_partition(partition):
        return None
    at = _topic_partition(partition)
    if offset.offset_json is None:
        raise SinkOffsetError("the position of a consumer group cannot be removed by a commit")
    return at, parse_position(offset.offset_json)


def parse_partition(partition_json: str) -> TopicPartition:
    """The topic partition in a JSON object.

    Raises:
        SinkOffsetError: The object is not a sink's partition.
    """
    partition = json.loads(partition_json)
    if not is_sink_partition(partition):
        raise SinkOffsetError(f'the partition must be {{"{TOPIC}": text, "{PARTITION}": number}}')
    return _topic_partition(partition)


def parse_position(offset_json: str) -> int:
    """The position in a JSON object.

    Raises:
        SinkOffsetError: The object is not a sink's offset.
    """
    position = json.loads(offset_json)
    if position.keys() != {OFFSET}:
        raise SinkOffsetError(f'the offset must be {{"{OFFSET}": number}}')
    return _number(position[OFFSET], OFFSET, OFFSET_MAX)


def sink_offset(at: TopicPartition, offset: int | None, metadata: str = "") -> CommittedOffset:
    """A consumer group's position as a connector's offset; None for one to remove."""
    return CommittedOffset(
        json.dumps({TOPIC: at.topic, PARTITION: at.partition}, separators=(",", ":")),
        None if offset is None else json.dumps({OFFSET: offset}, separators=(",", ":")),
        metadata,
    )


def _topic_partition(partition: Mapping[str, object]) -> TopicPartition:
    topic = partition[TOPIC]
    if not (isinstance(topic, str) and TOPIC_NAME.fullmatch(topic)):
        raise SinkOffsetError(f"{TOPIC} is not a topic name")
    return TopicPartition(topic, _number(partition[PARTITION], PARTITION, PARTITION_MAX))


def _number(value: object, name: str, maximum: int) -> int:
    number = value
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        number = int(value)
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= maximum:
        raise SinkOffsetError(f"{name} must be a number from 0 to {maximum}, not {value!r}")
    return number
