"""Requests of callers, from their arrival to their one answer.

A request that cannot go on (a rebalance, no leader yet, a store out of reach) waits; nobody is told
to try again. What bounds the wait is the request's deadline, and the error then names the stage.
"""

from collections.abc import Callable

from drover.errors import (
    AbortedError,
    AlreadyExistsError,
    DeadlineExceededError,
    DroverError,
    FailedPreconditionError,
    NotFoundError,
    Reason,
    ResourceExhaustedError,
    UnavailableError,
)
from drover.machine import Fail
from drover.model.config import TargetState
from drover.model.ids import TaskId
from drover.model.status import RunState, StatusKey
from drover_worker.core.config.checks import config_error, sink_group_violations
from drover_worker.core.config.lease import Writer
from drover_worker.core.config.rollback import rollback_to
from drover_worker.core.context import Context
from drover_worker.core.events import (
    ConfigValidated,
    ConfigWritten,
    HistoryRead,
    RequestReceived,
    RequestRetryDue,
)
from drover_worker.core.instructions import (
    ReadHistory,
    RemoveConnector,
    ValidateConfig,
    WriteConnectorConfig,
    WriteRestartRequest,
    WriteTargetState,
    WriteTaskConfigs,
)
from drover_worker.core.lifecycle.lifecycle import Lifecycle
from drover_worker.core.lifecycle.restart_plan import RestartPlan, RestartRequest, plan_restart
from drover_worker.core.lifecycle.task import RETRIED_ERRORS
from drover_worker.core.lifecycle.work import Work
from drover_worker.core.rebalance.membership import Membership
from drover_worker.core.requests import messages as requests
from drover_worker.core.requests.pending_calls import PendingCalls
from drover_worker.core.requests.pending_request import Pending, Step


