"""The leader removes statuses of connectors and tasks that no longer exist."""

from collections.abc import Collection

from drover.model.ids import TaskId
from drover.model.status import OWNER_STATES, RunState, StatusKey
from drover_worker.core.context import Context
from drover_worker.core.events import CleanUpDue
from drover_worker.core.rebalance.membership import Membership


class StatusCleanUp:
    """Writes a tombstone for each status whose connector or task does not exist.

    The status of a task that does not exist is kept for its counts until its connector is deleted,
    and while the task's worker, which is in the group, has not reported its end: the report has the
    counts, and a tombstone would remove them if it is written after them.

    The previous owner's status may arrive after the tombstone, or replace it, so statuses are
    checked again until they are removed. The previous owner may be this worker.
    """

    def __init__(self, context: Context, membership: Membership) -> None:
        self._context = context
        self._membership = membership
        #: Tombstones that were written since the last check.
        self._removing: set[StatusKey] = set()

    def loaded(self) -> None:
        """All statuses were read."""
        self._removing.clear()
        self.check_all()

    def changed(self, keys: Collection[StatusKey]) -> None:
        """Check changed statuses; a key may occur more than once."""
        self._removing.difference_update(keys)
        for key in keys:
            self._check(key)

    def check_all(self) -> None:
        """Check all statuses, for example after a rebalance."""
        for key in list(self._context.statuses):
            self._check(key)

    def due(self) -> None:
        """Check again, after the tombstones have had time to take effect."""
        self.loaded()

    def _check(self, key: StatusKey) -> None:
        context = self._context
        if not self._membership.leads or key not in context.statuses or key in self._removing:
            return
        if not self._is_kept(key):
            self._removing.add(key)
            context.report(key, RunState.DESTROYED)
            context.set_timer("clean-up", context.settings.status_check_ms, CleanUpDue())

    def _is_kept(self, key: StatusKey) -> bool:
        view = self._context.view
        if not isinstance(key, TaskId):
            return key in view.connectors
        if view.has_task(key) or key.connector not in view.connectors:
            return view.has_task(key)
        status = self._context.statuses[key]
        ends = status.state in OWNER_STATES and status.worker_id in self._membership.assignments
        return ends or status.counts is not None
