"""The observed state, as the status store keeps it."""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum

from drover.model.failures import FailureHistory
from drover.model.ids import TaskId


class RunState(StrEnum):
    """The state of a connector or task. DESTROYED is written to remove a status, and never
    returned.
    """

    UNASSIGNED = "UNASSIGNED"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    FAILED = "FAILED"
    RESTARTING = "RESTARTING"
    STOPPED = "STOPPED"
    DESTROYED = "DESTROYED"


#: States that only the owner of a connector or task may report.
OWNER_STATES = frozenset({RunState.RUNNING, RunState.PAUSED, RunState.RESTARTING})

#: A connector's name, or a task.
StatusKey = str | TaskId


@dataclass(frozen=True, slots=True)
class RecordCounts:
    """Counts of a task's records.

    read = written + filtered + dead-lettered + skipped, unless a transform emits several records
    for one.
    """

    read_count: int = 0
    written_count: int = 0
    filtered_count: int = 0
    dead_lettered_count: int = 0
    skipped_count: int = 0

    def __add__(self, other: "RecordCounts") -> "RecordCounts":
        mine, others = asdict(self), asdict(other)
        return RecordCounts(**{name: mine[name] + others[name] for name in mine})

    def __sub__(self, other: "RecordCounts") -> "RecordCounts":
        mine, others = asdict(self), asdict(other)
        return RecordCounts(**{name: mine[name] - others[name] for name in mine})

    def at_least(self, other: "RecordCounts") -> "RecordCounts":
        """The higher value of each count."""
        mine, others = asdict(self), asdict(other)
        return RecordCounts(**{name: max(mine[name], others[name]) for name in mine})


#: The maximum number of figures (gauges) of a task.
FIGURES_MAX = 16
#: The figure with the number of records that a task has not delivered.
LAG_FIGURE = "lag_count"
#: The ends of the names of figures.
FIGURE_UNITS = ("_bytes", "_count", "_ms", "_percent")
_FIGURE_NAME = re.compile(rf"(?=.{{1,64}}\Z)[a-z][a-z0-9_]*({'|'.join(FIGURE_UNITS)})")
#: Integers that every JSON reader represents exactly.
_FIGURE_LIMIT = 2**53


def figure_fault(name: object, value: object) -> str | None:
    """Why this is not a valid figure; None if it is valid."""
    if not isinstance(name, str) or not _FIGURE_NAME.fullmatch(name):
        return (
            f"{str(name)[:80]!r} is not a figure name: use up to 64 lower-case letters, digits and"
            " underscores, with the unit at the end (_bytes, _count, _ms or _percent)"
        )
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) >= _FIGURE_LIMIT:
        return f"figure {name} must be a whole number of at most 53 bits"
    return None


@dataclass(frozen=True, slots=True)
class Status:
    """The status of a connector or task.

    Attributes:
        key: The connector or task.
        state: Its state.
        worker_id: The worker that reported the status, as host:port.
        generation: The group generation in which the worker reported it.
        trace: The trace of the failure, or a note about a running connector or task; may be empty.
        version: The plugin's version; empty if unknown.
        counts: Record counts of a task since its connector was created; None if unknown.
        failures: The failures; None if unknown.
        figures: The gauges that the connector reported: the last value by name, which ends in the
            unit.
    """

    key: StatusKey
    state: RunState
    worker_id: str
    generation: int
    trace: str = ""
    version: str = ""
    counts: RecordCounts | None = None
    failures: FailureHistory | None = None
    figures: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, order=True)
class TopicKey:
    """A topic that a connector uses."""

    connector: str
    topic: str


@dataclass(frozen=True, slots=True)
class TopicStatus:
    """The record that a connector uses a topic (KIP-558): the task that used it first, and when, in
    milliseconds since the epoch.
    """

    key: TopicKey
    task: int
    discovered_ms: int


@dataclass(frozen=True, slots=True)
class StatusWrite:
    """A status to write; with ``safe`` only if it is not older than the stored one (putSafe)."""

    status: Status
    safe: bool = False


@dataclass(frozen=True, slots=True)
class StatusEvent:
    """The change that the record at ``offset`` made; ``status`` is None for a removal."""

    offset: int
    key: StatusKey
    status: Status | None


@dataclass(frozen=True, slots=True)
class TopicEvent:
    """The topic change that the record at ``offset`` made; ``status`` is None for a removal."""

    offset: int
    key: TopicKey
    status: TopicStatus | None


#: A change that a record of the log made.
StatusChange = StatusEvent | TopicEvent


@dataclass(frozen=True, slots=True)
class StatusSnapshot:
    """All statuses and topics at ``end_offset`` of the log ``log_id``."""

    end_offset: int
    statuses: Mapping[StatusKey, Status]
    topics: Mapping[TopicKey, TopicStatus] = field(default_factory=dict)
    log_id: str = ""
