"""What the core of a task does when its stop or its first start meets an error."""

from dataclasses import replace
from typing import Any

import pytest

from drover.connector import TopicPartition
from drover.connector.sink_control import SinkControl
from drover.pipeline import PassReport
from drover_worker.engine.core import events, instructions
from drover_worker.engine.core.error_rate import ErrorRate
from drover_worker.engine.core.instructions import Operation, TaskInstruction
from tests.support.task_driver import SinkDriver, SourceDriver, TaskDriver, errors

PLACE = TopicPartition("t", 0)


class Failing(SourceDriver):
    """A source all of whose records fail."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.core._error_rate = ErrorRate(errors(max_rate=0.5))

    def perform(self, operation: Operation) -> Any:
        """See TaskDriver."""
        found = super().perform(operation)
        if isinstance(found, events.Staged):
            return replace(found, report=PassReport(read_count=200, skipped_count=200))
        return found


def seen(driver: TaskDriver) -> list[TaskInstruction]:
    """The instructions of a driver from now on."""
    found: list[TaskInstruction] = []
    driver.observer = found.append
    return found


def test_a_stop_that_finds_too_many_errors_is_a_stop() -> None:
    driver = Failing(row_count=1, prompt=True, settings={"publishes_apart": True})
    driver.start()
    driver.run()
    driver.step(events.StopRequested())
    assert driver.settle_stop() is True
    assert driver.ended is None
    assert driver.published == [0]


def test_all_batches_of_a_transaction_with_too_many_errors_are_counted() -> None:
    settings = {"publishes_apart": True, "reads_ahead": True, "interval_ms": 500}
    driver = Failing(row_count=2, settings=settings)
    driver.start()
    driver.run()
    driver.run()
    driver.now_ms += 500
    driver.run()
    driver.end_transaction()
    found = seen(driver)
    driver.run()
    assert driver.ended is not None
    assert [type(each) for each in found].count(instructions.CountBatch) == 2


@pytest.mark.parametrize("settings", [{}, {"publishes_apart": True}])
def test_an_operation_that_fails_in_a_stop_ends_the_stop(settings: dict[str, Any]) -> None:
    driver = SourceDriver(row_count=1, settings=settings)
    driver.start()
    driver.run()
    driver.step(events.StopRequested())
    driver.fail("AwaitTransaction" if settings else "AwaitCommits", "plugin")
    assert driver.settle_stop() is False
    assert driver.ended is None


@pytest.mark.parametrize("failure", ["retriable", "unavailable"])
def test_a_first_start_that_may_succeed_later_is_deferred(failure: str) -> None:
    for driver, operation in ((SinkDriver(), "StartSink"), (SourceDriver(), "StartSource")):
        driver.fail(operation, failure)
        found = seen(driver)
        driver.start()
        assert isinstance(found[-1], instructions.DeferStart)
        driver.run()
        assert not driver.core.restart_wanted
        assert not driver.is_over


def test_a_first_start_of_a_plugin_that_fails_is_refused() -> None:
    driver = SinkDriver()
    driver.fail("StartSink", "plugin")
    found = seen(driver)
    driver.start()
    assert isinstance(found[-1], instructions.RefuseStart)


def test_an_outage_when_a_replay_begins_defers_the_start() -> None:
    driver = SinkDriver(has_replay=True)
    driver.fail("BeginReplay", "unavailable")
    found = seen(driver)
    driver.start()
    assert isinstance(found[-1], instructions.DeferStart)


def test_of_two_rewinds_before_a_batch_the_lower_one_counts() -> None:
    control = SinkControl()
    control.rewind({PLACE: 1})
    control.rewind({PLACE: 3})
    assert control.take_rewinds() == {PLACE: 1}
    control.rewind({PLACE: 3})
    assert control.take_rewinds() == {PLACE: 3}
