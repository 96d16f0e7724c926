"""Decides the writes of one request, each on top of the state and the writes before it. Pure."""

from drover.model.ids import TaskId
from drover.model.status import RunState, StatusKey, StatusWrite
from drover_status_store.core.events import WriteOutcome
from drover_status_store.core.records import AnyRecord, Mark, StatusRecord, TopicRecord
from drover_status_store.core.rules import is_stale
from drover_status_store.core.status_state import StatusState
from drover_status_store.core.validate import with_capped_trace


class Draft:
    """Collects the records that a request appends.

    Args:
        state: The state before the request.
        writer: The request's writer; may be empty.
        number: The request's number.
    """

    def __init__(self, state: StatusState, writer: str, number: int) -> None:
        self._state = state
        self._mark = Mark(writer, number)
        self._safe_mark = Mark(writer, number, safe=True)
        self._changed: dict[StatusKey, StatusRecord | None] = {}
        self._changed_tasks: dict[str, set[TaskId]] = {}
        self.records: list[AnyRecord] = []

    def write(self, write: StatusWrite) -> WriteOutcome:
        """Decide one write and add its records."""
        status = with_capped_trace(write.status)
        mark = self._safe_mark if write.safe else self._mark
        current = self._current(status.key)
        if is_stale(status, mark, current):
            return WriteOutcome.SUPERSEDED
        if status.state is RunState.DESTROYED:
            self._destroy(status.key, mark)
        elif current is None or current.status != status or not self._is_same_request(current):
            self._put(StatusRecord(status.key, status, mark))
        return WriteOutcome.WRITTEN

    def _is_same_request(self, current: StatusRecord) -> bool:
        """Whether ``current`` was written by this request, so that it need not be written again.

        An equal status of a later request is written: another replica may have appended a
        different one in between. A request without a writer is not compared.
        """
        own = self._mark
        return not own.writer or current.mark in (own, self._safe_mark)

    def _current(self, key: StatusKey) -> StatusRecord | None:
        if key in self._changed:
            return self._changed[key]
        return self._state.current(key)

    def _put(self, record: StatusRecord) -> None:
        self._changed[record.key] = None if record.status is None else record
        if isinstance(record.key, TaskId):
            self._changed_tasks.setdefault(record.key.connector, set()).add(record.key)
        self.records.append(record)

    def _destroy(self, key: StatusKey, mark: Mark) -> None:
        """Add tombstones for the key and, if it is a connector, for its tasks and topics.

        Tasks and topics need their own tombstones: compaction may remove the connector's. The
        key's tombstone is written even without a current status: another replica may have
        appended a status that this one has not read yet.
        """
        keys: list[StatusKey] = [key]
        if isinstance(key, str):
            tasks = self._state.tasks(key) | self._changed_tasks.get(key, set())
            keys = [*sorted(tasks), key]
            self.records += [TopicRecord(topic, None) for topic in self._state.topics(key)]
        for removed_key in keys:
            if self._current(removed_key) is not None:
                self._put(StatusRecord(removed_key, None, mark))
        if mark.writer and key not in self._changed:
            self._put(StatusRecord(key, None, mark))
