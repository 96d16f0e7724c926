"""Requests that set a target state, and the one that must not cross a stop.

A stop removes the connector's task configs before it writes STOPPED. Until it is done its owner may
still submit task configs, which would undo the stop's first write.
"""

from drover.errors import AbortedError, FailedPreconditionError, Reason
from drover.model.config import TargetState
from drover_worker.core.context import Context
from drover_worker.core.instructions import WriteTargetState, WriteTaskConfigs
from drover_worker.core.rebalance.membership import Membership
from drover_worker.core.requests.messages import Accomplished, SetTargetState, SubmitTaskConfigs
from drover_worker.core.requests.pending import Pending, PendingRequests, Step


class TargetStateRequests:
    """Writes target states, and the task configs that an owner submits unless it is stopping."""

    def __init__(self, context: Context, membership: Membership, pending: PendingRequests) -> None:
        self._context = context
        self._membership = membership
        self._pending = pending

    @property
    def writing_task_configs(self) -> bool:
        """Whether task configs that other workers made are on their way to the log."""
        return any(isinstance(pending.request, SubmitTaskConfigs) for pending in self._pending)

    def is_stopping(self, name: str) -> bool:
        """Whether a stop of the connector has begun, or is done."""
        entry = self._context.view.connectors.get(name)
        if entry is not None and entry.target_state is TargetState.STOPPED:
            return True
        return any(map(is_begun_stop, self._pending.of_connector(name)))

    def set_target_state(self, pending: Pending, request: SetTargetState) -> None:
        """Write the target state; for a stop the leader removes the task configs first."""
        if request.target_state is TargetState.STOPPED:
            if not self._pending.leads(pending) or not self._pending.known(pending, request.name):
                return
            if not pending.emptied:
                self._remove_task_configs(pending, request)
                return
        pending.response = Accomplished()
        self._pending.begin(pending, Step.WRITING)
        self._context.emit(
            WriteTargetState(
                cause_id=pending.cause_id,
                name=request.name,
                target_state=request.target_state,
                request_id=request.request_id,
                author=pending.author,
            )
        )

    def task_configs_removed(self, pending: Pending) -> bool:
        """A write of ``pending`` is durable; True if a stop has to write its target state next."""
        if not _is_stop(pending) or pending.emptied:
            return False
        pending.emptied = True
        pending.step = Step.WAITING
        return True

    def store_task_configs(self, pending: Pending, request: SubmitTaskConfigs) -> None:
        """Leader: write the task configs that the connector's owner submitted."""
        if not self._membership.settled:
            return
        if not self._membership.leads:
            error = FailedPreconditionError(Reason.NOT_LEADER, "this worker does not lead")
            self._pending.fail(pending, error)
            return
        if not self._pending.known(pending, request.connector):
            return
        if self.is_stopping(request.connector):
            # the owner may have read a later start already, or the stop may fail
            text = f"{request.connector!r} is being stopped: ask it again for its task configs"
            self._pending.fail(pending, AbortedError(Reason.REVISION_MISMATCH, text))
            return
        if self._pending.may_write(pending):
            pending.response = Accomplished()
            self._pending.begin(pending, Step.WRITING)
            self._context.emit(
                WriteTaskConfigs(
                    pending.cause_id,
                    request.connector,
                    request.configs,
                    pending.epoch or 0,
                    request.request_id,
                )
            )

    def _remove_task_configs(self, pending: Pending, request: SetTargetState) -> None:
        if self._pending.may_write(pending):
            self._pending.begin(pending, Step.WRITING)
            # a new id, not the caller's: since an earlier try the owner may have made new configs
            request_id = f"{self._context.member_id}/{self._context.next_id()}"
            self._context.emit(
                WriteTaskConfigs(pending.cause_id, request.name, (), pending.epoch or 0, request_id)
            )


def is_begun_stop(pending: Pending) -> bool:
    """Whether it is a stop that has written something, or is about to."""
    return _is_stop(pending) and (pending.emptied or pending.step is Step.WRITING)


def _is_stop(pending: Pending) -> bool:
    request = pending.request
    return isinstance(request, SetTargetState) and request.target_state is TargetState.STOPPED
