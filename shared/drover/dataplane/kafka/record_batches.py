"""Encodes Arrow columns as Kafka's record batches, format 2 (KIP-98), by column.

A client call per record would cost several times as much.
"""

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from aiokafka.codec import gzip_encode, lz4_encode, snappy_encode, zstd_encode

from drover.dataplane.kafka.batch_format import (
    GZIP,
    HEAD,
    LENGTH_BYTES_MAX,
    LZ4,
    MAGIC,
    NONE,
    OVERHEAD_BYTES,
    REST,
    SNAPPY,
    TRANSACTIONAL,
    ZSTD,
)
from drover.dataplane.kafka.checksums import crc32c
from drover.dataplane.payload import PAYLOAD_SCHEMA

_Numbers = npt.NDArray[np.int64]

_LENGTH_BEHIND = HEAD.size - struct.calcsize(">qi")
#: The largest size of a record's varints and attributes.
_RECORD_OVERHEAD_BYTES = 32
#: So few records are encoded one by one, which takes a tenth of the time.
_FEW_RECORDS = 8
#: ``compression.type`` names, with their numbers in the attributes.
CODECS: dict[str, tuple[int, Callable[[bytes], bytes]]] = {
    "none": (NONE, bytes),
    "gzip": (GZIP, lambda data: gzip_encode(data, 6)),
    "snappy": (SNAPPY, snappy_encode),
    "lz4": (LZ4, lambda data: lz4_encode(data, 1)),
    "zstd": (ZSTD, lambda data: zstd_encode(data, 3)),
}


@dataclass(frozen=True, slots=True)
class Encoding:
    """The largest size of uncompressed batches, and the codec's name."""

    max_bytes: int
    compression: str


class RecordTooLargeError(ValueError):
    """A single record is larger than a batch may be."""


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """Compressed records that lack only the producer's fields."""

    record_count: int
    first_timestamp_ms: int
    max_timestamp_ms: int
    codec: int
    records: bytes

    def build(self, producer_id: int, epoch: int, sequence: int) -> bytes:
        """The batch in the wire format, for a transaction; ``sequence`` is that of its first
        record.
        """
        behind = (
            REST.pack(
                self.codec | TRANSACTIONAL,
                self.record_count - 1,
                self.first_timestamp_ms,
                self.max_timestamp_ms,
                producer_id,
                epoch,
                sequence,
                self.record_count,
            )
            + self.records
        )
        return HEAD.pack(0, _LENGTH_BEHIND + len(behind), -1, MAGIC, crc32c(behind)) + behind


def encoded(records: Any, *, max_bytes: int, compression: str) -> Iterator[EncodedBatch]:
    """Records in ``payload.PAYLOAD_SCHEMA`` as batches of at most ``max_bytes``, in order.

    Raises:
        RecordTooLargeError: A single record is larger.
    """
    room = max_bytes - OVERHEAD_BYTES
    count = records.num_rows
    if 0 < count <= _FEW_RECORDS and records.nbytes + count * _RECORD_OVERHEAD_BYTES <= room:
        yield _few(records.to_pylist(), compression)
        return
    headers = _headers(records.column("headers"))
    columns = [records.column("key"), records.column("value")]
    times_ms = records.column("timestamp_ms").to_numpy()
    lengths = [_lengths(column, of_null=0) for column in (*columns, headers)]
    sizes = np.sum(lengths, axis=0) + _overhead_bytes(times_ms, *lengths)
    if len(sizes) and sizes.max() > room:
        raise RecordTooLargeError(f"a record of {sizes.max()} bytes is over {room} bytes")
    for start, end in _cuts(np.cumsum(sizes), room):
        key, value = (column.slice(start, end - start) for column in columns)
        stamps = times_ms[start:end]
        data = _records(key, value, headers.slice(start, end - start), stamps - stamps[0])
        yield _batch(end - start, int(stamps[0]), int(stamps.max()), data, compression)


def encoded_rows(rows: list[dict[str, Any]], encoding: Encoding) -> Iterator[EncodedBatch]:
    """As ``encoded``, for rows of ``payload.PAYLOAD_SCHEMA``: a tenth of the cost for few rows."""
    room = encoding.max_bytes - OVERHEAD_BYTES
    if 0 < len(rows) <= _FEW_RECORDS and sum(map(_row_bytes, rows)) <= room:
        yield _few(rows, encoding.compression)
        return
    records = pa.RecordBatch.from_pylist(rows, PAYLOAD_SCHEMA)
    yield from encoded(records, max_bytes=encoding.max_bytes, compression=encoding.compression)


def _row_bytes(row: dict[str, Any]) -> int:
    """The largest size of a row's record."""
    found = _RECORD_OVERHEAD_BYTES + len(row["key"] or b"") + len(row["value"] or b"")
    for each in row["headers"] or ():
        found += 2 * LENGTH_BYTES_MAX + len(each["key"].encode()) + len(each["value"] or b"")
    return found


def _few(rows: list[dict[str, Any]], compression: str) -> EncodedBatch:
    stamps = [row["timestamp_ms"] for row in rows]
    data = b"".join(_record(number, row, stamps[0]) for number, row in enumerate(rows))
    return _batch(len(rows), stamps[0], max(stamps), data, compression)


def _record(number: int, row: dict[str, Any], first_timestamp_ms: int) -> bytes:
    pieces = [b"\0", _varint(row["timestamp_ms"] - first_timestamp_ms), _varint(number)]
    for blob in (row["key"], row["value"]):
        pieces += (b"\1",) if blob is None else (_varint(len(blob)), blob)
    found = b"".join((*pieces, _header_bytes(row["headers"] or ())))
    return _varint(len(found)) + found


