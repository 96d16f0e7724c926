"""The fold of the status log."""

from collections.abc import Collection, Sequence

from drover.model.ids import TaskId
from drover.model.status import (
    RunState,
    StatusChange,
    StatusEvent,
    StatusKey,
    StatusSnapshot,
    TopicEvent,
    TopicKey,
    TopicStatus,
)
from drover_status_store.core.records import AnyRecord, Mark, StatusRecord, TopicRecord
from drover_status_store.core.rules import is_stale


class StatusState:
    """The current status of each key: its last record that was not stale when it was read.

    A current record is *shadowed* if a stale record of its key follows it in the log. Compaction
    would keep the stale record and remove the current one.
    """

    def __init__(self) -> None:
        self._current: dict[StatusKey, StatusRecord] = {}
        #: when the current record of each task was written
        self._times_ms: dict[TaskId, int] = {}
        #: the tasks of each connector that have a status; no empty sets
        self._tasks: dict[str, set[TaskId]] = {}
        self._topics: dict[str, dict[TopicKey, TopicStatus]] = {}
        self._shadowed: dict[StatusKey, None] = {}

    @property
    def shadowed(self) -> Collection[StatusKey]:
        """The keys of shadowed records, oldest first; records of other programs are left out."""
        return self._shadowed.keys()

    def current(self, key: StatusKey) -> StatusRecord | None:
        """The current record of ``key``."""
        return self._current.get(key)

    def rewrite_record(self, key: StatusKey) -> StatusRecord:
        """The record to append so that the log's last record of ``key`` is the current one."""
        current = self._current.get(key)
        return StatusRecord(key, None, Mark()) if current is None else current

    def tasks(self, connector: str) -> set[TaskId]:
        """The tasks of ``connector`` that have a status."""
        return set(self._tasks.get(connector, ()))

    def topics(self, connector: str) -> list[TopicKey]:
        """The topics of ``connector``, by name."""
        return sorted(self._topics.get(connector, ()))

    def topic(self, key: TopicKey) -> TopicStatus | None:
        """The recorded use of a topic by a connector."""
        return self._topics.get(key.connector, {}).get(key)

    def apply(
        self, offset: int, record: AnyRecord, timestamp_ms: int = 0
    ) -> Sequence[StatusChange]:
        """Apply the record at ``offset``, written at ``timestamp_ms``; return the changes."""
        if isinstance(record, StatusRecord):
            return self._apply_status(offset, record, timestamp_ms)
        if isinstance(record, TopicRecord):
            return self._apply_topic(offset, record)
        return ()

    def snapshot(self, end_offset: int) -> StatusSnapshot:
        """A copy of every status."""
        return StatusSnapshot(
            end_offset,
            {key: each.status for key, each in self._current.items() if each.status is not None},
            {key: status for topics in self._topics.values() for key, status in topics.items()},
        )

    def validate(self) -> None:
        """Raise AssertionError when an invariant is broken."""
        tasks = {key for key in self._current if isinstance(key, TaskId)}
        indexed = [task for owned in self._tasks.values() for task in owned]
        assert len(indexed) == len(tasks)
        assert set(indexed) == tasks == set(self._times_ms)
        assert all(self._tasks.values())
        assert all(self._topics.values())
        for key, current in self._current.items():
            assert current.key == key
            assert current.status is not None
            assert current.status.state is not RunState.DESTROYED
        for connector, topics in self._topics.items():
            assert all(key.connector == connector for key in topics)

    def _apply_status(
        self, offset: int, record: StatusRecord, timestamp_ms: int
    ) -> Sequence[StatusEvent]:
        key, status = record.key, record.status
        current = self._current.get(key)
        if is_stale(status, record.mark, current):
            self._add_shadowed(key)
            return ()
        if self._shadowed:
            self._shadowed.pop(key, None)
        if status is None:
            return self._remove_at(offset, key, timestamp_ms)
        self._current[key] = record
        if isinstance(key, TaskId):
            self._tasks.setdefault(key.connector, set()).add(key)
            self._times_ms[key] = timestamp_ms
        if current is not None and current.status == status:
            return ()
        return (StatusEvent(offset, key, status),)

    def _remove_at(self, offset: int, key: StatusKey, timestamp_ms: int) -> list[StatusEvent]:
        """Remove a status; a connector's removal also removes the older statuses of its tasks.

        A task status later than the tombstone belongs to a connector created again with the same
        name: its partition may be read before the connector's.
        """
        tasks = sorted(self.tasks(key)) if isinstance(key, str) else []
        removed: list[StatusKey] = [task for task in tasks if self._times_ms[task] <= timestamp_ms]
        for task in removed:
            self._add_shadowed(task)
        if key in self._current:
            removed.append(key)
        for each in removed:
            self._remove(each)
        return [StatusEvent(offset, each, None) for each in removed]

    def _apply_topic(self, offset: int, record: TopicRecord) -> Sequence[TopicEvent]:
        key, status = record.key, record.status
        if status == self.topic(key):
            return ()
        topics = self._topics.setdefault(key.connector, {})
        if status is not None:
            topics[key] = status
        else:
            topics.pop(key, None)
            if not topics:
                del self._topics[key.connector]
        return (TopicEvent(offset, key, status),)

    def _add_shadowed(self, key: StatusKey) -> None:
        """Mark the current record of ``key`` as shadowed, unless another program wrote it."""
        current = self._current.get(key)
        if current is not None and current.mark is not None:
            self._shadowed[key] = None

    def _remove(self, key: StatusKey) -> None:
        self._current.pop(key, None)
        if isinstance(key, TaskId) and self._times_ms.pop(key, None) is not None:
            self._tasks[key.connector].discard(key)
            if not self._tasks[key.connector]:
                del self._tasks[key.connector]
