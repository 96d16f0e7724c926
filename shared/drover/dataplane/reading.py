"""Reads ranges of topics as Arrow batches, on executors."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from drover.dataplane import payload
from drover.dataplane.executor_store import open_store
from drover.dataplane.store import EmbeddedStore
from drover.dataplane.values import ReadRange
from drover.errors import OutOfRangeError, Reason

#: How often a batch is looked for again after compaction has replaced it.
_ATTEMPTS_MAX = 20


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
    for records in _stored(store, wanted, payload.decode):
        yield _for_readers(records, wanted)


def read_times(store: EmbeddedStore, wanted: ReadRange) -> Iterator[Any]:
    """As ``read_range``, with the columns ``offset`` and ``timestamp`` only."""
    for records in _stored(store, wanted, payload.decode_times):
        yield pa.RecordBatch.from_arrays(
            [records.column("offset"), _timestamps(records)], names=["offset", "timestamp"]
        )


def _stored(
    store: EmbeddedStore, wanted: ReadRange, decode: Callable[[bytes, int], Iterator[Any]]
) -> Iterator[Any]:
    """The records of a range as ``decode`` returns them, with a column ``offset``."""
    position = wanted.start_offset
    attempts_left = _ATTEMPTS_MAX
    while position < wanted.end_offset and attempts_left:
        attempts_left -= 1
        blobs = store.read_blobs(wanted.topic, wanted.partition, position, wanted.end_offset)
        for base, count, blob_id in blobs:
            stored = store.read_blob(blob_id)
            if base > position:
                raise _removed(wanted, position)
            if stored is None:  # compaction has replaced the batch, or retention removed it
                break
            attempts_left = _ATTEMPTS_MAX
            for records in decode(stored, base):
                offsets = records.column("offset").to_numpy()
                first = int(np.searchsorted(offsets, position))
                length = int(np.searchsorted(offsets, wanted.end_offset)) - first
                if length > 0:
                    yield records.slice(first, length)
            position = min(base + count, wanted.end_offset)
    if position < wanted.end_offset:
        raise _removed(wanted, position)


def _removed(wanted: ReadRange, position: int) -> OutOfRangeError:
    return OutOfRangeError(
        Reason.REVISION_COMPACTED,
        f"offsets {position} to {wanted.end_offset - 1} of {wanted.topic}-{wanted.partition} "
        "were removed by retention during the read",
    )


def _for_readers(records: Any, wanted: ReadRange) -> Any:
    count = records.num_rows
    return pa.RecordBatch.from_arrays(
        [
            pa.repeat(pa.scalar(wanted.topic, pa.string()), count),
            pa.repeat(pa.scalar(wanted.partition, pa.int32()), count),
            records.column("offset"),
            records.column("key"),
            records.column("value"),
            records.column("headers"),
            _timestamps(records),
        ],
        schema=payload.READ_SCHEMA,
    )


def _timestamps(records: Any) -> Any:
    timestamps = records.column("timestamp_ms").cast(pa.timestamp("ms", tz="UTC"))
    return timestamps.cast(pa.timestamp("us", tz="UTC"))
