"""Extracts the fields of Kafka's record batches by column, if the records are plain: format 2
(KIP-98), consecutive offsets, no headers.

The start of a record is known only after parsing the one before, and that walk would cost more than
all else. So all starts are guessed at once and then verified: the first record must start at the
start of the data, each record must end where the next one starts, and the last one at the end.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from aiokafka.codec import gzip_decode, lz4_decode, snappy_decode, zstd_decode
from aiokafka.record.util import decode_varint

from drover.dataplane.kafka.batch_format import (
    CODEC,
    GZIP,
    HEAD,
    LENGTH_BYTES_MAX,
    LOG_APPEND_TIME,
    LZ4,
    MAGIC,
    NONE,
    OVERHEAD_BYTES,
    REST,
    SNAPPY,
    ZSTD,
)

#: For smaller batches a walk is as fast.
LEAST_RECORDS = 200
_DECODERS: dict[int, Callable[[bytes], bytes]] = {
    NONE: bytes,
    GZIP: gzip_decode,
    SNAPPY: snappy_decode,
    LZ4: lz4_decode,
    ZSTD: zstd_decode,
}
#: Attributes, timestamp, offset, no key, no value, no headers: a byte each.
_LEAST_RECORD_BYTES = 6
#: With more candidate starts per record than this, a walk is as fast.
_GUESSES_MAX = 16
#: How often candidates without a successor are removed.
_ROUNDS = 3
_VARINT_BYTES_MAX = 10

_Bytes = npt.NDArray[np.uint8]
_Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """Records of one batch, in order; timestamps are in milliseconds."""

    offsets: _Numbers
    timestamps_ms: _Numbers
    keys: "_Spans"
    values: "_Spans"


@dataclass(frozen=True, slots=True)
class _Spans:
    """The bytes of each record's field; a negative length is null."""

    data: bytes
    starts: _Numbers
    lengths: _Numbers

    def array(self) -> Any:
        """The fields as a binary array."""
        count = len(self.starts)
        if (self.lengths < 0).all():
            return pa.nulls(count, pa.binary())
        # every other piece of the data
        bounds = np.empty((count, 2), np.int32)
        bounds[:, 0] = self.starts
        bounds[:, 1] = self.starts + np.maximum(self.lengths, 0)
        pieces = pa.Array.from_buffers(
            pa.binary(), 2 * count - 1, [None, pa.py_buffer(bounds), pa.py_buffer(self.data)]
        )
        found = pieces.take(pa.array(np.arange(0, 2 * count, 2, dtype=np.int32)))
        if (self.lengths < 0).any():
            return pc.if_else(pa.array(self.lengths >= 0), found, pa.scalar(None, pa.binary()))
        return found


def decoded(codec: int, records: bytes) -> bytes:
    """Decompressed records of a batch; ``codec`` is one of ``batch_format``."""
    return _DECODERS[codec](records)


def columns_of(frame: bytes) -> RecordColumns | None:
    """The records of a batch with a correct checksum; None if they are not plain."""
    if len(frame) < OVERHEAD_BYTES:
        return None
    first_offset, _, _, magic, _ = HEAD.unpack_from(frame)
    attributes, last_delta, first_ms, last_ms, _, _, _, count = REST.unpack_from(frame, HEAD.size)
    if magic != MAGIC or count < LEAST_RECORDS or last_delta != count - 1:
        return None
    decode = _DECODERS.get(attributes & CODEC)
    if decode is None:
        return None
    records = decode(frame[OVERHEAD_BYTES:])
    length, begin = decode_varint(records, 0)
    if not 0 < length <= len(records) - begin or records[begin + length - 1]:
        return None  # the first record has headers: a cheap check
    data = np.frombuffer(records, np.uint8)
    found = _bounds(data, count)
    if found is None:
        return None
    begins, ends = found
    deltas_ms, at = _varints(data, begins + 1)
    numbers = np.arange(count)
    key_lengths, keys = _varints(data, at + _sizes(numbers))
    value_lengths, values = _varints(data, keys + np.maximum(key_lengths, 0))
    headers = values + np.maximum(value_lengths, 0)
    if (headers + 1 != ends).any() or data[headers].any():
        return None
    times_ms = np.full(count, last_ms) if attributes & LOG_APPEND_TIME else first_ms + deltas_ms
    return RecordColumns(
        first_offset + numbers,
        times_ms,
        _Spans(records, keys, key_lengths),
        _Spans(records, values, value_lengths),
    )


def _bounds(data: _Bytes, count: int) -> tuple[_Numbers, _Numbers] | None:
    """The start (after the length) and end of each record; None if they cannot be found.

    A record starts with its attributes, a zero byte, which follows the last byte of its length. The
    candidates are therefore zero bytes after a valid length.
    """
    is_begin = data[1:] == 0
    is_begin &= data[:-1] - np.uint8(1) < 0x7F
    begins = np.flatnonzero(is_begin) + 1
    if len(begins) > _GUESSES_MAX * count:
        return None
    starts, lengths = _lengths_before(data, begins)
    ends = begins + lengths
    kept = (lengths >= _LEAST_RECORD_BYTES) & (ends <= len(data))
    # a false candidate hardly ever ends at another candidate
    for _ in range(_ROUNDS):
        chosen = np.flatnonzero(kept)
        begins, starts, ends = begins.take(chosen), starts.take(chosen), ends.take(chosen)
        if len(begins) <= count:
            break
        is_start, is_end = (np.zeros(len(data) + 1, bool) for _ in range(2))
        is_start[starts] = is_start[len(data)] = True
        is_end[ends] = is_end[0] = True
        kept = is_start[ends] & is_end[starts]
    if len(begins) != count or starts[0] != 0 or ends[-1] != len(data):
        return None
    return (begins, ends) if (starts[1:] == ends[:-1]).all() else None


def _lengths_before(data: _Bytes, begins: _Numbers) -> tuple[_Numbers, _Numbers]:
    """The starts of the varints that end before these positions, and their values."""
    starts = begins - 1
    number = data[starts].astype(np.int64)
    more = starts > 0
    for _ in range(LENGTH_BYTES_MAX):
        before = data[starts - 1]
        more &= before >= 0x80
        if not more.any():
            break
        number = np.where(more, number << 7 | before & 0x7F, number)
        starts = starts - more
        more &= starts > 0
    return starts, np.where(number & 1, -1, number >> 1)


def _varints(data: _Bytes, at: _Numbers) -> tuple[_Numbers, _Numbers]:
    """The zigzag varints that start at these positions, and the positions after them."""
    found = data.take(at, mode="clip")
    number = found & np.uint8(0x7F)
    at = at + 1
    more = found >= 0x80
    for place in range(1, _VARINT_BYTES_MAX):
        if not more.any():
            break
        found = data.take(at, mode="clip")
        number = number | np.where(more, found & 0x7F, 0).astype(np.uint64) << np.uint64(7 * place)
        at = at + more
        more &= found >= 0x80
    one = number.dtype.type(1)
    signed = (number >> one) ^ (~(number & one) + one)
    return signed.view(f"i{number.itemsize}").astype(np.int64), at


def _sizes(numbers: _Numbers) -> _Numbers:
    """The sizes in bytes of the zigzag varints of non-negative numbers."""
    sizes = np.ones(len(numbers), np.int64)
    bound = 1 << 6
    while bound <= numbers[-1]:
        sizes[bound:] += 1
        bound <<= 7
    return sizes
