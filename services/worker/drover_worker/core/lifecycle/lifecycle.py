"""What the lifecycles of connectors and tasks have in common.

A lifecycle compares the desired state with its phase and emits the one next step; never more than
one step is under way. Each start is a run with its own id; reports of earlier runs are ignored.
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
from drover.model.status import RecordCounts, RunState, Status, StatusKey
from drover_worker.core.context import Context
from drover_worker.core.events import RestartDue


class Phase(StrEnum):
    """Where a connector or task is on this worker.

    Connectors: IDLE → STARTING → RUNNING → STOPPING → IDLE. Tasks have CLAIMING and FETCHING before
    STARTING. The end of the engine leads to IDLE from every phase.
    """

    #: It is not in the engine.
    IDLE = "IDLE"
    #: ClaimTask is under way, or its retry is due later.
    CLAIMING = "CLAIMING"
    #: FetchOffsets is under way, or its retry is due later.
    FETCHING = "FETCHING"
    #: The engine starts it.
    STARTING = "STARTING"
    #: It is in the engine, running or failed; a failed start ends here too.
    RUNNING = "RUNNING"
    #: The engine stops it.
    STOPPING = "STOPPING"


#: Phases in which it is in the engine.
IN_ENGINE = frozenset({Phase.STARTING, Phase.RUNNING, Phase.STOPPING})
#: Phases from the first step of a run to its start.
STARTING = frozenset({Phase.CLAIMING, Phase.FETCHING, Phase.STARTING})
#: States that only the worker that runs it may report.
_SAYS_IT_IS_HELD = frozenset({RunState.RUNNING, RunState.PAUSED, RunState.RESTARTING})


@dataclass(frozen=True, slots=True)
class Told:
    """What a task tells while it runs: what became of its records, and its connector's figures."""

    counts: RecordCounts | None = None
    figures: Mapping[str, int] = field(default_factory=dict)


NOTHING_TOLD = Told()


