"""The size of a source's batches, by the duration of earlier batches."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drover_worker.engine.core.batch_size import FIRST_BYTES, LEAST_BYTES, TARGET_S, BatchSize

MIB = 1024 * 1024
MOST = 64 * MIB


def after(*seconds: float, most: int = MOST, follows: bool = True) -> int:
    size = BatchSize(most)
    for each in seconds:
        size.took(each, follows=follows)
    return size.bytes


def test_the_first_batch_is_less_than_the_most_and_quick_ones_make_the_next_larger() -> None:
    assert after() == FIRST_BYTES < MOST
    assert after(0.1) == 2 * FIRST_BYTES
    assert after(*[0.1] * 9) == MOST
    assert after(0.1, 0.1, most=1000) == 1000


def test_batches_that_come_now_and_then_do_not_make_the_next_one_larger() -> None:
    assert after(*[0.01] * 9, follows=False) == FIRST_BYTES


def test_a_batch_that_took_long_makes_the_next_one_smaller_in_proportion() -> None:
    assert after(1.5 * TARGET_S) == FIRST_BYTES * 2 // 3
    assert after(1000 * TARGET_S) == LEAST_BYTES


@given(st.lists(st.tuples(st.floats(0, 1000), st.booleans())), st.integers(1024, 2 * MOST))
def test_it_stays_within_its_limits(batches: list[tuple[float, bool]], most: int) -> None:
    size = BatchSize(most)
    for seconds, follows in batches:
        size.took(seconds, follows=follows)
        assert min(LEAST_BYTES, most) <= size.bytes <= most


@pytest.mark.parametrize(("fixed_s", "bytes_per_s"), [(0.03, 60e6), (0.5, 20e6), (0.05, 3e6)])
def test_a_long_flow_settles_where_a_batch_takes_as_long_as_it_should(
    fixed_s: float, bytes_per_s: float
) -> None:
    size, seconds = BatchSize(MOST), 0.0
    for _ in range(50):
        seconds = fixed_s + size.bytes / bytes_per_s
        size.took(seconds, follows=True)
    assert seconds == pytest.approx(TARGET_S, rel=0.01) or size.bytes == MOST
