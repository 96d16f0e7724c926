"""Whether a status is stale against the current one of its key. Pure.

The machine checks this before it writes, and the fold checks it again for each record: replicas of
the store decide concurrently, so their states are equal only if they depend on the log alone.
"""

from drover.model.ids import TaskId
from drover.model.status import RunState, Status
from drover_status_store.core.records import Mark, StatusRecord


def is_stale(status: Status | None, mark: Mark | None, current: StatusRecord | None) -> bool:
    """Whether a status must be ignored because ``current`` is newer; a tombstone is None.

    Statuses of one writer are compared by request number alone. A record without a mark was
    written by another program, whose generations belong to another group: a marked and an
    unmarked record are not compared.
    """
    if current is None or current.status is None:
        return False
    if (mark is None) != (current.mark is None):
        return False
    if mark is not None and current.mark is not None and mark.writer == current.mark.writer != "":
        return mark.number < current.mark.number
    if status is None:
        return False
    if mark is not None and mark.safe and not _may_replace(status, current.status):
        return True
    return _is_late_unassigned(status, current.status)


def _may_replace(status: Status, current: Status) -> bool:
    """Whether a safe write may replace ``current``: same worker, or no newer generation."""
    return current.worker_id == status.worker_id or current.generation <= status.generation


def _is_late_unassigned(status: Status, current: Status) -> bool:
    """Whether a previous owner reports UNASSIGNED for a task that its new owner already runs.

    During a rebalance the old owner's UNASSIGNED can arrive after the new owner's RUNNING. A
    worker that stops its own task within one generation is not stale.
    """
    return (
        isinstance(status.key, TaskId)
        and status.state is RunState.UNASSIGNED
        and current.state is RunState.RUNNING
        and (
            current.generation > status.generation
            or (current.generation == status.generation and current.worker_id != status.worker_id)
        )
    )