class Lifecycle(ABC):
    """One connector or task that is assigned to this worker.

    ``version`` is that of the desired run: each restart and change of config increments it. A run
    keeps the version it was begun with, and is replaced when ``version`` has grown since.
    ``finished_version`` is the version of the last run whose start succeeded or failed.
    """

    def __init__(self, key: StatusKey) -> None:
        self.key = key
        self.phase = Phase.IDLE
        self.run_id = 0
        self.version = 1
        self.finished_version = 0
        self.failure: str | None = None
        self.revoked = False
        #: The failures that count together; None before the first one.
        self.failures: FailureHistory | None = None
        self._begun_version = 0
        self._restarting = False
        #: It is FAILED because the status store said so when this worker got it.
        self._failure_taken_over = False
        #: The back-off after the last failure is over, or the engine that failed is there again.
        self._restart_is_due = False
        #: Of the present run, or of the last one until there is another; a connector has none.
        self._told = NOTHING_TOLD
        self._reported: tuple[RunState, str] | None = None
        self._reported_told = NOTHING_TOLD

    @property
    def gone(self) -> bool:
        """Whether it was revoked and nothing of it is left."""
        return self.revoked and self.phase is Phase.IDLE

    @property
    def state(self) -> RunState:
        """The state that this worker reported last."""
        return self._reported[0] if self._reported else RunState.UNASSIGNED

    @property
    def settled_failure(self) -> bool:
        """Whether it failed and no other run was requested since."""
        return self.failure is not None and self._begun_version == self.version

    @property
    def running(self) -> bool:
        """Whether it is in the engine, started and not failed."""
        return self.phase is Phase.RUNNING and self.failure is None

    def is_contradicted(self, context: Context) -> bool:
        """Whether the status store holds another state than this worker reported last.

        A status of a later generation does not count: then this worker is the late one.
        """
        if self._reported is None or self.revoked or self.state is RunState.UNASSIGNED:
            return False
        known = context.statuses.get(self.key)
        if known is None:
            return True
        same = known.state is self.state and known.worker_id == context.settings.worker_id
        return not same and known.generation <= context.status_generation

    def report_again(self, context: Context, *, safe: bool = False) -> None:
        """Repeat the last report, with the counts and figures of now."""
        if self._reported is not None:
            state, trace = self._reported
            told = self._reported_told = self._told_of(state)
            context.report(
                self.key,
                state,
                trace=trace,
                counts=told.counts,
                figures=told.figures,
                failures=self.failures,
                safe=safe,
            )

    def take_over(self, context: Context) -> None:
        """Continue what the status store has of an earlier owner, or of this worker's last run.

        A rebalance alone does not try again what failed: it stays FAILED, and its back-off goes on.
        A worker that was started after the failure does try: what was wrong may be mended there.
        """
        known = context.statuses.get(self.key)
        history = known.failures if known is not None else None
        if known is None or history is None or history.last is None:
            return
        if history.config_offset != self._config_offset(context):
            return
        self.failures = history
        by_engine = history.last.cause is FailureCause.ENGINE
        if (
            known.state is RunState.FAILED
            and history.last.failed_ms >= context.started_ms
            and not by_engine
        ):
            self.failure = known.trace
            self._failure_taken_over = True
            self._told = Told(known.counts, known.figures)
            self._begun_version = self.finished_version = self.version
            self._await_restart(context)

    def status_seen(self, context: Context, status: Status) -> bool:
        """The status store shows ``status`` now; True if it changes what was taken over.

        The last word of an earlier owner may come late: a failure that it denies is none.
        """
        if (
            not self._failure_taken_over
            or not self.settled_failure
            or status.state is RunState.FAILED
            or status.generation >= context.status_generation
        ):
            return False
        self.failures = status.failures
        self.renew()
        return True

    def restart(self) -> int:
        """Request a restart, as a user does; returns the version whose start completes it.

        What failed before counts no longer.
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

    def take_back(self) -> None:
        """It is this worker's again before it was gone: run it anew.

        Its status may have been removed meanwhile, so the next one is written whatever it is.
        """
        self.revoked = False
        self._reported = None
        self.renew()

    def advance(self, context: Context) -> None:
        """Emit the next step towards the desired state, if one is due."""
        if self.phase is Phase.STOPPING:
            return
        if self._restart_is_due and self.settled_failure and self._restarts_now(context):
            self._restarting = True
            self.renew()
        stale = self.revoked or not self._may_run(context) or self._begun_version != self.version
        if self.phase is not Phase.IDLE and stale:
            self._leave_run(context)
        elif self.phase is Phase.RUNNING and self.failure is None:
            self._adjust(context)
        if self.phase is Phase.IDLE:
            self._advance_idle(context)

    def started(self, context: Context, run_id: int) -> bool:
        """The engine started it; False if the run is stale."""
        if self.phase is not Phase.STARTING or run_id != self.run_id:
            return False
        self.phase = Phase.RUNNING
        self._restarting = False
        self.finished_version = self._begun_version
        self._report(context, self._running_state(context))
        return True

    def failed(
        self,
        context: Context,
        run_id: int,
        trace: str,
        cause: FailureCause = FailureCause.PLUGIN,
    ) -> bool:
        """It could not be started, or failed later; False if the run is stale."""
        if run_id != self.run_id or self.phase in (Phase.IDLE, Phase.STOPPING):
            return False
        if self.failure is not None:
            return False
        # it is stopped before its next run: the start may still be under way in the engine
        self.phase = Phase.RUNNING if self.phase in IN_ENGINE else Phase.IDLE
        self.finished_version = self._begun_version
        self._fail(context, trace, cause)
        return True

    def restart_due(self, failure_count: int) -> bool:
        """The back-off after a failure is over; False if it was not the last one."""
        history = self.failures
        if not self.settled_failure or history is None or history.count != failure_count:
            return False
        self._restart_is_due = True
        return True

    def stopped(self, run_id: int) -> bool:
        """The engine stopped it; False if no stop of this run is under way."""
        if self.phase is not Phase.STOPPING or run_id != self.run_id:
            return False
        self.phase = Phase.IDLE
        return True

    def lose_engine(self, context: Context, reason: str, *, fault: str | None = None) -> None:
        """The engine ended, and the run with it: FAILED unless it was being stopped.

        ``fault`` is told in place of ``reason`` where it ended because of this run.
        """
        was_in_engine = self.phase in IN_ENGINE
        stopping = self.phase is Phase.STOPPING
        if self.phase is Phase.IDLE:
            return
        self.phase = Phase.IDLE
        self.run_id = 0
        if was_in_engine and not stopping and not self.revoked and self.failure is None:
            cause = FailureCause.ENGINE if fault is None else FailureCause.PLUGIN
            self._fail(context, fault or reason, cause)

    def regain_engine(self) -> None:
        """A new engine is ready: restart it if it failed with the old one."""
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
            RestartPolicy.of(context.view.config(self._connector) or {}),
            str(self.key),
        )
        self._await_restart(context)
        self._report(context, RunState.FAILED, trace=trace, safe=True)

    def _await_restart(self, context: Context) -> None:
        history = self.failures
        if history is not None and history.restart_ms:
            kind = "connector" if isinstance(self.key, str) else "task"
            context.set_timer(
                f"restart-{kind}:{self.key}",
                max(history.restart_ms - context.now_ms, 0),
                RestartDue(self.key, history.count),
            )

    def _restarts_now(self, context: Context) -> bool:
        """Whether a restart that is due is made: what must not process anything waits for that."""
        return context.engine_up and (self._failed_by_engine or self._is_started(context))

    def _is_started(self, context: Context) -> bool:
        entry = context.view.connectors.get(self._connector)
        return entry is not None and entry.target_state is TargetState.STARTED

    @property
    def _connector(self) -> str:
        return self.key if isinstance(self.key, str) else self.key.connector

    def _leave_run(self, context: Context) -> None:
        if self.phase in IN_ENGINE:
            if self._restarting and not self.revoked:
                self._report(context, RunState.RESTARTING)
            self.phase = Phase.STOPPING
            self._emit_stop(context)
        else:
            self.phase = Phase.IDLE

    def _advance_idle(self, context: Context) -> None:
        if self.revoked:
            # keep FAILED visible until another run reports a state
            if self._reported is not None and self.failure is None:
                self._report(context, RunState.UNASSIGNED, safe=True)
        elif not self._may_run(context):
            self._begun_version = self.finished_version = self.version
            self.failure = None
            self._report(context, self._resting_state(context))
        elif self.settled_failure:
            if self._reported is None and self.failure is not None:  # taken over as it is
                self._report(context, RunState.FAILED, trace=self.failure, safe=True)
        else:
            self._correct_status(context)
            if context.engine_up:
                self._begin_run(context)

    def _correct_status(self, context: Context) -> None:
        """Report UNASSIGNED if the last status is that of an owner that died."""
        known = context.statuses.get(self.key)
        if self._reported is None and known is not None and known.state in _SAYS_IT_IS_HELD:
            self._report(context, RunState.UNASSIGNED, safe=True)

    def _begin_run(self, context: Context) -> None:
        if self.failures is not None:
            current = self.failures.config_offset == self._config_offset(context)
            self.failures = self.failures.without_restart() if current else None
        if self._restarting and self._reported is not None:
            self._report(context, RunState.RESTARTING)
        self.run_id = context.next_id()
        self._begun_version = self.version
        self.failure = None
        self._failure_taken_over = False
        self._restart_is_due = False
        self._begin(context)

    def _report(
        self, context: Context, state: RunState, *, trace: str = "", safe: bool = False
    ) -> None:
        known = self._reported, self._reported_told
        self._reported = (state, trace)
        if known != (self._reported, self._told_of(state)):
            self.report_again(context, safe=safe)

    def _told_of(self, state: RunState) -> Told:
        """What belongs to a status: what is UNASSIGNED has no run."""
        return NOTHING_TOLD if state is RunState.UNASSIGNED else self._told

    @abstractmethod
    def _config_offset(self, context: Context) -> int:
        """The end of the config log after what it is configured with."""

    @abstractmethod
    def _may_run(self, context: Context) -> bool:
        """Whether its target state allows it to be in the engine."""

    @abstractmethod
    def _running_state(self, context: Context) -> RunState:
        """The state to report after its start."""

    @abstractmethod
    def _resting_state(self, context: Context) -> RunState:
        """The state to report while it may not run."""

    @abstractmethod
    def _begin(self, context: Context) -> None:
        """Emit the first step of a run and enter its phase."""

    @abstractmethod
    def _adjust(self, context: Context) -> None:
        """While it runs: emit what its target state requires."""

    @abstractmethod
    def _emit_stop(self, context: Context) -> None:
        """Emit the instruction that stops it."""
