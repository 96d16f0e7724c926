"""Spark's fair scheduler pools: no more pools than concurrent batches."""

from contextlib import ExitStack

from drover_worker.engine.tasks.fair_pools import FairPools


def test_what_runs_at_once_is_in_different_pools() -> None:
    pools = FairPools()
    with ExitStack() as stack:
        assert len({stack.enter_context(pools.lent()) for _ in range(5)}) == 5


def test_names_are_used_again() -> None:
    pools, seen = FairPools(), set()
    for _ in range(100):
        with pools.lent() as first, pools.lent() as second:
            seen |= {first, second}
    assert len(seen) == 2


def test_a_batch_that_fails_gives_its_pool_back() -> None:
    pools, seen = FairPools(), set()
    for _ in range(3):
        try:
            with pools.lent() as name:
                seen.add(name)
                raise LookupError
        except LookupError:
            pass
    assert len(seen) == 1
