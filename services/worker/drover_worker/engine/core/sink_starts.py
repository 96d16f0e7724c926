"""Decides what a sink's committed offsets mean for the topics that exist now. Pure.

A topic that was deleted and created again has another id than the one committed with the offset:
its records are read from the configured start, into another output. A missing offset is not a new
start if the coordinator's mark or the output shows that records were written.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from drover.connector import SinkConnector, SinkTask, TaskId
from drover.connector.offsets import SinkOffset, parse_sink_offsets, sink_offset
from drover.connector.settings import AUTO_OFFSET_RESET, LATEST, NONE
from drover.dataplane.plane import PartitionKey
from drover.errors import FailedPreconditionError, Reason
from drover.model.command_lines import drover_command
from drover.model.offsets import CommittedOffset, TopicPartition
from drover.model.sink_offsets import SinkOffsetError, parse_partition
from drover.model.sink_outputs import (
    OutputMark,
    SinkMetadata,
    SinkOutput,
    decode_mark,
)

#: Set in the task configs of a sink unless there is only one task: the number of tasks.
TASK_COUNT = "task.count"
#: Topic partitions that are listed in one message.
_NAMED_MAX = 5


class NoOffsetError(Exception):
    """A partition has no committed offset, and the config does not choose a start."""


@dataclass(frozen=True, slots=True)
class SinkStarts:
    """What is known about topic partitions before their first read.

    Attributes:
        offsets: Committed offsets in the topics that exist now, with the task's metadata.
        unwritten: The partitions whose offset was committed before the first write.
        output_ids: The ids of outputs that are not a topic partition's first.
        marks: Topic partitions that had a committed offset and have none now.
        recreated: Topics that were deleted and created again since a commit.
    """

    offsets: Mapping[TopicPartition, SinkOffset] = field(default_factory=dict)
    unwritten: frozenset[TopicPartition] = frozenset()
    output_ids: Mapping[TopicPartition, str] = field(default_factory=dict)
    marks: Mapping[TopicPartition, OutputMark] = field(default_factory=dict)
    recreated: frozenset[str] = frozenset()


def starts_of(committed: Sequence[CommittedOffset], topic_ids: Mapping[str, str]) -> SinkStarts:
    """The starts in the topics of ``topic_ids``, which has the present id of each topic.

    Raises:
        ValueError: An offset does not have the form of a sink's offset.
    """
    offsets: dict[TopicPartition, SinkOffset] = {}
    outputs: dict[TopicPartition, SinkOutput] = {}
    marks: dict[TopicPartition, OutputMark] = {}
    unwritten = set()
    recreated = set()
    for key, stored in parse_sink_offsets(committed).items():
        topic_id = topic_ids.get(key.topic)
        if topic_id is None:
            continue
        metadata = SinkMetadata.parsed(stored.metadata)
        outputs[key] = metadata.output
        if metadata.output.is_of(topic_id):
            offsets[key] = SinkOffset(stored.offset, metadata.own)
            if metadata.is_start:
                unwritten.add(key)
    for key, mark in marks_of(committed).items():
        topic_id = topic_ids.get(key.topic)
        if topic_id is None:
            continue
        outputs[key] = mark.output
        if mark.output.is_of(topic_id) and not mark.is_reset:
            marks[key] = mark
    for key, output in outputs.items():
        topic_id = topic_ids[key.topic]
        if not output.is_of(topic_id):
            outputs[key] = output.after_recreation(topic_id)
            recreated.add(key.topic)
    output_ids = {key: output.output_id for key, output in outputs.items() if output.output_id}
    return SinkStarts(offsets, frozenset(unwritten), output_ids, marks, frozenset(recreated))


def marks_of(committed: Sequence[CommittedOffset]) -> dict[TopicPartition, OutputMark]:
    """The marks among fetched offsets, by topic partition.

    Raises:
        ValueError: A mark is malformed.
    """
    marks = {}
    for each in committed:
        if each.offset_json is None and each.metadata:
            try:
                marks[parse_partition(each.partition_json)] = decode_mark(each.metadata)
            except SinkOffsetError as error:
                raise ValueError(f"not a mark of a sink's offset: {error}") from error
    return marks


def fetched_partitions(committed: Sequence[CommittedOffset]) -> list[TopicPartition]:
    """The topic partitions of fetched offsets and marks.

    Raises:
        ValueError: An offset does not have the form of a sink's offset.
    """
    return [*parse_sink_offsets(committed), *marks_of(committed)]


def with_outputs(
    offsets: Mapping[TopicPartition, SinkOffset],
    outputs: Mapping[TopicPartition, SinkOutput],
    *,
    are_starts: bool = False,
) -> list[CommittedOffset]:
    """Offsets as they are committed, with the outputs that are known."""
    return [
        sink_offset(
            *key,
            each.offset,
            SinkMetadata(each.metadata, outputs.get(key, SinkOutput()), are_starts).text,
        )
        for key, each in offsets.items()
    ]


def recommitted(
    committed: Sequence[CommittedOffset],
    outputs: Mapping[TopicPartition, SinkOutput],
    others: Collection[PartitionKey],
) -> list[CommittedOffset]:
    """The same offsets of the partitions in ``outputs`` and ``others``, to commit them again.

    An offset without an output, as of Kafka Connect, gets the one in ``outputs``.
    """
    again = []
    for each in committed:
        if each.offset_json is None:
            continue
        key = parse_partition(each.partition_json)
        if key in outputs:
            metadata = SinkMetadata.parsed(each.metadata)
            again.append(replace(each, metadata=replace(metadata, output=outputs[key]).text))
        elif key in others:
            again.append(each)
    return again


def missing_offsets(
    expected: Sequence[CommittedOffset], fetched: Sequence[CommittedOffset]
) -> list[TopicPartition]:
    """The partitions of ``expected`` offsets that the coordinator no longer has."""
    return sorted(parse_sink_offsets(expected).keys() - parse_sink_offsets(fetched).keys())


def knows_starts(kind: type[SinkConnector]) -> bool:
    """Whether a sink expects committed offsets of partitions without output.

    Others see a partition's committed offset once they have written to it, with the metadata that
    their ``write`` returned.
    """
    traces: Any = kind.traced_offsets
    default: Any = SinkConnector.traced_offsets
    has_traces = traces.__func__ is not default.__func__
    return has_traces or kind.task_class.first_metadata is not SinkTask.first_metadata


def changed_topics(known: Mapping[str, str], present: Mapping[str, str]) -> list[str]:
    """The topics that were deleted and created again since their ids were read."""
    return sorted(
        topic
        for topic, topic_id in present.items()
        if topic in known and not SinkOutput(known[topic]).is_of(topic_id)
    )


def lost_offsets(
    connector: str,
    marks: Mapping[TopicPartition, OutputMark],
    traced: Mapping[TopicPartition, int],
    start_offsets: Mapping[TopicPartition, int],
) -> FailedPreconditionError | None:
    """The error if a mark or the output shows that records of these partitions were written.

    Args:
        connector: The connector.
        marks: The marks of partitions without a committed offset.
        traced: The offsets behind the last records that the output shows.
        start_offsets: The partitions, and where each would be read from.
    """
    lost = sorted(key for key in start_offsets if key in marks or key in traced)
    if not lost:
        return None
    named = "; ".join(
        f"{key.topic}-{key.partition}: " + ", ".join(_facts(marks.get(key), traced.get(key)))
        for key in lost[:_NAMED_MAX]
    )
    more = f"; and {len(lost) - _NAMED_MAX} more" if len(lost) > _NAMED_MAX else ""
    return FailedPreconditionError(
        Reason.OFFSETS_LOST,
        f"committed offsets of {connector} were lost ({named}{more}). Nothing was written: without "
        "offsets, records would be written again or output would be removed. Stop the connector, "
        f"then continue behind its output ({_offsets_command(connector, '--adopt')}), or keep "
        f"the output and start as configured ({_offsets_command(connector, '--reset')})",
    )


def _offsets_command(connector: str, option: str) -> str:
    return drover_command("connector offsets", connector, options=[option])


def _facts(mark: OutputMark | None, traced: int | None) -> list[str]:
    """What is known about one partition without a committed offset."""
    return [
        "no committed offset"
        if mark is None
        else f"no committed offset, the last known one is {mark.offset} or higher",
        "the output shows none" if traced is None else f"the output goes up to {traced}",
    ]


def starts_at_earliest(key: PartitionKey, reset: str, *, is_new: bool) -> bool:
    """Whether a partition without a committed offset is read from its earliest record, otherwise
    from its end.

    Args:
        key: The topic partition.
        reset: The value of ``consumer.override.auto.offset.reset``.
        is_new: Whether all of its records are newer than the sink.

    Raises:
        NoOffsetError: The config forbids to choose.
    """
    if reset == NONE:
        raise NoOffsetError(
            f"{key[0]}-{key[1]} has no committed offset, and {AUTO_OFFSET_RESET} is {NONE}: "
            "commit one (drover connector offsets), or choose earliest or latest"
        )
    return is_new or reset != LATEST


def checked_task_count(task: TaskId, own_config: Mapping[str, str]) -> int:
    """The number of tasks that share the partitions, from a task's config.

    Raises:
        ValueError: The config has no task count, and this is not the only task.
    """
    count = int(own_config.get(TASK_COUNT, "1"))
    if task.task >= count:
        raise ValueError(
            f"the config of task {task} lacks {TASK_COUNT}, the number of tasks that share the "
            "topics: restart the connector, which writes it again"
        )
    return count
