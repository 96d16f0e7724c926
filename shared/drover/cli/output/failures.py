"""Failures of connectors and tasks and their next retry, as text and as JSON documents."""

from typing import Any

from drover.api.common.v1 import failures_pb2
from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.cli.output.times import iso_time, span_text
from drover.codec.failures import decode_failures
from drover.model.failures import FailureCause

#: Causes that do not count towards restart.attempts.max, as text for people.
_SYSTEM_CAUSES = {
    FailureCause.OUTAGE: "its system does not answer or is busy",
    FailureCause.CREDENTIALS: "its system rejects the credentials",
}

#: A start that takes longer may wait for the engine.
_START_MS = 10_000
#: How long a failure of a connector or task that runs again is shown.
RECENT_MS = 3_600_000


def failures_document(failures: failures_pb2.FailureHistory) -> dict[str, Any]:
    """A history of failures as a JSON document."""
    history = decode_failures(failures)
    document: dict[str, Any] = {
        "count": history.count,
        "last": [
            {
                "time": iso_time(failure.failed_ms),
                "cause": failure.cause.value,
                "worker_id": failure.worker_id,
                "message": failure.message,
            }
            for failure in history.failures
        ],
    }
    if history.restart_ms:
        document["restart_time"] = iso_time(history.restart_ms)
    if history.no_restart_reason:
        document["no_restart_reason"] = history.no_restart_reason
    return document


def failure_notes(
    status: pb.ConnectorStatus, *, now_ms: int, recent_ms: int = RECENT_MS
) -> list[str]:
    """A line for the connector and each task that is FAILED, with failure count and next retry, or
    that runs again after a failure within ``recent_ms``.
    """
    return [
        f"{what} {_failure_note(state, now_ms)}"
        for what, state in _named_states(status)
        if (state.state == pb.RUN_STATE_FAILED and state.HasField("failures"))
        or recent_failure(state, now_ms, recent_ms)
    ]


def recent_failure(
    state: pb.ConnectorState | pb.TaskState, now_ms: int, recent_ms: int = RECENT_MS
) -> str:
    """The last failure of a connector or task that runs again, if it was within ``recent_ms``."""
    last = decode_failures(state.failures).last if state.HasField("failures") else None
    is_up = state.state in (pb.RUN_STATE_RUNNING, pb.RUN_STATE_RESTARTING)
    if last is None or not is_up or now_ms - last.failed_ms > recent_ms:
        return ""
    return f"failed {span_text(now_ms - last.failed_ms)} ago: {last.message}"


def missing_tasks(status: pb.ConnectorStatus) -> str:
    """Why a connector that runs may have no tasks; empty for others."""
    if status.tasks or status.connector.state != pb.RUN_STATE_RUNNING:
        return ""
    return "it has no tasks: it is starting, or found nothing to read and looks again"


def failure_rows(status: pb.ConnectorStatus) -> list[tuple[str, str, str, str]]:
    """The recorded failures of the connector and each task, oldest first.

    A row has the connector or task, the time, the worker and the message.
    """
    return [
        (what, iso_time(failure.failed_ms), failure.worker_id, failure.message)
        for what, state in _named_states(status)
        if state.HasField("failures")
        for failure in decode_failures(state.failures).failures
    ]


def _named_states(
    status: pb.ConnectorStatus,
) -> list[tuple[str, pb.ConnectorState | pb.TaskState]]:
    return [
        ("the connector", status.connector),
        *((f"task {task.task}", task) for task in status.tasks),
    ]


def _failure_note(state: pb.ConnectorState | pb.TaskState, now_ms: int) -> str:
    history = decode_failures(state.failures)
    often = "once" if history.count == 1 else f"{history.count} times"
    if history.last and history.last.cause in _SYSTEM_CAUSES:
        often += f" ({_SYSTEM_CAUSES[history.last.cause]})"
    ago = f", last {span_text(now_ms - history.last.failed_ms)} ago" if history.last else ""
    if state.state != pb.RUN_STATE_FAILED:
        restart = "runs again"
    elif history.no_restart_reason:
        restart = f"no automatic restart ({history.no_restart_reason})"
    elif history.last and history.last.cause is FailureCause.ENGINE:
        restart = f"waits since {iso_time(history.last.failed_ms)} for its engine, then restarts"
    elif history.restart_ms > now_ms:
        restart = f"restarts in {span_text(history.restart_ms - now_ms)}"
    elif history.restart_ms and history.restart_ms < now_ms - _START_MS:
        restart = (
            f"restart due since {iso_time(history.restart_ms)}: it starts, or waits for its engine"
        )
    else:
        restart = "restarts now"
    return f"failed {often}{ago}; {restart}"
