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
from drover_status_store.core.rules import comes_late


class StatusState:
    """What is running, as the records applied so far say: the last word that counts for each key.

    A word is *hidden* when the last record of its key is one that counts for nothing: compaction
    would leave that one alone.
    """

    def __init__(self) -> None:
        self._held: dict[StatusKey, StatusRecord] = {}
        #: when the task's word was written
        self._times_ms: dict[TaskId, int] = {}
        #: the tasks of each connector that have a status; no empty sets
        self._tasks: dict[str, set[TaskId]] = {}
        self._topics: dict[str, dict[TopicKey, TopicStatus]] = {}
        self._hidden: dict[StatusKey, None] = {}

    @property
    def hidden(self) -> Collection[StatusKey]:
        """The keys whose word is hidden, the one for longest first; only of Drover's own words."""
        return self._hidden.keys()

    def held(self, key: StatusKey) -> StatusRecord | None:
        """The word that counts for ``key``."""
        return self._held.get(key)

    def repeated(self, key: StatusKey) -> StatusRecord:
        """What to write so that the word that counts for ``key`` is the log's last again."""
        held = self._held.get(key)
        return StatusRecord(key, None, Mark()) if held is None else held

    def tasks(self, connector: str) -> set[TaskId]:
        """The tasks of ``connector`` that have a status."""
        return set(self._tasks.get(connector, ()))

    def topics(self, connector: str) -> list[TopicKey]:
        """The topics of ``connector``, by name."""
        return sorted(self._topics.get(connector, ()))

    def topic(self, key: TopicKey) -> TopicStatus | None:
        """What is known of a connector's use of a topic."""
        return self._topics.get(key.connector, {}).get(key)

    def apply(
        self, offset: int, record: AnyRecord, timestamp_ms: int = 0
    ) -> Sequence[StatusChange]:
        """Apply the record at ``offset``, written at ``timestamp_ms``; what watchers are told."""
        if isinstance(record, StatusRecord):
            return self._apply_status(offset, record, timestamp_ms)
        if isinstance(record, TopicRecord):
            return self._apply_topic(offset, record)
        return ()

    def snapshot(self, end_offset: int) -> StatusSnapshot:
        """Every status; later changes do not show in it."""
        return StatusSnapshot(
            end_offset,
            {key: held.status for key, held in self._held.items() if held.status is not None},
            {key: status for topics in self._topics.values() for key, status in topics.items()},
        )

    def validate(self) -> None:
        """Raise AssertionError when an invariant is broken."""
        tasks = {key for key in self._held if isinstance(key, TaskId)}
        indexed = [task for owned in self._tasks.values() for task in owned]
        assert len(indexed) == len(tasks)
        assert set(indexed) == tasks == set(self._times_ms)
        assert all(self._tasks.values())
        assert all(self._topics.values())
        for key, held in self._held.items():
            assert held.key == key
            assert held.status is not None
            assert held.status.state is not RunState.DESTROYED
        for connector, topics in self._topics.items():
            assert all(key.connector == connector for key in topics)

    def _apply_status(
        self, offset: int, record: StatusRecord, timestamp_ms: int
    ) -> Sequence[StatusEvent]:
        key, status = record.key, record.status
        held = self._held.get(key)
        if comes_late(status, record.mark, held):
            self._hide(key)
            return ()
        if self._hidden:
            self._hidden.pop(key, None)
        if status is None:
            return self._remove_at(offset, key, timestamp_ms)
        self._held[key] = record
        if isinstance(key, TaskId):
            self._tasks.setdefault(key.connector, set()).add(key)
            self._times_ms[key] = timestamp_ms
        if held is not None and held.status == status:
            return ()
        return (StatusEvent(offset, key, status),)

    def _remove_at(self, offset: int, key: StatusKey, timestamp_ms: int) -> list[StatusEvent]:
        """A removed connector takes the statuses of its tasks with it, but not those of one that
        was made again: their partition may have been read first.
        """
        tasks = sorted(self.tasks(key)) if isinstance(key, str) else []
        gone: list[StatusKey] = [task for task in tasks if self._times_ms[task] <= timestamp_ms]
        for task in gone:
            self._hide(task)
        if key in self._held:
            gone.append(key)
        for each in gone:
            self._remove(each)
        return [StatusEvent(offset, each, None) for each in gone]

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

    def _hide(self, key: StatusKey) -> None:
        """The log's last word about ``key`` is not the one that counts.

        Where another program has the last word that counts, the log is left to it.
        """
        held = self._held.get(key)
        if held is not None and held.mark is not None:
            self._hidden[key] = None

    def _remove(self, key: StatusKey) -> None:
        self._held.pop(key, None)
        if isinstance(key, TaskId) and self._times_ms.pop(key, None) is not None:
            self._tasks[key.connector].discard(key)
            if not self._tasks[key.connector]:
                del self._tasks[key.connector]
