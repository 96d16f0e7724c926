"""Requests of callers, from arrival to response.

A request that cannot proceed (a rebalance, no leader yet, an unreachable store) waits, so that
callers need not retry. Its deadline bounds the wait, and the error at the deadline names the stage.
"""

from collections.abc import Callable

from drover.errors import (
    UNAVAILABLE_KEY,
    DeadlineExceededError,
    DroverError,
    Reason,
    ResourceExhaustedError,
    UnavailableError,
)
from drover.machine import Fail
from drover_worker.core.config.lease import ConfigLogLease
from drover_worker.core.context import Context
from drover_worker.core.events import (
    ConfigValidated,
    ConfigWritten,
    HistoryRead,
    OffsetsAltered,
    RequestReceived,
    RequestRetryDue,
)
from drover_worker.core.lifecycle.lifecycle import Lifecycle
from drover_worker.core.lifecycle.task import RETRIED_ERRORS
from drover_worker.core.lifecycle.work import Work
from drover_worker.core.rebalance.membership import Membership
from drover_worker.core.requests import messages as requests
from drover_worker.core.requests.configs import ConfigRequests
from drover_worker.core.requests.drains import DrainRequests
from drover_worker.core.requests.offsets import OffsetRequests
from drover_worker.core.requests.pending import (
    STEPS_WITHOUT_WORK,
    Pending,
    PendingRequests,
    RequestStage,
)
from drover_worker.core.requests.restarts import RestartRequests
from drover_worker.core.requests.target_states import TargetStateRequests, is_started_stop

#: A rebalance happened during the call: retry in the new generation.
_RETRIED_REASONS = (Reason.UNKNOWN_MEMBER_ID, Reason.ILLEGAL_GENERATION)


