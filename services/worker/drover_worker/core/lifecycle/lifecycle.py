"""What the lives of connectors and tasks on this worker have in common.

A lifecycle knows what is wanted and where it is, and asks for the one next step towards it; there
is never more than one step under way. Each start is a run with an id of its own: a report of an
earlier run finds no match and is ignored.
"""

from abc import ABC, abstractmethod
from enum import StrEnum

from drover.model.status import RunState, StatusKey
from drover_worker.core.context import Context


class Phase(StrEnum):
    """Where a connector or task is on this worker.

    Connectors go IDLE → STARTING → RUNNING → STOPPING → IDLE; tasks take CLAIMING and FETCHING
    before STARTING. An engine that ends leads back to IDLE from anywhere.
    """

    #: Nothing of it is in the engine.
    IDLE = "IDLE"
    #: The coordinator is asked for the claim (or the next try is due later).
    CLAIMING = "CLAIMING"
    #: The coordinator is asked for the offsets (or the next try is due later).
    FETCHING = "FETCHING"
    #: The engine starts it.
    STARTING = "STARTING"
    #: It is in the engine; it may have failed there, also at its start.
    RUNNING = "RUNNING"
    #: The engine stops it.
    STOPPING = "STOPPING"


#: Phases in which the engine has something of it.
IN_ENGINE = frozenset({Phase.STARTING, Phase.RUNNING, Phase.STOPPING})
#: Phases from the first step of a run to its start.
STARTING = frozenset({Phase.CLAIMING, Phase.FETCHING, Phase.STARTING})
#: States that only a worker that has it in its engine can rightly report.
_SAYS_IT_IS_HELD = frozenset({RunState.RUNNING, RunState.PAUSED, RunState.RESTARTING})


