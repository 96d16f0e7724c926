"""Conversions between offsets in the authors' API (dicts) and committed offsets (JSON texts)."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from drover.model.offsets import CommittedOffset, TopicPartition


@dataclass(frozen=True, slots=True)
class SinkOffset:
    """The offset of the next record to write, and the metadata committed with it."""

    offset: int
    metadata: str = ""


def to_json(value: Mapping[str, Any]) -> str:
    """A partition or an offset as JSON text, with keys in their order and no white space.

    Raises:
        ValueError: The value has no JSON form.
    """
    try:
        return json.dumps(dict(value), separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"an offset must be a JSON object: {error} in {value!r}") from error


def offset_key(partition: Mapping[str, Any]) -> str:
    """A text that is equal for partitions that are equal as JSON."""
    return json.dumps(dict(partition), sort_keys=True, separators=(",", ":"))


def source_offsets(
    offsets: Iterable[tuple[Mapping[str, Any], Mapping[str, Any] | None]],
) -> list[CommittedOffset]:
    """The offsets of a source batch, in the form in which they are committed.

    Raises:
        ValueError: An offset has no JSON form.
    """
    return [
        CommittedOffset(to_json(partition), None if offset is None else to_json(offset))
        for partition, offset in offsets
    ]


def parse_offsets(
    committed: Iterable[CommittedOffset],
) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Committed (partition, offset) pairs as dicts."""
    return [
        (json.loads(each.partition_json), json.loads(each.offset_json))
        for each in committed
        if each.offset_json is not None
    ]


#: A partition and its new offset; None to remove the offset.
OffsetChange = tuple[dict[str, Any], dict[str, Any] | None]


def parse_changes(changes: Iterable[CommittedOffset]) -> list[OffsetChange]:
    """Changes of committed offsets, in the form of the authors' API."""
    return [
        (
            json.loads(each.partition_json),
            None if each.offset_json is None else json.loads(each.offset_json),
        )
        for each in changes
    ]


def sink_offset(topic: str, partition: int, offset: int, metadata: str = "") -> CommittedOffset:
    """The offset of a topic partition, in the form in which a sink's offsets are committed."""
    return CommittedOffset(
        to_json({"kafka_topic": topic, "kafka_partition": partition}),
        to_json({"kafka_offset": offset}),
        metadata,
    )


def parse_sink_offsets(
    committed: Sequence[CommittedOffset],
) -> dict[TopicPartition, SinkOffset]:
    """A sink's committed offsets by topic partition.

    Raises:
        ValueError: An offset does not have the form of a sink's offset.
    """
    parsed = {}
    for each in committed:
        if each.offset_json is None:
            continue
        try:
            partition, offset = json.loads(each.partition_json), json.loads(each.offset_json)
            key = TopicPartition(str(partition["kafka_topic"]), int(partition["kafka_partition"]))
            parsed[key] = SinkOffset(int(offset["kafka_offset"]), each.metadata)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"{each.partition_json} with {each.offset_json} is not a sink's offset"
            ) from error
    return parsed
