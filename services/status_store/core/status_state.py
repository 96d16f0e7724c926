"""The fold of the status log, and the rules by which a status is too late."""

from collections.abc import Mapping, Sequence

from drover.model.ids import TaskId
from drover.model.status import RunState, Status, StatusEvent, StatusKey, StatusSnapshot
from services.status_store.core.records import AnyRecord, IgnoredRecord


def is_safe(status: Status, cached: Status | None) -> bool:
    """Whether a safe write may replace what is there: nothing, the same worker's word, or one of a
    generation that is not above its own.
    """
    return (
        cached is None
        or cached.worker_id == status.worker_id
        or cached.generation <= status.generation
    )


def is_late_report(status: Status, cached: Status | None) -> bool:
    """Whether ``status`` is a former owner's word about a task that another owner runs already.

    During a rebalance the old owner's UNASSIGNED can arrive after the new owner's RUNNING. A
    worker that gives up a task in the generation in which it ran it is no such case.
    """
    return (
        isinstance(status.key, TaskId)
        and status.state is RunState.UNASSIGNED
        and cached is not None
        and cached.state is RunState.RUNNING
        and (
            cached.generation > status.generation
            or (cached.generation == status.generation and cached.worker_id != status.worker_id)
        )
    )


class StatusState:
    """What is running, as the records applied so far say: the last word for each key."""

    def __init__(self) -> None:
        self._statuses: dict[StatusKey, Status] = {}
        #: the tasks of each connector that have a status; no empty sets
        self._tasks: dict[str, set[TaskId]] = {}

    @property
    def statuses(self) -> Mapping[StatusKey, Status]:
        """Every status by its key; changes with the state."""
        return self._statuses

    def tasks(self, connector: str) -> set[TaskId]:
        """The tasks of ``connector`` that have a status."""
        return set(self._tasks.get(connector, ()))

    def apply(self, offset: int, record: AnyRecord) -> Sequence[StatusEvent]:
        """Apply the record at ``offset``; what watchers are told."""
        if isinstance(record, IgnoredRecord):
            return ()
        key, status = record.key, record.status
        if status is None:
            # a removed connector takes the statuses of its tasks with it
            keys: list[StatusKey] = [key]
            if isinstance(key, str):
                keys = [*sorted(self.tasks(key)), key]
            for removed in keys:
                self._remove(removed)
            return [StatusEvent(offset, removed, None) for removed in keys]
        if is_late_report(status, self._statuses.get(key)):
            return ()
        self._statuses[key] = status
        if isinstance(key, TaskId):
            self._tasks.setdefault(key.connector, set()).add(key)
        return (StatusEvent(offset, key, status),)

    def snapshot(self, end_offset: int) -> StatusSnapshot:
        """Every status; later changes do not show in it."""
        return StatusSnapshot(end_offset, dict(self._statuses))

    def validate(self) -> None:
        """Raise AssertionError when an invariant is broken."""
        tasks = {key for key in self._statuses if isinstance(key, TaskId)}
        indexed = [task for owned in self._tasks.values() for task in owned]
        assert len(indexed) == len(tasks)
        assert set(indexed) == tasks
        assert all(self._tasks.values())
        for key, status in self._statuses.items():
            assert status.key == key
            assert status.state is not RunState.DESTROYED

    def _remove(self, key: StatusKey) -> None:
        self._statuses.pop(key, None)
        if isinstance(key, TaskId) and key.connector in self._tasks:
            self._tasks[key.connector].discard(key)
            if not self._tasks[key.connector]:
                del self._tasks[key.connector]
