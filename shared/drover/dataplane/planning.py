"""Plans reads: bounded, in order, in ranges that executors read in parallel."""

import sqlite3
from collections.abc import Iterator, Mapping

from drover.dataplane import topics
from drover.dataplane.values import ReadPlan, ReadRange

MAX_RECORDS = 2_000_000
MAX_BYTES = 64 * 1024 * 1024
RANGE_BYTES = 4 * 1024 * 1024
#: The most stored batches per partition that one plan considers.
MAX_BATCHES = 5_000


def plan(
    connection: sqlite3.Connection,
    starts: Mapping[tuple[str, int], int],
    *,
    max_records: int,
    max_bytes: int,
    range_bytes: int,
) -> ReadPlan:
    """Distribute the limits evenly over the partitions with available records."""
    bounds = topics.bounds(connection, sorted({topic for topic, _ in starts}))
    next_offsets = dict(starts)
    skipped = {}
    active = []
    for key, wanted in sorted(starts.items()):
        first, end = bounds.get(key, (0, 0))
        if first > wanted:
            next_offsets[key] = first
            skipped[key] = first - wanted
        if end > next_offsets[key]:
            active.append(key)
    ranges: list[ReadRange] = []
    for number, (topic, partition) in enumerate(active):
        share = len(active) - number
        if max_records < 1 or max_bytes < 1:
            break
        for each in _ranges(
            connection,
            topic,
            partition,
            next_offsets[topic, partition],
            max_records=max(1, max_records // share),
            max_bytes=max(1, max_bytes // share),
            range_bytes=range_bytes,
        ):
            ranges.append(each)
            next_offsets[topic, partition] = each.end_offset
            max_records -= each.record_count
            max_bytes -= each.size_bytes
    return ReadPlan(tuple(ranges), next_offsets, skipped)


def blobs(
    connection: sqlite3.Connection, topic: str, partition: int, start_offset: int, end_offset: int
) -> list[tuple[int, int, int]]:
    """(base offset, record count, blob id) of the batches that overlap the offsets, in order."""
    rows = _batches(connection, topic, partition, start_offset)
    found = []
    for base, count, _, blob_id, _ in rows:
        if base >= end_offset:
            break
        found.append((base, count, blob_id))
    return found


def _ranges(
    connection: sqlite3.Connection,
    topic: str,
    partition: int,
    start_offset: int,
    *,
    max_records: int,
    max_bytes: int,
    range_bytes: int,
) -> Iterator[ReadRange]:
    """Ranges end at batch boundaries, except the last one, which ends at the limits."""
    begin = position = start_offset
    size = 0
    records_left, bytes_left = max_records, max_bytes
    for number, (base, count, batch_bytes, _, live_count) in enumerate(
        _batches(connection, topic, partition, start_offset)
    ):
        if number == MAX_BATCHES or records_left < 1 or bytes_left < 1:
            break
        if base + count <= position:
            continue
        if size >= range_bytes or (size and base > position):
            yield ReadRange(topic, partition, begin, position, size)
            begin, size = position, 0
        if base > position:  # retention left a gap
            begin = position = base
        available = base + count - position
        record_bytes = max(1, batch_bytes // count)
        taken = min(available, records_left, max(1, bytes_left // record_bytes))
        taken_count, taken_bytes = taken, taken * record_bytes
        # a compacted batch has few records at many offsets, wherever they are
        if live_count is not None and live_count <= records_left and batch_bytes <= bytes_left:
            taken, taken_count, taken_bytes = available, live_count, batch_bytes
        position += taken
        size += taken_bytes
        records_left -= taken_count
        bytes_left -= taken_bytes
        if taken < available:
            break
    if position > begin:
        yield ReadRange(topic, partition, begin, position, size)


def _batches(
    connection: sqlite3.Connection, topic: str, partition: int, start_offset: int
) -> Iterator[tuple[int, int, int, int, int | None]]:
    """(base offset, offset count, bytes, blob id, record count if it is compacted), from the batch
    with ``start_offset`` on.
    """
    return connection.execute(
        "SELECT base_offset, batches.record_count, size_bytes, blob_id,"
        " compacted_blobs.record_count FROM batches LEFT JOIN compacted_blobs USING (blob_id)"
        " WHERE topic = ?1 AND partition = ?2 AND base_offset >= coalesce("
        "  (SELECT max(base_offset) FROM batches"
        "   WHERE topic = ?1 AND partition = ?2 AND base_offset <= ?3), 0)"
        " ORDER BY base_offset",
        (topic, partition, start_offset),
    )