class RequestHandler:
    """Advances each request when it arrives, and when a condition that it waits for changes."""

    def __init__(
        self,
        context: Context,
        work: Work,
        membership: Membership,
        lease: ConfigLogLease,
        *,
        describe_stage: Callable[[], str],
    ) -> None:
        """``describe_stage`` describes the worker's stage, for errors at the deadline."""
        self._context = context
        self._membership = membership
        self._lease = lease
        self._describe_stage = describe_stage
        self._pending = PendingRequests(context, membership, lease)
        self._configs = ConfigRequests(context, self._pending)
        self._target_states = TargetStateRequests(context, membership, self._pending)
        self._offsets = OffsetRequests(context, self._pending)
        self._restarts = RestartRequests(context, work, membership, self._pending)
        self._drains = DrainRequests(context, membership, self._pending)
        #: The conditions of waiting requests at their last retry.
        self._conditions: object = None

    def __len__(self) -> int:
        return len(self._pending)

    @property
    def writing_task_configs(self) -> bool:
        """Whether task configs of other workers are being written."""
        return self._target_states.writing_task_configs

    def is_stopping(self, name: str) -> bool:
        """Whether a stop of the connector has written something or is complete."""
        return self._target_states.is_stopping(name)

    # Callers

    def receive(self, event: RequestReceived) -> None:
        """Open a request and advance it, or reject it."""
        if self._membership.ending:
            self._context.emit(Fail(event.call_id, _draining()))
        elif len(self._pending) >= self._context.settings.request_count_max:
            text = f"{len(self._pending)} requests are waiting, the maximum: retry later"
            error = ResourceExhaustedError(Reason.QUEUE_FULL, text)
            self._context.emit(Fail(event.call_id, error))
        else:
            self._advance(self._pending.open(event))

    def cancel(self, call_id: str) -> None:
        """Close the request of a caller that cancelled it; a write in flight completes.

        A started stop completes too: its first write alone would leave a started connector without
        tasks.
        """
        pending = self._pending.get(call_id)
        if pending is not None and not is_started_stop(pending):
            self._pending.close(pending)

    def expire(self, call_id: str) -> None:
        """Fail a request at its deadline."""
        pending = self._pending.get(call_id)
        if pending is None:
            return
        what = type(pending.request).__name__
        text = f"{what} did not finish in time: it {pending.step}, {self._describe_stage()}"
        if pending.last_error:
            text = f"{text}; last error: {pending.last_error}"
        metadata = {UNAVAILABLE_KEY: "true"} if pending.step in STEPS_WITHOUT_WORK else {}
        error = DeadlineExceededError(Reason.DEADLINE_EXCEEDED, text, metadata=metadata)
        self._pending.fail(pending, error)

    # Outcomes of calls

    def history_read(self, event: HistoryRead) -> None:
        """Advance a rollback after its history was read."""
        pending = self._configs.history_read(event)
        if pending is not None:
            self._advance(pending)

    def validated(self, event: ConfigValidated) -> None:
        """Advance a request after the engine has validated its config."""
        pending = self._pending.end_call(event.cause_id)
        if pending is None:
            return
        match pending.request:
            case requests.CreateConnector() | requests.PutConnectorConfig() as request:
                self._configs.validated(pending, request, event)
            case requests.AlterOffsets() as request:
                self._offsets.validated(pending, request, event)

    def offsets_altered(self, event: OffsetsAltered) -> None:
        """Complete a request after its offsets were changed."""
        pending = self._pending.end_call(event.cause_id)
        if pending is not None:
            self._pending.complete(pending, requests.OffsetsChanged(event.complete, event.adopted))

    def config_written(self, event: ConfigWritten) -> None:
        """Advance a request after its write has become durable."""
        pending = self._pending.end_call(event.cause_id)
        if pending is None:
            return
        if self._target_states.task_configs_removed(pending):
            self._advance(pending)
            return
        if isinstance(pending.response, requests.ConfigStored):
            pending.response = requests.ConfigStored(event.revision, pending.response.created)
        self._pending.wait_for_offset(pending, event.end_offset)

    def call_failed(self, cause_id: str, error: DroverError) -> None:
        """Retry or fail a request after one of its calls failed."""
        pending = self._pending.end_call(cause_id)
        if pending is None:
            return
        if error.reason is Reason.STALE_WRITER_EPOCH and pending.epoch is not None:
            self._lease.lost(pending.epoch)
            pending.step = RequestStage.WAITING
            self._advance(pending)
        elif error.reason is Reason.REVISION_MISMATCH:
            self._pending.fail(pending, pending.refusal or error)
        elif isinstance(error, RETRIED_ERRORS) or error.reason in _RETRIED_REASONS:
            pending.last_error = error.message
            pending.step = RequestStage.BACKING_OFF
            delay_ms = self._context.call_backoff_ms(pending.attempt)
            pending.attempt += 1
            self._context.set_timer(
                f"retry:{pending.call_id}", delay_ms, RequestRetryDue(pending.call_id)
            )
        else:
            self._pending.fail(pending, error)

    def retry_due(self, call_id: str) -> None:
        """Advance a request after its back-off."""
        pending = self._pending.get(call_id)
        if pending is not None and pending.step is RequestStage.BACKING_OFF:
            pending.step = RequestStage.WAITING
            self._advance(pending)

    # Progress of the worker

    def pump(self) -> None:
        """Retry waiting requests when stage, leadership or view changed."""
        self._pending.read_back()
        membership = self._membership
        if membership.ending:
            for pending in self._pending:
                self._pending.fail(pending, _draining())
        self._drains.pump()
        conditions = (
            membership.stage,
            membership.settled_count,
            self._lease.ready,
            self._context.view.loaded,
        )
        if conditions != self._conditions:
            self._conditions = conditions
            for pending in [p for p in self._pending if p.step is RequestStage.WAITING]:
                self._advance(pending)

    def work_changed(self, item: Lifecycle) -> None:
        """Complete restarts of a changed connector or task, or let them wait for its new owner."""
        self._restarts.work_changed(item)

    def validate(self) -> None:
        """Raise AssertionError when an invariant is broken."""
        self._pending.validate()

    def _advance(self, pending: Pending) -> None:
        match pending.request:
            case requests.CreateConnector() | requests.PutConnectorConfig():
                self._configs.store(pending, pending.request)
            case requests.RollbackConnector():
                self._configs.roll_back(pending, pending.request)
            case requests.DeleteConnector():
                self._configs.delete(pending, pending.request)
            case requests.SetTargetState():
                self._target_states.set_target_state(pending, pending.request)
            case requests.SubmitTaskConfigs():
                self._target_states.store_task_configs(pending, pending.request)
            case requests.AlterOffsets():
                self._offsets.alter(pending, pending.request)
            case requests.RestartConnector():
                self._restarts.restart_connector(pending, pending.request)
            case requests.DrainWorker():
                self._drains.drain(pending, pending.request)
            case requests.RestartTask():
                self._restarts.restart_task(pending, pending.request)


def _draining() -> UnavailableError:
    return UnavailableError(Reason.DRAINING, "the worker is shutting down: call another worker")
