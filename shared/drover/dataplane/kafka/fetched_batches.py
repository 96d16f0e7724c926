"""Converts fetched record batches of a partition to Arrow.

A client call per record and field would cost several times as much.
"""

import struct
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, groupby
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from aiokafka.record.memory_records import MemoryRecords

from drover.dataplane.kafka.batch_format import HEAD, MAGIC
from drover.dataplane.kafka.checksums import crc32c
from drover.dataplane.kafka.record_columns import columns_of
from drover.dataplane.payload import HEADERS_TYPE, READ_SCHEMA
from drover.dataplane.plane import ALL_COLUMNS
from drover.dataplane.values import ReadRange

#: The approximate size of a batch of rows, in records; Kafka's batches are not split.
RECORDS_AT_ONCE = 20_000
#: Kafka's value for a missing timestamp.
NO_TIMESTAMP_MS = -1
#: Base offset and length, the start of every batch format.
_FRAME = struct.Struct(">qi")
_ABORT_MARKER = struct.pack(">hh", 0, 0)

_Offsets = npt.NDArray[np.int64]


class CorruptBatchError(ValueError):
    """A batch has a wrong checksum."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Records of one partition, a list or an Arrow array per column; None for columns that were not
    requested.
    """

    offsets: _Offsets
    keys: Any = None
    values: Any = None
    headers: Any = None
    timestamps: Any = None

    def cut(self, start_offset: int, end_offset: int) -> "Columns":
        """The records from ``start_offset`` to before ``end_offset``."""
        first, end = np.searchsorted(self.offsets, [start_offset, end_offset])
        if first == 0 and end == len(self.offsets):
            return self
        return Columns(
            self.offsets[first:end],
            self.keys and self.keys[first:end],
            self.values and self.values[first:end],
            self.headers and self.headers[first:end],
            self.timestamps and self.timestamps[first:end],
        )


@dataclass(frozen=True)
class Fetched:
    """A broker's fetch response."""

    data: bytes
    #: Producer id and first offset of each aborted transaction in the data.
    aborted: Collection[tuple[int, int]] = ()

    @cached_property
    def frames(self) -> Sequence[tuple[int, int]]:
        """The bounds of the complete batches in ``data``; the last batch may be truncated."""
        return tuple(_frames(self.data))

    @property
    def size_bytes(self) -> int:
        """The size of the complete batches."""
        return self.frames[-1][1] if self.frames else 0

    @property
    def last_bytes(self) -> int:
        """The size of the last complete batch."""
        return self.frames[-1][1] - self.frames[-1][0] if self.frames else 0

    @property
    def next_offset(self) -> int | None:
        """The offset for the next fetch; None if there is no complete batch."""
        if not self.frames:
            return None
        start, end = self.frames[-1]
        return int(_batch(self.data[start:end]).next_offset)

    def rows(self, wanted: ReadRange, columns: frozenset[str] = ALL_COLUMNS) -> Iterator[Any]:
        """The committed records in the range, in order, as batches of ``READ_SCHEMA``; columns that
        are not in ``columns`` are null.

        Raises:
            CorruptBatchError: A batch has a wrong checksum.
        """
        parts: list[Columns] = []
        count = 0
        for frame in self._committed():
            part = _columns(frame, columns).cut(wanted.start_offset, wanted.end_offset)
            if len(part.offsets):
                parts.append(part)
                count += len(part.offsets)
            if count >= RECORDS_AT_ONCE:
                yield as_rows(wanted, parts)
                parts, count = [], 0
        if parts:
            yield as_rows(wanted, parts)

    def _committed(self) -> Iterator[bytes]:
        """The batches without aborted transactions (KIP-98) and control batches."""
        aborted = sorted(self.aborted, key=lambda each: each[1], reverse=True)
        aborting: set[int] = set()
        for start, end in self.frames:
            frame = self.data[start:end]
            batch = _batch(frame)
            if not _is_intact(frame, batch):
                raise CorruptBatchError(f"the batch at offset {_FRAME.unpack_from(frame)[0]}")
            while aborted and aborted[-1][1] < batch.next_offset:
                aborting.add(aborted.pop()[0])
            if batch.is_control_batch:
                if next(iter(batch)).key[: len(_ABORT_MARKER)] == _ABORT_MARKER:
                    aborting.discard(batch.producer_id)
            elif not (batch.is_transactional and batch.producer_id in aborting):
                yield frame


