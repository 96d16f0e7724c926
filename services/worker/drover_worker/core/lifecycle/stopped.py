"""The leader removes task configs that stopped connectors still have.

A stop removes the task configs, then writes STOPPED. If the leader dies between the two writes, the
connector's owner generates task configs again, and the stop's second write may follow them.
"""

from drover.errors import DroverError, Reason
from drover.model.config import TargetState
from drover_worker.core.causes import Cause
from drover_worker.core.config.lease import ConfigLogLease
from drover_worker.core.context import Context
from drover_worker.core.events import ConfigWritten, EmptyStoppedDue
from drover_worker.core.instructions import WriteTaskConfigs


class StoppedConnectors:
    """Checks changed connectors, and all connectors when this worker becomes leader."""

    def __init__(self, context: Context, lease: ConfigLogLease) -> None:
        self._context = context
        self._lease = lease
        #: Connectors to check, in order.
        self._names: dict[str, None] = {}
        #: The connector and the writer epoch of each write in flight, by its cause id.
        self._writing: dict[str, tuple[str, int]] = {}
        #: Connectors whose write failed; retried after the back-off.
        self._failed: dict[str, None] = {}
        self._attempt = 0
        self._ready = False

    def changed(self, name: str) -> None:
        """The target state or the task configs of a connector changed."""
        self._names[name] = None

    def pump(self) -> None:
        """Remove task configs of stopped connectors, if this worker may write."""
        if not self._lease.ready:
            self._ready = False
            return
        if not self._ready:
            self._ready = True
            self._names = dict.fromkeys(self._context.view.connectors)
        names, self._names = self._names, {}
        for name in names:
            if self._has_tasks(name):
                self._remove_tasks(name)

    def config_written(self, event: ConfigWritten) -> None:
        """The write is durable."""
        if self._writing.pop(event.cause_id, None) is not None:
            self._attempt = 0

    def call_failed(self, cause_id: str, error: DroverError) -> None:
        """Retry a failed write after a back-off."""
        write = self._writing.pop(cause_id, None)
        if write is None:
            return
        name, epoch = write
        if error.reason is Reason.STALE_WRITER_EPOCH:
            self._lease.lost(epoch)
        self._failed[name] = None
        delay_ms = self._context.call_backoff_ms(self._attempt)
        self._attempt += 1
        self._context.set_timer("empty-stopped", delay_ms, EmptyStoppedDue())

    def due(self) -> None:
        """The back-off is over."""
        self._names.update(self._failed)
        self._failed.clear()

    def _has_tasks(self, name: str) -> bool:
        entry = self._context.view.connectors.get(name)
        stopped = entry is not None and entry.target_state is TargetState.STOPPED
        return stopped and bool(self._context.view.tasks(name))

    def _remove_tasks(self, name: str) -> None:
        epoch = self._lease.epoch
        if epoch is None:
            return
        cause_id = self._context.next_cause(Cause.EMPTY_STOPPED)
        self._writing[cause_id] = name, epoch
        request_id = f"{self._context.member_id}/{self._context.next_id()}"
        self._context.emit(WriteTaskConfigs(cause_id, name, (), epoch, request_id))
