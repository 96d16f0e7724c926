"""The status machine: decides which statuses are written to the log, and folds it."""

from collections.abc import Sequence
from itertools import islice

from drover.machine import AppendFailed, Complete, Instruction, Outcome, Replayed, SetTimer
from drover.model.status import StatusChange, StatusEvent, StatusSnapshot, TopicKey, TopicStatus
from drover.runtime.change_buffer import ChangeBuffer
from drover_status_store.core.draft import Draft
from drover_status_store.core.events import (
    DeleteTopicStatuses,
    Flush,
    PutAppendFailed,
    PutStatuses,
    PutTopicStatuses,
    RewriteDue,
    ShadowedSeen,
    StatusCall,
    WriteOutcome,
)
from drover_status_store.core.records import AnyRecord, StatusRecord, TopicRecord
from drover_status_store.core.status_state import StatusState
from drover_status_store.core.validate import (
    check_statuses,
    check_topic_deletion,
    check_topics,
)
from drover_status_store.core.writers import Writers

#: How long a record may be shadowed before it is written again.
REWRITE_AFTER_MS = 1_000
REWRITE_COUNT_MAX = 500
_EVENT_OVERHEAD_BYTES = 300
_SHADOWED_SEEN = SetTimer("shadowed-seen", 0, ShadowedSeen())


class StatusMachine:
    """Log-backed machine of the status store: the current status of each connector and task."""

    def __init__(self, history: ChangeBuffer[StatusChange] | None = None) -> None:
        self.history = ChangeBuffer[StatusChange]() if history is None else history
        self._state = StatusState()
        self._writers = Writers()
        self._rewrite_is_set = False

    @property
    def end_offset(self) -> int:
        """The last record's offset + 1."""
        return self.history.end_offset

    def snapshot(self) -> StatusSnapshot:
        """Every status at ``end_offset``."""
        return self._state.snapshot(self.end_offset)

    def handle(
        self, event: StatusCall | ShadowedSeen | RewriteDue | AppendFailed, now_ms: int
    ) -> Outcome[AnyRecord]:
        """Decide a request or timer event.

        Raises:
            InvalidArgumentError: INVALID_REQUEST.
        """
        match event:
            case PutStatuses():
                return self._put_statuses(event)
            case PutTopicStatuses():
                return self._put_topics(event, now_ms)
            case DeleteTopicStatuses():
                return self._delete_topics(event)
            case Flush(call_id=call_id):
                # the runtime applies each request before it decides the next one
                return Outcome(instructions=[Complete(call_id, None)])
            case ShadowedSeen():
                return self._set_rewrite_timer(now_ms)
            case RewriteDue():
                return self._rewrite_shadowed(now_ms)
            case AppendFailed(PutAppendFailed(writer, number)):
                self._writers.forget_outcomes(writer, number)
                return Outcome()
            case AppendFailed(ShadowedSeen()):
                return self._set_rewrite_timer(now_ms)
            case AppendFailed():
                raise AssertionError(f"unexpected failure of an append: {event}")

    def replay(self, replayed: Replayed[AnyRecord]) -> Sequence[Instruction]:
        """Apply a durable record."""
        record = replayed.record
        changes = self._state.apply(replayed.offset, record, replayed.timestamp_ms)
        self.history.record_seen(
            replayed.offset, changes, sum(map(_size_bytes, changes)), replayed.timestamp_ms
        )
        if isinstance(record, StatusRecord) and record.mark is not None and record.mark.writer:
            self._writers.record_seen(record.mark.writer, record.mark.number)
        return [_SHADOWED_SEEN] if self._state.shadowed and not self._rewrite_is_set else ()

    def loaded(self, now_ms: int, end_offset: int) -> Sequence[Instruction]:
        """The log has been read to ``end_offset``."""
        self.history.loaded(end_offset, now_ms)
        return [_SHADOWED_SEEN] if self._state.shadowed else ()

    def validate(self) -> None:
        """Raise AssertionError when an invariant is broken."""
        self._state.validate()
        self.history.validate()

    def _put_statuses(self, event: PutStatuses) -> Outcome[AnyRecord]:
        check_statuses(event)
        writer, number = event.writer, event.number
        outcomes: Sequence[WriteOutcome] | None = None
        draft = Draft(self._state, writer, number)
        if writer and self._writers.is_stale(writer, number):
            outcomes = (WriteOutcome.SUPERSEDED,) * len(event.writes)
        elif writer:
            outcomes = self._writers.outcomes(writer, number)
        if outcomes is None:
            outcomes = tuple(draft.write(write) for write in event.writes)
            if writer:
                self._writers.remember_outcomes(writer, number, outcomes)
        return Outcome(
            records=draft.records,
            instructions=[Complete(event.call_id, outcomes)],
            on_append_failed=PutAppendFailed(writer, number) if writer else None,
        )

    def _put_topics(self, event: PutTopicStatuses, now_ms: int) -> Outcome[AnyRecord]:
        check_topics(event)
        changed: dict[TopicKey, TopicStatus] = {}
        for topic in event.topics:
            key = TopicKey(event.connector, topic)
            current = self._state.topic(key)
            status = TopicStatus(key, event.task, event.discovered_ms or now_ms)
            if current is None or (event.discovered_ms and current != status):
                changed[key] = status
        return Outcome(
            records=[TopicRecord(key, status) for key, status in changed.items()],
            instructions=[Complete(event.call_id, None)],
        )

    def _delete_topics(self, event: DeleteTopicStatuses) -> Outcome[AnyRecord]:
        check_topic_deletion(event)
        topics = self._state.topics(event.connector)
        return Outcome(
            records=[TopicRecord(key, None) for key in topics],
            instructions=[Complete(event.call_id, None)],
        )

    def _set_rewrite_timer(self, now_ms: int) -> Outcome[AnyRecord]:
        self._rewrite_is_set = True
        return Outcome(
            instructions=[SetTimer("rewrite-shadowed", now_ms + REWRITE_AFTER_MS, RewriteDue())]
        )

    def _rewrite_shadowed(self, now_ms: int) -> Outcome[AnyRecord]:
        """Write shadowed records again, so that the compacted log folds to the same state."""
        keys = list(islice(self._state.shadowed, REWRITE_COUNT_MAX))
        if not keys:
            self._rewrite_is_set = False
            return Outcome()
        records = [self._state.rewrite_record(key) for key in keys]
        timer = self._set_rewrite_timer(now_ms)
        return Outcome(
            records=records, instructions=timer.instructions, on_append_failed=ShadowedSeen()
        )


def _size_bytes(change: StatusChange) -> int:
    is_status = isinstance(change, StatusEvent) and change.status is not None
    trace = change.status.trace if is_status else ""  # type: ignore[union-attr]
    return _EVENT_OVERHEAD_BYTES + len(trace)
