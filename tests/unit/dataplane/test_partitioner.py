import pyarrow as pa
import pytest

from drover.dataplane.partitioner import murmur2, partition_for_key, partitions_for_keys


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        # org.apache.kafka.common.utils.UtilsTest#testMurmur2
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_the_hash_is_kafkas(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected & 0xFFFFFFFF
    assert partition_for_key(key, 7) == (expected & 0x7FFFFFFF) % 7


def test_keys_of_a_column() -> None:
    keys = [b"a", None, b"b", b"a", b""]
    found = partitions_for_keys(pa.array(keys, pa.binary()), 5).to_pylist()
    assert found == [None if key is None else partition_for_key(key, 5) for key in keys]
