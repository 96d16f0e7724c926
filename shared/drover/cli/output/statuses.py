"""Prints the status and the description of a connector."""

from collections.abc import Iterator

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.cli.console import plain, print_table, say
from drover.cli.output.activities import activity_notes, doing_cell
from drover.cli.output.connectors import (
    COUNTS,
    LAG,
    RATE,
    count_rows,
    figure_rows,
    run_state,
    status_table,
)
from drover.cli.output.failures import failure_notes, failure_rows
from drover.codec.connect import decode_connector_type
from drover.model.failures import cause_in


def print_status(status: pb.ConnectorStatus, *, now_ms: int) -> None:
    """Print the states of a connector and its tasks, their present steps and their failures."""
    print_table(*status_table(status, now_ms=now_ms))
    for note in _notes(status, now_ms):
        say(plain(note))
    for task in status.tasks:
        if task.trace.count("\n") > 1:
            say(plain(f"\ntask {task.task} failed:\n{task.trace}"))
    if cause_in(status.connector.trace) != status.connector.trace.strip():
        say(plain(f"\nthe connector failed:\n{status.connector.trace}"))


def print_description(status: pb.ConnectorStatus, *, now_ms: int) -> None:
    """Print counts, rates and lags, what each task does, figures and failures."""
    kind = decode_connector_type(status.type) or "unknown type"
    lag = f", lag {status.lag}" if status.HasField("lag") else ""
    say(plain(f"{status.name}: {kind}, {run_state(status.connector.state)}{lag}"))
    print_table(("TASK", "STATE", "WORKER", *COUNTS, RATE, LAG), count_rows(status))
    doing = [(f"task {each.task}", doing_cell(each, now_ms)) for each in status.tasks]
    if any(cell for _, cell in doing):
        print_table(("TASK", "DOING"), doing)
    figures = figure_rows(status)
    if figures:
        print_table(("FIGURES OF", "FIGURE", "VALUE"), figures)
    for task in status.tasks:
        if task.trace and not task.HasField("failures"):
            say(plain(f"task {task.task}: {cause_in(task.trace)}"))
    failures = failure_rows(status)
    if failures:
        print_table(("FAILURES OF", "TIME", "WORKER", "CAUSE"), failures)
    for note in _notes(status, now_ms):
        say(plain(note))


def _notes(status: pb.ConnectorStatus, now_ms: int) -> Iterator[str]:
    yield from failure_notes(status, now_ms=now_ms)
    yield from activity_notes(status, now_ms=now_ms)
