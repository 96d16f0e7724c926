"""Requests that restart a connector, a task, or both."""

from drover.errors import NotFoundError, Reason
from drover.model.ids import TaskId
from drover.model.status import RunState, StatusKey
from drover_worker.core.context import Context
from drover_worker.core.instructions import WriteRestartRequest
from drover_worker.core.lifecycle.lifecycle import Lifecycle
from drover_worker.core.lifecycle.restart_plan import RestartPlan, RestartRequest, plan_restart
from drover_worker.core.lifecycle.work import Work
from drover_worker.core.rebalance.membership import Membership
from drover_worker.core.requests.messages import (
    Accomplished,
    RestartConnector,
    RestartPlanned,
    RestartTask,
)
from drover_worker.core.requests.pending import Pending, PendingRequests, RequestStage


class RestartRequests:
    """Restarts one connector object or task on its owner, or several by a restart request.

    A restart request is a record of the config log, which every worker carries out (KIP-745).
    """

    def __init__(
        self, context: Context, work: Work, membership: Membership, pending: PendingRequests
    ) -> None:
        self._context = context
        self._work = work
        self._membership = membership
        self._pending = pending

    def restart_connector(self, pending: Pending, request: RestartConnector) -> None:
        """Restart the connector object; with a flag, write a restart request."""
        if request.include_tasks or request.only_failed:
            self._write_restart_request(pending, request)
        else:
            self._restart_on_owner(pending, request.name)

    def restart_task(self, pending: Pending, request: RestartTask) -> None:
        """Restart one task."""
        self._restart_on_owner(pending, request.task)

    def work_changed(self, item: Lifecycle) -> None:
        """Complete the restarts of a connector or task that has restarted.

        If it was removed from this worker they wait: its new owner restarts it after the rebalance.
        """
        key = item.key
        name = key.connector if isinstance(key, TaskId) else key
        for pending in self._pending.of_connector(name):
            if pending.restarted != key:
                continue
            if item.removable:
                pending.restarted = None
                pending.step = RequestStage.WAITING
            elif item.finished_version >= pending.version:
                self._pending.complete(pending, Accomplished())

    def _write_restart_request(self, pending: Pending, request: RestartConnector) -> None:
        if not self._pending.leads(pending) or not self._pending.known(pending, request.name):
            return
        status = self._context.statuses.get(request.name)
        if status is None:
            text = f"connector {request.name!r} has no status yet: retry once it runs"
            self._pending.fail(pending, NotFoundError(Reason.CONNECTOR_NOT_FOUND, text))
            return
        if not self._pending.may_write(pending):
            return
        pending.response = RestartPlanned(self._plan(request, status.state))
        self._pending.start_call(pending, RequestStage.WRITING)
        self._context.emit(
            WriteRestartRequest(
                cause_id=pending.cause_id,
                name=request.name,
                only_failed=request.only_failed,
                include_tasks=request.include_tasks,
                writer_epoch=pending.epoch or 0,
                request_id=request.request_id,
                author=pending.author,
            )
        )

    def _plan(self, request: RestartConnector, state: RunState) -> RestartPlan:
        statuses = self._context.statuses
        task_states = {}
        for index in self._context.view.tasks(request.name):
            task = TaskId(request.name, index)
            status = statuses.get(task)
            task_states[task] = status.state if status else RunState.UNASSIGNED
        return plan_restart(
            RestartRequest.of(
                request.name, only_failed=request.only_failed, include_tasks=request.include_tasks
            ),
            connector_state=state,
            task_states=task_states,
        )

    def _restart_on_owner(self, pending: Pending, key: StatusKey) -> None:
        if not self._membership.settled:
            return
        name = key.connector if isinstance(key, TaskId) else key
        if not self._pending.known(pending, name):
            return
        if isinstance(key, TaskId) and not self._context.view.has_task(key):
            text = f"connector {name!r} has no task {key.task}"
            self._pending.fail(pending, NotFoundError(Reason.TASK_NOT_FOUND, text))
            return
        item = self._work.find(key)
        if item is not None:
            pending.step = RequestStage.RESTARTING
            pending.restarted = key
            pending.version = self._work.restart_item(item)
        elif self._membership.leads:
            # if this leader owns the item but does not run it yet, the request waits for its start
            owner = self._membership.owner(key)
            if owner and owner != self._context.settings.worker_id:
                self._pending.forward(pending, owner, Reason.NOT_OWNER)
        else:
            self._pending.forward(pending, self._membership.leader_url, Reason.NOT_OWNER)
