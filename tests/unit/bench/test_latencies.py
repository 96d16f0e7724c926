"""How latencies, time shares and growth are computed from samples."""

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from bench.figure import percentile
from bench.kafka_latency import Pair
from bench.memory import slope_mib_an_hour
from bench.small_tasks import Outcome
from tests.support.waiting import wait_until_async


async def test_a_line_has_arrived_once_the_target_is_as_long_as_the_source_was_with_it(
    tmp_path: Path,
) -> None:
    pair = Pair(tmp_path / "in.txt", tmp_path / "out.txt")
    for line in ("one\n", "another\n", "the last\n"):
        pair.append(line)
    following = asyncio.create_task(pair.follow())
    try:
        pair.target.write_text("one\nanother\nthe")
        await wait_until_async(lambda: len(pair.latencies_s) == 2)
        pair.target.write_text("one\nanother\nthe last\n")
        await pair.all_there("nobody")
    finally:
        following.cancel()
        with suppress(asyncio.CancelledError):
            await following
    assert len(pair.latencies_s) == 3
    assert pair.latencies_s[2] >= 0


@pytest.mark.parametrize(("part", "found"), [(0.5, 50), (0.99, 99), (1.0, 100), (0.001, 1)])
def test_a_percentile_is_the_smallest_that_so_many_do_not_exceed(part: float, found: int) -> None:
    assert percentile([float(each) for each in range(100, 0, -1)], part) == found


def test_lines_that_never_came_are_not_in_time() -> None:
    outcome = Outcome(latencies_s=[0.2, 0.9, 1.1], line_count=4, behind_count=1, cpu={})
    assert outcome.in_time == 0.5


def test_growth_counts_after_the_warm_up() -> None:
    assert slope_mib_an_hour([100, 300, 400, 500, 501, 502, 503]) == pytest.approx(60)
