"""The events of a history, and files of them: what tasks did and what readers saw."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any


class What(StrEnum):
    """What happened. Records are ranges; a position is an empty range."""

    #: The owner of a claim begins: from now on no earlier claim of the task has an effect.
    CLAIMED = "claimed"
    #: All claims of a connector or a task until now are stale.
    REVOKED = "revoked"
    #: A task read records.
    POLLED = "polled"
    #: A task prepared records; no reader sees them yet.
    STAGED = "staged"
    #: Records became visible in a topic, each exactly once.
    PUBLISHED = "published"
    #: Records became visible in the system behind a sink, each at least once.
    DELIVERED = "delivered"
    #: Records became dead letters, each exactly once.
    DEAD_LETTERED = "dead-lettered"
    #: A sink asks for the records from a position on again; they count as not delivered.
    REWOUND = "rewound"
    #: Positions became durable.
    COMMITTED = "committed"
    #: A task received the answer to its commit of positions.
    ACKNOWLEDGED = "acknowledged"
    #: A reader outside the tasks saw committed positions.
    FETCHED = "fetched"
    #: An operator set positions.
    RESET = "reset"
    #: The whole input; the history ends after all of it should have arrived.
    INPUT = "input"
    #: A reader saw the whole output: runs of records, in their order.
    READ_BACK = "read back"


_POSITIONS = frozenset({What.COMMITTED, What.ACKNOWLEDGED, What.FETCHED, What.RESET, What.REWOUND})

#: A claim's generation and sequence.
Claim = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Span:
    """The records from ``start`` to before ``end`` of a partition; empty for a position."""

    partition: str
    start: int
    end: int


def position(partition: str, at: int) -> Span:
    """The position before record ``at``."""
    return Span(partition, at, at)


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a history.

    Attributes:
        what: What happened.
        connector: The connector; a partition belongs to one connector's input.
        spans: Records or positions, by partition.
        task: The number of the task; None for an event of no task.
        claim: The claim under which the task acted; None if unknown.
        time_ms: When it happened.
    """

    what: What
    connector: str
    spans: tuple[Span, ...] = ()
    task: int | None = None
    claim: Claim | None = None
    time_ms: int = 0

    def __str__(self) -> str:
        who = self.connector if self.task is None else f"{self.connector}-{self.task}"
        under = "" if self.claim is None else f" under {claim_text(self.claim)}"
        spans = ", ".join(span_text(span) for span in self.spans)
        return f"{self.time_ms:>8} ms  {who}{under}: {self.what} {spans}".rstrip()


def runs_of(partition: str, records: Iterable[int]) -> tuple[Span, ...]:
    """Records in the order of a reader, as runs of successive ones."""
    spans: list[Span] = []
    for record in records:
        if spans and spans[-1].end == record:
            spans[-1] = Span(partition, spans[-1].start, record + 1)
        else:
            spans.append(Span(partition, record, record + 1))
    return tuple(spans)


# --- files -------------------------------------------------------------------------------------


class HistoryError(ValueError):
    """A line of a history file is invalid; the message names the line and what is wrong."""


def to_line(event: Event) -> str:
    """The event as a line of JSON."""
    fields: dict[str, Any] = {"event": str(event.what), "time_ms": event.time_ms}
    fields["connector"] = event.connector
    if event.task is not None:
        fields["task"] = event.task
    if event.claim is not None:
        fields["claim"] = list(event.claim)
    if event.spans:
        fields["spans"] = [[span.partition, span.start, span.end] for span in event.spans]
    return json.dumps(fields)


def from_line(line: str) -> Event:
    """The event of a line of JSON.

    Raises:
        ValueError: The line is no event; the message says why.
    """
    try:
        fields = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"this is not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise ValueError("an event is a JSON object")
    unknown = set(fields) - {"event", "time_ms", "connector", "task", "claim", "spans"}
    if unknown:
        raise ValueError(f"unknown fields: {', '.join(sorted(unknown))}")
    if fields.get("event") not in list(What):
        raise ValueError(f"event is {fields.get('event')!r}, not one of {', '.join(What)}")
    connector, task, claim = fields.get("connector"), fields.get("task"), fields.get("claim")
    if not isinstance(connector, str) or not connector:
        raise ValueError("connector must be a name")
    if task is not None and not _is_number(task):
        raise ValueError("task must be a number")
    if claim is not None and not (_is_list(claim, 2) and all(map(_is_number, claim))):
        raise ValueError("claim must be [generation, sequence]")
    if not _is_number(fields.get("time_ms")):
        raise ValueError("time_ms must be a number of milliseconds")
    what, spans = What(fields["event"]), fields.get("spans", [])
    if not isinstance(spans, list):
        raise ValueError("spans must be a list")
    return Event(
        what,
        connector,
        tuple(_span_of(what, span) for span in spans),
        task,
        None if claim is None else (claim[0], claim[1]),
        fields["time_ms"],
    )


def _span_of(what: What, found: Any) -> Span:
    if not (_is_list(found, 3) and isinstance(found[0], str) and all(map(_is_number, found[1:]))):
        raise ValueError(f"{found!r} is not [partition, start, end]")
    span = Span(*found)
    if span.start > span.end:
        raise ValueError(f"{found!r} starts after its end")
    if what in _POSITIONS and span.start != span.end:
        raise ValueError(f"{found!r} is not a position: start and end differ")
    return span


def _is_list(found: Any, length: int) -> bool:
    return isinstance(found, list) and len(found) == length


def _is_number(found: object) -> bool:
    return isinstance(found, int) and not isinstance(found, bool) and found >= 0


def write_history(path: Path, history: Iterable[Event]) -> None:
    """Write a history as JSON lines."""
    path.write_text("".join(f"{to_line(event)}\n" for event in history), encoding="utf-8")


def read_history(path: Path) -> list[Event]:
    """Read a file of JSON lines.

    Raises:
        HistoryError: A line is no event, or is earlier than the line before.
        OSError: The file cannot be read.
    """
    history: list[Event] = []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        raise HistoryError(f"{path} is not UTF-8 text") from None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            event = from_line(line)
        except ValueError as error:
            raise HistoryError(f"line {number} of {path}: {error}") from None
        if history and event.time_ms < history[-1].time_ms:
            raise HistoryError(
                f"line {number} of {path}: time_ms {event.time_ms} is earlier than"
                f" {history[-1].time_ms} of the event before: sort the events by time"
            )
        history.append(event)
    return history


def claim_text(claim: Claim | None) -> str:
    """A claim in messages."""
    return "no claim" if claim is None else f"claim {claim[0]}.{claim[1]}"


def span_text(span: Span) -> str:
    """Records or a position in messages."""
    if span.start == span.end:
        return f"{span.partition} at {span.start}"
    return f"{span.partition} records {span.start} to {span.end - 1}"
