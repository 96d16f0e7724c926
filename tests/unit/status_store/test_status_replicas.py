"""Numbered requests, several replicas on one log, and rewrites of hidden records."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import count

import pytest

from drover.errors import Reason
from drover.log.log import LogRecord
from drover.model.ids import TaskId
from drover.model.status import RunState, Status, StatusKey, StatusWrite
from drover.testing import raises_reason
from drover_status_store.core.events import PutStatuses, RewriteDue, WriteOutcome
from drover_status_store.core.machine import REWRITE_AFTER_MS
from drover_status_store.core.writers import Writers
from tests.support.status_store import StatusDriver

WRITTEN, SUPERSEDED = WriteOutcome.WRITTEN, WriteOutcome.SUPERSEDED
TASK, CONNECTOR = TaskId("c", 0), "c"
_numbers = count()


def status(
    state: RunState, key: StatusKey = TASK, *, worker: str = "w:1", generation: int = 1
) -> Status:
    return Status(key, state, worker, generation)


def request(writer: str, number: int, *statuses: Status, safe: bool = False) -> PutStatuses:
    return PutStatuses(
        call_id=f"call-{next(_numbers)}",
        writes=[StatusWrite(each, safe) for each in statuses],
        writer=writer,
        number=number,
    )


def put(driver: StatusDriver, writer: str, number: int, *statuses: Status) -> Sequence[object]:
    outcomes: Sequence[object] = driver.submit(request(writer, number, *statuses))
    return outcomes


@pytest.fixture
def driver() -> StatusDriver:
    return StatusDriver()


@pytest.fixture
def other(driver: StatusDriver) -> StatusDriver:
    """Another replica."""
    return StatusDriver(driver.log)


# numbers


def test_a_copy_of_an_earlier_request_sets_nothing_back(driver: StatusDriver) -> None:
    first = request("a", 1, status(RunState.RUNNING), status(RunState.RUNNING, CONNECTOR))
    driver.submit(first)
    put(driver, "a", 2, status(RunState.FAILED))
    for _ in range(2):
        before = driver.statuses
        assert driver.submit(first) == (SUPERSEDED, SUPERSEDED)
        assert driver.statuses == before
        driver.restart()


def test_a_copy_brings_nothing_back_that_was_removed_since(driver: StatusDriver) -> None:
    put(driver, "a", 1, status(RunState.RUNNING))
    put(driver, "a", 2, status(RunState.DESTROYED))
    assert put(driver, "a", 1, status(RunState.RUNNING)) == (SUPERSEDED,)
    driver.restart()
    assert put(driver, "a", 1, status(RunState.RUNNING)) == (SUPERSEDED,)
    assert driver.statuses == {}


def test_a_copy_of_the_last_request_is_answered_as_it_was(driver: StatusDriver) -> None:
    put(driver, "b", 1, status(RunState.RUNNING, worker="w:2", generation=5))
    last = request("a", 7, status(RunState.FAILED, generation=4), safe=True)
    assert driver.submit(last) == (SUPERSEDED,)
    put(driver, "b", 2, status(RunState.DESTROYED))
    assert driver.submit(last) == (SUPERSEDED,)
    assert driver.statuses == {}


def test_a_copy_of_the_last_request_writes_nothing_after_a_restart(driver: StatusDriver) -> None:
    last = request("a", 7, status(RunState.RUNNING), status(RunState.PAUSED, CONNECTOR))
    driver.submit(last)
    driver.restart()
    length = len(driver.log)
    assert driver.submit(last) == (WRITTEN, WRITTEN)
    assert len(driver.log) == length


def test_a_request_that_could_not_be_written_is_decided_again(driver: StatusDriver) -> None:
    wanted = request("a", 1, status(RunState.RUNNING))
    driver.lose(driver.decide(wanted))
    assert driver.statuses == {}
    assert driver.submit(wanted) == (WRITTEN,)
    assert driver.statuses == {TASK: status(RunState.RUNNING)}


def test_a_request_of_which_a_part_was_written_is_made_whole(driver: StatusDriver) -> None:
    wanted = request("a", 1, status(RunState.RUNNING), status(RunState.RUNNING, CONNECTOR))
    outcome = driver.decide(wanted)
    driver.append(replace(outcome, records=outcome.records[:1]))
    driver.lose(outcome)
    driver.read()
    assert driver.submit(wanted) == (WRITTEN, WRITTEN)
    assert len(driver.log) == 2
    assert set(driver.statuses) == {TASK, CONNECTOR}


def test_a_later_request_that_says_the_same_is_written(driver: StatusDriver) -> None:
    """Another replica may have written a different status in between."""
    heard: list[object] = []
    for number in (1, 2):
        put(driver, "a", number, status(RunState.RUNNING))
        heard += driver.machine.history.read(number - 1)
    assert len(driver.log) == 2
    assert len(heard) == 1, "watchers get a single event"


def test_another_life_of_a_worker_counts_anew(driver: StatusDriver) -> None:
    put(driver, "life-1", 9, status(RunState.RUNNING))
    assert put(driver, "life-2", 1, status(RunState.PAUSED)) == (WRITTEN,)


@pytest.mark.parametrize(("writer", "number"), [("a", 0), ("", 1), ("-a", 1), ("a/b", 1), ("ü", 1)])
def test_a_writer_and_its_number_belong_together(
    driver: StatusDriver, writer: str, number: int
) -> None:
    with raises_reason(Reason.INVALID_REQUEST):
        put(driver, writer, number, status(RunState.RUNNING))


def test_the_writer_that_is_silent_for_longest_is_forgotten_first() -> None:
    writers = Writers(max_count=2)
    for name in ("a", "b", "a", "c"):
        writers.record_seen(name, 5)
        writers.remember_outcomes(name, 5, ())
    assert [writers.is_stale(name, 4) for name in "abc"] == [True, False, True]


# replicas


def test_replicas_that_decide_side_by_side_come_to_the_same(
    driver: StatusDriver, other: StatusDriver
) -> None:
    put(driver, "a", 1, status(RunState.RUNNING, generation=5))
    other.read()
    running = driver.decide(request("b", 1, status(RunState.RUNNING, worker="w:2", generation=6)))
    failed = other.decide(request("a", 2, status(RunState.FAILED, generation=5), safe=True))
    assert failed.records, "the replica decides by the records it has read"
    driver.append(running)
    other.append(failed)
    driver.read()
    other.read()
    for replica in (driver, other, StatusDriver(driver.log)):
        assert replica.statuses == {TASK: status(RunState.RUNNING, worker="w:2", generation=6)}


@pytest.mark.parametrize("gone", [TASK, CONNECTOR])
def test_a_replica_removes_what_it_has_yet_to_read(
    driver: StatusDriver, other: StatusDriver, gone: StatusKey
) -> None:
    put(driver, "a", 1, status(RunState.RUNNING, gone), status(RunState.RUNNING))
    removed = other.decide(request("a", 2, status(RunState.DESTROYED, gone)))
    other.append(removed)
    for replica in (driver, other, StatusDriver(driver.log)):
        replica.read()
        assert replica.statuses == {}
    again = other.decide(
        request("a", 3, status(RunState.DESTROYED, gone), status(RunState.DESTROYED, gone))
    )
    assert len(again.records) == 1


def test_a_copy_that_another_replica_writes_late_counts_nowhere(
    driver: StatusDriver, other: StatusDriver
) -> None:
    late = other.decide(request("a", 1, status(RunState.RUNNING)))
    put(driver, "a", 2, status(RunState.FAILED))
    other.append(late)
    for replica in (driver, other, StatusDriver(driver.log)):
        replica.read()
        assert replica.statuses == {TASK: status(RunState.FAILED)}


def test_what_a_later_record_hides_is_said_again_for_who_reads_the_compacted_log(
    driver: StatusDriver, other: StatusDriver
) -> None:
    late = other.decide(request("a", 1, status(RunState.RUNNING)))
    put(driver, "a", 2, status(RunState.FAILED))
    other.append(late)
    driver.read()
    assert _compacted(driver.log) == {TASK: status(RunState.RUNNING)}
    driver.pass_time(0)
    driver.pass_time(REWRITE_AFTER_MS - 1)
    assert _compacted(driver.log) == {TASK: status(RunState.RUNNING)}
    driver.pass_time(1)
    assert _compacted(driver.log) == {TASK: status(RunState.FAILED)}
    other.read()
    assert other.statuses == driver.statuses
    length = len(driver.log)
    driver.pass_time(10 * REWRITE_AFTER_MS)
    other.pass_time(10 * REWRITE_AFTER_MS)
    assert len(driver.log) == length, "one rewrite is enough"


def test_what_could_not_be_said_again_is_tried_later(
    driver: StatusDriver, other: StatusDriver
) -> None:
    late = other.decide(request("a", 1, status(RunState.RUNNING)))
    put(driver, "a", 2, status(RunState.FAILED))
    other.append(late)
    driver.read()
    driver.pass_time(0)
    driver.lose(driver.decide(RewriteDue()))
    driver.pass_time(REWRITE_AFTER_MS)
    assert _compacted(driver.log) == {TASK: status(RunState.FAILED)}


def test_what_was_hidden_is_found_when_the_log_is_loaded(
    driver: StatusDriver, other: StatusDriver
) -> None:
    late = other.decide(request("a", 1, status(RunState.RUNNING)))
    put(driver, "a", 2, status(RunState.FAILED))
    other.append(late)
    fresh = StatusDriver(driver.log)
    fresh.pass_time(0)
    fresh.pass_time(REWRITE_AFTER_MS)
    assert _compacted(driver.log) == {TASK: status(RunState.FAILED)}


def test_a_task_that_went_with_its_connector_is_removed_for_good(
    driver: StatusDriver, other: StatusDriver
) -> None:
    put(driver, "a", 1, status(RunState.RUNNING, CONNECTOR))
    removal = driver.decide(request("b", 1, status(RunState.DESTROYED, CONNECTOR)))
    put(other, "a", 2, status(RunState.RUNNING))  # the removal was decided before this status
    driver.append(removal)
    driver.read()
    assert driver.statuses == {}
    driver.pass_time(0)
    driver.pass_time(REWRITE_AFTER_MS)
    assert _compacted(driver.log) == {}


def test_a_removal_spares_the_tasks_of_a_connector_that_was_made_again(
    driver: StatusDriver,
) -> None:
    """The tasks' partition may be read before the connector's partition."""
    task = '{"state":"RUNNING","trace":null,"worker_id":"w:1","generation":1}'
    driver.log += [
        LogRecord(b"status-task-c-0", task.encode(), timestamp_ms=200),
        LogRecord(b"status-task-c-1", task.encode(), timestamp_ms=100),
        LogRecord(b"status-connector-c", None, timestamp_ms=150),
    ]
    driver.read()
    assert set(driver.statuses) == {TASK}


def _compacted(log: Sequence[LogRecord]) -> dict[StatusKey, Status]:
    """The statuses that a new reader of the compacted log gets."""
    last = {record.key: index for index, record in enumerate(log)}
    return StatusDriver([log[index] for index in sorted(last.values())]).statuses
