"""The present activity of a task: steps, retries, hangs, snapshots, lag."""

import math
import threading
from typing import Any

import pytest

from drover.api.common.v1 import activity_pb2
from drover.api.engine.v1 import engine_pb2
from drover.codec.common import decode_figures, decode_timestamp
from drover.connector import RetriableError, SnapshotProgress, SourceBatch
from drover_worker.engine.core.steps import Step
from drover_worker.engine.plugins.stacks import stack_of
from drover_worker.engine.tasks.activity import TaskActivity
from drover_worker.engine.tasks.sink_lag import SinkLag
from drover_worker.engine.tasks.task_runner import TaskRunner
from tests.unit.engine.runner_world import Lines, World, Writer, unavailable

STEP = activity_pb2.TaskStep


class Time:
    """A clock that tests set."""

    def __init__(self) -> None:
        self.ms = 1_000_000

    def now_ms(self) -> int:
        return self.ms


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def activity(time: Time) -> TaskActivity:
    return TaskActivity(time)


def entry_of(runner: TaskRunner) -> engine_pb2.TaskProgress.Entry:
    entry = runner.progress()
    assert entry is not None
    return entry


def step_name(runner: TaskRunner) -> str:
    return STEP.Name(runner._activity.encode().step).removeprefix("TASK_STEP_")


def api_down() -> None:
    raise RetriableError("GET /tickets: connection refused")


def poll_that(monkeypatch: pytest.MonkeyPatch, fault: Any) -> None:
    monkeypatch.setattr(Lines, "poll", lambda _task: fault())