def _batch(
    count: int, first_timestamp_ms: int, max_timestamp_ms: int, data: bytes, compression: str
) -> EncodedBatch:
    codec, compress = CODECS[compression]
    packed = compress(data)
    if len(packed) > len(data):
        codec, packed = NONE, data
    return EncodedBatch(count, first_timestamp_ms, max_timestamp_ms, codec, packed)


def encoded_by_partition(
    records: Any, partitions: Any, encoding: Encoding
) -> Iterator[tuple[int, EncodedBatch]]:
    """As ``encoded``, for each partition; ``partitions`` has the partition of each record.

    Raises:
        RecordTooLargeError: See encoded.
    """
    numbers = partitions.unique().to_pylist()
    for number in numbers:
        part = records if len(numbers) == 1 else records.filter(pc.equal(partitions, number))
        for each in encoded(part, max_bytes=encoding.max_bytes, compression=encoding.compression):
            yield number, each


def _cuts(ends: _Numbers, room: int) -> Iterator[tuple[int, int]]:
    start = 0
    while start < len(ends):
        before = int(ends[start - 1]) if start else 0
        end = int(np.searchsorted(ends, before + room, side="right"))
        yield start, end
        start = end


def _records(keys: Any, values: Any, headers: Any, deltas: _Numbers) -> bytes:
    """The bytes of all records, concatenated."""
    count = len(deltas)
    key_lengths, value_lengths = _lengths(keys, of_null=-1), _lengths(values, of_null=-1)
    behind_length = [
        (np.zeros((count, 1), np.uint8), np.ones(count, np.int64)),  # attributes
        _varints(deltas),
        _varints(np.arange(count)),
        _varints(key_lengths),
    ]
    before_value = [_varints(value_lengths)]
    length = sum(sizes for _, sizes in (*behind_length, *before_value))
    length = length + np.maximum(key_lengths, 0) + np.maximum(value_lengths, 0)
    length = length + _lengths(headers, of_null=0)
    head = [_varints(length), *behind_length]
    if keys.null_count == count:
        pieces = [_flat([*head, *before_value]), values, headers]
    else:
        pieces = [_flat(head), keys, _flat(before_value), values, headers]
    # interleave the pieces and join once: joining element by element takes twice as long
    places = np.arange(len(pieces) * count, dtype=np.int32).reshape(len(pieces), count)
    joined = pa.concat_arrays(pieces).take(pa.array(places.ravel(order="F")))
    _, ends, data = joined.buffers()
    return bytes(memoryview(data)[: np.frombuffer(ends, np.int32)[len(joined)]])


def _overhead_bytes(times_ms: _Numbers, *lengths: _Numbers) -> int:
    """The largest size of a record without key, value and headers."""
    if not len(times_ms):
        return 0
    numbers = [np.ptp(times_ms), len(times_ms), *(each.max() for each in lengths)]
    return LENGTH_BYTES_MAX + 1 + sum(len(_varint(int(each))) for each in numbers)


def _lengths(column: Any, *, of_null: int) -> _Numbers:
    lengths: _Numbers = pc.binary_length(column).fill_null(of_null).to_numpy().astype(np.int64)
    return lengths


def _varints(numbers: _Numbers) -> tuple[npt.NDArray[np.uint8], _Numbers]:
    """Zigzag varints: a row of bytes per number, and their lengths."""
    rest = ((numbers << 1) ^ (numbers >> 63)).astype(np.uint64)
    width = max(1, -(-int(rest.max()).bit_length() // 7))
    found = np.empty((len(numbers), width), np.uint8)
    sizes = np.ones(len(numbers), np.int64)
    for place in range(width):
        more = rest > np.uint64(0x7F)
        found[:, place] = (rest & np.uint64(0x7F)).astype(np.uint8) | (more * np.uint8(0x80))
        rest = rest >> np.uint64(7)
        if place + 1 < width:
            sizes += rest > 0
    return found, sizes


def _flat(parts: list[tuple[npt.NDArray[np.uint8], _Numbers]]) -> Any:
    """Concatenate the parts of each record, as a binary array."""
    rows = np.concatenate([found for found, _ in parts], axis=1)
    counts = [np.arange(found.shape[1]) < sizes[:, None] for found, sizes in parts]
    sizes = sum(sizes for _, sizes in parts)
    ends = np.zeros(len(rows) + 1, np.int32)
    np.cumsum(sizes, out=ends[1:])
    data = rows[np.concatenate(counts, axis=1)]
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(rows), buffers)


def _headers(column: Any) -> Any:
    """The header count and headers of each record."""
    if column.null_count == len(column):
        return pa.repeat(pa.scalar(b"\0", pa.binary()), len(column))
    return pa.array([_header_bytes(each or ()) for each in column.to_pylist()], pa.binary())


def _header_bytes(headers: Any) -> bytes:
    found = [_varint(len(headers))]
    for each in headers:
        key, value = each["key"].encode(), each["value"]
        found += [
            _varint(len(key)),
            key,
            _varint(-1 if value is None else len(value)),
            value or b"",
        ]
    return b"".join(found)


def _varint(number: int) -> bytes:
    rest, found = (number << 1) ^ (number >> 63), bytearray()
    while rest > 0x7F:
        found.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*found, rest])
