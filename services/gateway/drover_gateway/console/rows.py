"""What is shown of a connector in lists, and which connectors are shown; pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Self
from urllib.parse import urlencode

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.cli.output.connectors import target_state
from drover.codec.connect import decode_connector_type
from drover.codec.failures import decode_failures
from drover.model.failures import Failure
from drover.model.failures import summary_of as summary_of_trace
from drover_gateway.console.frame import CONNECTORS

#: The number of rows of a page.
PAGE_ROWS = 1_000
_CAUSE_MAX_CHARS = 200
_UNKNOWN = "unknown"


class State(StrEnum):
    """The state of a connector together with its tasks, in the order in which lists show them."""

    FAILED = "failed"
    RESTARTING = "restarting"
    UNASSIGNED = "unassigned"
    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"


_STATES: Mapping[int, State] = {
    pb.RUN_STATE_FAILED: State.FAILED,
    pb.RUN_STATE_RESTARTING: State.RESTARTING,
    pb.RUN_STATE_UNASSIGNED: State.UNASSIGNED,
    pb.RUN_STATE_RUNNING: State.RUNNING,
    pb.RUN_STATE_PAUSED: State.PAUSED,
    pb.RUN_STATE_STOPPED: State.STOPPED,
}
_BY_VALUE = {each.value: each for each in State}
_ORDER = {state: at for at, state in enumerate(State)}
#: If the connector runs, the state of its tasks that matters most is shown.
_WORSE_TASKS = (State.FAILED, State.RESTARTING, State.UNASSIGNED)


@dataclass(frozen=True, slots=True)
class Row:
    """A connector in a list.

    Attributes:
        name: Its name.
        kind: ``source``, ``sink`` or ``unknown``.
        class_name: Its class, as its config has it.
        state: Its state with its tasks.
        own_state: The state of the connector without its tasks.
        target: The target state: ``started``, ``paused`` or ``stopped``; empty if unknown.
        tasks: The number of its tasks by state.
        failed_tasks: The numbers of its failed tasks.
        workers: The workers of the connector and its tasks, sorted.
        lag: The number of records that a sink has not delivered; None if unknown.
        read_count: The number of records read since the connector was created; None if unknown.
        written_count: The number of records written since its creation; None if unknown.
        dead_lettered_count: The number of records in the dead letter queue since its creation.
        skipped_count: The number of records that failed and were dropped since its creation.
        cause: The cause of its failure in one line; empty if it has not failed.
        failed_ms: When it failed, in ms since 1970; 0 if it has not failed, or if that is unknown.
        restart_ms: When the next automatic restart is due; 0 if there is none.
        revision: The revision of its config.
    """

    name: str
    kind: str
    class_name: str
    state: State
    own_state: State
    target: str
    tasks: Mapping[State, int]
    failed_tasks: Sequence[int]
    workers: Sequence[str]
    lag: int | None
    read_count: int | None
    written_count: int | None
    dead_lettered_count: int
    skipped_count: int
    cause: str
    failed_ms: int
    restart_ms: int
    revision: int

    @property
    def task_count(self) -> int:
        """The number of its tasks."""
        return sum(self.tasks.values())

    @property
    def short_class(self) -> str:
        """The class without its package."""
        return self.class_name.replace(":", ".").rpartition(".")[2]


def row_of(status: pb.ConnectorStatus, connector: pb.Connector | None) -> Row:
    """The row of a connector; ``connector`` is None for a moment after it was created."""
    tasks = Counter(state_of(each.state) for each in status.tasks)
    own = state_of(status.connector.state)
    failed = [each for each in status.tasks if each.state == pb.RUN_STATE_FAILED]
    workers = {status.connector.worker_id, *(each.worker_id for each in status.tasks)} - {""}
    counts = status.counts if status.HasField("counts") else None
    cause, failed_ms, restart_ms = _failure(status, failed)
    class_name = "" if connector is None else connector.config.get("connector.class", "").strip()
    target = "" if connector is None else target_state(connector.target_state).lower()
    return Row(
        name=status.name,
        kind=decode_connector_type(status.type) or _UNKNOWN,
        class_name=class_name,
        state=_overall(own, tasks),
        own_state=own,
        target=target,
        tasks=tasks,
        failed_tasks=tuple(each.task for each in failed),
        workers=tuple(sorted(workers)),
        lag=status.lag if status.HasField("lag") else None,
        read_count=None if counts is None else counts.read_count,
        written_count=None if counts is None else counts.written_count,
        dead_lettered_count=0 if counts is None else counts.dead_lettered_count,
        skipped_count=0 if counts is None else counts.skipped_count,
        cause=cause,
        failed_ms=failed_ms,
        restart_ms=restart_ms,
        revision=0 if connector is None else connector.revision,
    )


def state_of(number: int) -> State:
    """A state of the API."""
    return _STATES.get(number, State.UNASSIGNED)


def _overall(own: State, tasks: Mapping[State, int]) -> State:
    if own not in (State.RUNNING, State.PAUSED):
        return own
    return next((each for each in _WORSE_TASKS if tasks.get(each)), own)


def _failure(
    status: pb.ConnectorStatus, failed_tasks: Sequence[pb.TaskState]
) -> tuple[str, int, int]:
    """The cause, the time of the last failure, and of the next restart."""
    states: list[pb.ConnectorState | pb.TaskState] = [*failed_tasks]
    if status.connector.state == pb.RUN_STATE_FAILED:
        states.insert(0, status.connector)
    if not states:
        return "", 0, 0
    cause, failed_ms, restarts_ms = "", 0, []
    for each in states:
        last = _last_failure(each)
        cause = cause or (last.message if last is not None else "") or summary_of_trace(each.trace)
        failed_ms = max(failed_ms, 0 if last is None else last.failed_ms)
        if each.HasField("failures") and (due_ms := decode_failures(each.failures).restart_ms):
            restarts_ms.append(due_ms)
    return _cut(cause or "no cause was reported"), failed_ms, min(restarts_ms, default=0)


def _last_failure(state: pb.ConnectorState | pb.TaskState) -> Failure | None:
    return decode_failures(state.failures).last if state.HasField("failures") else None


def _cut(line: str) -> str:
    flat = " ".join(line.split())
    return flat if len(flat) <= _CAUSE_MAX_CHARS else f"{flat[: _CAUSE_MAX_CHARS - 1]}…"


SORTS = ("failed", "name", "lag")


@dataclass(frozen=True, slots=True)
class Filters:
    """Which rows are shown, in which order: all of it is in the URL.

    Attributes:
        text: Only names that contain it, in any case.
        states: Only these states; empty for all.
        kind: Only this type; empty for all.
        class_name: Only this class, without its package; empty for all.
        worker: Only connectors with a part on this worker; empty for all.
        sort: One of ``SORTS``.
        page: The number of the page, from 1.
    """

    text: str = ""
    states: Sequence[State] = ()
    kind: str = ""
    class_name: str = ""
    worker: str = ""
    sort: str = SORTS[0]
    page: int = 1

    @classmethod
    def read(cls, fields: Iterable[tuple[str, str]]) -> Self:
        """From the fields of a query; unknown values are left out."""
        found: dict[str, str] = {}
        states = []
        for key, value in fields:
            if key == "state" and value in _BY_VALUE:
                states.append(_BY_VALUE[value])
            found.setdefault(key, value.strip())
        sort = found.get("sort", "")
        page = found.get("page", "")
        return cls(
            text=found.get("q", ""),
            states=tuple(dict.fromkeys(states)),
            kind=found.get("type", ""),
            class_name=found.get("class", ""),
            worker=found.get("worker", ""),
            sort=sort if sort in SORTS else SORTS[0],
            page=max(1, int(page[:6])) if page.isdecimal() and page.isascii() else 1,
        )

    @property
    def selects_all(self) -> bool:
        """Whether every connector is shown."""
        return not (self.text or self.states or self.kind or self.class_name or self.worker)

    def fields(self) -> list[tuple[str, str]]:
        """As fields of a query, without fields that have their default."""
        fields = [
            ("q", self.text),
            *(("state", each.value) for each in self.states),
            ("type", self.kind),
            ("class", self.class_name),
            ("worker", self.worker),
            ("sort", "" if self.sort == SORTS[0] else self.sort),
            ("page", "" if self.page == 1 else str(self.page)),
        ]
        return [each for each in fields if each[1]]

    def url(self, **changes: object) -> str:
        """The page with some other values; the first page unless one is given."""
        changed = replace(self, **{"page": 1, **changes})  # type: ignore[arg-type]
        query = urlencode(changed.fields())
        return f"{CONNECTORS}?{query}" if query else CONNECTORS

    def accepts(self, row: Row) -> bool:
        """Whether a row is shown."""
        return (
            (not self.states or row.state in self.states)
            and (not self.kind or row.kind == self.kind)
            and (not self.class_name or row.short_class == self.class_name)
            and (not self.worker or self.worker in row.workers)
            and self.text.casefold() in row.name.casefold()
        )

    def sorted(self, rows: Iterable[Row]) -> list[Row]:
        """The rows that are shown, in order, of all pages."""
        shown = [each for each in rows if self.accepts(each)]
        match self.sort:
            case "name":
                return sorted(shown, key=lambda row: row.name)
            case "lag":
                return sorted(shown, key=lambda row: (-(row.lag or 0), row.name))
            case _:
                return sorted(shown, key=lambda row: (_ORDER[row.state], row.name))


@dataclass(frozen=True, slots=True)
class Summary:
    """The numbers of connectors by state, type and class, and their workers."""

    states: Mapping[State, int]
    kinds: Mapping[str, int]
    classes: Mapping[str, int]
    workers: Sequence[str]

    @property
    def total(self) -> int:
        """The number of connectors."""
        return sum(self.states.values())


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over connectors.

    Attributes:
        task_count: The number of tasks.
        lag: The number of records that sinks have not delivered; None if no lag is known.
        dead_lettered_count: The number of dead letters since the connectors were created.
        skipped_count: The number of dropped records since their creation.
    """

    task_count: int
    lag: int | None
    dead_lettered_count: int
    skipped_count: int


