"""Limits of a task's records and bytes per second."""

import pytest

from drover_worker.engine.core.rate_limit import RateLimit
from tests.unit.engine.runner_world import Lines, World, Writer


def test_without_a_limit_nothing_waits() -> None:
    rate = RateLimit(0, 0)
    rate.moved(1_000_000, 1 << 30, started_s=100.0)
    assert rate.pause_s(100.0) == 0
    assert (rate.batch_max_records(7), rate.batch_max_bytes(9)) == (7, 9)


def test_a_batch_has_what_may_go_through_in_a_second() -> None:
    rate = RateLimit(10, 2_000)
    assert (rate.batch_max_records(100), rate.batch_max_bytes(1 << 20)) == (10, 2_000)
    assert (rate.batch_max_records(5), rate.batch_max_bytes(1_024)) == (5, 1_024)


def test_a_source_that_does_not_go_by_bytes_is_told_how_many_records_they_are() -> None:
    rate = RateLimit(0, 10_240)
    assert rate.next_max_records(1_000) == 10, "a record counts as 1 KiB before the first batch"
    rate.moved(10, 1_000, started_s=100.0)
    assert rate.next_max_records(1_000) == 102
    assert rate.next_max_records(50) == 50
    rate.moved(1, 1 << 20, started_s=100.0)
    assert rate.next_max_records(1_000) == 1
    assert RateLimit(5, 0).next_max_records(1_000) == 1_000


@pytest.mark.parametrize(("records", "size_bytes", "free_at_s"), [(10, 100, 102), (1, 3_000, 103)])
def test_the_slower_of_both_rates_counts(records: int, size_bytes: int, free_at_s: int) -> None:
    rate = RateLimit(5, 1_000)
    rate.moved(records, size_bytes, started_s=100.0)
    assert rate.pause_s(100.5) == free_at_s - 100.5


def test_time_that_a_batch_took_is_not_waited_for_again() -> None:
    rate = RateLimit(5, 0)
    rate.moved(10, 100, started_s=100.0)
    assert rate.pause_s(107.0) == 0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now_s = [100.0]
    monkeypatch.setattr("drover_worker.engine.tasks.task_runner.time.monotonic", lambda: now_s[0])
    return now_s


def test_a_source_keeps_to_its_rate(world: World, clock: list[float]) -> None:
    runner = world.source(**{"rate.max.records": "2"})
    assert runner.run_once() == 0
    assert runner.run_once() == 0.5  # one record at two records a second
    assert world.record_count == 1
    clock[0] += 0.5
    assert runner.run_once() == 0
    assert world.record_count == 2


def test_a_source_keeps_to_its_rate_of_bytes(world: World, clock: list[float]) -> None:
    runner = world.source(**{"rate.max.bytes": "1"})
    assert runner.run_once() == 0
    pause_s = runner.run_once()
    assert pause_s is not None
    assert pause_s >= len("line 0")
    clock[0] += pause_s
    assert runner.run_once() == 0
    assert world.record_count == 2
    assert Lines.made[0].context.config["batch.max.records"] == 1


def test_a_sink_reads_as_many_records_as_a_second_may_have(world: World) -> None:
    world.fill()
    world.sink(**{"rate.max.records": "2"}).run_once()
    assert [offset for _, offset, _ in Writer.written] == [0, 1]


def test_a_sink_reads_as_many_bytes_as_a_second_may_have_but_one_record_at_least(
    world: World, clock: list[float]
) -> None:
    world.fill()
    sink = world.sink(**{"rate.max.bytes": "1"})
    sink.run_once()
    world.answer_commit()
    pause_s = sink.run_once()
    assert pause_s is not None
    assert pause_s >= len("line 0")
    assert [offset for _, offset, _ in Writer.written] == [0]
