"""Encodes Arrow columns as Kafka's record batches, format 2 (KIP-98), by column.

A client call per record would cost several times as much.
"""

import struct
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from aiokafka.codec import gzip_encode, lz4_encode, snappy_encode, zstd_encode
from aiokafka.record.util import decode_varint

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
from drover.dataplane.kafka.record_columns import decoded
from drover.dataplane.payload import PAYLOAD_SCHEMA
from drover.log.kafka.brokers import Place
from drover.record.framed import Framed

_Numbers = npt.NDArray[np.int64]

_LENGTH_BEHIND = HEAD.size - struct.calcsize(">qi")
#: The largest size of a batch's records before compression, except for a single record.
BATCH_BYTES_MAX = 4 * 1024 * 1024
#: The estimated ratio of compression decreases slowly, and batches have some room for its error.
_RATIO_STEP, _RATIO_MARGIN = 0.005, 1.05
#: Open batches of all partitions together have at most this size.
_OPEN_BYTES_MAX = 32 * 1024 * 1024
#: Attributes, and the differences of timestamp and number to the batch: a byte each.
_ALONE_BYTES = 3
_NO_HEADERS = b"\0"
#: So few records are encoded one by one, which takes a tenth of the time.
_FEW_RECORDS = 8
#: So many records are joined at a time: more do not fit into the processor's cache.
_JOINED_RECORDS = 16_000
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
    """The form of batches.

    Attributes:
        max_bytes: The largest size of a batch as brokers store it.
        compression: The codec's name.
        refused_bytes: The size of the smallest batch that brokers refused, by topic; larger batches
            are not made of several records.
    """

    max_bytes: int
    compression: str
    refused_bytes: Mapping[str, int] = field(default_factory=dict)


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


