"""Figures of connectors over the last hour: rows in a worker, and points of all workers."""

from drover.api.worker.v1 import worker_service_pb2 as worker_pb
from drover.codec.common import decode_timestamp
from drover_worker.admin.figures import points_of
from drover_worker.shell.connector_figures import (
    INTERVAL_MS,
    ROWS_MAX,
    Amounts,
    ConnectorFigures,
    Row,
)

#: The start of an interval.
T0 = 1_700_000_000_000
NO_TIMES = (0, 0, 0, 0, 0, 0, 0, 0)


def read(count: int, batches: int = 0, batch_us: int = 0) -> Amounts:
    return Amounts((count, 0, 0), (batches, batch_us, 0, 0, 0, 0, 0, 0))


def shown(rows: list[Row]) -> list[tuple[int, int, int | None]]:
    return [((row.begin_ms - T0) // INTERVAL_MS, row.amounts.counts[0], row.lag) for row in rows]


def test_a_row_has_what_was_done_in_its_interval() -> None:
    figures = ConnectorFigures()
    figures.add(T0, "c", 0, read(0), read(5), 9)
    figures.add(T0 + 9_999, "c", 0, read(5), read(7), 8)
    figures.add(T0 + 10_000, "c", 1, read(0), read(100), None)
    # an interval that is not over is not shown
    assert shown(figures.rows(T0 + 9_999, "c", [0, 1])) == []
    assert shown(figures.rows(T0 + 10_000, "c", [0, 1])) == [(0, 7, 8)]
    assert shown(figures.rows(T0 + 20_000, "c", [0, 1])) == [(0, 7, 8), (1, 100, 8)]
    assert figures.rows(T0 + 20_000, "other", [0]) == []


def test_without_reports_nothing_was_done_and_the_lag_stayed() -> None:
    figures = ConnectorFigures()
    figures.add(T0, "c", 0, read(0), read(5), 9)
    figures.add(T0 + 30_000, "c", 0, read(5), read(6), None)
    expected = [(0, 5, 9), (1, 0, 9), (2, 0, 9), (3, 1, None)]
    assert shown(figures.rows(T0 + 50_000, "c", [0])) == [*expected, (4, 0, None)]
    # after its tasks have left, the worker has no say about later intervals
    assert shown(figures.rows(T0 + 50_000, "c", [])) == expected


def test_the_lag_is_that_of_tasks_that_are_here() -> None:
    figures = ConnectorFigures()
    figures.add(T0, "c", 0, read(0), read(1), 10)
    figures.add(T0, "c", 1, read(0), read(1), 20)
    assert shown(figures.rows(T0 + 10_000, "c", [1]))[-1] == (0, 2, 30)
    figures.add(T0 + 10_000, "c", 1, read(1), read(2), 19)
    assert shown(figures.rows(T0 + 20_000, "c", [1]))[-1] == (1, 1, 19)


def test_a_task_that_counts_again_from_nothing_is_counted_on() -> None:
    figures = ConnectorFigures()
    figures.add(T0, "c", 0, read(0), read(50, 2, 300), None)
    figures.add(T0 + 1, "c", 0, read(50, 2, 300), read(3, 1, 100), None)
    (row,) = figures.rows(T0 + 10_000, "c", [])
    assert row.amounts == read(53, 3, 400)


def test_an_hour_is_kept_and_no_more() -> None:
    figures = ConnectorFigures()
    for at in range(ROWS_MAX + 100):
        figures.add(T0 + at * INTERVAL_MS, "c", 0, read(at), read(at + 1), None)
    end_ms = T0 + (ROWS_MAX + 100) * INTERVAL_MS
    rows = shown(figures.rows(end_ms, "c", [0]))
    assert len(rows) == ROWS_MAX
    assert rows[0] == (100, 1, None)
    # a task that has been idle for hours has as many points
    later = figures.rows(end_ms + 3 * ROWS_MAX * INTERVAL_MS, "c", [0])
    assert (len(later), later[-1].amounts.counts[0]) == (ROWS_MAX, 0)


def test_deleted_connectors_and_those_that_left_are_forgotten() -> None:
    figures = ConnectorFigures()
    for name in ("deleted", "left", "idle"):
        figures.add(T0, name, 0, read(0), read(1), None)
    hour_later_ms = T0 + ROWS_MAX * INTERVAL_MS
    figures.forget(T0 + 10_000, ["left", "idle"], [])
    kept = [bool(figures.rows(T0 + 20_000, name, [])) for name in ("deleted", "left", "idle")]
    assert kept == [False, True, True]
    figures.forget(hour_later_ms, ["left", "idle"], ["idle"])
    kept = [bool(figures.rows(T0 + 20_000, name, [])) for name in ("left", "idle")]
    assert kept == [False, True]


def row(interval: int, read_count: int, lag: int | None, batches: int = 0) -> worker_pb.FigureRow:
    message = worker_pb.FigureRow(read_count=read_count)
    message.begin_time.FromMilliseconds(T0 + interval * INTERVAL_MS)
    message.batch_times.count, message.batch_times.total_us = batches, batches * 2_500
    if lag is not None:
        message.lag = lag
    return message


def test_points_are_sums_and_means_of_all_workers_without_gaps() -> None:
    rows = [row(0, 100, 3, 2), row(3, 50, None), row(0, 20, 4, 4), row(1, 10, 0)]
    points = points_of(rows)
    begin = [(decode_timestamp(each.begin_time) - T0) // INTERVAL_MS for each in points]
    assert begin == [0, 1, 2, 3]
    assert [each.read_per_second for each in points] == [12.0, 1.0, 0.0, 5.0]
    assert [each.lag if each.HasField("lag") else None for each in points] == [7, 0, None, None]
    assert points[0].batch_duration.ToMicroseconds() == 2_500
    assert not points[1].HasField("batch_duration")
    assert points_of([]) == []
    assert len(points_of([row(0, 1, 1), row(10 * ROWS_MAX, 1, 1)])) == ROWS_MAX
