"""The records per second over the last minute."""

from drover_worker.shell.task_rates import RecordRate


def test_a_steady_flow_has_its_rate_from_the_start_on() -> None:
    rate = RecordRate()
    assert rate.per_s(0) == 0
    rate.add(0, 0)
    for second in range(1, 200):
        rate.add(second * 1_000, second * 50)
        assert round(rate.per_s(second * 1_000)) == 50


def test_a_task_that_ended_its_work_a_minute_ago_has_rate_0() -> None:
    rate = RecordRate()
    rate.add(0, 0)
    rate.add(1_000, 6_000)
    assert rate.per_s(1_000) == 6_000
    assert rate.per_s(31_000) == 6_000 / 31
    assert rate.per_s(61_000) < 100
    assert rate.per_s(62_000) == 0
    assert rate.per_s(10_000_000) == 0


def test_a_burst_after_a_long_silence_counts_over_the_minute() -> None:
    rate = RecordRate()
    rate.add(0, 100)
    rate.add(1_000_000, 700)
    assert rate.per_s(1_000_000) == 10


def test_many_reports_within_a_second_are_one_sample() -> None:
    rate = RecordRate()
    for number in range(100_000):
        rate.add(number, number)
    assert round(rate.per_s(99_999)) == 1_000
    assert len(rate._samples) <= 62
