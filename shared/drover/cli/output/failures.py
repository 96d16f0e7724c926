"""Failures of connectors and tasks and their next retry, as text and as JSON documents."""

from datetime import UTC, datetime
from typing import Any

from drover.api.common.v1 import failures_pb2
from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.codec.failures import decode_failures
from drover.model.failures import FailureCause

#: Causes that do not count towards restart.attempts.max, as text for people.
_SYSTEM_CAUSES = {
    FailureCause.OUTAGE: "its system does not answer or is busy",
    FailureCause.CREDENTIALS: "its system rejects the credentials",
}


def failures_document(failures: failures_pb2.FailureHistory) -> dict[str, Any]:
    """A history of failures as a JSON document."""
    history = decode_failures(failures)
    document: dict[str, Any] = {
        "count": history.count,
        "last": [
            {
                "time": _iso_time(failure.failed_ms),
                "cause": failure.cause.value,
                "worker_id": failure.worker_id,
                "message": failure.message,
            }
            for failure in history.failures
        ],
    }
    if history.restart_ms:
        document["restart_time"] = _iso_time(history.restart_ms)
    if history.no_restart_reason:
        document["no_restart_reason"] = history.no_restart_reason
    return document


def failure_notes(status: pb.ConnectorStatus, *, now_ms: int) -> list[str]:
    """A line for the connector and each task that is FAILED: failure count and next retry."""
    return [
        f"{what} {_failure_note(state, now_ms)}"
        for what, state in _named_states(status)
        if state.HasField("failures") and state.state == pb.RUN_STATE_FAILED
    ]


def failure_rows(status: pb.ConnectorStatus) -> list[tuple[str, str, str, str]]:
    """The recorded failures of the connector and each task, oldest first.

    A row has the connector or task, the time, the worker and the message.
    """
    return [
        (what, _iso_time(failure.failed_ms), failure.worker_id, failure.message)
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
    ago = f", last {_span(now_ms - history.last.failed_ms)} ago" if history.last else ""
    if history.no_restart_reason:
        restart = f"no automatic restart ({history.no_restart_reason})"
    elif history.restart_ms > now_ms:
        restart = f"restarts in {_span(history.restart_ms - now_ms)}"
    else:
        restart = "restarts now"
    return f"failed {often}{ago}; {restart}"


def _span(span_ms: int) -> str:
    seconds = max(span_ms, 0) // 1000
    if seconds < 120:
        return f"{seconds} s"
    return f"{seconds // 60} min" if seconds < 7200 else f"{seconds // 3600} h"


def _iso_time(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="seconds")
