"""Reports a state again if the status store has another state for this worker's work."""

from collections.abc import Iterable

from drover.model.status import StatusKey
from drover_worker.core.context import Context
from drover_worker.core.events import StatusCheckDue
from drover_worker.core.lifecycle.work import Work


class StatusCorrection:
    """Compares the status store with this worker's reports.

    The last status of a previous owner may arrive late and overwrite the present owner's. The
    comparison is repeated after a delay, because this worker's own report may be in flight.
    """

    def __init__(self, context: Context, work: Work) -> None:
        self._context = context
        self._work = work
        self._check_is_due = False

    def check_all(self) -> None:
        """All statuses were read, or the worker has joined a later generation: a status that was
        of a later generation than its own may contradict it now.
        """
        self.changed(item.key for item in self._work.all())

    def changed(self, keys: Iterable[StatusKey]) -> None:
        """Statuses changed: schedule a check if one of them contradicts this worker."""
        if self._check_is_due:
            return
        items = map(self._work.find, keys)
        if any(item is not None and item.is_contradicted(self._context) for item in items):
            self._check_is_due = True
            delay_ms = self._context.settings.status_check_ms
            self._context.set_timer("status-check", delay_ms, StatusCheckDue())

    def due(self) -> None:
        """Report the states that are still contradicted."""
        self._check_is_due = False
        for item in self._work.all():
            if item.is_contradicted(self._context):
                item.report_again(self._context)