class Lifecycle(ABC):
    """One connector or task that is assigned to this worker.

    ``version`` counts what is wanted: it grows with each restart and change of config. A run is
    begun with the version of its time, and is replaced when that is no longer the present one.
    ``finished_version`` is the version of the last start that ended, well or not.
    """

    def __init__(self, key: StatusKey) -> None:
        self.key = key
        self.phase = Phase.IDLE
        self.run_id = 0
        self.version = 1
        self.finished_version = 0
        self.failure: str | None = None
        self.revoked = False
        self._begun_version = 0
        self._failed_by_engine = False
        self._restarting = False
        self._reported: tuple[RunState, str] | None = None

    @property
    def gone(self) -> bool:
        """Whether it was revoked and nothing of it is left."""
        return self.revoked and self.phase is Phase.IDLE

    @property
    def state(self) -> RunState:
        """What this worker last said of it."""
        return self._reported[0] if self._reported else RunState.UNASSIGNED

    @property
    def settled_failure(self) -> bool:
        """Whether it failed and nothing since asked for another run."""
        return self.failure is not None and self._begun_version == self.version

    @property
    def running(self) -> bool:
        """Whether it is in the engine, started and not failed."""
        return self.phase is Phase.RUNNING and self.failure is None

    def is_contradicted(self, context: Context) -> bool:
        """Whether the status store says otherwise of it than this worker last did.

        What a later generation says is left alone: then it is this worker that is late.
        """
        if self._reported is None or self.revoked or self.state is RunState.UNASSIGNED:
            return False
        known = context.statuses.get(self.key)
        if known is None:
            return True
        same = known.state is self.state and known.worker_id == context.settings.worker_id
        return not same and known.generation <= context.status_generation

    def report_again(self, context: Context) -> None:
        """Say once more what was said last."""
        if self._reported is not None:
            state, trace = self._reported
            context.report(self.key, state, trace=trace)

    def restart(self) -> int:
        """Want it anew; returns the version whose start will have been that restart."""
        self._restarting = True
        return self.renew()

    def renew(self) -> int:
        """Want another run in place of the present one; returns its version."""
        self.version += 1
        return self.version

    def revoke(self) -> None:
        """Want it stopped and forgotten."""
        self.revoked = True

    def advance(self, context: Context) -> None:
        """Ask for the next step towards what is wanted, if one is due."""
        if self.phase is Phase.STOPPING:
            return
        stale = self.revoked or not self._may_run(context) or self._begun_version != self.version
        if self.phase is not Phase.IDLE and stale:
            self._leave_run(context)
        elif self.phase is Phase.RUNNING and self.failure is None:
            self._adjust(context)
        if self.phase is Phase.IDLE:
            self._advance_idle(context)

    def started(self, context: Context, run_id: int) -> bool:
        """The engine started it; False when that run is no longer wanted to be known of."""
        if self.phase is not Phase.STARTING or run_id != self.run_id:
            return False
        self.phase = Phase.RUNNING
        self._restarting = False
        self.finished_version = self._begun_version
        self._report(context, self._running_state(context))
        return True

    def failed(self, context: Context, run_id: int, trace: str) -> bool:
        """It could not be started, or failed later; False when that run is over."""
        if run_id != self.run_id or self.phase in (Phase.IDLE, Phase.STOPPING):
            return False
        if self.failure is not None:
            return False
        # what failed is stopped before its next run: a start given up on may still be under way
        self.phase = Phase.RUNNING if self.phase in IN_ENGINE else Phase.IDLE
        self.finished_version = self._begun_version
        self._restarting = False
        self.failure = trace
        self._report(context, RunState.FAILED, trace=trace, safe=True)
        return True

    def stopped(self, run_id: int) -> bool:
        """The engine stopped it; False when that was not asked for (any more)."""
        if self.phase is not Phase.STOPPING or run_id != self.run_id:
            return False
        self.phase = Phase.IDLE
        return True

    def lose_engine(self, context: Context, reason: str) -> None:
        """The engine ended and took the run with it."""
        was_in_engine = self.phase in IN_ENGINE
        stopping = self.phase is Phase.STOPPING
        if self.phase is Phase.IDLE:
            return
        self.phase = Phase.IDLE
        self.run_id = 0
        if was_in_engine and not stopping and not self.revoked and self.failure is None:
            self.failure = reason
            self._failed_by_engine = True
            self._report(context, RunState.FAILED, trace=reason, safe=True)

    def regain_engine(self) -> None:
        """A new engine is ready: what the old one took with it starts again."""
        if self._failed_by_engine:
            self._failed_by_engine = False
            self.renew()

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
            # a failure stays to be seen until another run says otherwise
            if self._reported is not None and self.failure is None:
                self._report(context, RunState.UNASSIGNED, safe=True)
        elif not self._may_run(context):
            self._begun_version = self.finished_version = self.version
            self.failure = None
            self._failed_by_engine = False
            self._report(context, self._resting_state(context))
        elif self.settled_failure:
            return
        else:
            self._correct_status(context)
            if context.engine_up:
                self._begin_run(context)

    def _correct_status(self, context: Context) -> None:
        """Say that nobody runs it yet, when the last word is that of an owner that died."""
        known = context.statuses.get(self.key)
        if self._reported is None and known is not None and known.state in _SAYS_IT_IS_HELD:
            self._report(context, RunState.UNASSIGNED, safe=True)

    def _begin_run(self, context: Context) -> None:
        if self._restarting and self._reported is not None:
            self._report(context, RunState.RESTARTING)
        self.run_id = context.next_id()
        self._begun_version = self.version
        self.failure = None
        self._failed_by_engine = False
        self._begin(context)

    def _report(
        self, context: Context, state: RunState, *, trace: str = "", safe: bool = False
    ) -> None:
        if self._reported != (state, trace):
            self._reported = (state, trace)
            context.report(self.key, state, trace=trace, safe=safe)

    @abstractmethod
    def _may_run(self, context: Context) -> bool:
        """Whether its target state lets it be in the engine."""

    @abstractmethod
    def _running_state(self, context: Context) -> RunState:
        """What to report when it was started."""

    @abstractmethod
    def _resting_state(self, context: Context) -> RunState:
        """What to report while it may not run."""

    @abstractmethod
    def _begin(self, context: Context) -> None:
        """Ask for the first step of a run and enter its phase."""

    @abstractmethod
    def _adjust(self, context: Context) -> None:
        """While it runs: ask for what it needs to follow its target state."""

    @abstractmethod
    def _emit_stop(self, context: Context) -> None:
        """Ask the engine to stop it."""
