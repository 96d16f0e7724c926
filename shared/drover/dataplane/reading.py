"""Reads ranges of topics as Arrow batches, on executors."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from drover.dataplane import payload
from drover.dataplane.executor_store import open_store
from drover.dataplane.store import EmbeddedStore
from drover.dataplane.values import ReadRange
from drover.errors import OutOfRangeError, Reason


@dataclass(frozen=True)
class RangeReader:
    """Reads groups of ranges by number; for ArrowRows."""

    path: Path
    groups: tuple[tuple[ReadRange, ...], ...]

    def __call__(self, number: int) -> Iterator[Any]:
        """The records of a group."""
        store = open_store(self.path)
        for each in self.groups[number]:
            yield from read_range(store, each)


def read_range(store: EmbeddedStore, wanted: ReadRange) -> Iterator[Any]:
    """The records of one range in order, as batches of ``READ_SCHEMA``.

    Raises:
        OutOfRangeError: REVISION_COMPACTED, retention removed part of the range during the read.
    """
    position = wanted.start_offset
    blobs = store.read_blobs(wanted.topic, wanted.partition, wanted.start_offset, wanted.end_offset)
    for base, count, blob_id in blobs:
        stored = store.read_blob(blob_id)
        if stored is None or base > position:
            break
        offset = base
        for records in payload.decode(stored):
            first = max(position - offset, 0)
            length = min(records.num_rows, wanted.end_offset - offset) - first
            if length > 0:
                yield _with_offsets(records.slice(first, length), wanted, offset + first)
            offset += records.num_rows
        position = min(base + count, wanted.end_offset)
    if position < wanted.end_offset:
        raise OutOfRangeError(
            Reason.REVISION_COMPACTED,
            f"offsets {position} to {wanted.end_offset - 1} of {wanted.topic}-{wanted.partition} "
            "were removed by retention during the read",
        )


def _with_offsets(records: Any, wanted: ReadRange, first_offset: int) -> Any:
    count = records.num_rows
    timestamps = records.column("timestamp_ms").cast(pa.timestamp("ms", tz="UTC"))
    return pa.RecordBatch.from_arrays(
        [
            pa.repeat(pa.scalar(wanted.topic, pa.string()), count),
            pa.repeat(pa.scalar(wanted.partition, pa.int32()), count),
            pa.arange(first_offset, first_offset + count),
            records.column("key"),
            records.column("value"),
            records.column("headers"),
            timestamps.cast(pa.timestamp("us", tz="UTC")),
        ],
        schema=payload.READ_SCHEMA,
    )
