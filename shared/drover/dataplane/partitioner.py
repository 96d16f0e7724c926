"""Which partition a keyed record goes to: the same as with Kafka's own clients."""

from typing import Any

import pyarrow as pa

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Kafka's 32-bit murmur2 hash, unsigned."""
    length = len(data)
    h = (_SEED ^ length) & _MASK
    whole = length & ~3
    for index in range(0, whole, 4):
        k = int.from_bytes(data[index : index + 4], "little")
        k = (k * _M) & _MASK
        k ^= k >> 24
        k = (k * _M) & _MASK
        h = (h * _M) & _MASK
        h ^= k
    rest = data[whole:]
    if rest:
        h ^= int.from_bytes(rest, "little")
        h = (h * _M) & _MASK
    h ^= h >> 13
    h = (h * _M) & _MASK
    return h ^ (h >> 15)


def partition_for_key(key: bytes, partition_count: int) -> int:
    """Where Kafka's default partitioner puts the key."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


def partitions_for_keys(keys: Any, partition_count: int) -> Any:
    """The partition of each key of a binary array, as int32; null where the key is null."""
    encoded = keys.dictionary_encode()
    places = pa.array(
        [partition_for_key(key, partition_count) for key in encoded.dictionary.to_pylist()],
        pa.int32(),
    )
    return places.take(encoded.indices)