def as_rows(wanted: ReadRange, parts: Sequence[Columns]) -> Any:
    """Records of the range's partition as a batch of ``READ_SCHEMA``."""
    offsets = np.concatenate([part.offsets for part in parts])
    count = len(offsets)

    def column(name: str, make: Callable[[list[Any]], Any], found: Sequence[Any]) -> Any:
        if found[0] is None:
            return pa.nulls(count, READ_SCHEMA.field(name).type)
        arrays: list[Any] = []
        # an array per short list would take most of the time
        for is_list, some in groupby(found, lambda each: isinstance(each, list)):
            if is_list:
                arrays.append(make(list(chain.from_iterable(some))))
            else:
                arrays.extend(some)
        return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)

    return pa.RecordBatch.from_arrays(
        [
            pa.repeat(pa.scalar(wanted.topic, pa.string()), count),
            pa.repeat(pa.scalar(wanted.partition, pa.int32()), count),
            pa.array(offsets),
            column("key", _binary, [part.keys for part in parts]),
            column("value", _binary, [part.values for part in parts]),
            column("headers", _headers, [part.headers for part in parts]),
            column("timestamp", _timestamps, [part.timestamps for part in parts]),
        ],
        schema=READ_SCHEMA,
    )


def _frames(data: bytes) -> Iterator[tuple[int, int]]:
    start = 0
    while start + _FRAME.size <= len(data):
        end = start + _FRAME.size + _FRAME.unpack_from(data, start)[1]
        if end > len(data):
            return
        yield start, end
        start = end


def _is_intact(frame: bytes, batch: Any) -> bool:
    """Whether a batch has a correct checksum; aiokafka checks older formats with other headers."""
    *_, magic, checksum = HEAD.unpack_from(frame)
    if magic != MAGIC:
        return bool(batch.validate_crc())
    return bool(crc32c(frame[HEAD.size :]) == checksum)


def _batch(frame: bytes) -> Any:
    return MemoryRecords(frame).next_batch()


def _columns(frame: bytes, names: frozenset[str]) -> Columns:
    found = columns_of(frame)
    if found is None:
        return _walked(frame, names)
    return Columns(
        found.offsets,
        found.keys.array() if "key" in names else None,
        found.values.array() if "value" in names else None,
        pa.nulls(len(found.offsets), HEADERS_TYPE) if "headers" in names else None,
        _timestamps(found.timestamps_ms) if "timestamp" in names else None,
    )


def _walked(frame: bytes, names: frozenset[str]) -> Columns:
    """The records, parsed one by one."""
    batch = _batch(frame)
    if names <= {"value"}:
        values = [record.value for record in batch]
        return Columns(_offsets(frame, len(values)), values=values if names else None)
    keys, values, headers, timestamps_ms = [], [], [], []
    for record in batch:
        keys.append(record.key)
        values.append(record.value)
        headers.append(record.headers or None)
        timestamps_ms.append(record.timestamp)
    return Columns(
        _offsets(frame, len(values)),
        keys if "key" in names else None,
        values if "value" in names else None,
        headers if "headers" in names else None,
        timestamps_ms if "timestamp" in names else None,
    )


def _offsets(frame: bytes, count: int) -> _Offsets:
    batch = _batch(frame)
    first = _FRAME.unpack_from(frame)[0]
    if count == batch.next_offset - first:
        return np.arange(first, first + count, dtype=np.int64)
    # compacted, or an old format, in which the base offset is that of the last record
    return np.array([record.offset for record in batch], np.int64)


def _binary(values: Sequence[bytes | None]) -> Any:
    return pa.array(values, pa.binary())


def _headers(headers: Sequence[Sequence[tuple[str, bytes | None]] | None]) -> Any:
    if not any(headers):
        return pa.nulls(len(headers), HEADERS_TYPE)
    return pa.array(
        [
            [{"key": key, "value": value} for key, value in each] if each else None
            for each in headers
        ],
        HEADERS_TYPE,
    )


def _timestamps(times_ms: Sequence[int | None] | _Offsets) -> Any:
    found = pa.array(times_ms, pa.int64())
    found = pc.if_else(pc.equal(found, NO_TIMESTAMP_MS), None, found)
    return found.cast(pa.timestamp("ms", tz="UTC")).cast(pa.timestamp("us", tz="UTC"))
