"""A worker's metrics of its connectors and tasks."""

from typing import Any

import pytest

from drover.api.common.v1.figures_pb2 import Figure
from drover.api.common.v1.record_counts_pb2 import RecordCounts
from drover.api.engine.v1 import engine_pb2 as pb
from drover.codec.common import encode_task_id
from drover.metrics.figures import Tally
from drover.model.config import TargetState
from drover.model.ids import TaskId
from drover_worker.core import events
from drover_worker.core.engine_slots import SHARED
from drover_worker.shell.metrics import WorkerMetrics
from tests.support.herder_driver import HerderDriver, entry

C0 = TaskId("c", 0)


class Observed:
    """A herder with metrics."""

    def __init__(self, herder: HerderDriver) -> None:
        self.driver = herder
        self.metrics = WorkerMetrics(herder.herder)

    def step(self, event: events.HerderEvent) -> None:
        self.driver.step(event)
        self.metrics.observe(event)

    def told(self) -> dict[tuple[str, ...], Any]:
        return {(each.metric.name, *each.labels): each.value for each in self.metrics.samples()}

    def run_of(self, key: str | TaskId) -> int:
        item = self.driver.herder.work.find(key)
        assert item is not None
        return item.run_id

    def progress(self, **fields: Any) -> None:
        fields.setdefault("run_id", self.run_of(C0))
        one = pb.TaskProgress.Entry(task=encode_task_id(C0), **fields)
        self.metrics.progressed(SHARED, pb.TaskProgress(entries=[one]))


@pytest.fixture
def observed(herder: HerderDriver) -> Observed:
    found = Observed(herder)
    herder.ready(entry("c", tasks=1))
    herder.settle_as_leader()
    herder.run_engine()
    return found


def test_counts_go_on_over_the_runs_of_a_task(observed: Observed) -> None:
    times = pb.TaskProgress.Times(count=2, total_us=500_000)
    counts = RecordCounts(read_count=7, written_count=5, filtered_count=1, skipped_count=1)
    for _ in range(2):  # a repeated report counts once
        observed.progress(
            counts=counts, batch_count=2, batch_times=times, retry_count=1, size_bytes=100
        )
    told = observed.told()
    assert told["drover_task_records_read_total", "c", "0"] == 7
    assert told["drover_task_records_written_total", "c", "0"] == 5
    assert told["drover_task_bytes_total", "c", "0"] == 100

    observed.step(events.TaskFailed(C0, observed.run_of(C0), "ValueError"))
    observed.driver.restart_requested("c", only_failed=True, include_tasks=True)
    observed.driver.run_engine()
    observed.progress(counts=RecordCounts(read_count=3), batch_count=1, batch_times=times)
    told = observed.told()
    assert told["drover_task_records_read_total", "c", "0"] == 10
    assert told["drover_task_records_written_total", "c", "0"] == 5
    assert told["drover_task_retries_total", "c", "0"] == 1
    tally = told["drover_task_batch_seconds", "c", "0"]
    assert isinstance(tally, Tally)
    assert (tally.count, tally.total) == (4, 1.0)


def test_what_an_earlier_run_tells_late_counts_nothing(observed: Observed) -> None:
    observed.progress(run_id=observed.run_of(C0) + 1, counts=RecordCounts(read_count=7))
    assert observed.told()["drover_task_records_read_total", "c", "0"] == 0


def test_figures_are_told_while_the_task_runs(observed: Observed) -> None:
    figures = [Figure(name="lag_count", value=9), Figure(name="slot_lag_bytes", value=4)]
    observed.progress(figures=figures)
    told = observed.told()
    assert told["drover_task_lag_records", "c", "0"] == 9
    assert told["drover_task_figure", "c", "0", "slot_lag_bytes"] == 4
    observed.step(events.TaskFailed(C0, observed.run_of(C0), "ValueError"))
    told = observed.told()
    assert ("drover_task_lag_records", "c", "0") not in told
    assert told["drover_task_state", "c", "0", "FAILED"] == 1
    assert ("drover_task_state", "c", "0", "RUNNING") not in told


def test_the_lag_of_a_paused_sink_is_told(observed: Observed) -> None:
    figures = [Figure(name="lag_count", value=0), Figure(name="other_count", value=1)]
    observed.progress(figures=figures)
    observed.driver.target("c", TargetState.PAUSED)
    observed.driver.run_engine()
    observed.progress(figures=[Figure(name="lag_count", value=20_000)])
    told = observed.told()
    assert told["drover_task_state", "c", "0", "PAUSED"] == 1
    assert told["drover_task_lag_records", "c", "0"] == 20_000
    assert ("drover_task_figure", "c", "0", "other_count") not in told


def test_failures_count_once_with_their_cause(observed: Observed) -> None:
    failed = events.TaskFailed(C0, observed.run_of(C0), "ValueError")
    observed.step(failed)
    observed.step(failed)
    told = observed.told()
    assert told["drover_task_failures_total", "c", "0", "PLUGIN"] == 1
    assert told["drover_task_failures_total", "c", "0", "ENGINE"] == 0
    assert told["drover_task_last_failure_timestamp_seconds", "c", "0"] > 0


def test_an_engine_that_ends_fails_everything(observed: Observed) -> None:
    observed.step(events.EngineLost("killed"))
    told = observed.told()
    assert told["drover_engine_up",] == 0
    assert told["drover_engine_exits_total",] == 1
    assert told["drover_task_failures_total", "c", "0", "ENGINE"] == 1
    assert told["drover_connector_failures_total", "c", "ENGINE"] == 1


def test_a_deleted_connectors_series_end_with_it(observed: Observed) -> None:
    observed.progress(counts=RecordCounts(read_count=7), batch_count=1)
    assert any("c" in key[1:] for key in observed.told())
    observed.driver.remove("c")
    observed.driver.run_engine()
    assert [key for key in observed.told() if "c" in key[1:]] == []


def test_a_rebalance_counts_from_its_begin_to_its_end(herder: HerderDriver) -> None:
    observed = Observed(herder)
    herder.ready()
    observed.metrics.observe(events.EngineReady())
    assert observed.told()["drover_worker_rebalancing",] == 1
    herder.settle_as_leader()
    observed.metrics.observe(events.CountsDue())
    told = observed.told()
    assert told["drover_worker_rebalancing",] == 0
    assert told["drover_worker_leader",] == 1
    assert told["drover_worker_rebalance_seconds",].count == 1
    assert told["drover_worker_stage", "SETTLED"] == 1
