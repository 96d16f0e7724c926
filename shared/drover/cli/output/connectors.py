"""Connectors and their statuses as JSON documents and as cells of tables."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.cli.output.activities import (
    activity_document,
    doing_cell,
    is_retrying,
    retry_cause,
)
from drover.cli.output.failures import failures_document, missing_tasks, recent_failure
from drover.codec.common import decode_counts, decode_figures
from drover.codec.connect import decode_connector_type
from drover.model.failures import cause_in

#: The columns with a task's record counts.
COUNTS = ("READ", "WRITTEN", "FILTERED", "DEAD LETTERS", "SKIPPED")
RATE, LAG = "RECORDS/S", "LAG"


def run_state(number: int) -> str:
    """RUNNING, FAILED…; UNKNOWN for a state of a later version."""
    return _name(pb.RunState, number, "RUN_STATE_")


def target_state(number: int) -> str:
    """STARTED, PAUSED, STOPPED; UNKNOWN for a state of a later version."""
    return _name(pb.TargetState, number, "TARGET_STATE_")


def worker_health(number: int) -> str:
    """SERVING, NOT_SERVING, UNREACHABLE; UNKNOWN for a value of a later version."""
    return _name(pb.WorkerHealth, number, "WORKER_HEALTH_")


def _name(enum: Any, number: int, prefix: str) -> str:
    name = str(enum.Name(number)).removeprefix(prefix) if number in enum.values() else ""
    return name if name and name != "UNSPECIFIED" else "UNKNOWN"


def connector_document(connector: pb.Connector) -> dict[str, Any]:
    """A connector with its config."""
    return {
        "name": connector.name,
        "type": decode_connector_type(connector.type),
        "target_state": target_state(connector.target_state),
        "revision": connector.revision,
        "tasks": list(connector.task_indexes),
        "config": dict(sorted(connector.config.items())),
    }


def status_document(status: pb.ConnectorStatus) -> dict[str, Any]:
    """A connector's status.

    "trace" is present for failed connectors and tasks, "counts" once a task has reported record
    counts, "figures" if the connector reports gauges, "activity" and
    "records_per_second" if the task's worker answered, "lag" if it is known.
    """
    return {
        "name": status.name,
        "type": decode_connector_type(status.type),
        "connector": _state_document(status.connector),
        "tasks": [
            {
                "task": task.task,
                **_state_document(task),
                **_counts_document(task),
                **_present_document(task),
                **({"figures": decode_figures(task.figures)} if task.figures else {}),
            }
            for task in status.tasks
        ],
        **_counts_document(status),
        **_flow_document(status),
    }


def _present_document(task: pb.TaskState) -> dict[str, Any]:
    if not task.HasField("activity"):
        return _flow_document(task)
    return {**_flow_document(task), "activity": activity_document(task.activity)}


def _flow_document(state: pb.TaskState | pb.ConnectorStatus) -> dict[str, Any]:
    document: dict[str, Any] = {}
    if state.HasField("lag"):
        document["lag"] = state.lag
    if state.HasField("records_per_second"):
        document["records_per_second"] = round(state.records_per_second, 3)
    return document


def _state_document(state: pb.ConnectorState | pb.TaskState) -> dict[str, Any]:
    document: dict[str, Any] = {
        "state": run_state(state.state),
        "worker_id": state.worker_id,
    }
    if state.trace:
        document["trace"] = state.trace
    if state.HasField("failures"):
        document["failures"] = failures_document(state.failures)
    return document


def _counts_document(counted: pb.TaskState | pb.ConnectorStatus) -> dict[str, Any]:
    return {"counts": asdict(decode_counts(counted.counts))} if counted.HasField("counts") else {}


def list_table(
    entries: Sequence[pb.ListConnectorsResponse.Entry],
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """The columns and rows of a list of connectors; LAG only if there is a sink."""
    with_lag = any(entry.status.HasField("lag") for entry in entries)
    rows = []
    for entry in entries:
        status = entry.status
        kind = decode_connector_type(status.type) or decode_connector_type(entry.connector.type)
        row = (
            *(entry.name, kind or "unknown", entry.connector.config.get("connector.class", "")),
            *(run_state(status.connector.state), task_summary(status)),
            *(*count_cells(status)[:2], rate_cell(status)),
        )
        rows.append((*row, lag_cell(status)) if with_lag else row)
    columns = ("NAME", "TYPE", "CLASS", "STATE", "TASKS", *COUNTS[:2], RATE)
    return ((*columns, LAG) if with_lag else columns), rows


def status_rows(status: pb.ConnectorStatus) -> list[tuple[str, str, str, str]]:
    """A row for the connector and one for each task: name, state, worker, cause of a failure."""
    rows = [("connector", *_cells(status.connector))]
    rows += [(f"task {task.task}", *_cells(task)) for task in status.tasks]
    return rows


def status_table(
    status: pb.ConnectorStatus, *, now_ms: int
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """The columns and rows of a status.

    Records read and written, their rate, the lag and the present step are shown once a task reports
    them.
    """
    rows = status_rows(status)
    tasks: list[pb.TaskState | None] = [None, *status.tasks]
    columns: list[tuple[str, list[str]]] = [
        (status.name.upper(), [row[0] for row in rows]),
        ("STATE", [row[1] for row in rows]),
        ("WORKER", [row[2] for row in rows]),
    ]
    if any(task.HasField("counts") for task in status.tasks):
        for index, column in enumerate(COUNTS[:2]):
            cells = [count_cells(task)[index] if task else "" for task in tasks]
            columns.append((column, cells))
    for column, cell in (
        (RATE, rate_cell),
        (LAG, lag_cell),
        ("DOING", lambda task: doing_cell(task, now_ms)),
    ):
        cells = [cell(task) if task else "" for task in tasks]
        if any(cells):
            columns.append((column, cells))
    states: list[pb.ConnectorState | pb.TaskState] = [status.connector, *status.tasks]
    causes = [
        row[3] or (retry_cause(task) if task else "") or recent_failure(state, now_ms)
        for row, task, state in zip(rows, tasks, states, strict=True)
    ]
    causes[0] = causes[0] or missing_tasks(status)
    columns.append(("CAUSE", causes))
    names = tuple(column for column, _ in columns)
    return names, list(zip(*(cells for _, cells in columns), strict=True))


def rate_cell(state: pb.TaskState | pb.ConnectorStatus) -> str:
    """Records per second over the last minute; empty if unknown."""
    if not state.HasField("records_per_second"):
        return ""
    rate = state.records_per_second
    return f"{rate:.0f}" if rate >= 10 or not rate else f"{rate:.1f}"


def lag_cell(state: pb.TaskState | pb.ConnectorStatus) -> str:
    """The number of records that are not delivered; empty if unknown."""
    return str(state.lag) if state.HasField("lag") else ""


def count_rows(status: pb.ConnectorStatus) -> list[tuple[str, ...]]:
    """A row for each task and one for their sums: name, state, worker, the cells of COUNTS, rate,
    lag.
    """
    rows = [
        (
            *(f"task {task.task}", run_state(task.state), task.worker_id, *count_cells(task)),
            *(rate_cell(task), lag_cell(task)),
        )
        for task in status.tasks
    ]
    return [*rows, ("total", "", "", *count_cells(status), rate_cell(status), lag_cell(status))]


def figure_rows(status: pb.ConnectorStatus) -> list[tuple[str, str, str]]:
    """A row for each figure that a task's connector reports: task, figure, value."""
    return [
        (f"task {task.task}", figure.name, str(figure.value))
        for task in status.tasks
        for figure in task.figures
    ]


def count_cells(counted: pb.TaskState | pb.ConnectorStatus) -> tuple[str, ...]:
    """Cells for the columns COUNTS; dashes until a task has reported its counts."""
    if not counted.HasField("counts"):
        return ("-",) * len(COUNTS)
    counts = counted.counts
    return (
        str(counts.read_count),
        str(counts.written_count),
        str(counts.filtered_count),
        str(counts.dead_lettered_count),
        str(counts.skipped_count),
    )


def _cells(state: pb.ConnectorState | pb.TaskState) -> tuple[str, str, str]:
    return run_state(state.state), state.worker_id, cause_in(state.trace)


def task_summary(status: pb.ConnectorStatus) -> str:
    """How many tasks are in which state, such as "3 RUNNING, 1 FAILED"; and how many retry."""
    counts: dict[str, int] = {}
    for task in status.tasks:
        state = run_state(task.state)
        counts[state] = counts.get(state, 0) + 1
    retrying = sum(is_retrying(task) for task in status.tasks)
    summary = ", ".join(f"{count} {state}" for state, count in counts.items()) or "none"
    return f"{summary} ({retrying} retrying)" if retrying else summary