class PendingRequests:
    """Moves every request on as far as it can go."""

    def __init__(
        self,
        context: Context,
        work: Work,
        membership: Membership,
        writer: Writer,
        *,
        describe_stage: Callable[[], str],
    ) -> None:
        self._context = context
        self._work = work
        self._membership = membership
        self._writer = writer
        self._describe_stage = describe_stage
        self._calls = PendingCalls(context, membership, writer)
        self._ground: object = None

    def __len__(self) -> int:
        return len(self._calls)

    @property
    def writing_task_configs(self) -> bool:
        """Whether task configs that other workers made are on their way to the log."""
        return any(isinstance(p.request, requests.SubmitTaskConfigs) for p in self._calls)

    def is_stopping(self, name: str) -> bool:
        """Whether a stop of the connector is on its way, or done."""
        entry = self._context.view.connectors.get(name)
        if entry is not None and entry.target_state is TargetState.STOPPED:
            return True
        return any(
            pending.request.name == name
            for pending in self._calls
            if isinstance(pending.request, requests.SetTargetState) and _is_begun_stop(pending)
        )

    # News

    def receive(self, event: RequestReceived) -> None:
        """A caller waits for an answer from now on."""
        if self._membership.ending:
            self._context.emit(Fail(event.call_id, _draining()))
        elif len(self._calls) >= self._context.settings.request_count_max:
            text = f"{len(self._calls)} requests wait already: try again later"
            error = ResourceExhaustedError(Reason.QUEUE_FULL, text)
            self._context.emit(Fail(event.call_id, error))
        else:
            self._go_on(self._calls.open(event))

    def cancel(self, call_id: str) -> None:
        """The caller went away; a write under way goes on without it.

        So does a stop that has begun: its first write alone would leave a connector that should
        run without tasks.
        """
        pending = self._calls.get(call_id)
        if pending is not None and not _is_begun_stop(pending):
            self._calls.close(pending)

    def expire(self, call_id: str) -> None:
        """The deadline came."""
        pending = self._calls.get(call_id)
        if pending is None:
            return
        what = type(pending.request).__name__
        text = f"{what} did not finish in time: it {pending.step}, {self._describe_stage()}"
        if pending.last_error:
            text = f"{text}; last error: {pending.last_error}"
        self._calls.fail(pending, DeadlineExceededError(Reason.DEADLINE_EXCEEDED, text))

    def fail_all(self) -> None:
        """The worker ends."""
        for pending in self._calls:
            self._calls.fail(pending, _draining())

    def retry_due(self, call_id: str) -> None:
        """The back-off is over."""
        pending = self._calls.get(call_id)
        if pending is not None and pending.step is Step.BACKING_OFF:
            pending.step = Step.WAITING
            self._go_on(pending)

    def history_read(self, event: HistoryRead) -> None:
        """The versions of a connector that is to go back to one of them."""
        pending = self._calls.end(event.cause_id)
        if pending is not None and isinstance(pending.request, requests.RollbackConnector):
            pending.request, pending.refusal = rollback_to(pending.request, event.entries)
            # what can only be refused needs no engine
            pending.validated = pending.refusal is not None
            pending.step = Step.WAITING
            self._go_on(pending)

    def validated(self, event: ConfigValidated) -> None:
        """The engine has looked at a config."""
        pending = self._calls.end(event.cause_id)
        if pending is None or not isinstance(
            pending.request, requests.CreateConnector | requests.PutConnectorConfig
        ):
            return
        name, config = pending.request.name, pending.request.config
        violations = list(event.violations)
        if event.connector_type == "sink":
            violations += sink_group_violations(name, config, self._context.settings.group_id)
        if violations:
            self._calls.fail(pending, config_error(name, violations))
        else:
            pending.validated = True
            pending.step = Step.WAITING
            self._go_on(pending)

    def config_written(self, event: ConfigWritten) -> None:
        """A write is durable."""
        pending = self._calls.end(event.cause_id)
        if pending is None:
            return
        if _is_stop(pending) and not pending.emptied:
            pending.emptied = True
            pending.step = Step.WAITING
            self._go_on(pending)
            return
        if isinstance(pending.response, requests.ConfigStored):
            pending.response = requests.ConfigStored(event.revision, pending.response.created)
        self._calls.wait_for_offset(pending, event.end_offset)

    def call_failed(self, cause_id: str, error: DroverError) -> None:
        """A call that was made for a request failed."""
        pending = self._calls.end(cause_id)
        if pending is None:
            return
        if error.reason is Reason.STALE_WRITER_EPOCH and pending.epoch is not None:
            self._writer.lost(pending.epoch)
            pending.step = Step.WAITING
            self._go_on(pending)
        elif isinstance(error, RETRIED_ERRORS) and error.reason is not Reason.REVISION_MISMATCH:
            pending.last_error = error.message
            pending.step = Step.BACKING_OFF
            delay_ms = self._context.call_backoff_ms(pending.attempt)
            pending.attempt += 1
            self._context.set_timer(
                f"retry:{pending.call_id}", delay_ms, RequestRetryDue(pending.call_id)
            )
        elif error.reason is Reason.REVISION_MISMATCH:
            self._calls.fail(pending, pending.refusal or error)
        else:
            self._calls.fail(pending, error)

    def pump(self) -> None:
        """Go on with all that waited, when the ground they wait for has changed."""
        membership, view = self._membership, self._context.view
        self._calls.read_back()
        ground = (membership.stage, membership.settled_count, self._writer.ready, view.loaded)
        if ground != self._ground:
            self._ground = ground
            for pending in [p for p in self._calls if p.step is Step.WAITING]:
                self._go_on(pending)

    def work_changed(self, item: Lifecycle) -> None:
        """A connector or task moved: a restart may be done, or has to be asked of its new owner."""
        for pending in [p for p in self._calls if p.restarted == item.key]:
            if item.gone:
                pending.restarted = None
                pending.step = Step.WAITING
            elif item.finished_version >= pending.version:
                self._calls.complete(pending, requests.Accomplished())

    def validate(self) -> None:
        """Raise AssertionError when an invariant is broken."""
        self._calls.validate()

    # How a request goes on

    def _go_on(self, pending: Pending) -> None:
        match pending.request:
            case requests.CreateConnector() | requests.PutConnectorConfig():
                self._store_config(pending, pending.request)
            case requests.RollbackConnector():
                if self._calls.leads(pending):
                    self._calls.begin(pending, Step.READING_HISTORY)
                    self._context.emit(ReadHistory(pending.cause_id, pending.request.name))
            case requests.DeleteConnector():
                self._delete(pending, pending.request)
            case requests.SetTargetState():
                self._set_target_state(pending, pending.request)
            case requests.RestartConnector():
                if pending.request.include_tasks or pending.request.only_failed:
                    self._write_restart(pending, pending.request)
                else:
                    self._restart_here(pending, pending.request.name)
            case requests.RestartTask():
                self._restart_here(pending, pending.request.task)
            case requests.SubmitTaskConfigs():
                self._store_task_configs(pending, pending.request)

    def _store_config(
        self, pending: Pending, request: requests.CreateConnector | requests.PutConnectorConfig
    ) -> None:
        if not self._calls.leads(pending):
            return
        if not pending.validated:
            self._calls.begin(pending, Step.VALIDATING)
            self._context.emit(ValidateConfig(pending.cause_id, request.config))
            return
        if not self._calls.may_write(pending):
            return
        creates = isinstance(request, requests.CreateConnector)
        created = request.name not in self._context.view.connectors
        pending.response = requests.ConfigStored(0, creates or created)
        if creates:
            text = f"connector {request.name!r} exists already"
            pending.refusal = AlreadyExistsError(Reason.CONNECTOR_ALREADY_EXISTS, text)
        self._calls.begin(pending, Step.WRITING)
        self._context.emit(
            WriteConnectorConfig(
                cause_id=pending.cause_id,
                name=request.name,
                config=request.config,
                initial_state=(
                    request.initial_state if isinstance(request, requests.CreateConnector) else None
                ),
                expected_revision=(
                    request.expected_revision
                    if isinstance(request, requests.PutConnectorConfig)
                    else 0
                ),
                writer_epoch=pending.epoch or 0,
                request_id=request.request_id,
                author=pending.author,
            )
        )

    def _delete(self, pending: Pending, request: requests.DeleteConnector) -> None:
        # the store knows whether an unknown name was removed by this very request before
        if self._calls.leads(pending) and self._calls.may_write(pending):
            pending.response = requests.Accomplished()
            self._calls.begin(pending, Step.WRITING)
            self._context.emit(
                RemoveConnector(
                    cause_id=pending.cause_id,
                    name=request.name,
                    writer_epoch=pending.epoch or 0,
                    request_id=request.request_id,
                    author=pending.author,
                )
            )

    def _set_target_state(self, pending: Pending, request: requests.SetTargetState) -> None:
        if request.target_state is TargetState.STOPPED:
            if not self._calls.leads(pending) or not self._calls.known(pending, request.name):
                return
            if not pending.emptied:
                self._empty_task_configs(pending, request)
                return
        pending.response = requests.Accomplished()
        self._calls.begin(pending, Step.WRITING)
        self._context.emit(
            WriteTargetState(
                cause_id=pending.cause_id,
                name=request.name,
                target_state=request.target_state,
                request_id=request.request_id,
                author=pending.author,
            )
        )

    def _empty_task_configs(self, pending: Pending, request: requests.SetTargetState) -> None:
        if self._calls.may_write(pending):
            self._calls.begin(pending, Step.WRITING)
            # not the caller's id: of a stop that was begun before, the owner may have made new ones
            request_id = f"{self._context.member_id}/{self._context.next_id()}"
            self._context.emit(
                WriteTaskConfigs(pending.cause_id, request.name, (), pending.epoch or 0, request_id)
            )

    def _write_restart(self, pending: Pending, request: requests.RestartConnector) -> None:
        if not self._calls.leads(pending) or not self._calls.known(pending, request.name):
            return
        status = self._context.statuses.get(request.name)
        if status is None:
            text = f"connector {request.name!r} has no status yet: nothing to restart"
            self._calls.fail(pending, NotFoundError(Reason.CONNECTOR_NOT_FOUND, text))
            return
        if not self._calls.may_write(pending):
            return
        pending.response = requests.RestartPlanned(self._plan(request, status.state))
        self._calls.begin(pending, Step.WRITING)
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

    def _plan(self, request: requests.RestartConnector, state: RunState) -> RestartPlan:
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

    def _restart_here(self, pending: Pending, key: StatusKey) -> None:
        if not self._membership.settled:
            return
        name = key.connector if isinstance(key, TaskId) else key
        if not self._calls.known(pending, name):
            return
        if isinstance(key, TaskId) and not self._context.view.has_task(key):
            text = f"connector {name!r} has no task {key.task}"
            self._calls.fail(pending, NotFoundError(Reason.TASK_NOT_FOUND, text))
            return
        item = self._work.find(key)
        if item is not None:
            pending.step = Step.RESTARTING
            pending.restarted = key
            pending.version = item.restart()
            self._work.touch(key)
        elif self._membership.leads:
            # its own when it waits for the next assignment: then so does this
            owner = self._membership.owner(key)
            if owner and owner != self._context.settings.worker_id:
                self._calls.carry(pending, owner, Reason.NOT_OWNER)
        else:
            self._calls.carry(pending, self._membership.leader_url, Reason.NOT_OWNER)

    def _store_task_configs(self, pending: Pending, request: requests.SubmitTaskConfigs) -> None:
        if not self._membership.settled:
            return
        if not self._membership.leads:
            error = FailedPreconditionError(Reason.NOT_LEADER, "this worker does not lead")
            self._calls.fail(pending, error)
            return
        if not self._calls.known(pending, request.connector):
            return
        if self.is_stopping(request.connector):
            # its owner may have read of a later start already, or the stop may come to nothing
            text = f"{request.connector!r} is being stopped: ask it again for its task configs"
            self._calls.fail(pending, AbortedError(Reason.REVISION_MISMATCH, text))
            return
        if self._calls.may_write(pending):
            pending.response = requests.Accomplished()
            self._calls.begin(pending, Step.WRITING)
            self._context.emit(
                WriteTaskConfigs(
                    pending.cause_id,
                    request.connector,
                    request.configs,
                    pending.epoch or 0,
                    request.request_id,
                )
            )


def _is_stop(pending: Pending) -> bool:
    request = pending.request
    return (
        isinstance(request, requests.SetTargetState) and request.target_state is TargetState.STOPPED
    )


def _is_begun_stop(pending: Pending) -> bool:
    return _is_stop(pending) and (pending.emptied or pending.step is Step.WRITING)


def _draining() -> UnavailableError:
    return UnavailableError(Reason.DRAINING, "the worker is shutting down: ask another one")
