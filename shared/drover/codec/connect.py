"""Codecs of the admin API: connectors and statuses."""

from collections.abc import Mapping

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.codec.common import EnumCodec, encode_counts, encode_figures
from drover.codec.failures import encode_failures
from drover.model.config import TargetState
from drover.model.ids import TaskId
from drover.model.status import LAG_FIGURE, RecordCounts, RunState, Status, StatusKey

TARGET_STATES = EnumCodec(pb.TargetState, "TARGET_STATE_", TargetState)
RUN_STATES = EnumCodec(pb.RunState, "RUN_STATE_", RunState)


def encode_run_state(state: RunState) -> pb.RunState.ValueType:
    """As proto; UNASSIGNED for a removed status."""
    if state is RunState.DESTROYED:
        return pb.RUN_STATE_UNASSIGNED
    return RUN_STATES.encode(state)  # type: ignore[no-any-return]


def decode_initial_state(number: int) -> TargetState:
    """The initial state of a new connector; STARTED if unspecified.

    Raises:
        InvalidArgumentError: The value is unknown.
    """
    if number == pb.TARGET_STATE_UNSPECIFIED:
        return TargetState.STARTED
    return TARGET_STATES.decode(number, "initial_state")


def encode_connector_type(name: str) -> pb.ConnectorType.ValueType:
    """The type of "source" or "sink"; UNSPECIFIED for other names."""
    return {
        "source": pb.CONNECTOR_TYPE_SOURCE,
        "sink": pb.CONNECTOR_TYPE_SINK,
    }.get(name, pb.CONNECTOR_TYPE_UNSPECIFIED)


def decode_connector_type(number: int) -> str:
    """As "source" or "sink"; empty if unknown."""
    types: dict[int, str] = {pb.CONNECTOR_TYPE_SOURCE: "source", pb.CONNECTOR_TYPE_SINK: "sink"}
    return types.get(number, "")


def encode_connector_status(
    name: str,
    connector_type: str,
    task_indexes: range,
    statuses: Mapping[StatusKey, Status],
) -> pb.ConnectorStatus:
    """The status of a connector and its expected tasks; UNASSIGNED without a stored status."""
    connector = statuses.get(name)
    status = pb.ConnectorStatus(
        name=name,
        type=encode_connector_type(connector_type),
        connector=pb.ConnectorState(state=pb.RUN_STATE_UNASSIGNED),
    )
    if connector is not None:
        status.connector.state = encode_run_state(connector.state)
        status.connector.worker_id = connector.worker_id
        status.connector.trace = connector.trace
        status.connector.plugin_version = connector.version
        if connector.failures is not None:
            status.connector.failures.CopyFrom(encode_failures(connector.failures))
    total = _counts_of_former_tasks(name, len(task_indexes), statuses)
    for index in task_indexes:
        task = statuses.get(TaskId(name, index))
        entry = status.tasks.add(task=index, state=pb.RUN_STATE_UNASSIGNED)
        if task is not None:
            entry.state = encode_run_state(task.state)
            entry.worker_id = task.worker_id
            entry.trace = task.trace
            entry.plugin_version = task.version
            entry.figures.extend(encode_figures(task.figures))
            if task.failures is not None:
                entry.failures.CopyFrom(encode_failures(task.failures))
            if task.counts is not None:
                entry.counts.CopyFrom(encode_counts(task.counts))
                total = task.counts if total is None else total + task.counts
    if total is not None:
        status.counts.CopyFrom(encode_counts(total))
    note_lags(status)
    return status


def _counts_of_former_tasks(
    name: str, index: int, statuses: Mapping[StatusKey, Status]
) -> RecordCounts | None:
    """The counts of tasks from ``index`` on, which do not exist at present: the connector is
    stopped, or has fewer tasks than before.
    """
    total: RecordCounts | None = None
    while (task := statuses.get(TaskId(name, index))) is not None:
        if task.counts is not None:
            total = task.counts if total is None else total + task.counts
        index += 1
    return total


def note_lags(status: pb.ConnectorStatus) -> None:
    """Set the lags of tasks and connector from the tasks' figures; unset where they are unknown.

    A paused source does not measure its lag.
    """
    measured = [pb.RUN_STATE_RUNNING]
    if status.type != pb.CONNECTOR_TYPE_SOURCE:
        measured.append(pb.RUN_STATE_PAUSED)
    status.ClearField("lag")
    lags = []
    for task in status.tasks:
        task.ClearField("lag")
        if task.state in measured:
            for figure in task.figures:
                if figure.name == LAG_FIGURE:
                    task.lag = figure.value
                    lags.append(figure.value)
    if status.tasks and len(lags) == len(status.tasks):
        status.lag = sum(lags)
