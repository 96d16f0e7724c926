"""Finds where a read starts that has a start time.

The rule is Kafka's (KIP-79, ListOffsets): the lowest offset of a record whose timestamp is at or
after the time. Records are in the order of offsets, not of timestamps, so later ones may be older.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from drover.dataplane.plane import DataPlane
from drover.dataplane.values import ReadPlan
from drover.errors import OutOfRangeError

#: Of a plan, whose timestamps are read until the first one that is late enough.
_PLAN_RECORDS, _PLAN_BYTES = 100_000, 16 * 1024 * 1024
#: How often a search continues behind records that retention removed.
_LOST_RANGES_MAX = 10


@dataclass(frozen=True, slots=True)
class FoundStarts:
    """The result of a search, by partition.

    Attributes:
        starts: The offset of the first record at or after the time, or the end of the partition.
        left: Where the search continues in other partitions, because its time is over.
    """

    starts: Mapping[int, int]
    left: Mapping[int, int]


def candidates(
    plane: DataPlane, topic: str, bounds: Mapping[int, tuple[int, int]], time_ms: int
) -> FoundStarts:
    """Where to search in each partition, as far as the storage has an index by time.

    Raises:
        UnavailableError: STORAGE_UNAVAILABLE.
    """
    firsts = {(topic, partition): first for partition, (first, _) in bounds.items()}
    found = plane.offsets_for_time(firsts, time_ms)
    offsets = {partition: offset for (_, partition), offset in found.items()}
    left = {partition: offset for partition, offset in offsets.items() if offset is not None}
    return FoundStarts({each: bounds[each][1] for each in offsets if each not in left}, left)


def find_starts(
    plane: DataPlane,
    topic: str,
    positions: Mapping[int, int],
    ends: Mapping[int, int],
    *,
    time_ms: int,
    deadline_s: float,
) -> FoundStarts:
    """Search from ``positions`` to ``ends``, until ``deadline_s`` of the monotonic clock; at least
    one batch of records is read.

    Raises:
        OutOfRangeError: REVISION_COMPACTED, retention removes records as fast as they are read.
        DroverError: As DataPlane.
    """
    wanted = pa.scalar(time_ms, pa.timestamp("ms", tz="UTC")).cast(pa.timestamp("us", tz="UTC"))
    starts: dict[int, int] = {}
    left = dict(positions)
    lost_count = 0

    def read(plan: ReadPlan) -> bool:
        """Whether there is time left."""
        for each in plan.ranges:
            if each.partition in starts:
                continue
            for batch in plane.read_times(ReadPlan((each,))):
                row = pc.index(pc.greater_equal(batch.column("timestamp"), wanted), True).as_py()
                if row >= 0:
                    starts[each.partition] = batch.column("offset")[row].as_py()
                    break
                left[each.partition] = batch.column("offset")[-1].as_py() + 1
                if time.monotonic() > deadline_s:
                    return False
            left[each.partition] = each.end_offset
        return True

    while True:
        for partition in [each for each, at in left.items() if at >= ends[each]]:
            starts.setdefault(partition, left[partition])
        for partition in starts:
            left.pop(partition, None)
        if not left:
            return FoundStarts(starts, left)
        plan = plane.plan_read(
            {(topic, partition): at for partition, at in left.items()},
            max_records=_PLAN_RECORDS,
            max_bytes=_PLAN_BYTES,
        )
        if not plan.ranges:
            starts |= {partition: at for (_, partition), at in plan.next_offsets.items()}
            continue
        try:
            has_time = read(plan)
        except OutOfRangeError:
            # retention removed records during the read: continue behind them
            lost_count += 1
            if lost_count == _LOST_RANGES_MAX:
                raise
            continue
        if not has_time or time.monotonic() > deadline_s:
            return FoundStarts(starts, {k: at for k, at in left.items() if k not in starts})
