from dataclasses import fields

import pytest

from drover.api.common.v1 import record_counts_pb2
from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.codec import connect as codec
from drover.codec.common import decode_counts, decode_figures
from drover.errors import InvalidArgumentError
from drover.model.config import TargetState
from drover.model.ids import TaskId
from drover.model.status import RecordCounts, RunState, Status, StatusKey


def test_a_status_shows_every_task_that_should_be_there() -> None:
    statuses: dict[StatusKey, Status] = {
        "flights": Status("flights", RunState.RUNNING, "a:1", 4),
        TaskId("flights", 1): Status(TaskId("flights", 1), RunState.FAILED, "b:1", 4, "boom"),
        TaskId("other", 0): Status(TaskId("other", 0), RunState.RUNNING, "b:1", 4),
    }
    status = codec.encode_connector_status("flights", "source", range(2), statuses)
    assert status.type == pb.CONNECTOR_TYPE_SOURCE
    assert (status.connector.state, status.connector.worker_id) == (pb.RUN_STATE_RUNNING, "a:1")
    assert [(t.task, t.state, t.worker_id, t.trace) for t in status.tasks] == [
        (0, pb.RUN_STATE_UNASSIGNED, "", ""),
        (1, pb.RUN_STATE_FAILED, "b:1", "boom"),
    ]


def test_a_status_has_the_counts_of_tasks_and_their_sums() -> None:
    tasks = [TaskId("flights", index) for index in range(3)]
    statuses: dict[StatusKey, Status] = {
        tasks[0]: Status(tasks[0], RunState.RUNNING, "a:1", 4, counts=RecordCounts(15, 5, 4, 3, 3)),
        tasks[1]: Status(tasks[1], RunState.RUNNING, "a:1", 4),
        tasks[2]: Status(tasks[2], RunState.FAILED, "a:1", 4, counts=RecordCounts(10, 9, 0, 0, 1)),
    }
    status = codec.encode_connector_status("flights", "source", range(3), statuses)
    assert [t.HasField("counts") for t in status.tasks] == [True, False, True]
    assert decode_counts(status.tasks[0].counts) == RecordCounts(15, 5, 4, 3, 3)
    assert decode_counts(status.counts) == RecordCounts(25, 14, 4, 3, 4)
    del statuses[tasks[0]], statuses[tasks[2]]
    status = codec.encode_connector_status("flights", "source", range(3), statuses)
    assert not status.HasField("counts")


def test_the_sums_have_the_counts_of_tasks_that_do_not_exist_at_present() -> None:
    tasks = [TaskId("flights", index) for index in range(3)]
    statuses: dict[StatusKey, Status] = {
        task: Status(task, RunState.UNASSIGNED, "a:1", 4, counts=RecordCounts(10, 9, 1))
        for task in tasks
    }
    for count in range(4):
        status = codec.encode_connector_status("flights", "sink", range(count), statuses)
        assert len(status.tasks) == count
        assert decode_counts(status.counts) == RecordCounts(30, 27, 3)


@pytest.mark.parametrize(
    ("kind", "state", "lag"),
    [
        ("sink", RunState.RUNNING, 7),
        ("sink", RunState.PAUSED, 7),
        ("sink", RunState.FAILED, None),
        ("source", RunState.RUNNING, 7),
        ("source", RunState.PAUSED, None),
    ],
)
def test_the_lag_is_told_where_it_is_measured(kind: str, state: RunState, lag: int | None) -> None:
    tasks = [TaskId("flights", index) for index in range(2)]
    statuses: dict[StatusKey, Status] = {
        task: Status(task, state, "a:1", 4, figures={"lag_count": 7, "slot_lag_bytes": 1})
        for task in tasks
    }
    status = codec.encode_connector_status("flights", kind, range(2), statuses)
    assert [each.lag if each.HasField("lag") else None for each in status.tasks] == [lag, lag]
    assert (status.lag if status.HasField("lag") else None) == (lag and 2 * lag)
    statuses[tasks[1]] = Status(tasks[1], state, "a:1", 4)
    status = codec.encode_connector_status("flights", kind, range(2), statuses)
    assert not status.HasField("lag"), "one of the lags is unknown"


def test_a_tasks_figures_are_told() -> None:
    task = TaskId("flights", 0)
    figures = {"slot_lag_bytes": 7}
    statuses: dict[StatusKey, Status] = {
        task: Status(task, RunState.RUNNING, "a:1", 4, figures=figures)
    }
    status = codec.encode_connector_status("flights", "source", range(2), statuses)
    assert [decode_figures(each.figures) for each in status.tasks] == [figures, {}]


def test_every_count_is_told() -> None:
    names = {field.name for field in fields(RecordCounts)}
    assert names == set(record_counts_pb2.RecordCounts.DESCRIPTOR.fields_by_name)


def test_a_connector_nobody_spoke_of_is_unassigned() -> None:
    status = codec.encode_connector_status("flights", "", range(0), {})
    assert status.connector.state == pb.RUN_STATE_UNASSIGNED
    assert status.type == pb.CONNECTOR_TYPE_UNSPECIFIED


@pytest.mark.parametrize("state", [s for s in RunState if s is not RunState.DESTROYED])
def test_run_states(state: RunState) -> None:
    assert codec.RUN_STATES.find(codec.encode_run_state(state)) is state


def test_a_removed_status_shows_as_unassigned() -> None:
    assert codec.encode_run_state(RunState.DESTROYED) == pb.RUN_STATE_UNASSIGNED


def test_a_new_connector_starts_unless_told_otherwise() -> None:
    assert codec.decode_initial_state(pb.TARGET_STATE_UNSPECIFIED) is TargetState.STARTED
    assert codec.decode_initial_state(pb.TARGET_STATE_STOPPED) is TargetState.STOPPED
    with pytest.raises(InvalidArgumentError, match="initial_state"):
        codec.decode_initial_state(17)


@pytest.mark.parametrize("name", ["source", "sink", ""])
def test_connector_types(name: str) -> None:
    assert codec.decode_connector_type(codec.encode_connector_type(name)) == name