class RowCounts:
    """Counts and sums of rows, kept up to date row by row: lists may have thousands of them."""

    def __init__(self) -> None:
        self._states: Counter[State] = Counter()
        self._kinds: Counter[str] = Counter()
        self._classes: Counter[str] = Counter()
        self._workers: Counter[str] = Counter()
        self._sums: Counter[str] = Counter()

    def add(self, row: Row) -> None:
        """Count a row."""
        self._count(row, 1)

    def remove(self, row: Row) -> None:
        """No longer count a row that was added."""
        self._count(row, -1)

    def summary(self) -> Summary:
        """The numbers by state, type and class, and the workers."""
        return Summary(
            {each: self._states[each] for each in State},
            {key: count for key, count in sorted(self._kinds.items()) if count},
            {key: count for key, count in sorted(self._classes.items()) if count},
            sorted(key for key, count in self._workers.items() if count),
        )

    def totals(self) -> Totals:
        """The sums."""
        sums = self._sums
        return Totals(
            sums["tasks"], sums["lag"] if sums["lags"] else None, sums["dead"], sums["skipped"]
        )

    def _count(self, row: Row, by: int) -> None:
        self._states[row.state] += by
        self._kinds[row.kind] += by
        self._classes[row.short_class] += by
        for worker in row.workers:
            self._workers[worker] += by
        self._sums["tasks"] += by * row.task_count
        self._sums["dead"] += by * row.dead_lettered_count
        self._sums["skipped"] += by * row.skipped_count
        if row.lag is not None:
            self._sums["lags"] += by
            self._sums["lag"] += by * row.lag
