"""The writes of one request as they would stand on top of the state. Pure."""

from drover.model.ids import TaskId
from drover.model.status import RunState, StatusKey, StatusWrite
from drover_status_store.core.events import WriteOutcome
from drover_status_store.core.records import AnyRecord, Mark, StatusRecord, TopicRecord
from drover_status_store.core.rules import comes_late
from drover_status_store.core.status_state import StatusState
from drover_status_store.core.validate import with_capped_trace


class Draft:
    """Collects the records that a request leads to; each write is seen by those after it.

    Args:
        state: What they stand on.
        writer: The request's writer, maybe empty.
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
        """Decide about one write."""
        status = with_capped_trace(write.status)
        mark = self._safe_mark if write.safe else self._mark
        held = self._held(status.key)
        if comes_late(status, mark, held):
            return WriteOutcome.SUPERSEDED
        if status.state is RunState.DESTROYED:
            self._destroy(status.key, mark)
        elif held is None or held.status != status or not self._is_known(held):
            self._put(StatusRecord(status.key, status, mark))
        return WriteOutcome.WRITTEN

    def _is_known(self, held: StatusRecord) -> bool:
        """Whether an equal status is this very request's.

        A later request that says the same is written: another replica may have heard something
        else in between. Without numbers there is no telling.
        """
        own = self._mark
        return not own.writer or held.mark in (own, self._safe_mark)

    def _held(self, key: StatusKey) -> StatusRecord | None:
        if key in self._changed:
            return self._changed[key]
        return self._state.held(key)

    def _put(self, record: StatusRecord) -> None:
        self._changed[record.key] = None if record.status is None else record
        if isinstance(record.key, TaskId):
            self._changed_tasks.setdefault(record.key.connector, set()).add(record.key)
        self.records.append(record)

    def _destroy(self, key: StatusKey, mark: Mark) -> None:
        """Tombstones for what is there; a connector's tasks and topics get their own, so that they
        stay gone when compaction has forgotten the connector's.

        One for the key itself is written though nothing is there: another replica may have heard
        something that this one has yet to read.
        """
        keys: list[StatusKey] = [key]
        if isinstance(key, str):
            tasks = self._state.tasks(key) | self._changed_tasks.get(key, set())
            keys = [*sorted(tasks), key]
            self.records += [TopicRecord(topic, None) for topic in self._state.topics(key)]
        for gone in keys:
            if self._held(gone) is not None:
                self._put(StatusRecord(gone, None, mark))
        if mark.writer and key not in self._changed:
            self._put(StatusRecord(key, None, mark))
