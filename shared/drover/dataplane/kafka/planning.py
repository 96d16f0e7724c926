"""Chooses the offsets of a batch: bounded, in order, in ranges that executors read in parallel.

Kafka reports the bounds of a partition but not the size of its records, so sizes are estimates. An
offset may have no record (transaction markers, compaction), so counts are upper bounds.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from drover.dataplane.plane import PartitionKey
from drover.dataplane.values import ReadPlan, ReadRange

RANGE_BYTES = 4 * 1024 * 1024
#: The assumed size of records before a sample.
UNKNOWN_RECORD_BYTES = 1024


@dataclass(frozen=True, slots=True)
class Bounds:
    """The readable part of a partition: its first offset, and the offset where readers stop."""

    first: int
    end: int


def plan(
    starts: Mapping[PartitionKey, int],
    bounds: Mapping[PartitionKey, Bounds],
    record_bytes: Mapping[PartitionKey, float],
    *,
    max_records: int,
    max_bytes: int,
    range_bytes: int = RANGE_BYTES,
) -> ReadPlan:
    """Distribute the limits evenly over the partitions with available records.

    Partitions without bounds have none. At least one record is taken if there is any.
    """
    next_offsets = dict(starts)
    skipped = {}
    active = []
    for key, wanted in sorted(starts.items()):
        known = bounds.get(key)
        if known is None:
            continue
        if known.first > wanted:
            next_offsets[key] = known.first
            skipped[key] = known.first - wanted
        if known.end > next_offsets[key]:
            active.append(key)
    ranges: list[ReadRange] = []
    records_left, bytes_left = max_records, float(max_bytes)
    for number, key in enumerate(active):
        if records_left < 1 or bytes_left <= 0:
            break
        share = len(active) - number
        size = max(1.0, record_bytes.get(key, UNKNOWN_RECORD_BYTES))
        start = next_offsets[key]
        count = min(
            bounds[key].end - start,
            max(1, records_left // share),
            max(1, int(bytes_left / share / size)),
        )
        next_offsets[key] = start + count
        records_left -= count
        bytes_left -= count * size
        ranges += _cut(key, start, start + count, size, range_bytes)
    return ReadPlan(tuple(ranges), next_offsets, skipped)


def joined(ranges: tuple[ReadRange, ...]) -> Iterator[ReadRange]:
    """Merge adjacent ranges of a partition."""
    current: ReadRange | None = None
    for each in ranges:
        if current is not None and (
            (current.topic, current.partition, current.end_offset)
            == (each.topic, each.partition, each.start_offset)
        ):
            current = ReadRange(
                current.topic,
                current.partition,
                current.start_offset,
                each.end_offset,
                current.size_bytes + each.size_bytes,
            )
            continue
        if current is not None:
            yield current
        current = each
    if current is not None:
        yield current


def _cut(
    key: PartitionKey, start: int, end: int, record_bytes: float, range_bytes: int
) -> Iterator[ReadRange]:
    step = max(1, int(range_bytes / record_bytes))
    for first in range(start, end, step):
        last = min(first + step, end)
        yield ReadRange(*key, first, last, int((last - first) * record_bytes))
