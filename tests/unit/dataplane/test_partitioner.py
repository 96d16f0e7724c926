import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drover.dataplane.partitioner import murmur2, partitions_for_keys


def alone(key: bytes, partition_count: int) -> int:
    (found,) = partitions_for_keys(pa.array([key], pa.binary()), partition_count).to_pylist()
    return int(found)


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
    (found,) = murmur2(np.frombuffer(key, np.uint8)[None, :])
    assert found == expected & 0xFFFFFFFF
    assert alone(key, 7) == (expected & 0x7FFFFFFF) % 7


@given(
    st.lists(st.none() | st.binary(max_size=9)),
    st.lists(st.none() | st.binary(max_size=9)),
    st.integers(1, 100),
)
def test_keys_of_a_column_go_where_each_goes_alone(
    keys: list[bytes | None], before: list[bytes | None], count: int
) -> None:
    column = pa.array([*before, *keys], pa.binary()).slice(len(before))
    found = partitions_for_keys(column, count).to_pylist()
    assert found == [None if key is None else alone(key, count) for key in keys]


def test_no_keys_go_nowhere() -> None:
    assert partitions_for_keys(pa.array([], pa.binary()), 3).to_pylist() == []
    assert partitions_for_keys(pa.nulls(2, pa.binary()), 3).to_pylist() == [None, None]
