"""Connectors and their statuses as JSON documents and as cells of tables."""

from dataclasses import asdict
from typing import Any

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.cli.output.failures import failures_document
from drover.codec.common import decode_counts, decode_figures
from drover.codec.connect import decode_connector_type
from drover.model.failures import cause_in

#: The columns with a task's record counts.
COUNTS = ("READ", "WRITTEN", "FILTERED", "DEAD LETTERS", "SKIPPED")


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
    counts, "figures" if the connector reports metrics of its own.
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
                **({"figures": decode_figures(task.figures)} if task.figures else {}),
            }
            for task in status.tasks
        ],
        **_counts_document(status),
    }


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


def status_rows(status: pb.ConnectorStatus) -> list[tuple[str, str, str, str]]:
    """A row for the connector and one for each task: name, state, worker, cause of a failure."""
    rows = [("connector", *_cells(status.connector))]
    rows += [(f"task {task.task}", *_cells(task)) for task in status.tasks]
    return rows


def status_table(status: pb.ConnectorStatus) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """The columns and rows of a status; with records read and written once a task reports them."""
    name, rows = status.name.upper(), status_rows(status)
    if not status.HasField("counts"):
        return (name, "STATE", "WORKER", "CAUSE"), list(rows)
    moved = [("", ""), *(count_cells(task)[:2] for task in status.tasks)]
    return (name, "STATE", "WORKER", *COUNTS[:2], "CAUSE"), [
        (what, state, worker, *cells, why)
        for (what, state, worker, why), cells in zip(rows, moved, strict=True)
    ]


def count_rows(status: pb.ConnectorStatus) -> list[tuple[str, ...]]:
    """A row for each task and one for their sums: name, state, worker, and the cells of COUNTS."""
    rows = [
        (f"task {task.task}", run_state(task.state), task.worker_id, *count_cells(task))
        for task in status.tasks
    ]
    return [*rows, ("total", "", "", *count_cells(status))]


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
    """How many tasks are in which state, such as "3 RUNNING, 1 FAILED"."""
    counts: dict[str, int] = {}
    for task in status.tasks:
        state = run_state(task.state)
        counts[state] = counts.get(state, 0) + 1
    return ", ".join(f"{count} {state}" for state, count in counts.items()) or "none"