def test_a_poll_that_is_retried_is_visible_with_its_error_and_the_next_attempt(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = world.source(**{"errors.retry.timeout": "-1"})
    poll = Lines.poll
    poll_that(monkeypatch, api_down)
    pauses = [runner.run_once() for _ in range(3)]
    entry = entry_of(runner)
    retry = entry.activity.retry
    assert (retry.operation, retry.failure_count) == ("poll()", 3)
    assert retry.message == "GET /tickets: connection refused"
    pause_s = pauses[-1]
    assert pause_s is not None
    waits_ms = decode_timestamp(retry.next_attempt_time) - decode_timestamp(retry.begin_time)
    assert waits_ms >= pause_s * 1000
    assert entry.activity.step == STEP.TASK_STEP_WAITING_TO_RETRY
    assert runner.progress() is None, "each failure is reported once"
    monkeypatch.setattr(Lines, "poll", poll)
    runner.run_once()
    assert not entry_of(runner).activity.HasField("retry")


def test_retries_end_with_a_poll_that_finds_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = world.source(**{"errors.retry.timeout": "-1"})
    poll_that(monkeypatch, api_down)
    runner.run_once()
    poll_that(monkeypatch, lambda: None)
    runner.run_once()
    entry = entry_of(runner)
    assert not entry.activity.HasField("retry")
    assert entry.activity.step == STEP.TASK_STEP_WAITING_FOR_RECORDS


def test_a_batch_for_a_busy_store_is_retried_visibly(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = world.source()
    with monkeypatch.context() as patch:
        patch.setattr(world.store, "publish", lambda *_: unavailable())
        runner.run_once()
    retry = entry_of(runner).activity.retry
    assert retry.operation == "batch"
    assert "data.db stayed locked for 30 s" in retry.message
    runner.run_once()
    assert not entry_of(runner).activity.HasField("retry")


def test_a_write_that_meets_a_locked_table_is_retried_visibly(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def locked(_task: Writer, _batch: object) -> object:
        raise RetriableError("lock timeout: table orders")

    world.fill()
    sink = world.sink(**{"errors.retry.timeout": "-1"})
    with monkeypatch.context() as patch:
        patch.setattr(Writer, "write", locked)
        for _ in range(2):
            sink.run_once()
    retry = entry_of(sink).activity.retry
    assert (retry.operation, retry.failure_count) == ("write()", 2)
    assert retry.message == "lock timeout: table orders"
    sink.run_once()
    world.answer_commit()
    sink.run_once()
    assert not entry_of(sink).activity.HasField("retry")


def test_the_step_of_a_sink_is_visible(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = world.sink()
    steps: list[str] = []
    write = Writer.write

    def noting(task: Writer, batch: Any) -> Any:
        steps.append(step_name(sink))
        return write(task, batch)

    monkeypatch.setattr(Writer, "write", noting)
    sink.run_once()
    steps.append(step_name(sink))
    world.answer_commit() if world.tools.commits else None
    world.fill()
    sink.run_once()
    steps.append(step_name(sink))
    world.answer_commit()
    sink.run_once()
    steps.append(step_name(sink))
    assert steps == [
        "WAITING_FOR_RECORDS",
        "WRITING",
        "COMMITTING",
        "WAITING_FOR_RECORDS",
    ]


def test_a_paused_task_says_so(world: World) -> None:
    runner = world.source()
    runner.set_paused(True)
    runner.run_once()
    assert step_name(runner) == "PAUSED"


def test_an_idle_source_reports_no_changes(activity: TaskActivity, time: Time) -> None:
    activity.enter(Step.WAITING_FOR_RECORDS)
    told = activity.encode()
    for _ in range(5):
        time.ms += 700
        activity.enter(Step.POLLING)
        assert activity.encode() == told
        time.ms += 100
        activity.enter(Step.WAITING_FOR_RECORDS)
        assert activity.encode() == told


def test_a_long_poll_of_an_idle_source_is_visible(activity: TaskActivity, time: Time) -> None:
    activity.enter(Step.WAITING_FOR_RECORDS)
    time.ms += 5_000
    activity.enter(Step.POLLING)
    began_ms = time.ms
    time.ms += 2_500
    told = activity.encode()
    assert told.step == STEP.TASK_STEP_POLLING
    assert decode_timestamp(told.step_time) == began_ms


def test_a_step_that_hangs_shows_the_calls_in_which_it_is(
    activity: TaskActivity, time: Time
) -> None:
    inside, goes_on = threading.Event(), threading.Event()

    def waiting_for_the_server() -> None:
        inside.set()
        goes_on.wait()

    def poll() -> None:
        activity.run_began()
        activity.enter(Step.POLLING)
        waiting_for_the_server()
        activity.run_ended()

    thread = threading.Thread(target=poll)
    thread.start()
    inside.wait()
    time.ms += 9_000
    assert activity.encode().stack == ""
    time.ms += 1_000
    stack = activity.encode().stack
    assert "in waiting_for_the_server: goes_on.wait()" in stack
    time.ms += 1_000
    assert activity.encode().stack == stack, "looked up at most every ten seconds"
    goes_on.set()
    thread.join()


def test_a_stack_has_at_most_ten_calls_and_2000_characters() -> None:
    inside, goes_on = threading.Event(), threading.Event()

    def deep(count: int) -> None:
        if count:
            deep(count - 1)
        else:
            inside.set()
            goes_on.wait()

    thread = threading.Thread(target=deep, args=(100,))
    thread.start()
    inside.wait()
    assert thread.ident is not None
    stack = stack_of(thread.ident)
    goes_on.set()
    thread.join()
    assert len(stack) <= 2_000
    assert len(stack.splitlines()) <= 11
    assert "calls …" in stack
    assert stack_of(thread.ident) == ""


def test_a_poll_that_was_abandoned_names_the_calls_in_which_it_hung(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = world.source()

    def hanging() -> SourceBatch | None:
        runner.run_overdue()
        return None

    poll_that(monkeypatch, hanging)
    runner.run_once()
    trace = world.reports[0].task_failed.trace
    first, second, *calls = trace.splitlines()
    assert first.startswith("poll() of task LinesSource-0 did not return within")
    assert second == "it hangs in:"
    assert calls


def test_the_rows_of_a_snapshot_are_counted_by_table(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = world.source()
    poll = Lines.poll

    def of_a_table(task: Lines) -> SourceBatch | None:
        if task.next >= 3:
            task.context.report_snapshot(None)
        else:
            table = "a" if task.next < 2 else "b"
            task.context.report_snapshot(SnapshotProgress(table, 2, 2 if table == "a" else 1))
        return poll(task)

    monkeypatch.setattr(Lines, "poll", of_a_table)
    told = []
    for _ in range(4):
        runner.run_once()
        found = entry_of(runner).activity
        snapshot = found.snapshot
        told.append((snapshot.table, snapshot.row_count) if found.HasField("snapshot") else None)
    assert told == [("a", 1), ("a", 2), ("b", 1), None]


def lag_of(runner: TaskRunner) -> int:
    return decode_figures(entry_of(runner).figures)["lag_count"]


def test_the_lag_of_a_paused_sink_is_its_offsets_lag(world: World) -> None:
    sink = world.sink()
    sink.run_once()
    sink.set_paused(True)
    sink.run_once()
    world.fill()
    sink.run_once()
    assert sink.lag_is_due(math.inf)
    sink.report_lag(world.tools.plane.end_offsets(sink.partitions()))
    assert lag_of(sink) == 3
    sink.set_paused(False)
    sink.run_once()
    world.answer_commit()
    sink.run_once()
    assert lag_of(sink) == 0


def test_the_lag_is_measured_within_a_long_batch(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.fill()
    sink = world.sink()
    found: list[object] = []
    write = Writer.write

    def long(task: Writer, batch: Any) -> Any:
        found.append(sink.lag_is_due(math.inf))
        ends = {key: end + 100 for key, end in plane.end_offsets(sink.partitions()).items()}
        sink.report_lag(ends)
        found.append(lag_of(sink))
        return write(task, batch)

    plane = world.tools.plane
    monkeypatch.setattr(Writer, "write", long)
    sink.run_once()
    assert found == [True, 103]


def test_an_idle_sink_is_not_measured(world: World) -> None:
    sink = world.sink()
    sink.run_once()
    assert not sink.lag_is_due(math.inf)


def test_transaction_markers_at_the_end_are_no_lag_and_kept_records_are() -> None:
    told: list[int] = []
    lag = SinkLag(lambda _name, value: told.append(value))
    key = ("t", 0)
    lag.passed({key: 3}, {key: 4}, {key: 3})  # read up to 3; a marker at 3
    lag.measured({key: 4}, {key: 4}, {key: 3})
    lag.measured({key: 9}, {key: 4}, {key: 3})
    lag.passed({key: 9}, {key: 9}, {key: 5})  # the sink keeps 4 records uncommitted
    assert told == [0, 0, 5, 4]
