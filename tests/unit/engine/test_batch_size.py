"""How large batches of a source are, by how long those before took."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drover_worker.engine.batch_size import LEAST_BYTES, BatchSize

MIB = 1024 * 1024
MOST = 64 * MIB


def after(*seconds: float, most: int = MOST, follows: bool = True) -> int:
    size = BatchSize(most)
    for each in seconds:
        size.took(each, follows=follows)
    return size.bytes


def test_the_first_batch_is_small_and_none_is_larger_than_the_limit() -> None:
    assert after() == LEAST_BYTES
    assert after(*[0.1] * 9) == MOST
    assert after(*[0.1] * 9, most=1000) == 1000


def test_batches_that_come_now_and_then_do_not_make_the_next_one_larger() -> None:
    assert after(*[0.01] * 9, follows=False) == LEAST_BYTES


def test_a_batch_that_took_long_makes_the_next_one_smaller_in_proportion() -> None:
    assert after(0.1, 0.1, 0.1, 0.8) == 16 * MIB
    assert after(0.1, 0.1, 60.0) == LEAST_BYTES


def test_what_every_batch_waits_for_does_not_keep_them_small() -> None:
    """As of brokers that are far away: two seconds, whatever there is to write."""
    assert after(*[2.0] * 9) == MOST


@given(st.lists(st.tuples(st.floats(0, 1000), st.booleans())), st.integers(1024, 2 * MOST))
def test_it_stays_within_its_limits(batches: list[tuple[float, bool]], most: int) -> None:
    size = BatchSize(most)
    for seconds, follows in batches:
        size.took(seconds, follows=follows)
        assert min(LEAST_BYTES, most) <= size.bytes <= most


@pytest.mark.parametrize(("fixed_s", "bytes_per_s"), [(0.03, 40e6), (0.5, 40e6), (0.05, 2e6)])
def test_a_long_flow_settles_where_waiting_is_a_quarter_of_the_time_at_most(
    fixed_s: float, bytes_per_s: float
) -> None:
    size, seconds = BatchSize(MOST), 0.0
    for _ in range(50):
        seconds = fixed_s + size.bytes / bytes_per_s
        size.took(seconds, follows=True)
    assert fixed_s <= seconds / 4 or size.bytes == MOST
    assert seconds <= max(0.4, 4 * (fixed_s + LEAST_BYTES / bytes_per_s)) * 1.01
