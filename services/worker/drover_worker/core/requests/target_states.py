"""Requests that set a target state, and requests that write task configs.

A stop removes the connector's task configs before it writes STOPPED. Between the two writes the
owner may submit task configs, which would undo the removal and are therefore rejected.
"""

from drover.errors import AbortedError, FailedPreconditionError, Reason
from drover.model.config import TargetState
from drover_worker.core.context import Context
from drover_worker.core.instructions import WriteTargetState, WriteTaskConfigs
from drover_worker.core.rebalance.membership import Membership
from drover_worker.core.requests.messages import Accomplished, SetTargetState, SubmitTaskConfigs
from drover_worker.core.requests.pending import Pending, PendingRequests, RequestStage


class TargetStateRequests:
    """Writes target states, and task configs of owners unless the connector is being stopped."""

    def __init__(self, context: Context, membership: Membership, pending: PendingRequests) -> None:
        self._context = context
        self._membership = membership
        self._pending = pending

    @property
    def writing_task_configs(self) -> bool:
        """Whether task configs of other workers are being written."""
        return any(isinstance(pending.request, SubmitTaskConfigs) for pending in self._pending)

    def is_stopping(self, name: str) -> bool:
        """Whether a stop of the connector has written something or is complete."""
        entry = self._context.view.connectors.get(name)
        if entry is not None and entry.target_state is TargetState.STOPPED:
            return True
        return any(map(is_started_stop, self._pending.of_connector(name)))

    def set_target_state(self, pending: Pending, request: SetTargetState) -> None:
        """Write the target state; before STOPPED the leader removes the task configs."""
        if request.target_state is TargetState.STOPPED:
            if not self._pending.leads(pending) or not self._pending.known(pending, request.name):
                return
            if not pending.tasks_removed:
                self._remove_task_configs(pending, request)
                return
        pending.response = Accomplished()
        self._pending.start_call(pending, RequestStage.WRITING)
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
        """Handle a durable write; True if it was a stop's removal, with the target state next."""
        if not _is_stop(pending) or pending.tasks_removed:
            return False
        pending.tasks_removed = True
        pending.step = RequestStage.WAITING
        return True

    def store_task_configs(self, pending: Pending, request: SubmitTaskConfigs) -> None:
        """Leader: write the task configs that the connector's owner submitted."""
        if not self._membership.settled:
            return
        if not self._membership.leads:
            error = FailedPreconditionError(Reason.NOT_LEADER, "this worker is not the leader")
            self._pending.fail(pending, error)
            return
        if not self._pending.known(pending, request.connector):
            return
        if self.is_stopping(request.connector):
            # an error, so that the owner retries: a later start may exist, or the stop may fail
            text = f"connector {request.connector!r} is being stopped: regenerate its task configs"
            self._pending.fail(pending, AbortedError(Reason.REVISION_MISMATCH, text))
            return
        if self._pending.may_write(pending):
            pending.response = Accomplished()
            self._pending.start_call(pending, RequestStage.WRITING)
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
            self._pending.start_call(pending, RequestStage.WRITING)
            # a new id, not the caller's: the owner may have written new configs after an attempt
            request_id = f"{self._context.member_id}/{self._context.next_id()}"
            self._context.emit(
                WriteTaskConfigs(pending.cause_id, request.name, (), pending.epoch or 0, request_id)
            )


def is_started_stop(pending: Pending) -> bool:
    """Whether it is a stop with a durable write, or with one in flight."""
    return _is_stop(pending) and (pending.tasks_removed or pending.step is RequestStage.WRITING)


def _is_stop(pending: Pending) -> bool:
    request = pending.request
    return isinstance(request, SetTargetState) and request.target_state is TargetState.STOPPED
