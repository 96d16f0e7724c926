"""What tasks do at present, as text and as JSON documents."""

from collections.abc import Iterator
from typing import Any

from drover.api.common.v1 import activity_pb2
from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.cli.output.times import ago_text, iso_time, span_text
from drover.codec.common import decode_timestamp

_STEPS = {
    activity_pb2.TASK_STEP_STARTING: "starting",
    activity_pb2.TASK_STEP_POLLING: "polling",
    activity_pb2.TASK_STEP_CONVERTING: "converting",
    activity_pb2.TASK_STEP_WRITING: "writing",
    activity_pb2.TASK_STEP_COMMITTING: "committing",
    activity_pb2.TASK_STEP_WAITING_FOR_RECORDS: "waiting for records",
    activity_pb2.TASK_STEP_GATHERING: "gathering a batch",
    activity_pb2.TASK_STEP_WAITING_TO_RETRY: "waiting to retry",
    activity_pb2.TASK_STEP_RATE_LIMITED: "limited by rate.max",
    activity_pb2.TASK_STEP_PAUSED: "paused",
    activity_pb2.TASK_STEP_QUEUED: "waiting for a thread",
    activity_pb2.TASK_STEP_NOTIFYING: "in committed() or idle()",
    activity_pb2.TASK_STEP_WAITING_FOR_EXECUTORS: "waiting for executors",
}
#: Steps in which a plugin or an external system works. From this duration on they are a warning.
_WORKING = frozenset(
    {
        activity_pb2.TASK_STEP_STARTING,
        activity_pb2.TASK_STEP_POLLING,
        activity_pb2.TASK_STEP_CONVERTING,
        activity_pb2.TASK_STEP_WRITING,
        activity_pb2.TASK_STEP_COMMITTING,
        activity_pb2.TASK_STEP_NOTIFYING,
    }
)
LONG_STEP_MS = 30_000


def doing_cell(task: pb.TaskState, now_ms: int) -> str:
    """The present step and its duration, such as "polling 40 s"; empty if unknown."""
    if not task.HasField("activity") or not task.activity.step:
        return ""
    activity = task.activity
    return f"{step_text(activity)} {span_text(now_ms - decode_timestamp(activity.step_time))}"


def step_text(activity: activity_pb2.TaskActivity) -> str:
    """The present step, such as "polling"."""
    return _STEPS.get(activity.step, "unknown step")


def is_retrying(task: pb.TaskState) -> bool:
    """Whether an operation of the task failed and is retried."""
    return task.activity.HasField("retry")


def retry_cause(task: pb.TaskState) -> str:
    """The last error of an operation that is retried; empty if there is none."""
    lines = task.activity.retry.message.strip().splitlines()
    return f"retrying: {lines[0]}" if lines else ""


def is_slow(task: pb.TaskState, now_ms: int) -> bool:
    """Whether a plugin or an external system has worked for long in the present step."""
    activity = task.activity
    long = now_ms - decode_timestamp(activity.step_time) >= LONG_STEP_MS
    return activity.step in _WORKING and long


def activity_notes(status: pb.ConnectorStatus, *, now_ms: int) -> Iterator[str]:
    """A line for each task that retries, one for each that reads a table, a line with the calls for
    each that has been in one step for long, and one for each whose code changed the process.
    """
    for task in status.tasks:
        yield from (f"task {task.task} {note}" for note in task_notes(task, now_ms))


def task_notes(task: pb.TaskState, now_ms: int) -> Iterator[str]:
    """The notes of one task."""
    activity = task.activity
    if activity.HasField("retry"):
        yield _retry_note(activity.retry, now_ms)
    if activity.HasField("snapshot"):
        yield _snapshot_note(activity.snapshot)
    if activity.step == activity_pb2.TASK_STEP_WAITING_FOR_EXECUTORS:
        yield (
            "waits for executors: the Spark cluster has no free core or memory for the worker's"
            " application"
        )
    if activity.stack and is_slow(task, now_ms):
        calls = "\n".join(f"  {line}" for line in activity.stack.splitlines())
        yield f"has been {doing_cell(task, now_ms)}, in:\n{calls}"
    if activity.process_change:
        yield activity.process_change


def activity_document(activity: activity_pb2.TaskActivity) -> dict[str, Any]:
    """An activity as a JSON document."""
    known = activity.step in activity_pb2.TaskStep.values()
    name = activity_pb2.TaskStep.Name(activity.step) if known else "TASK_STEP_UNSPECIFIED"
    document: dict[str, Any] = {
        "step": name.removeprefix("TASK_STEP_"),
        "since": iso_time(decode_timestamp(activity.step_time)),
    }
    if activity.HasField("retry"):
        retry = activity.retry
        document["retry"] = {
            "operation": retry.operation,
            "since": iso_time(decode_timestamp(retry.begin_time)),
            "failure_count": retry.failure_count,
            "next_attempt_time": iso_time(decode_timestamp(retry.next_attempt_time)),
            "message": retry.message,
        }
    if activity.HasField("snapshot"):
        snapshot = activity.snapshot
        document["snapshot"] = {
            "table": snapshot.table,
            "row_count": snapshot.row_count,
            "remaining_table_count": snapshot.remaining_table_count,
        }
        if snapshot.HasField("estimated_row_count"):
            document["snapshot"]["estimated_row_count"] = snapshot.estimated_row_count
    if activity.stack:
        document["stack"] = activity.stack.splitlines()
    if activity.process_change:
        document["process_change"] = activity.process_change
    return document


def _retry_note(retry: activity_pb2.TaskRetry, now_ms: int) -> str:
    often = "once" if retry.failure_count == 1 else f"{retry.failure_count} times"
    since_ms = decode_timestamp(retry.begin_time)
    next_ms = decode_timestamp(retry.next_attempt_time)
    error = (retry.message.strip().splitlines() or ["unknown"])[0]
    attempt = (
        f"tries again in {span_text(next_ms - now_ms)}" if next_ms > now_ms else "tries again now"
    )
    return (
        f"retries {retry.operation}: it failed {often} since {iso_time(since_ms)}"
        f" ({ago_text(now_ms - since_ms)}); {attempt}; last error: {error}"
    )


def _snapshot_note(snapshot: activity_pb2.SnapshotProgress) -> str:
    known = snapshot.HasField("estimated_row_count")
    of = f" of about {snapshot.estimated_row_count}" if known else ""
    left = snapshot.remaining_table_count - 1
    more = "" if left < 1 else f"; {left} more table{'s' if left > 1 else ''} to read"
    return f"reads table {snapshot.table}: {snapshot.row_count}{of} rows{more}"
