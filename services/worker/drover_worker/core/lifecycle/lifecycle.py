"""The base class of the lifecycles of connectors and tasks.

A lifecycle compares the desired state with its phase and emits the next step; at most one step is
in progress. Each start is a run with its own id; events of earlier runs are ignored.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from drover.model.config import TargetState
from drover.model.failures import (
    Failure,
    FailureCause,
    FailureHistory,
    RestartPolicy,
    summary_of,
)
from drover.model.status import OWNER_STATES, RecordCounts, RunState, Status, StatusKey
from drover_worker.core.context import Context
from drover_worker.core.engine_slots import SHARED, EngineSlot
from drover_worker.core.events import RestartDue
from drover_worker.core.lifecycle.engine_deaths import EngineFault


class Phase(StrEnum):
    """The phase of a connector or task on this worker.

    Connectors: IDLE → STARTING → RUNNING → STOPPING → IDLE. Tasks have CLAIMING and FETCHING before
    STARTING. The end of the engine leads to IDLE from every phase.
    """

    #: Not in the engine.
    IDLE = "IDLE"
    #: ClaimTask is in flight, or waits for its retry.
    CLAIMING = "CLAIMING"
    #: FetchOffsets is in flight, or waits for its retry.
    FETCHING = "FETCHING"
    #: The engine is starting it.
    STARTING = "STARTING"
    #: In the engine, running or failed; also after a failed start.
    RUNNING = "RUNNING"
    #: The engine is stopping it.
    STOPPING = "STOPPING"


#: Phases in the engine.
IN_ENGINE = frozenset({Phase.STARTING, Phase.RUNNING, Phase.STOPPING})
#: Phases from the first step of a run to its start.
STARTING = frozenset({Phase.CLAIMING, Phase.FETCHING, Phase.STARTING})


@dataclass(frozen=True, slots=True)
class TaskProgress:
    """The record counts of a task since its connector was created, and the figures that its
    connector reports during a run.
    """

    counts: RecordCounts | None = None
    figures: Mapping[str, int] = field(default_factory=dict)


NO_PROGRESS = TaskProgress()


class Lifecycle(ABC):
    """One connector or task that is assigned to this worker.

    ``version`` is the version of the desired run; each restart and change of config increments it.
    A run keeps the version with which it started, and is replaced if ``version`` is higher.
    ``finished_version`` is the version of the last run whose start succeeded or failed.
    """

    def __init__(self, key: StatusKey) -> None:
        self.key = key
        self.phase = Phase.IDLE
        self.run_id = 0
        #: The engine of the present run, or of the last one.
        self.engine = SHARED
        self.version = 1
        self.finished_version = 0
        self.failure: str | None = None
        self.revoked = False
        #: The failures since the last change of config or restart by a user; None without any.
        self.failures: FailureHistory | None = None
        self._run_version = 0
        self._restarting = False
        #: It is FAILED because the status store had this state when it was assigned.
        self._failure_adopted = False
        #: The back-off after the last failure is over, or the failed engine has been replaced.
        self._restart_is_due = False
        #: The progress of the present run, or of the last run while there is none; tasks only.
        self._progress = NO_PROGRESS
        self._reported: tuple[RunState, str] | None = None
        self._reported_progress = NO_PROGRESS

    @property
    def connector(self) -> str:
        """The name of the connector, or of the task's connector."""
        return self.key if isinstance(self.key, str) else self.key.connector

    @property
    def progress(self) -> TaskProgress:
        """The present progress."""
        return self._progress

    @property
    def removable(self) -> bool:
        """Whether it was revoked and has stopped."""
        return self.revoked and self.phase is Phase.IDLE

    @property
    def state(self) -> RunState:
        """The state that this worker reported last."""
        return self._reported[0] if self._reported else RunState.UNASSIGNED

    @property
    def settled_failure(self) -> bool:
        """Whether it failed and no new run has been requested."""
        return self.failure is not None and self._run_version == self.version

    @property
    def running(self) -> bool:
        """Whether it is in the engine, started and not failed."""
        return self.phase is Phase.RUNNING and self.failure is None

    def is_contradicted(self, context: Context) -> bool:
        """Whether the status store has another state than this worker reported last.

        A status of a later generation is not a contradiction: this worker is the stale one.
        """
        if self._reported is None or self.revoked or self.state is RunState.UNASSIGNED:
            return False
        stored = context.statuses.get(self.key)
        if stored is None:
            return True
        same = stored.state is self.state and stored.worker_id == context.settings.worker_id
        return not same and stored.generation <= context.status_generation

    def report_again(self, context: Context, *, safe: bool = False) -> None:
        """Repeat the last report with the present progress."""
        if self._reported is not None:
            state, trace = self._reported
            progress = self._reported_progress = self._progress_in(state)
            context.report(
                self.key,
                state,
                trace=trace,
                counts=progress.counts,
                figures=progress.figures,
                failures=self.failures,
                safe=safe,
            )

    def adopt_status(self, context: Context) -> None:
        """Continue from the status of the previous owner, or of this worker's last run.

        A rebalance does not restart failed work: it stays FAILED, and its back-off continues. A
        worker that started after the failure does restart it, since the cause may be fixed there.
        """
        stored = context.statuses.get(self.key)
        history = stored.failures if stored is not None else None
        if stored is None or history is None or history.last is None:
            return
        if history.config_offset != self._config_offset(context):
            return
        self.failures = history
        by_engine = history.last.cause is FailureCause.ENGINE
        if (
            stored.state is RunState.FAILED
            and history.last.failed_ms >= context.started_ms
            and not by_engine
        ):
            self.failure = stored.trace
            self._failure_adopted = True
            self._progress = TaskProgress(stored.counts, stored.figures)
            self._run_version = self.finished_version = self.version
            self._set_restart_timer(context)

    def status_seen(self, context: Context, status: Status) -> bool:
        """Drop an adopted failure if a late status of the previous owner contradicts it.

        Returns:
            Whether the failure was dropped, so that a new run starts.
        """
        if (
            not self._failure_adopted
            or not self.settled_failure
            or status.state is RunState.FAILED
            or status.generation >= context.status_generation
        ):
            return False
        self.failures = status.failures
        self.renew()
        return True

    def restart(self) -> int:
        """Request a restart on behalf of a user; returns the version whose start completes it.

        The failure history is cleared.
        """
        self.failures = None
        self._restarting = True
        return self.renew()

    def renew(self) -> int:
        """Request a new run in place of the current one; returns its version."""
        self.version += 1
        return self.version

    def revoke(self) -> None:
        """Stop it, then remove it from this worker."""
        self.revoked = True

    def reassign(self) -> None:
        """Undo a revocation and request a new run, because it was assigned to this worker again.

        The leader may have removed its status, so the next status is written in any case.
        """
        self.revoked = False
        self._reported = None
        self.renew()

    def advance(self, context: Context) -> None:
        """Emit the next step towards the desired state, if one is due."""
        if self.phase is Phase.STOPPING:
            return
        if self.failure is not None and self._failed_by_engine and self._is_misplaced(context):
            self._restart_is_due = True  # it need not wait for the engine that ended
        if self._restart_is_due and self.settled_failure and self._restarts_now(context):
            self._restarting = True
            self.renew()
        stale = (
            self.revoked
            or not self._may_run(context)
            or self._run_version != self.version
            or self._is_misplaced(context)
        )
        if self.phase is not Phase.IDLE and stale:
            self._end_run(context)
        elif self.phase is Phase.RUNNING and self.failure is None:
            self._adjust(context)
        if self.phase is Phase.IDLE:
            self._advance_idle(context)

    def started(self, context: Context, run_id: int) -> bool:
        """Handle a successful start in the engine; False if the run is stale."""
        if self.phase is not Phase.STARTING or run_id != self.run_id:
            return False
        self.phase = Phase.RUNNING
        self._restarting = False
        self.finished_version = self._run_version
        self._report_running(context)
        return True

    def failed(
        self,
        context: Context,
        run_id: int,
        trace: str,
        cause: FailureCause = FailureCause.PLUGIN,
    ) -> bool:
        """Handle a failure of the start or of the run; False if the run is stale."""
        if run_id != self.run_id or self.phase in (Phase.IDLE, Phase.STOPPING):
            return False
        if self.failure is not None:
            return False
        # RUNNING, so that it is stopped before the next run: the start may still be in progress
        self.phase = Phase.RUNNING if self.phase in IN_ENGINE else Phase.IDLE
        self.finished_version = self._run_version
        self._fail(context, trace, cause)
        return True

    def restart_due(self, failure_count: int) -> bool:
        """Allow the restart after a failure's back-off; False if there was a later failure."""
        history = self.failures
        if not self.settled_failure or history is None or history.count != failure_count:
            return False
        self._restart_is_due = True
        return True

    def stopped(self, run_id: int) -> bool:
        """Handle the end of a stop in the engine; False if the run is stale."""
        if self.phase is not Phase.STOPPING or run_id != self.run_id:
            return False
        self.phase = Phase.IDLE
        return True

    def lose_engine(
        self, context: Context, reason: str, *, fault: EngineFault | None = None
    ) -> None:
        """End the run with the engine; it is FAILED unless it was being stopped.

        ``fault`` replaces ``reason`` if this run caused the engine's end.
        """
        was_in_engine = self.phase in IN_ENGINE
        stopping = self.phase is Phase.STOPPING
        if self.phase is Phase.IDLE:
            return
        self.phase = Phase.IDLE
        self.run_id = 0
        if was_in_engine and not stopping and not self.revoked and self.failure is None:
            fault = fault or EngineFault(reason, FailureCause.ENGINE)
            self._fail(context, fault.trace, fault.cause)

    def engine_not_started(self, context: Context, reason: str) -> None:
        """Fail while it waits for an engine that ended; it starts when that engine is up."""
        if self.failure is None and self.needed_engine(context) is not None:
            self._run_version = self.finished_version = self.version
            self._fail(context, reason, FailureCause.ENGINE)

    def give_up(self, context: Context, trace: str) -> None:
        """Stay FAILED until a user restarts it, if it is not in an engine."""
        last = self.failures.last if self.failures is not None else None
        given_up = self.failure is not None and last and last.cause is FailureCause.LIMIT
        if self.phase is Phase.IDLE and not self.revoked and not given_up:
            self._run_version = self.finished_version = self.version
            self._fail(context, trace, FailureCause.LIMIT)

    def needed_engine(self, context: Context) -> EngineSlot | None:
        """The engine that it is in or waits for; None if it needs none."""
        if self.phase is not Phase.IDLE:
            return self.engine
        restarts = self._restart_is_due or self._failed_by_engine
        if self.revoked or not self._may_run(context) or (self.settled_failure and not restarts):
            return None
        return context.engines.slot_of(self.connector)

    def regain_engine(self) -> None:
        """Allow a restart in the new engine if the old engine's end caused the failure."""
        if self.failure is not None and self._failed_by_engine:
            self._restart_is_due = True

    @property
    def _failed_by_engine(self) -> bool:
        last = self.failures.last if self.failures is not None else None
        return last is not None and last.cause is FailureCause.ENGINE

    def _fail(self, context: Context, trace: str, cause: FailureCause) -> None:
        self._restarting = False
        self._restart_is_due = False
        self.failure = trace
        config_offset = self._config_offset(context)
        history = self.failures
        if history is None or history.config_offset != config_offset:
            history = FailureHistory(config_offset)
        self.failures = history.with_failure(
            Failure(context.now_ms, cause, context.settings.worker_id, summary_of(trace)),
            RestartPolicy.of(context.view.config(self.connector) or {}),
            str(self.key),
        )
        self._set_restart_timer(context)
        self._report(context, RunState.FAILED, trace=trace, safe=True)

    def _set_restart_timer(self, context: Context) -> None:
        history = self.failures
        if history is not None and history.restart_ms:
            kind = "connector" if isinstance(self.key, str) else "task"
            context.set_timer(
                f"restart-{kind}:{self.key}",
                max(history.restart_ms - context.now_ms, 0),
                RestartDue(self.key, history.count),
            )

    def _is_misplaced(self, context: Context) -> bool:
        """Whether its engine is not the one where its connector has to run."""
        return self.engine != context.engines.slot_of(self.connector)

    def _restarts_now(self, context: Context) -> bool:
        """Whether a due restart may happen now; paused and stopped connectors delay it."""
        is_up = context.engines.is_up(self.connector)
        return is_up and (self._failed_by_engine or self._is_started(context))

    def _is_started(self, context: Context) -> bool:
        entry = context.view.connectors.get(self.connector)
        return entry is not None and entry.target_state is TargetState.STARTED

    def _end_run(self, context: Context) -> None:
        if self.phase in IN_ENGINE:
            if self._restarting and not self.revoked:
                self._report(context, RunState.RESTARTING)
            self.phase = Phase.STOPPING
            self._emit_stop(context)
        else:
            self.phase = Phase.IDLE

    def _advance_idle(self, context: Context) -> None:
        if self.revoked:
            # FAILED stays visible until another run reports a state
            if self._reported is not None and self.failure is None:
                self._report(context, RunState.UNASSIGNED, safe=True)
        elif not self._may_run(context):
            self._run_version = self.finished_version = self.version
            self.failure = None
            self._report(context, self._resting_state(context))
        elif self.settled_failure:
            if self._reported is None and self.failure is not None:  # an adopted failure
                self._report(context, RunState.FAILED, trace=self.failure, safe=True)
        else:
            self._correct_status(context)
            if context.engines.is_up(self.connector):
                self._start_run(context)

    def _correct_status(self, context: Context) -> None:
        """Report UNASSIGNED if the previous owner died and its last status is still stored."""
        stored = context.statuses.get(self.key)
        if self._reported is None and stored is not None and stored.state in OWNER_STATES:
            self._report(context, RunState.UNASSIGNED, safe=True)

    def _start_run(self, context: Context) -> None:
        if self.failures is not None:
            current = self.failures.config_offset == self._config_offset(context)
            self.failures = self.failures.without_restart() if current else None
        if self._restarting and self._reported is not None:
            self._report(context, RunState.RESTARTING)
        self.run_id = context.next_id()
        self.engine = context.engines.slot_of(self.connector)
        self._run_version = self.version
        self.failure = None
        self._failure_adopted = False
        self._restart_is_due = False
        self._begin(context)

    def _report(
        self, context: Context, state: RunState, *, trace: str = "", safe: bool = False
    ) -> None:
        previous = self._reported, self._reported_progress
        self._reported = (state, trace)
        if previous != (self._reported, self._progress_in(state)):
            self.report_again(context, safe=safe)

    def _report_running(self, context: Context, trace: str = "") -> None:
        """Report the state after the start; ``trace`` has a note about a running connector."""
        state = self._running_state(context)
        self._report(context, state, trace=trace or context.engines.note_of(self.connector))

    def _progress_in(self, state: RunState) -> TaskProgress:
        """The progress for a status; an UNASSIGNED task has no figures."""
        if state is RunState.UNASSIGNED:
            return TaskProgress(self._progress.counts)
        return self._progress

    @abstractmethod
    def _config_offset(self, context: Context) -> int:
        """The config log's offset after its config."""

    @abstractmethod
    def _may_run(self, context: Context) -> bool:
        """Whether the target state allows it to be in the engine."""

    @abstractmethod
    def _running_state(self, context: Context) -> RunState:
        """The state to report after the start."""

    @abstractmethod
    def _resting_state(self, context: Context) -> RunState:
        """The state to report while it may not run."""

    @abstractmethod
    def _begin(self, context: Context) -> None:
        """Emit the first step of a run and enter its phase."""

    @abstractmethod
    def _adjust(self, context: Context) -> None:
        """Emit the instruction that the target state requires of a running item, if any."""

    @abstractmethod
    def _emit_stop(self, context: Context) -> None:
        """Emit the instruction that stops it."""
