"""The status machine: which statuses are written, which are too late, and watchers' events."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import count

import pytest

from drover.errors import InvalidArgumentError, Reason
from drover.model.failures import Failure, FailureCause, FailureHistory
from drover.model.ids import TaskId
from drover.model.status import RecordCounts, RunState, Status, StatusEvent, StatusKey, StatusWrite
from drover_status_store.core.events import PutStatuses, WriteOutcome
from drover_status_store.core.validate import TRACE_MAX_BYTES
from tests.support.status_store import StatusDriver as Driver

WRITTEN, SUPERSEDED = WriteOutcome.WRITTEN, WriteOutcome.SUPERSEDED
TASK = TaskId("c", 0)
_numbers = count()


@pytest.fixture
def driver() -> Driver:
    return Driver()


def status(
    state: RunState,
    key: StatusKey = TASK,
    *,
    worker: str = "w:1",
    generation: int = 1,
    trace: str = "",
) -> Status:
    return Status(key, state, worker, generation, trace)


def put(driver: Driver, *statuses: Status, safe: bool = False) -> Sequence[WriteOutcome]:
    writes = [StatusWrite(status, safe) for status in statuses]
    outcomes: Sequence[WriteOutcome] = driver.submit(
        PutStatuses(call_id=f"call-{next(_numbers)}", writes=writes)
    )
    return outcomes


def get(driver: Driver, key: StatusKey = TASK) -> Status | None:
    return driver.machine.snapshot().statuses.get(key)


# put: the last word


def test_a_status_is_written_and_read(driver: Driver) -> None:
    assert put(driver, status(RunState.RUNNING)) == (WRITTEN,)
    assert get(driver) == status(RunState.RUNNING)


def test_put_overrides_whatever_is_there(driver: Driver) -> None:
    put(driver, status(RunState.FAILED, "c", worker="w:2", generation=9))
    older = status(RunState.RUNNING, "c", generation=1)
    assert put(driver, older) == (WRITTEN,)
    assert get(driver, "c") == older


def test_an_identical_status_is_not_written_again(driver: Driver) -> None:
    put(driver, status(RunState.RUNNING))
    assert put(driver, status(RunState.RUNNING)) == (WRITTEN,)
    assert len(driver.log) == 1
    put(driver, status(RunState.RUNNING, generation=2))
    assert len(driver.log) == 2


# put safe


def test_put_safe_with_nothing_there_is_written(driver: Driver) -> None:
    assert put(driver, status(RunState.FAILED), safe=True) == (WRITTEN,)
    assert get(driver) == status(RunState.FAILED)


def test_put_safe_ignores_a_stale_status(driver: Driver) -> None:
    put(driver, status(RunState.UNASSIGNED, worker="w:2", generation=2))
    assert put(driver, status(RunState.FAILED, generation=1), safe=True) == (SUPERSEDED,)
    assert get(driver) == status(RunState.UNASSIGNED, worker="w:2", generation=2)
    assert len(driver.log) == 1


def test_put_safe_overrides_a_status_of_the_same_worker(driver: Driver) -> None:
    put(driver, status(RunState.RUNNING, generation=2))
    assert put(driver, status(RunState.FAILED, generation=1), safe=True) == (WRITTEN,)
    assert get(driver) == status(RunState.FAILED, generation=1)


@pytest.mark.parametrize("generation", [2, 3])
def test_put_safe_overrides_a_generation_not_above_its_own(driver: Driver, generation: int) -> None:
    put(driver, status(RunState.RUNNING, worker="w:2", generation=2))
    late = status(RunState.FAILED, generation=generation)
    assert put(driver, late, safe=True) == (WRITTEN,)
    assert get(driver) == late


# late reports of former owners


@pytest.mark.parametrize("generation", [8, 9])
@pytest.mark.parametrize("safe", [False, True])
def test_unassigned_of_a_former_owner_does_not_hide_running(
    driver: Driver, generation: int, safe: bool
) -> None:
    running = status(RunState.RUNNING, worker="w:2", generation=9)
    put(driver, running)
    late = status(RunState.UNASSIGNED, generation=generation)
    assert put(driver, late, safe=safe) == (SUPERSEDED,)
    assert get(driver) == running
    assert len(driver.log) == 1


def test_unassigned_of_an_older_generation_of_the_same_worker_is_late_too(driver: Driver) -> None:
    put(driver, status(RunState.RUNNING, generation=9))
    assert put(driver, status(RunState.UNASSIGNED, generation=8)) == (SUPERSEDED,)


def test_a_worker_may_give_up_what_it_runs(driver: Driver) -> None:
    put(driver, status(RunState.RUNNING, generation=9))
    assert put(driver, status(RunState.UNASSIGNED, generation=9), safe=True) == (WRITTEN,)


def test_unassigned_of_a_later_generation_counts(driver: Driver) -> None:
    put(driver, status(RunState.RUNNING, worker="w:2", generation=9))
    assert put(driver, status(RunState.UNASSIGNED, generation=10)) == (WRITTEN,)


def test_unassigned_hides_what_is_not_running(driver: Driver) -> None:
    put(driver, status(RunState.FAILED, worker="w:2", generation=9))
    assert put(driver, status(RunState.UNASSIGNED, generation=8)) == (WRITTEN,)


def test_a_late_report_in_the_log_of_another_writer_is_passed_over(driver: Driver) -> None:
    value = '{"state":"%s","trace":null,"worker_id":"%s","generation":%d}'
    driver.write_foreign(
        ("status-task-c-0", value % ("RUNNING", "w:2", 10)),
        ("status-task-c-0", value % ("UNASSIGNED", "w:1", 9)),
    )
    assert get(driver) == status(RunState.RUNNING, worker="w:2", generation=10)
    assert driver.machine.end_offset == 2
    assert len(driver.machine.history.read(0)) == 1


@pytest.mark.parametrize("state", [RunState.FAILED, RunState.UNASSIGNED])
def test_generations_of_another_group_say_nothing(driver: Driver, state: RunState) -> None:
    """A worker that takes over from another program starts at low generations."""
    value = '{"state":"RUNNING","trace":null,"worker_id":"w:2","generation":57}'
    driver.write_foreign(("status-task-c-0", value))
    assert put(driver, status(state, generation=1), safe=True) == (WRITTEN,)
    assert get(driver) == status(state, generation=1)
    driver.restart()
    assert get(driver) == status(state, generation=1)


# removal


def test_destroyed_removes_a_task_alone(driver: Driver) -> None:
    put(driver, status(RunState.RUNNING), status(RunState.RUNNING, "c"))
    assert put(driver, status(RunState.DESTROYED)) == (WRITTEN,)
    assert set(driver.statuses) == {"c"}
    assert (driver.log[-1].key, driver.log[-1].value) == (b"status-task-c-0", None)


def test_destroying_a_connector_removes_its_tasks(driver: Driver) -> None:
    other = status(RunState.RUNNING, TaskId("c-0", 1))
    put(driver, status(RunState.RUNNING, "c"), status(RunState.RUNNING), other)
    put(driver, status(RunState.PAUSED, TaskId("c", 11)), status(RunState.DESTROYED, "c"))
    assert driver.machine.snapshot().statuses == {other.key: other}
    assert [record.key for record in driver.log if record.value is None] == [
        b"status-task-c-0",
        b"status-task-c-11",
        b"status-connector-c",
    ]


def test_a_connectors_tombstone_of_another_writer_removes_its_tasks(driver: Driver) -> None:
    put(driver, status(RunState.RUNNING, "c"), status(RunState.RUNNING))
    driver.write_foreign(("status-connector-c", None))
    assert driver.machine.snapshot().statuses == {}
    assert driver.machine.history.read(2) == [
        StatusEvent(2, TASK, None),
        StatusEvent(2, "c", None),
    ]


def test_destroying_what_is_not_there_writes_nothing(driver: Driver) -> None:
    assert put(driver, status(RunState.DESTROYED), status(RunState.DESTROYED, "x")) == (
        WRITTEN,
        WRITTEN,
    )
    assert driver.log == []


def test_destroyed_needs_no_worker(driver: Driver) -> None:
    put(driver, status(RunState.RUNNING))
    assert put(driver, status(RunState.DESTROYED, worker="")) == (WRITTEN,)


def test_a_safe_destroyed_may_come_too_late(driver: Driver) -> None:
    put(driver, status(RunState.RUNNING, worker="w:2", generation=2))
    assert put(driver, status(RunState.DESTROYED), safe=True) == (SUPERSEDED,)


# batches


def test_a_batch_is_one_append_and_each_write_sees_those_before_it(driver: Driver) -> None:
    newer = status(RunState.RUNNING, worker="w:2", generation=5)
    writes = [
        StatusWrite(newer),
        StatusWrite(status(RunState.UNASSIGNED, generation=4)),
        StatusWrite(status(RunState.FAILED, generation=4), safe=True),
        StatusWrite(newer),
        StatusWrite(status(RunState.DESTROYED)),
        StatusWrite(status(RunState.RESTARTING, generation=1), safe=True),
    ]
    outcomes = driver.submit(PutStatuses(call_id="call", writes=writes))
    assert outcomes == (WRITTEN, SUPERSEDED, SUPERSEDED, WRITTEN, WRITTEN, WRITTEN)
    assert len(driver.log) == 3
    assert get(driver) == status(RunState.RESTARTING, generation=1)


def test_a_connector_destroyed_in_a_batch_takes_the_tasks_written_in_it(driver: Driver) -> None:
    put(driver, status(RunState.RUNNING), status(RunState.DESTROYED, "c"))
    assert driver.machine.snapshot().statuses == {}
    driver.restart()
    assert driver.machine.snapshot().statuses == {}


# bad input


def test_all_faults_of_a_batch_are_told_at_once(driver: Driver) -> None:
    bad = [
        status(RunState.RUNNING, ""),
        status(RunState.RUNNING, TaskId("", -1)),
        status(RunState.STOPPED),
        status(RunState.RUNNING, worker=""),
        replace(status(RunState.FAILED), failures=FailureHistory(-2, (), -1, -1, "x" * 1_001)),
        replace(
            status(RunState.FAILED),
            failures=FailureHistory(0, (Failure(0, FailureCause.PLUGIN, "w", ""),) * 22, 22),
        ),
        replace(status(RunState.RUNNING), counts=RecordCounts(skipped_count=-1)),
        replace(status(RunState.RUNNING), counts=RecordCounts(read_count=2**53)),
        replace(status(RunState.RUNNING), figures={"lag": 1, "a_ms": 2**53}),
        replace(status(RunState.RUNNING), figures={f"a{n}_ms": 1 for n in range(17)}),
    ]
    with pytest.raises(InvalidArgumentError) as error:
        put(driver, *bad)
    assert error.value.reason is Reason.INVALID_REQUEST
    assert [violation.field for violation in error.value.violations] == [
        "writes[0].status.key",
        "writes[1].status.key",
        "writes[1].status.key",
        "writes[2].status.state",
        "writes[3].status.worker_id",
        "writes[4].status.failures.config_offset",
        "writes[4].status.failures.failure_count",
        "writes[4].status.failures",
        "writes[4].status.failures",
        "writes[5].status.failures.failures",
        "writes[6].status.counts",
        "writes[7].status.counts",
        "writes[8].status.figures",
        "writes[8].status.figures",
        "writes[9].status.figures",
    ]
    assert driver.log == []


def test_a_batch_is_not_empty(driver: Driver) -> None:
    with pytest.raises(InvalidArgumentError):
        put(driver)


def test_a_connector_may_be_stopped(driver: Driver) -> None:
    assert put(driver, status(RunState.STOPPED, "c")) == (WRITTEN,)


# traces


def test_a_long_trace_is_cut_in_the_middle_with_a_mark(driver: Driver) -> None:
    trace = "first\n" + "ü" * 100_000 + "\nBoom: last"
    put(driver, status(RunState.FAILED, trace=trace))
    stored = get(driver)
    assert stored is not None
    assert len(stored.trace.encode()) <= TRACE_MAX_BYTES
    assert stored.trace.startswith("first\n")
    assert stored.trace.endswith("\nBoom: last")
    assert f"{len(trace.encode())} bytes in total" in stored.trace


def test_a_trace_at_the_bound_is_kept(driver: Driver) -> None:
    put(driver, status(RunState.FAILED, trace="x" * TRACE_MAX_BYTES))
    assert get(driver) == status(RunState.FAILED, trace="x" * TRACE_MAX_BYTES)


def test_the_same_long_trace_is_the_same_status(driver: Driver) -> None:
    for _ in range(2):
        put(driver, status(RunState.FAILED, trace="x" * 100_000))
    assert len(driver.log) == 1


# loading


def test_a_restart_finds_the_same_statuses_and_history(driver: Driver) -> None:
    put(driver, status(RunState.RUNNING, "c"), status(RunState.FAILED, trace="boom"))
    put(driver, status(RunState.DESTROYED, "c"), status(RunState.RUNNING, TaskId("d", 1)))
    before = driver.machine.snapshot()
    events = driver.machine.history.read(0)
    driver.restart()
    assert driver.machine.snapshot() == before
    assert driver.machine.history.read(0) == events


def test_a_snapshot_stays_as_it_was(driver: Driver) -> None:
    put(driver, status(RunState.RUNNING))
    before = driver.machine.snapshot()
    put(driver, status(RunState.DESTROYED))
    assert before.statuses == {TASK: status(RunState.RUNNING)}
    assert before.end_offset == 1
