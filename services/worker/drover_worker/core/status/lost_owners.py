"""Reports UNASSIGNED for connectors and tasks whose worker ended without a report.

Kafka Connect keeps the last status of a worker that was killed, so a task without a worker is shown
as RUNNING until another worker starts it.
"""

from collections.abc import Iterable
from dataclasses import replace

from drover.model.ids import TaskId
from drover.model.status import OWNER_STATES, RunState, Status, StatusKey, StatusWrite
from drover_worker.core.context import Context
from drover_worker.core.instructions import WriteStatus
from drover_worker.core.rebalance.membership import Membership


class LostOwners:
    """Replaces statuses of workers that ended without a report.

    A worker that starts replaces the statuses that its former process left. The leader replaces
    the statuses of workers outside of its generation. The status keeps its worker and generation,
    so it never replaces the report of a later owner.
    """

    def __init__(self, context: Context, membership: Membership) -> None:
        self._context = context
        self._membership = membership

    def check_all(self) -> None:
        """Check all statuses: they were read, or this worker settled."""
        self.changed(list(self._context.statuses))

    def changed(self, keys: Iterable[StatusKey]) -> None:
        """Check changed statuses; a key may occur more than once."""
        if self._membership.has_joined and not self._membership.leads:
            return
        for key in dict.fromkeys(keys):
            status = self._context.statuses.get(key)
            if status is not None and status.state in OWNER_STATES and self._exists(key):
                reason = self._why_lost(status)
                if reason:
                    lost = replace(status, state=RunState.UNASSIGNED, trace=reason, figures={})
                    self._context.emit(WriteStatus(StatusWrite(lost, safe=True)))

    def _exists(self, key: StatusKey) -> bool:
        view = self._context.view
        return view.has_task(key) if isinstance(key, TaskId) else key in view.connectors

    def _why_lost(self, status: Status) -> str:
        context = self._context
        now = context.settings.time_text(context.now_ms)
        worker = status.worker_id
        if not self._membership.has_joined:
            if worker != context.settings.worker_id:
                return ""
            return (
                f"no worker runs it: its worker {worker} ended, was started again at {now}, and"
                " has not joined its group yet"
            )
        if worker in self._membership.assignments or self._membership.owner(status.key):
            return ""
        return f"no worker runs it: its worker {worker} is not in the group since {now}"
