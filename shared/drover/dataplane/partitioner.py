"""The partition of a keyed record, as in Kafka's clients."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_SEED = 0x9747B28C
_M = np.uint32(0x5BD1E995)

_Hashes = npt.NDArray[np.uint32]


def murmur2(keys: npt.NDArray[np.uint8]) -> _Hashes:
    """Kafka's 32-bit murmur2 hash of keys of the same length, one per row."""
    count, length = keys.shape
    whole = length & ~3
    words = np.ascontiguousarray(keys[:, :whole]).view("<u4").astype(np.uint32, copy=False)
    hashes = np.full(count, _SEED ^ length, np.uint32)
    for number in range(whole // 4):
        word = words[:, number] * _M
        word ^= word >> np.uint32(24)
        hashes = hashes * _M ^ word * _M
    if whole < length:
        for place in range(whole, length):
            hashes ^= keys[:, place].astype(np.uint32) << np.uint32(8 * (place - whole))
        hashes = hashes * _M
    hashes ^= hashes >> np.uint32(13)
    hashes = hashes * _M
    return hashes ^ (hashes >> np.uint32(15))


def partitions_for_keys(keys: Any, partition_count: int) -> Any:
    """The partition of each key of a binary array with Kafka's default partitioner, as int32; null
    for null keys.
    """
    valid = keys.is_valid().to_numpy(zero_copy_only=False)
    _, ends, data = keys.buffers()
    offsets = np.frombuffer(ends, np.int32)[keys.offset : keys.offset + len(keys) + 1]
    text = np.frombuffer(data or b"", np.uint8)
    starts, lengths = offsets[:-1].astype(np.int64), np.diff(offsets)
    places = np.zeros(len(keys), np.int32)
    for length in np.unique(lengths[valid]):
        rows = np.flatnonzero(valid & (lengths == length))
        hashes = murmur2(text[starts[rows, None] + np.arange(length)])
        places[rows] = (hashes & np.uint32(0x7FFFFFFF)) % np.uint32(partition_count)
    return pa.array(places, mask=~valid)
