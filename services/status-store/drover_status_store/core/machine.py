"""The status machine: decides which statuses are written to the log, and folds it."""

from collections.abc import Sequence
from itertools import islice

from drover.machine import AppendFailed, Complete, Instruction, Outcome, Replayed, SetTimer
from drover.model.status import StatusChange, StatusEvent, StatusSnapshot, TopicKey, TopicStatus
from drover.runtime.change_buffer import ChangeBuffer
from drover_status_store.core.draft import Draft
from drover_status_store.core.events import (
    AnswerLost,
    DeleteTopicStatuses,
    Flush,
    HiddenSeen,
    PutStatuses,
    PutTopicStatuses,
    RepeatDue,
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

#: How long a word may be hidden before it is said again.
REPEAT_AFTER_MS = 1_000
REPEAT_COUNT_MAX = 500
_EVENT_OVERHEAD_BYTES = 300
_HIDDEN_SEEN = SetTimer("hidden-seen", 0, HiddenSeen())


class StatusMachine:
    """Log-backed machine of the status store: the last word about every connector and task."""

    def __init__(self, history: ChangeBuffer[StatusChange] | None = None) -> None:
        self.history = ChangeBuffer[StatusChange]() if history is None else history
        self._state = StatusState()
        self._writers = Writers()
        self._repeat_is_due = False

    @property
    def end_offset(self) -> int:
        """The last record's offset + 1."""
        return self.history.end_offset

    def snapshot(self) -> StatusSnapshot:
        """Every status at ``end_offset``."""
        return self._state.snapshot(self.end_offset)

    def handle(
        self, event: StatusCall | HiddenSeen | RepeatDue | AppendFailed, now_ms: int
    ) -> Outcome[AnyRecord]:
        """Decide about a request.

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
                # requests are decided one after another, each when the one before is applied
                return Outcome(instructions=[Complete(call_id, None)])
            case HiddenSeen():
                return self._arm_repeat(now_ms)
            case RepeatDue():
                return self._repeat_hidden(now_ms)
            case AppendFailed(AnswerLost(writer, number)):
                self._writers.forget_answer(writer, number)
                return Outcome()
            case AppendFailed(HiddenSeen()):
                return self._arm_repeat(now_ms)
            case AppendFailed():
                raise AssertionError(f"nobody asked to hear of {event}")

    def replay(self, replayed: Replayed[AnyRecord]) -> Sequence[Instruction]:
        """Apply a durable record."""
        record = replayed.record
        changes = self._state.apply(replayed.offset, record, replayed.timestamp_ms)
        self.history.record_seen(
            replayed.offset, changes, sum(map(_size_bytes, changes)), replayed.timestamp_ms
        )
        if isinstance(record, StatusRecord) and record.mark is not None and record.mark.writer:
            self._writers.seen(record.mark.writer, record.mark.number)
        return [_HIDDEN_SEEN] if self._state.hidden and not self._repeat_is_due else ()

    def loaded(self, now_ms: int, end_offset: int) -> Sequence[Instruction]:
        """The log has been read to ``end_offset``."""
        self.history.loaded(end_offset, now_ms)
        return [_HIDDEN_SEEN] if self._state.hidden else ()

    def validate(self) -> None:
        """Raise AssertionError when an invariant is broken."""
        self._state.validate()
        self.history.validate()

    def _put_statuses(self, event: PutStatuses) -> Outcome[AnyRecord]:
        check_statuses(event)
        writer, number = event.writer, event.number
        outcomes: Sequence[WriteOutcome] | None = None
        draft = Draft(self._state, writer, number)
        if writer and self._writers.is_late(writer, number):
            outcomes = (WriteOutcome.SUPERSEDED,) * len(event.writes)
        elif writer:
            outcomes = self._writers.answered(writer, number)
        if outcomes is None:
            outcomes = tuple(draft.write(write) for write in event.writes)
            if writer:
                self._writers.decided(writer, number, outcomes)
        return Outcome(
            records=draft.records,
            instructions=[Complete(event.call_id, outcomes)],
            on_append_failed=AnswerLost(writer, number) if writer else None,
        )

    def _put_topics(self, event: PutTopicStatuses, now_ms: int) -> Outcome[AnyRecord]:
        check_topics(event)
        found: dict[TopicKey, TopicStatus] = {}
        for topic in event.topics:
            key = TopicKey(event.connector, topic)
            known = self._state.topic(key)
            status = TopicStatus(key, event.task, event.discovered_ms or now_ms)
            if known is None or (event.discovered_ms and known != status):
                found[key] = status
        return Outcome(
            records=[TopicRecord(key, status) for key, status in found.items()],
            instructions=[Complete(event.call_id, None)],
        )

    def _delete_topics(self, event: DeleteTopicStatuses) -> Outcome[AnyRecord]:
        check_topic_deletion(event)
        topics = self._state.topics(event.connector)
        return Outcome(
            records=[TopicRecord(key, None) for key in topics],
            instructions=[Complete(event.call_id, None)],
        )

    def _arm_repeat(self, now_ms: int) -> Outcome[AnyRecord]:
        self._repeat_is_due = True
        return Outcome(
            instructions=[SetTimer("repeat-hidden", now_ms + REPEAT_AFTER_MS, RepeatDue())]
        )

    def _repeat_hidden(self, now_ms: int) -> Outcome[AnyRecord]:
        """Say again what is hidden, so that who reads the compacted log comes to the same state."""
        hidden = list(islice(self._state.hidden, REPEAT_COUNT_MAX))
        if not hidden:
            self._repeat_is_due = False
            return Outcome()
        records = [self._state.repeated(key) for key in hidden]
        more = self._arm_repeat(now_ms)
        return Outcome(
            records=records, instructions=more.instructions, on_append_failed=HiddenSeen()
        )


def _size_bytes(change: StatusChange) -> int:
    is_status = isinstance(change, StatusEvent) and change.status is not None
    trace = change.status.trace if is_status else ""  # type: ignore[union-attr]
    return _EVENT_OVERHEAD_BYTES + len(trace)
