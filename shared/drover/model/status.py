"""What is running, as the status store holds it."""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum

from drover.model.failures import FailureHistory
from drover.model.ids import TaskId


class RunState(StrEnum):
    """What a connector or task is doing. DESTROYED is written to remove a status, never read."""

    UNASSIGNED = "UNASSIGNED"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    FAILED = "FAILED"
    RESTARTING = "RESTARTING"
    STOPPED = "STOPPED"
    DESTROYED = "DESTROYED"


#: A connector by its name, or a task.
StatusKey = str | TaskId


@dataclass(frozen=True, slots=True)
class RecordCounts:
    """What became of a task's records since it was started.

    read = written + filtered + dead-lettered + skipped, unless a transform makes several records of
    one.
    """

    read_count: int = 0
    written_count: int = 0
    filtered_count: int = 0
    dead_lettered_count: int = 0
    skipped_count: int = 0

    def __add__(self, other: "RecordCounts") -> "RecordCounts":
        mine, others = asdict(self), asdict(other)
        return RecordCounts(**{name: mine[name] + others[name] for name in mine})


#: How many figures a task may have.
FIGURES_MAX = 16
_FIGURE_NAME = re.compile(r"(?=.{1,64}\Z)[a-z][a-z0-9_]*_(bytes|count|ms|percent)")
#: Whole numbers that every reader of JSON gets right.
_FIGURE_LIMIT = 2**53


def figure_fault(name: object, value: object) -> str | None:
    """Why this is no figure of a task; None when it is one."""
    if not isinstance(name, str) or not _FIGURE_NAME.fullmatch(name):
        return (
            f"{str(name)[:80]!r} is no name of a figure: it has up to 64 lower-case letters, digits"
            " and underscores, and ends in its unit: _bytes, _count, _ms or _percent"
        )
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) >= _FIGURE_LIMIT:
        return f"the figure {name} has to be a whole number of at most 53 bits"
    return None


@dataclass(frozen=True, slots=True)
class Status:
    """One status: who says (``worker_id``, as host:port) under which ``generation``, and where they
    are known the ``version`` of the plugin, the ``counts`` of a task's present run, its
    ``failures``, and its connector's own ``figures``: the last value of each by its name, which
    ends in its unit.
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
    """That a connector was seen to use a topic (KIP-558): by which of its tasks first, and when, in
    milliseconds since 1970.
    """

    key: TopicKey
    task: int
    discovered_ms: int


@dataclass(frozen=True, slots=True)
class StatusWrite:
    """A status to be written; with ``safe`` only if it does not come too late (putSafe)."""

    status: Status
    safe: bool = False


@dataclass(frozen=True, slots=True)
class StatusEvent:
    """One change, as the record at ``offset`` caused it; ``status`` is None when it was removed."""

    offset: int
    key: StatusKey
    status: Status | None


@dataclass(frozen=True, slots=True)
class TopicEvent:
    """One change of the topics, as the record at ``offset`` caused it; ``status`` is None when the
    topic was forgotten.
    """

    offset: int
    key: TopicKey
    status: TopicStatus | None


#: What the record at its ``offset`` changed.
StatusChange = StatusEvent | TopicEvent


@dataclass(frozen=True, slots=True)
class StatusSnapshot:
    """Every status and topic at ``end_offset``, which counts in the log named ``log_id``."""

    end_offset: int
    statuses: Mapping[StatusKey, Status]
    topics: Mapping[TopicKey, TopicStatus] = field(default_factory=dict)
    log_id: str = ""
