"""Writes record counts and figures of this worker's tasks into their statuses."""

from drover.model.ids import TaskId
from drover_worker.core.context import Context
from drover_worker.core.events import CountsDue, TaskCounted
from drover_worker.core.lifecycle.work import Work


class StatusCounts:
    """Writes changed counts and figures of all tasks together, at most once per interval.

    A status that is written because a task's state changed includes its counts too.
    """

    def __init__(self, context: Context, work: Work) -> None:
        self._context = context
        self._work = work
        #: Tasks with changes since the last write, in order; the timer is set while there are any.
        self._counted: dict[TaskId, None] = {}

    def counted(self, event: TaskCounted) -> None:
        """Record a task's counts and figures; they are dropped if the run has ended."""
        item = self._work.tasks.get(event.task)
        if item is None or not item.counted(event.run_id, event.counts, event.figures):
            return
        if not self._counted:
            interval_ms = self._context.settings.counts_interval_ms
            self._context.set_timer("counts", interval_ms, CountsDue())
        self._counted[event.task] = None

    def due(self) -> None:
        """Write the changed counts at the end of the interval."""
        tasks, self._counted = self._counted, {}
        for task in tasks:
            item = self._work.tasks.get(task)
            if item is not None:
                item.report_progress(self._context)
