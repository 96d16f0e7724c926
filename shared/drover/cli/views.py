"""Connectors and statuses of the admin API as JSON documents and as cells of tables."""

from typing import Any

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.codec.connect import decode_connector_type


def run_state(number: int) -> str:
    """RUNNING, FAILED…; UNKNOWN for one that this command does not know."""
    return _name(pb.RunState, number, "RUN_STATE_")


def target_state(number: int) -> str:
    """STARTED, PAUSED, STOPPED; UNKNOWN for one that this command does not know."""
    return _name(pb.TargetState, number, "TARGET_STATE_")


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
    """A connector's status; "trace" only where something failed."""
    return {
        "name": status.name,
        "type": decode_connector_type(status.type),
        "connector": _state_document(status.connector),
        "tasks": [{"task": task.task, **_state_document(task)} for task in status.tasks],
    }


def _state_document(state: pb.ConnectorState | pb.TaskState) -> dict[str, Any]:
    document = {"state": run_state(state.state), "worker_id": state.worker_id}
    return document | {"trace": state.trace} if state.trace else document


def status_rows(status: pb.ConnectorStatus) -> list[tuple[str, str, str, str]]:
    """A row for the connector object and one for each task: what, state, worker, first of trace."""
    rows = [("connector", *_cells(status.connector))]
    rows += [(f"task {task.task}", *_cells(task)) for task in status.tasks]
    return rows


def _cells(state: pb.ConnectorState | pb.TaskState) -> tuple[str, str, str]:
    return run_state(state.state), state.worker_id, cause(state.trace)


def cause(trace: str) -> str:
    """The line of a trace that says what happened: the last one."""
    lines = [line.strip() for line in trace.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def task_summary(status: pb.ConnectorStatus) -> str:
    """How many tasks are in which state, such as "3 RUNNING, 1 FAILED"."""
    counts: dict[str, int] = {}
    for task in status.tasks:
        state = run_state(task.state)
        counts[state] = counts.get(state, 0) + 1
    return ", ".join(f"{count} {state}" for state, count in counts.items()) or "none"
