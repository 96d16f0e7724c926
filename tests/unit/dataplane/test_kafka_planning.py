"""Which offsets of Kafka's partitions a batch takes."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drover.dataplane.kafka.planning import RANGE_BYTES, Bounds, joined, plan
from drover.dataplane.plane import require_reached
from drover.dataplane.values import ReadRange
from drover.errors import DataLossError

MANY = 10**12


def ranges_of(
    starts: Mapping[tuple[str, int], int],
    bounds: Mapping[tuple[str, int], Bounds],
    *,
    record_bytes: float = 1,
    max_records: int = MANY,
    max_bytes: int = MANY,
    range_bytes: int = MANY,
) -> list[tuple[str, int, int, int]]:
    planned = plan(
        starts,
        bounds,
        dict.fromkeys(starts, record_bytes),
        max_records=max_records,
        max_bytes=max_bytes,
        range_bytes=range_bytes,
    )
    return [
        (each.topic, each.partition, each.start_offset, each.end_offset) for each in planned.ranges
    ]


def test_everything_up_to_the_end_is_read() -> None:
    starts = {("t", 0): 3, ("t", 1): 5}
    assert ranges_of(starts, {("t", 0): Bounds(0, 10), ("t", 1): Bounds(0, 5)}) == [("t", 0, 3, 10)]


def test_a_partition_that_nobody_knows_waits() -> None:
    planned = plan({("t", 0): 3}, {}, {}, max_records=1, max_bytes=1)
    assert (planned.ranges, planned.next_offsets) == ((), {("t", 0): 3})


def test_what_retention_removed_is_skipped_and_told() -> None:
    planned = plan(
        {("t", 0): 3, ("t", 1): 0},
        {("t", 0): Bounds(7, 9), ("t", 1): Bounds(5, 5)},
        {},
        max_records=MANY,
        max_bytes=MANY,
    )
    assert planned.skipped == {("t", 0): 4, ("t", 1): 5}
    assert planned.next_offsets == {("t", 0): 9, ("t", 1): 5}
    assert [each.start_offset for each in planned.ranges] == [7]


def test_records_are_bounded_and_shared_out() -> None:
    starts = {("t", n): 0 for n in range(3)}
    bounds = {("t", 0): Bounds(0, 2), ("t", 1): Bounds(0, 100), ("t", 2): Bounds(0, 100)}
    assert ranges_of(starts, bounds, max_records=10) == [
        ("t", 0, 0, 2),
        ("t", 1, 0, 4),
        ("t", 2, 0, 4),
    ]


def test_bytes_are_bounded_by_the_estimate() -> None:
    assert ranges_of({("t", 0): 0}, {("t", 0): Bounds(0, 100)}, record_bytes=10, max_bytes=55) == [
        ("t", 0, 0, 5)
    ]


def test_one_record_is_read_however_large_it_is() -> None:
    assert ranges_of(
        {("t", 0): 0}, {("t", 0): Bounds(0, 100)}, record_bytes=10**9, max_bytes=1
    ) == [("t", 0, 0, 1)]


def test_a_long_range_is_cut_for_several_executors() -> None:
    found = ranges_of(
        {("t", 0): 0}, {("t", 0): Bounds(0, 250)}, record_bytes=100, range_bytes=10_000
    )
    assert found == [("t", 0, 0, 100), ("t", 0, 100, 200), ("t", 0, 200, 250)]


def test_records_nobody_has_seen_are_taken_for_a_kilobyte() -> None:
    planned = plan(
        {("t", 0): 0}, {("t", 0): Bounds(0, MANY)}, {}, max_records=MANY, max_bytes=64 << 20
    )
    assert planned.record_count == 64 << 10
    assert all(each.size_bytes <= RANGE_BYTES for each in planned.ranges)


def test_neighbours_are_read_as_one() -> None:
    ranges = (
        ReadRange("t", 0, 0, 10, 5),
        ReadRange("t", 0, 10, 20, 5),
        ReadRange("t", 1, 20, 30, 5),
        ReadRange("t", 1, 31, 40, 5),
    )
    assert list(joined(ranges)) == [
        ReadRange("t", 0, 0, 20, 10),
        ReadRange("t", 1, 20, 30, 5),
        ReadRange("t", 1, 31, 40, 5),
    ]


@given(
    st.dictionaries(
        st.tuples(st.sampled_from("ab"), st.integers(0, 3)),
        st.tuples(st.integers(0, 50), st.integers(0, 50), st.integers(0, 50)),
    ),
    st.integers(1, 100),
    st.integers(1, 500),
    st.floats(0.1, 60),
)
def test_plans_follow_on_each_other_without_gap_and_come_to_the_end(
    drawn: dict[tuple[str, int], tuple[int, int, int]],
    max_records: int,
    max_bytes: int,
    record_bytes: float,
) -> None:
    bounds = {key: Bounds(first, first + length) for key, (_, first, length) in drawn.items()}
    positions: Mapping[tuple[str, int], int] = {
        key: min(start, bounds[key].end) for key, (start, _, _) in drawn.items()
    }
    for _ in range(1_000):
        planned = plan(
            positions,
            bounds,
            dict.fromkeys(bounds, record_bytes),
            max_records=max_records,
            max_bytes=max_bytes,
            range_bytes=64,
        )
        at = {key: positions[key] + planned.skipped.get(key, 0) for key in positions}
        for each in planned.ranges:
            key = (each.topic, each.partition)
            assert at[key] == each.start_offset < each.end_offset
            at[key] = each.end_offset
        assert at == planned.next_offsets
        assert planned.record_count <= max_records
        if not planned.ranges:
            break
        positions = planned.next_offsets
    assert positions.keys() == bounds.keys()
    assert all(planned.next_offsets[key] == max(bounds[key].end, positions[key]) for key in bounds)


def test_a_partition_that_ends_before_it_was_read_to_is_told() -> None:
    require_reached({("t", 0): 5, ("gone", 0): 5}, {("t", 0): 5})
    with pytest.raises(DataLossError, match="t-1 ends at offset 4, but was read up to 5"):
        require_reached({("t", 0): 5, ("t", 1): 5}, {("t", 0): 6, ("t", 1): 4})
