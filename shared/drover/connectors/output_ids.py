"""The ids of a batch's outputs, for sinks that store offsets with their output."""

from collections.abc import Mapping
from typing import Any

from drover.connector import SinkBatch, SinkTaskContext, TopicPartition

#: Between a name and the id of an output; no topic's name has it.
SEPARATOR = "#"


def output_ids_of(batch: SinkBatch, context: SinkTaskContext) -> dict[TopicPartition, str]:
    """The ids of the outputs of a batch's topic partitions; first outputs, which have no id, are
    left out.
    """
    keys = (TopicPartition(each.topic, each.partition) for each in batch.ranges)
    found = {key: context.output_ids.get(key, "") for key in keys}
    return {key: output_id for key, output_id in found.items() if output_id}


def named_with(name: Any, output_id: str) -> str:
    """A name with the id of an output; unchanged for a first output."""
    return f"{name}{SEPARATOR}{output_id}" if output_id else str(name)


def of_topic(ids: Mapping[TopicPartition, str], topic: str) -> dict[int, str]:
    """The ids of one topic's outputs, by partition."""
    return {partition: output_id for (name, partition), output_id in ids.items() if name == topic}
