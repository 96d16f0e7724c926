"""The data plane's values: topics, staged blobs, ranges to read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic; its partitions count from 0 to ``partition_count`` - 1."""

    name: str
    partition_count: int


@dataclass(frozen=True, slots=True)
class StagedBlob:
    """Records that an executor wrote, not yet visible to readers.

    ``spark_partition`` and ``sequence`` say where they stand in the frame they came from; blobs are
    published in that order.
    """

    spark_partition: int
    sequence: int
    topic: str
    partition: int
    record_count: int
    size_bytes: int
    blob_id: int


@dataclass(frozen=True, slots=True)
class PublishedRange:
    """Where published records stand: offsets ``start_offset`` to ``end_offset`` - 1."""

    topic: str
    partition: int
    start_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class PublishResult:
    """What one ``publish`` made visible; one range for each topic partition it wrote to."""

    ranges: Sequence[PublishedRange] = ()

    @property
    def record_count(self) -> int:
        """How many records became visible."""
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
        """How many records it holds."""
        return self.end_offset - self.start_offset


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """What a sink reads next.

    ``ranges`` are in the order of topic, partition, offset; executors read them side by side.
    ``next_offsets`` says by (topic, partition) where the next plan starts; a start that retention
    has overtaken is moved forward to what is left, and ``skipped`` says by how many offsets.
    """

    ranges: Sequence[ReadRange] = ()
    next_offsets: Mapping[tuple[str, int], int] = field(default_factory=dict)
    skipped: Mapping[tuple[str, int], int] = field(default_factory=dict)

    @property
    def record_count(self) -> int:
        """How many records the ranges hold."""
        return sum(each.record_count for each in self.ranges)

    @property
    def size_bytes(self) -> int:
        """About how many bytes the ranges hold."""
        return sum(each.size_bytes for each in self.ranges)


@dataclass(frozen=True, slots=True)
class RetentionResult:
    """What retention removed."""

    batch_count: int = 0
    record_count: int = 0
    size_bytes: int = 0
