"""The data plane's values: topics, staged blobs, ranges to read."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic; its partitions are numbered from 0 to ``partition_count`` - 1. A topic that
    ``compacts`` keeps the latest record of each key, so its records need keys.
    """

    name: str
    partition_count: int
    compacts: bool = field(default=False, repr=False)


class SettingOrigin(Enum):
    """Where a setting of a topic comes from."""

    TOPIC = "topic"
    COORDINATOR = "coordinator"
    BROKERS = "brokers"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class StagedBlob:
    """Records that an executor wrote, not visible to readers.

    ``spark_partition`` and ``sequence`` are the position in the original frame; blobs are published
    in that order.
    """

    spark_partition: int
    sequence: int
    topic: str
    partition: int
    record_count: int
    size_bytes: int
    blob_id: int
    #: The topic's partitions when the records were assigned to them; 0 if it is not known.
    partition_count: int = 0


@dataclass(frozen=True, slots=True)
class PublishedRange:
    """The offsets of published records: ``start_offset`` to ``end_offset`` - 1."""

    topic: str
    partition: int
    start_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class Placement:
    """The offsets of published batches.

    Attributes:
        ranges: The offsets of the records, for each topic partition in the order of the records.
        partition_counts: The partitions of each topic when keys were assigned to them; without
            topics whose number changed while the batches were written.
    """

    ranges: Sequence[PublishedRange] = ()
    partition_counts: Mapping[str, int] = field(default_factory=dict)

    @staticmethod
    def same_counts(found: Iterable[tuple[str, int]]) -> dict[str, int]:
        """The partition counts of topics for which all counts are equal."""
        counts: dict[str, int] = {}
        for topic, count in found:
            if counts.setdefault(topic, count) != count:
                counts[topic] = 0
        return {topic: count for topic, count in counts.items() if count}


@dataclass(frozen=True, slots=True)
class PublishResult:
    """The result of one ``publish``; one range per topic partition that it wrote."""

    ranges: Sequence[PublishedRange] = ()

    @property
    def record_count(self) -> int:
        """The number of published records."""
        return sum(each.end_offset - each.start_offset for each in self.ranges)


@dataclass(frozen=True, slots=True)
class ReadRange:
    """Offsets ``start_offset`` to ``end_offset`` - 1 of a topic partition, read by one executor."""

    topic: str
    partition: int
    start_offset: int
    end_offset: int
    size_bytes: int = 0

    @property
    def record_count(self) -> int:
        """The number of records."""
        return self.end_offset - self.start_offset


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """The next read of a sink.

    ``ranges`` are in the order of topic, partition, offset; executors read them in parallel.
    ``next_offsets`` has, by (topic, partition), the start of the next plan; a start that retention
    has passed is moved forward, and ``skipped`` has the number of offsets.
    """

    ranges: Sequence[ReadRange] = ()
    next_offsets: Mapping[tuple[str, int], int] = field(default_factory=dict)
    skipped: Mapping[tuple[str, int], int] = field(default_factory=dict)

    @property
    def record_count(self) -> int:
        """The number of records in the ranges."""
        return sum(each.record_count for each in self.ranges)

    @property
    def size_bytes(self) -> int:
        """The approximate size of the ranges in bytes."""
        return sum(each.size_bytes for each in self.ranges)

    def until(self, ends: Mapping[tuple[str, int], int]) -> "ReadPlan":
        """The plan without the offsets from ``ends`` on, which has each of its topic partitions."""
        ranges = [
            replace(each, end_offset=min(each.end_offset, ends[each.topic, each.partition]))
            for each in self.ranges
            if each.start_offset < ends[each.topic, each.partition]
        ]
        nexts = {key: min(at, ends[key]) for key, at in self.next_offsets.items()}
        return ReadPlan(tuple(ranges), nexts)


@dataclass(frozen=True, slots=True)
class RetentionResult:
    """What retention removed."""

    batch_count: int = 0
    record_count: int = 0
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Appended:
    """The result of an append: ``repeated`` if an earlier call with the same request id wrote the
    records.
    """

    record_count: int
    repeated: bool = False
