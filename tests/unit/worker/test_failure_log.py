"""Log events of failures of connectors and tasks."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from structlog.testing import capture_logs

from drover.model.ids import TaskId
from drover_worker.core import events
from drover_worker.shell.failure_log import FailureLog
from drover_worker.shell.status_writer import TRACE_MAX_CHARS
from tests.support.herder_driver import ME, HerderDriver, entry

C0 = TaskId("c", 0)
TRACE = "Traceback (most recent call last):\nValueError: no such file"


@pytest.fixture
def running(herder: HerderDriver) -> HerderDriver:
    herder.ready(entry("c", tasks=1))
    herder.settle_as_leader()
    herder.run_engine()
    return herder


def logged(herder: HerderDriver, *failures: events.HerderEvent) -> Sequence[Mapping[str, Any]]:
    log = FailureLog(herder.herder.work, ME)
    with capture_logs() as lines:
        for event in failures:
            herder.step(event)
            log.observe(event)
    return lines


def run_of(herder: HerderDriver, key: str | TaskId) -> int:
    item = herder.herder.work.find(key)
    assert item is not None
    return item.run_id


def test_a_failed_tasks_trace_is_logged_once(running: HerderDriver) -> None:
    failed = events.TaskFailed(C0, run_of(running, C0), TRACE)
    (line,) = logged(running, failed, failed)
    assert line["log_level"] == "error"
    assert (line["connector"], line["task"], line["worker"]) == ("c", 0, ME)
    assert line["exception"] == TRACE


def test_a_failed_connectors_trace_is_logged(running: HerderDriver) -> None:
    (line,) = logged(running, events.ConnectorFailed("c", run_of(running, "c"), TRACE))
    assert (line["connector"], line["worker"], line["exception"]) == ("c", ME, TRACE)
    assert "task" not in line


def test_task_configs_that_cannot_be_made_are_logged_for_each_cause(running: HerderDriver) -> None:
    run_id = run_of(running, "c")
    fails = [events.TaskConfigsNotGenerated("c", run_id, why) for why in ("a", "a", "b")]
    assert [line["exception"] for line in logged(running, *fails)] == ["a", "b"]


def test_the_end_of_a_run_that_is_over_is_not_logged(running: HerderDriver) -> None:
    over = run_of(running, C0) - 1
    nobodys = events.TaskFailed(TaskId("d", 0), 1, TRACE)
    assert logged(running, events.TaskFailed(C0, over, TRACE), nobodys) == []


def test_the_error_of_a_run_that_a_stop_interrupts_is_not_logged(running: HerderDriver) -> None:
    run_id = run_of(running, C0)
    running.remove("c")
    assert logged(running, events.TaskFailed(C0, run_id, TRACE)) == []


def test_a_long_trace_keeps_its_end(running: HerderDriver) -> None:
    trace = "x" * 100_000 + "ValueError: y"
    (line,) = logged(running, events.ConnectorFailed("c", run_of(running, "c"), trace))
    assert len(line["exception"]) == TRACE_MAX_CHARS
    assert line["exception"].endswith("ValueError: y")
