"""The status machine: decides which statuses are written to the log, and folds it."""

from collections.abc import Sequence

from drover.machine import Complete, Instruction, Notify, Outcome, Replayed
from drover.model.ids import TaskId
from drover.model.status import (
    RunState,
    Status,
    StatusEvent,
    StatusKey,
    StatusSnapshot,
    StatusWrite,
)
from drover.runtime.history import EventHistory
from services.status_store.core.events import PutStatuses, WriteOutcome
from services.status_store.core.records import AnyRecord, StatusRecord
from services.status_store.core.status_state import StatusState, is_late_report, is_safe
from services.status_store.core.validate import check_writes, with_capped_trace

#: Where watchers hear that the log has grown.
CHANGES_CHANNEL = "statuses"
_EVENT_OVERHEAD_BYTES = 300


class _Draft:
    """The writes of one request as they would stand on top of the state."""

    def __init__(self, state: StatusState) -> None:
        self._state = state
        self._changed: dict[StatusKey, Status | None] = {}
        self._changed_tasks: dict[str, set[TaskId]] = {}
        self.records: list[AnyRecord] = []

    def write(self, write: StatusWrite) -> WriteOutcome:
        """Decide about one write, in the light of those before it."""
        status = with_capped_trace(write.status)
        cached = self._get(status.key)
        if write.safe and not is_safe(status, cached):
            return WriteOutcome.SUPERSEDED
        if status.state is RunState.DESTROYED:
            self._destroy(status.key)
        elif is_late_report(status, cached):
            return WriteOutcome.SUPERSEDED
        elif status != cached:
            self._put(status.key, status)
        return WriteOutcome.WRITTEN

    def _get(self, key: StatusKey) -> Status | None:
        if key in self._changed:
            return self._changed[key]
        return self._state.statuses.get(key)

    def _put(self, key: StatusKey, status: Status | None) -> None:
        self._changed[key] = status
        if isinstance(key, TaskId):
            self._changed_tasks.setdefault(key.connector, set()).add(key)
        self.records.append(StatusRecord(key, status))

    def _destroy(self, key: StatusKey) -> None:
        """Tombstones for what is there; a connector's tasks get their own, so that they stay gone
        when compaction has forgotten the connector's.
        """
        keys: list[StatusKey] = [key]
        if isinstance(key, str):
            tasks = self._state.tasks(key) | self._changed_tasks.get(key, set())
            keys = [*sorted(tasks), key]
        for gone in keys:
            if self._get(gone) is not None:
                self._put(gone, None)


class StatusMachine:
    """Log-backed machine of the status store: the last word about every connector and task."""

    def __init__(self, history: EventHistory[StatusEvent] | None = None) -> None:
        self.history = EventHistory[StatusEvent]() if history is None else history
        self._state = StatusState()

    @property
    def end_offset(self) -> int:
        """The last record's offset + 1."""
        return self.history.end_offset

    def snapshot(self) -> StatusSnapshot:
        """Every status at ``end_offset``."""
        return self._state.snapshot(self.end_offset)

    def handle(self, event: PutStatuses, now_ms: int) -> Outcome[AnyRecord]:
        """Decide about the writes of a request, each in the light of those before it.

        Raises:
            InvalidArgumentError: INVALID_REQUEST.
        """
        check_writes(event.writes)
        draft = _Draft(self._state)
        outcomes = tuple(draft.write(write) for write in event.writes)
        return Outcome(
            records=draft.records,
            instructions=[Complete(event.call_id, outcomes), Notify(CHANGES_CHANNEL, None)],
        )

    def replay(self, replayed: Replayed[AnyRecord]) -> Sequence[Instruction]:
        """Apply a durable record."""
        events = self._state.apply(replayed.offset, replayed.record)
        size_bytes = sum(
            _EVENT_OVERHEAD_BYTES + (len(event.status.trace) if event.status else 0)
            for event in events
        )
        self.history.record_seen(replayed.offset, events, size_bytes)
        return ()

    def loaded(self, now_ms: int, end_offset: int) -> Sequence[Instruction]:
        """The log has been read to ``end_offset``."""
        self.history.skip_to(end_offset)
        return ()

    def validate(self) -> None:
        """Raise AssertionError when an invariant is broken."""
        self._state.validate()
        self.history.validate()