def cut(batch: EncodedBatch, piece_count: int) -> list[EncodedBatch]:
    """The records of a batch in order, in that many batches of about the same number of records;
    fewer if it has fewer records.
    """
    data, at = decoded(batch.codec, batch.records), 0
    records: list[tuple[int, bytes]] = []
    for _ in range(batch.record_count):
        size, at = decode_varint(data, at)
        end = at + size
        delta_ms, at = decode_varint(data, at + 1)
        _, at = decode_varint(data, at)
        records.append((batch.first_timestamp_ms + delta_ms, data[at:end]))
        at = end
    count, pieces = len(records), min(piece_count, len(records))
    bounds = [count * number // pieces for number in range(pieces + 1)]
    compress = next(compress for codec, compress in CODECS.values() if codec == batch.codec)
    return [_rebuilt(records[first:end], batch.codec, compress) for first, end in pairwise(bounds)]


def _rebuilt(
    records: Sequence[tuple[int, bytes]], codec: int, compress: Callable[[bytes], bytes]
) -> EncodedBatch:
    """A batch of timestamps, each with the bytes behind its number in the old batch."""
    first_ms = records[0][0]
    bodies = (
        b"".join((b"\0", _varint(at_ms - first_ms), _varint(number), rest))
        for number, (at_ms, rest) in enumerate(records)
    )
    data = b"".join(_varint(len(body)) + body for body in bodies)
    last_ms = max(at_ms for at_ms, _ in records)
    return EncodedBatch(len(records), first_ms, last_ms, codec, compress(data))


class BatchEncoder:
    """Encodes records into full batches, in the order of each partition.

    A batch has up to ``BATCH_BYTES_MAX`` before compression. If its records compress too little
    for ``max_bytes`` it is halved, and the topic's next ones are cut by an estimate of the ratio,
    as Kafka's producer does. The last batch of a partition stays open until ``finish``: records of
    many schemas or partitions arrive few at a time.
    """

    def __init__(self, encoding: Encoding) -> None:
        self._compression = encoding.compression
        self._room = encoding.max_bytes - OVERHEAD_BYTES
        self._refused_bytes = encoding.refused_bytes
        #: The estimated size of compressed records, as a part of their size, by topic.
        self._ratios: dict[str, float] = {}
        self._open: dict[Place, _Open] = defaultdict(_Open)
        self._open_bytes = 0

    def add(
        self, topic: str, records: Any, partitions: Any
    ) -> Iterator[tuple[Place, EncodedBatch]]:
        """Add records in ``payload.PAYLOAD_SCHEMA``, each for its partition of the topic; their
        keys and values may have frames (see Framed). Returns the batches that are full.

        Raises:
            RecordTooLargeError: A single record is larger than a batch may be, not compressed.
        """
        numbers = partitions.unique().to_pylist()
        for number in numbers:
            part = records if len(numbers) == 1 else records.filter(pc.equal(partitions, number))
            yield from self._added((topic, number), _chunk_of(part))
        if self._open_bytes > _OPEN_BYTES_MAX:
            yield from self.finish()

    def add_rows(
        self, place: Place, rows: list[dict[str, Any]]
    ) -> Iterator[tuple[Place, EncodedBatch]]:
        """As ``add``, for rows of one partition: a tenth of the cost for few rows."""
        if len(rows) <= _FEW_RECORDS:
            yield from self._added(place, _Rows.of(rows))
        else:
            yield from self._added(
                place, _chunk_of(pa.RecordBatch.from_pylist(rows, PAYLOAD_SCHEMA))
            )

    def finish(self) -> Iterator[tuple[Place, EncodedBatch]]:
        """The batches that are not full."""
        for place, opened in self._open.items():
            yield from self._made(place, opened.chunks)
        self._open.clear()
        self._open_bytes = 0

    def _added(self, place: Place, chunk: "_Chunk") -> Iterator[tuple[Place, EncodedBatch]]:
        sizes = chunk.sizes()
        count = len(sizes)
        if not count:
            return
        if sizes.max() > self._room and (largest := chunk.alone_bytes().max()) > self._room:
            raise RecordTooLargeError(
                f"a record of {largest} bytes, before compression, is over the {self._room} bytes "
                "that message.max.bytes of the client allows"
            )
        opened = self._open[place]
        size_bytes = int(sizes.sum())
        if opened.size_bytes + size_bytes <= self._full_bytes(place):
            opened.chunks.append(chunk)
            opened.size_bytes += size_bytes
            self._open_bytes += size_bytes
            return
        ends = np.cumsum(sizes)
        start = before = 0
        while True:
            room = max(0, self._full_bytes(place) - opened.size_bytes)
            end = int(np.searchsorted(ends, before + room, side="right"))
            if not opened.chunks:
                end = max(end, start + 1)
            if end > start:
                added = int(ends[end - 1]) - before
                opened.chunks.append(chunk.cut(start, end))
                opened.size_bytes += added
                self._open_bytes += added
                start, before = end, before + added
            if start == count:
                return
            yield from self._made(place, opened.chunks)
            self._open_bytes -= opened.size_bytes
            opened.chunks, opened.size_bytes = [], 0

    def _made(
        self, place: Place, chunks: Sequence["_Chunk"]
    ) -> Iterator[tuple[Place, EncodedBatch]]:
        """The chunks as one batch, or as several if it would be too large."""
        first_ms = int(chunks[0].times_ms[0])
        last_ms = max(int(each.times_ms.max()) for each in chunks)
        pieces, count = [], 0
        for chunk in chunks:
            pieces.append(chunk.data(count, first_ms))
            count += len(chunk.times_ms)
        data = b"".join(pieces)
        codec, compress = CODECS[self._compression]
        packed = compress(data)
        if len(packed) > len(data):
            codec, packed = NONE, data
        topic, ratio = place[0], len(packed) / len(data)
        if len(packed) > self._room_of(topic) and count > 1:
            self._ratios[topic] = ratio
            for half in _halved(chunks):
                yield from self._made(place, half)
            return
        self._ratios[topic] = max(ratio, self._ratios.get(topic, 0.0) - _RATIO_STEP)
        yield place, EncodedBatch(count, first_ms, last_ms, codec, packed)

    def _full_bytes(self, place: Place) -> int:
        """The size of the records of a full batch, before compression."""
        room = self._room_of(place[0])
        if self._compression == "none":
            return room
        expected = self._ratios.get(place[0], 0.0) * _RATIO_MARGIN
        return min(BATCH_BYTES_MAX, int(room / expected)) if expected else BATCH_BYTES_MAX

    def _room_of(self, topic: str) -> int:
        """The largest size of the records of a batch."""
        refused_bytes = self._refused_bytes.get(topic)
        if refused_bytes is None:
            return self._room
        return min(self._room, max(1, refused_bytes - 1 - OVERHEAD_BYTES))


class _Chunk(Protocol):
    """Successive records of a batch."""

    @property
    def times_ms(self) -> _Numbers:
        """The timestamps."""

    def sizes(self) -> _Numbers:
        """The size of each record in a batch, or a little more."""

    def alone_bytes(self) -> _Numbers:
        """The size of each record as the only one of a batch, exactly."""

    def cut(self, start: int, end: int) -> "_Chunk":
        """The records of a range."""

    def data(self, first_number: int, first_ms: int) -> bytes:
        """The records in a batch, in which the first of them has that number; ``first_ms`` is the
        batch's first timestamp.
        """


@dataclass(slots=True)
class _Open:
    """A batch that is not full."""

    chunks: list[_Chunk] = field(default_factory=list)
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class _Rows:
    """Few records, as rows of ``payload.PAYLOAD_SCHEMA``."""

    rows: list[dict[str, Any]]
    times_ms: _Numbers

    @classmethod
    def of(cls, rows: list[dict[str, Any]]) -> "_Rows":
        return cls(rows, np.array([row["timestamp_ms"] for row in rows], np.int64))

    def sizes(self) -> _Numbers:
        return self.alone_bytes()

    def alone_bytes(self) -> _Numbers:
        return np.array([len(_record(0, row, row["timestamp_ms"])) for row in self.rows], np.int64)

    def cut(self, start: int, end: int) -> "_Rows":
        return _Rows(self.rows[start:end], self.times_ms[start:end])

    def data(self, first_number: int, first_ms: int) -> bytes:
        return b"".join(
            _record(number, row, first_ms) for number, row in enumerate(self.rows, first_number)
        )


@dataclass(frozen=True, slots=True)
class _Columns:
    """Records as columns; ``headers`` is encoded, or None if no record has headers."""

    key: Framed
    value: Framed
    headers: Any | None
    times_ms: _Numbers

    def alone_bytes(self) -> _Numbers:
        headers: Any = 1 if self.headers is None else _lengths(Framed(self.headers), of_null=0)
        found: _Numbers = np.full(len(self.times_ms), _ALONE_BYTES, np.int64) + headers
        for each in (self.key, self.value):
            lengths = _lengths(each, of_null=-1)
            found = found + _varints(lengths)[1] + np.maximum(lengths, 0)
        return found + _varints(found)[1]

    def sizes(self) -> _Numbers:
        lengths = [_lengths(self.key, of_null=0), _lengths(self.value, of_null=0)]
        if self.headers is not None:
            lengths.append(_lengths(Framed(self.headers), of_null=0))
        else:
            lengths.append(np.ones(len(self.times_ms), np.int64))
        found: _Numbers = np.sum(lengths, axis=0) + _overhead_bytes(self.times_ms, *lengths)
        return found

    def cut(self, start: int, end: int) -> "_Columns":
        key, value = (
            replace(each, values=each.values.slice(start, end - start))
            for each in (self.key, self.value)
        )
        headers = None if self.headers is None else self.headers.slice(start, end - start)
        return _Columns(key, value, headers, self.times_ms[start:end])

    def data(self, first_number: int, first_ms: int) -> bytes:
        count = len(self.times_ms)
        if count > _JOINED_RECORDS:
            parts = [
                (start, self.cut(start, min(start + _JOINED_RECORDS, count)))
                for start in range(0, count, _JOINED_RECORDS)
            ]
            return b"".join(each.data(first_number + start, first_ms) for start, each in parts)
        numbers = np.arange(first_number, first_number + count)
        return _records(self.key, self.value, self.headers, self.times_ms - first_ms, numbers)


def _chunk_of(records: Any) -> _Chunk:
    key, value = Framed.of(records, "key"), Framed.of(records, "value")
    if records.num_rows > _FEW_RECORDS:
        times_ms = records.column("timestamp_ms").to_numpy()
        return _Columns(key, value, _headers(records.column("headers")), times_ms)
    rows = records.to_pylist()
    for name, framed in (("key", key), ("value", value)):
        for row in rows if framed.frame_bytes else ():
            if row[name] is not None:
                row[name] = framed.before + row[name] + framed.after
    return _Rows.of(rows)


def _halved(chunks: Sequence[_Chunk]) -> Iterator[Sequence[_Chunk]]:
    """The first and the second half of the records."""
    left = sum(len(each.times_ms) for each in chunks) // 2
    first, second = [], []
    for chunk in chunks:
        count = len(chunk.times_ms)
        if left:
            first.append(chunk.cut(0, min(left, count)))
        if left < count:
            second.append(chunk.cut(left, count))
        left = max(0, left - count)
    yield first
    yield second


def _record(number: int, row: dict[str, Any], first_timestamp_ms: int) -> bytes:
    pieces = [b"\0", _varint(row["timestamp_ms"] - first_timestamp_ms), _varint(number)]
    for blob in (row["key"], row["value"]):
        pieces += (b"\1",) if blob is None else (_varint(len(blob)), blob)
    found = b"".join((*pieces, _header_bytes(row["headers"] or ())))
    return _varint(len(found)) + found


def _records(
    key: Framed, value: Framed, headers: Any | None, deltas: _Numbers, numbers: _Numbers
) -> bytes:
    """The bytes of all records, concatenated."""
    count = len(deltas)
    key_lengths, value_lengths = _lengths(key, of_null=-1), _lengths(value, of_null=-1)
    behind_length = [
        (np.zeros((count, 1), np.uint8), np.ones(count, np.int64)),  # attributes
        _varints(deltas),
        _varints(numbers),
        _varints(key_lengths),
    ]
    before_value = [_varints(value_lengths)]
    length = sum(sizes for _, sizes in (*behind_length, *before_value))
    length = length + np.maximum(key_lengths, 0) + np.maximum(value_lengths, 0)
    length = length + (1 if headers is None else _lengths(Framed(headers), of_null=0))
    head = [_varints(length), *behind_length]
    pieces = _Pieces(count)
    if key.values.null_count == count:
        pieces.add(_flat([*head, *before_value]))
    else:
        pieces.add(_flat(head))
        pieces.add_framed(key)
        pieces.add(_flat(before_value))
    pieces.add_framed(value)
    if headers is None:
        pieces.add_same(_NO_HEADERS)
    else:
        pieces.add(headers)
    return pieces.joined()


class _Pieces:
    """The pieces of ``count`` records: arrays with one of each record, and bytes of all records.

    They are interleaved and joined once: joining element by element takes twice as long.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._arrays: list[Any] = []
        self._places: list[npt.NDArray[np.int32]] = []
        self._next = 0

    def add(self, array: Any) -> None:
        """Add a piece of each record; null is empty."""
        self._places.append(np.arange(self._next, self._next + self._count, dtype=np.int32))
        self._take(array)

    def add_same(self, blob: bytes, present: Any | None = None) -> None:
        """Add the same bytes to all records, or to each ``present`` one."""
        if blob:
            places = np.full(self._count, self._next, np.int32)
            if present is not None:
                places += ~np.asarray(present)
            self._places.append(places)
            self._take(pa.array([blob, b""], pa.binary()))

    def add_framed(self, framed: Framed) -> None:
        """Add values with their frames."""
        present = framed.values.is_valid() if framed.values.null_count else None
        self.add_same(framed.before, present)
        self.add(framed.values)
        self.add_same(framed.after, present)

    def joined(self) -> bytes:
        """The bytes of all records."""
        places = np.stack(self._places).ravel(order="F")
        joined = pa.concat_arrays(self._arrays).take(pa.array(places))
        _, ends, data = joined.buffers()
        return bytes(memoryview(data)[: np.frombuffer(ends, np.int32)[len(joined)]])

    def _take(self, array: Any) -> None:
        self._arrays.append(array)
        self._next += len(array)


def _overhead_bytes(times_ms: _Numbers, *lengths: _Numbers) -> int:
    """The largest size of a record without key, value and headers."""
    if not len(times_ms):
        return 0
    numbers = [np.ptp(times_ms), len(times_ms), *(each.max() for each in lengths)]
    return LENGTH_BYTES_MAX + 1 + sum(len(_varint(int(each))) for each in numbers)


def _lengths(framed: Framed, *, of_null: int) -> _Numbers:
    values = framed.values
    if values.null_count == len(values):
        return np.full(len(values), of_null, np.int64)
    lengths = pc.binary_length(values)
    if values.null_count:
        lengths = lengths.fill_null(of_null - framed.frame_bytes)
    found: _Numbers = lengths.to_numpy().astype(np.int64) + framed.frame_bytes
    return found


def _varints(numbers: _Numbers) -> tuple[npt.NDArray[np.uint8], _Numbers]:
    """Zigzag varints: a row of bytes per number, and their lengths."""
    if numbers.min() == numbers.max():  # as often with timestamps, and always without keys
        same = np.frombuffer(_varint(int(numbers[0])), np.uint8)
        shape = (len(numbers), len(same))
        return np.broadcast_to(same, shape), np.full(len(numbers), len(same), np.int64)
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


def _headers(column: Any) -> Any | None:
    """The header count and headers of each record; None if no record has headers."""
    if column.null_count == len(column):
        return None
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
