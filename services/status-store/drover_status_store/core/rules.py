"""Which word about a connector or task counts. Pure.

Decisions ask before they write, and the fold asks again, record by record, because replicas of the
store decide side by side: what they hold is the same only if it follows from the log alone.
"""

from drover.model.ids import TaskId
from drover.model.status import RunState, Status
from drover_status_store.core.records import Mark, StatusRecord


def comes_late(status: Status | None, mark: Mark | None, held: StatusRecord | None) -> bool:
    """Whether a word counts for nothing, given the one that is held; None as status removes it.

    Words of one writer come late if their number says so. What stands in a log without a mark was
    written by another program, whose generations are those of another group: they say nothing
    about which of two words is later.
    """
    if held is None or held.status is None:
        return False
    if (mark is None) != (held.mark is None):
        return False
    if mark is not None and held.mark is not None and mark.writer == held.mark.writer != "":
        return mark.number < held.mark.number
    if status is None:
        return False
    if mark is not None and mark.safe and not _is_safe(status, held.status):
        return True
    return _is_late_report(status, held.status)


def _is_safe(status: Status, held: Status) -> bool:
    """Whether a safe write may replace what is there: the same worker's word, or one of a
    generation that is not above its own.
    """
    return held.worker_id == status.worker_id or held.generation <= status.generation


def _is_late_report(status: Status, held: Status) -> bool:
    """Whether it is a former owner's word about a task that another owner runs already.

    During a rebalance the old owner's UNASSIGNED can arrive after the new owner's RUNNING. A
    worker that gives up a task in the generation in which it ran it is no such case.
    """
    return (
        isinstance(status.key, TaskId)
        and status.state is RunState.UNASSIGNED
        and held.state is RunState.RUNNING
        and (
            held.generation > status.generation
            or (held.generation == status.generation and held.worker_id != status.worker_id)
        )
    )
