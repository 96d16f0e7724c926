"""What became of the records of this worker's tasks, and figures, go into their statuses."""

from drover.model.ids import TaskId
from drover_worker.core.context import Context
from drover_worker.core.events import CountsDue, TaskCounted
from drover_worker.core.lifecycle.work import Work


class StatusCounts:
    """Writes counts and figures that changed, all tasks together, at most once in an interval.

    A status that is written because a task's state changed has its counts as well.
    """

    def __init__(self, context: Context, work: Work) -> None:
        self._context = context
        self._work = work
        #: Tasks that were counted since the last write, in order; a timer is set while there are.
        self._counted: dict[TaskId, None] = {}

    def counted(self, told: TaskCounted) -> None:
        """A task told its counts and figures; those of a run that is over are dropped."""
        item = self._work.tasks.get(told.task)
        if item is None or not item.counted(told.run_id, told.counts, told.figures):
            return
        if not self._counted:
            interval_ms = self._context.settings.counts_interval_ms
            self._context.set_timer("counts", interval_ms, CountsDue())
        self._counted[told.task] = None

    def due(self) -> None:
        """The interval is over."""
        tasks, self._counted = self._counted, {}
        for task in tasks:
            item = self._work.tasks.get(task)
            if item is not None:
                item.report_counts(self._context)
