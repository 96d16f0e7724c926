"""The common part of the cores of sources and sinks: runs, failures, commits, claims, ends."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar

from drover.backoff import Backoff
from drover.connector.error_settings import ErrorSettings
from drover.errors import FailedPreconditionError, Reason, UnavailableError
from drover.model.failures import FailureCause
from drover.model.ids import TaskId, Term
from drover.model.offsets import CommitOutcome, CommittedOffset
from drover_worker.engine.core import events, instructions
from drover_worker.engine.core.commits import Commit, Commits, DoneBatch
from drover_worker.engine.core.error_rate import ErrorRate, TooManyErrorsError
from drover_worker.engine.core.events import TaskEvent
from drover_worker.engine.core.failures import Failure, FailureKind, Fault
from drover_worker.engine.core.instructions import Operation, TaskInstruction
from drover_worker.engine.core.phases import Phase
from drover_worker.engine.core.rate_limit import RateLimit
from drover_worker.engine.core.retries import CALLS, CallRetries, Losses, ceil_ms
from drover_worker.engine.core.steps import Step

_RETRY_FIRST_S = 0.1
_RETRY_MAX_S = 5.0
#: The events that an error about a missing transition lists.
_RECENT_MAX = 16

_LOST = "a Spark process ended during a batch; the batch is retried"
_NO_EXECUTOR = "an executor cannot use its files; the batch is retried"
_STOP_FAILED = "an operation failed while its task was stopped"
_UNAVAILABLE = "the store is unavailable; the batch is retried"

#: A transition: the method that handles an event in a phase.
Transition = Callable[[Any, Any], None]
TransitionTable = Mapping[tuple[Phase, type[Any]], Transition]


class NoTransitionError(Exception):
    """An event is not possible in the phase of the task: a defect of Drover. The message has the
    recent events.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskLimits:
    """How much a task moves.

    Attributes:
        rate_max_records: Records per second; 0 for no limit.
        rate_max_bytes: Bytes per second; 0 for no limit.
        batch_max_records: The record limit of a batch.
        batch_max_bytes: The byte limit of a batch.
    """

    rate_max_records: int = 0
    rate_max_bytes: int = 0
    batch_max_records: int
    batch_max_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSettings:
    """The part of a task's config that its core needs.

    Attributes:
        task: The task.
        claim: Its claim.
        errors: How failed records and calls are handled.
        limits: How much it moves.
    """

    task: TaskId
    claim: Term
    errors: ErrorSettings
    limits: TaskLimits


class TaskCore(ABC):
    """One task, from its start command to its end.

    A run takes the task from RESTING back to RESTING, with at most one batch. After a failure the
    next run repeats the failed operation, or starts the task object again from the committed
    offsets if it may have advanced already (``restart_wanted``).
    """

    #: The transitions of the subclass; see ``TRANSITIONS``.
    _OWN_TRANSITIONS: ClassVar[TransitionTable] = {}
    #: The operations after whose failure the task object is started again, with the kinds of
    #: failure after which it is not.
    _RESTARTS: ClassVar[Mapping[Phase, frozenset[FailureKind]]] = {}
    #: The phases before the task object is created: the first start is retried.
    _BEFORE_INSTANCE: ClassVar[frozenset[Phase]] = frozenset()

    def __init__(
        self, settings: TaskSettings, committed: Sequence[CommittedOffset], *, paused: bool
    ) -> None:
        self.settings = settings
        self.phase = Phase.NEW
        self.commits = Commits(committed)
        self.rate = RateLimit(settings.limits.rate_max_records, settings.limits.rate_max_bytes)
        self.restart_wanted = False
        self._paused = paused
        self._stopping = False
        self._is_first_start = True
        self._now_ms = 0
        self._out: list[TaskInstruction] = []
        self._recent: deque[str] = deque(maxlen=_RECENT_MAX)
        #: An error that a transition raised is being classified.
        self._examines = False
        self._failure: Failure | None = None
        self._failed_phase = Phase.NEW
        self._error_rate = ErrorRate(settings.errors)
        self._retries = Backoff(_RETRY_FIRST_S, _RETRY_MAX_S)
        self._losses = Losses()
        self._calls = CallRetries(settings.errors)

    @property
    def is_over(self) -> bool:
        """Whether the task has ended; later results of its operations are ignored."""
        return self.phase is Phase.OVER

    @property
    def is_stopping(self) -> bool:
        """Whether the task is stopping or has ended."""
        return self._stopping or self.is_over

    @classmethod
    def transitions(cls) -> TransitionTable:
        """The method for each event that is possible in a phase."""
        return {**_TRANSITIONS, **cls._OWN_TRANSITIONS}

    def step(self, event: TaskEvent, now_ms: int) -> Sequence[TaskInstruction]:
        """Handle an event; returns the instructions that it causes, in order.

        ``now_ms`` is the time of a monotonic clock in milliseconds. An event that is not possible
        in the present phase ends the task, and only this task.
        """
        self._now_ms = now_ms
        self._out = []
        before = self.phase
        self._recent.append(f"{now_ms} ms, {before}: {_short(event)}")
        anywhere = _ANYWHERE.get(type(event))
        handler = anywhere or self._table().get((before, type(event)))
        if before is Phase.OVER and handler is None:
            return ()  # the late result of an operation
        try:
            if handler is None:
                raise self._no_transition(event)
            handler(self, event)
            is_result = anywhere is None and before is not Phase.RESTING
            if is_result and not isinstance(event, events.OperationFailed):
                self._calls.succeeded(before)
        except Exception as error:  # noqa: BLE001 - it fails this task alone
            is_defect = anywhere is not None or isinstance(error, NoTransitionError)
            if is_defect or before is _AFTER_FAILURE:
                self._fail_now(error)
            else:
                self._examine(before, error)
        return self._out

    def validate(self) -> None:
        """Raise AssertionError when an invariant is broken."""
        self.commits.validate()
        operations = [each for each in self._out if isinstance(each, Operation)]
        assert len(operations) <= 1, f"several operations at once: {operations}"
        assert not operations or self._out[-1] is operations[0], "an operation is not the last"
        if self.phase is Phase.OVER:
            assert not operations, f"an operation after the end: {operations}"
        if self.phase in self._RESTARTS and not self._examines:
            assert self.restart_wanted, f"a failure in {self.phase} would lose records"

    # --- for subclasses ----------------------------------------------------------------------

    @abstractmethod
    def _begin_start(self, committed: Sequence[CommittedOffset]) -> None:
        """Begin to start a task object from the committed offsets."""

    @abstractmethod
    def _begin_batch(self) -> None:
        """Begin the operations of a run."""

    @property
    def _may_run_ahead(self) -> bool:
        """Whether the next batch may run before the last one is committed."""
        return False

    def _commit_done(self, commit: Commit) -> None:  # noqa: B027 (optional)
        """A commit of the task became durable."""

    def _begin_stop(self) -> None:
        """The last run has ended: wait for asynchronous work."""
        self._operate(Phase.AWAITING_COMMITS, instructions.AwaitCommits())

    def _release(self) -> None:  # noqa: B027 (optional)
        """The task is over, and nothing uses its writer: release it."""

    def _react(self, failure: Failure) -> None:
        """Decide what to do after a failure; the claim is checked first."""
        self._check_claim_after(failure)

    def _emit(self, instruction: TaskInstruction) -> None:
        self._out.append(instruction)

    def _operate(self, phase: Phase, operation: Operation) -> None:
        """Begin an operation; its result is handled in ``phase``."""
        self.phase = phase
        if phase in self._RESTARTS:
            self.restart_wanted = True
        self._out.append(operation)

    def _end_run(self, pause_ms: int | None, step: Step | None = None) -> None:
        """End the run; ``step`` is what the task does until the next one, None for the usual."""
        self.phase = Phase.RESTING
        self._emit(instructions.EndRun(pause_ms, self._step_after(pause_ms, step)))

    def _step_after(self, pause_ms: int | None, step: Step | None) -> Step:
        if step is Step.WAITING_TO_RETRY:
            return step
        if self.commits.open_count and pause_ms is None:
            return Step.COMMITTING
        if self._paused:
            return Step.PAUSED
        if pause_ms == 0:
            return Step.QUEUED
        return step or Step.WAITING_FOR_RECORDS

    def _commit(
        self,
        offsets: Sequence[CommittedOffset],
        *,
        batch: DoneBatch | None = None,
        shown: Mapping[Any, Any] | None = None,
        refreshes_marks: bool = False,
        are_starts: bool = False,
    ) -> None:
        send = self.commits.add(
            offsets,
            self._now_ms,
            batch=batch,
            shown=shown,
            refreshes_marks=refreshes_marks,
            are_starts=are_starts,
        )
        if send is not None:
            self._emit(send)

    def _moved(self, batch: DoneBatch) -> None:
        """Count a batch whose offsets are durable.

        Raises:
            TooManyErrorsError: More of the records failed than errors.max.rate allows.
        """
        self._retries.reset()
        self._losses.reset()
        self._recovered()
        self._emit(
            instructions.CountBatch(batch.report, batch.started_ms, batch.topics, batch.size_bytes)
        )
        self.rate.moved(batch.report.read_count, batch.size_bytes, batch.started_ms / 1000)
        self._error_rate.add(batch.report, self._now_ms / 1000)

    def _recovered(self) -> None:
        """End the retries: the operation succeeded."""
        self._calls.clear()
        self._emit(instructions.NoteRecovery())

    def _instance_started(self) -> None:
        """The task object runs: rest after the first start, otherwise continue the run."""
        self.restart_wanted = False
        if self._is_first_start:
            self._is_first_start = False
            self.phase = Phase.RESTING
        else:
            self._go_on()

    def _end(self, report: instructions.EndFailed | instructions.EndFenced) -> None:
        self.phase = Phase.OVER
        if isinstance(report, instructions.EndFenced):
            self.commits.drop_unsent()
        self._emit(report)
        self._release()

    # --- transitions -------------------------------------------------------------------------

    def _start_requested(self, event: events.StartRequested) -> None:
        self._is_first_start = True
        self._begin_start(event.committed)

    def _run_began(self, _event: events.RunBegan) -> None:
        """Process the answers to commits, then do the next batch or restart."""
        if self.is_stopping:
            self._end_run(None)
            return
        self._settle_commits()
        # the answer to a commit wakes the task, however late it arrives
        if self.commits.open_count and (self.restart_wanted or not self._may_run_ahead):
            self._end_run(None)
        elif self.restart_wanted:
            self._is_first_start = False
            self._operate(Phase.STOPPING_INSTANCE, instructions.StopInstance())
        else:
            self._go_on()

    def _instance_stopped(self, event: events.InstanceStopped) -> None:
        self._begin_start(self.commits.committed if event.committed is None else event.committed)

    def _go_on(self) -> None:
        if self.is_stopping:
            self._end_run(None)
        else:
            self._begin_batch()

    def _waits_for_rate(self) -> bool:
        """Whether the rates allow no batch yet; the run has ended then.

        All earlier batches must be settled: they determine when the next one may begin.
        """
        pause_s = self.rate.pause_s(self._now_ms / 1000)
        if pause_s:
            self._end_run(ceil_ms(pause_s), Step.RATE_LIMITED)
        return bool(pause_s)

    def _settle_commits(self) -> None:
        too_many: TooManyErrorsError | None = None
        while (commit := self.commits.settle()) is not None:
            self._emit(instructions.NoteCommitted(self._now_ms - commit.began_ms))
            try:
                self._commit_done(commit)
            except TooManyErrorsError as error:
                too_many = error  # raised when all are counted
        if too_many is not None:
            raise too_many

    def _pause_set(self, event: events.PauseSet) -> None:
        if event.paused and not self._paused:
            self._calls.task_paused(self._now_ms)
        elif self._paused and not event.paused:
            self._calls.task_resumed(self._now_ms)
        self._paused = event.paused
        self._emit(instructions.Wake())

    def _commit_answered(self, event: events.CommitAnswered) -> None:
        try:
            following = self.commits.answered(
                event.number, event.outcome, event.message, self._now_ms
            )
        except KeyError:
            raise self._no_transition(event) from None
        if event.outcome is CommitOutcome.STALE_CLAIM:
            self.commits.drop_unsent()
        if following is not None:
            self._emit(following)
        self._emit(instructions.Wake())

    def _transaction_step_ended(self, event: events.TransactionStepEnded) -> None:
        raise self._no_transition(event)

    def _transaction_given_up(self, event: events.TransactionGivenUp) -> None:
        raise self._no_transition(event)

    def _stop_requested(self, _event: events.StopRequested) -> None:
        self._stopping = True

    def _settle_requested(self, _event: events.SettleRequested) -> None:
        self._begin_stop()

    def _commits_awaited(self, event: events.CommitsAwaited) -> None:
        self._end_stop(event.in_time)

    def _stop_failed(self, event: events.OperationFailed, *, in_time: bool = False) -> None:
        self._examines = False
        self._emit(instructions.Log(_STOP_FAILED, {"error": event.failure.text[:500]}))
        self._end_stop(in_time)

    def _end_stop(self, in_time: bool) -> None:
        self._settle_last_commits()
        self.phase = Phase.RESTING
        self._emit(instructions.EndStop(in_time))

    def _settle_last_commits(self) -> None:
        """Count what was committed since the last run; the task ends, whatever else is found."""
        with suppress(FailedPreconditionError, ValueError, TooManyErrorsError):
            self._settle_commits()

    def _abandoned(self, _event: events.Abandoned) -> None:
        self.phase = Phase.OVER

    def _overdue(self, event: events.Overdue) -> None:
        if not self.is_over:
            self._end(
                instructions.EndFailed(
                    None, FailureCause.PLUGIN, message=event.message, keeps_instance=True
                )
            )

    def _instance_released(self, _event: events.InstanceReleased) -> None:
        self._release()

    # --- failures ----------------------------------------------------------------------------

    def _fail_now(self, error: Exception) -> None:
        """A defect: its facts are not of interest, and an operation may be in progress."""
        if not self.is_over:
            self._end(instructions.EndFailed(error, FailureCause.PLUGIN))

    def _examine(self, phase: Phase, error: Exception) -> None:
        """A transition found an error: it is classified like one of an operation."""
        self.phase = phase
        self._examines = True
        self._emit(instructions.Examine(error))

    def _operation_failed(self, event: events.OperationFailed) -> None:
        failure, phase = event.failure, self.phase
        is_own, self._examines = self._examines, False
        if phase in self._RESTARTS and (is_own or failure.kind in self._RESTARTS[phase]):
            self.restart_wanted = False
        self._failed_phase = phase
        if self._is_first_start:
            self._refuse_start(failure)
        else:
            self._react(failure)

    def _refuse_start(self, failure: Failure) -> None:
        self.phase = Phase.RESTING
        error = failure.error
        is_known = isinstance(error, UnavailableError | FailedPreconditionError)
        is_before = self._failed_phase in self._BEFORE_INSTANCE and failure.fault is not None
        is_away = failure.fault is Fault.UNAVAILABLE
        is_retriable = failure.kind is FailureKind.RETRIABLE and self._calls.are_allowed
        if is_retriable:
            self._calls.begin(self._failed_phase, self._now_ms)
        if is_retriable or (is_known and (is_before or is_away)):
            self.restart_wanted = True
            self._is_first_start = False
            self._emit(instructions.DeferStart(failure.text))
        else:
            self._emit(instructions.RefuseStart(error))

    def _check_claim_after(self, failure: Failure) -> None:
        self._failure = failure
        if failure.fault is Fault.STALE_CLAIM:
            self._fence()
        else:
            self._operate(Phase.CHECKING_CLAIM_AFTER_FAILURE, instructions.ReadClaim())

    def _claim_read_after_failure(self, event: events.ClaimRead) -> None:
        if event.claim in (self.settings.claim, None):
            self._decide()
        else:
            self._fence()

    def _claim_unknown_after_failure(self, _event: events.OperationFailed) -> None:
        self._decide()

    def _held_failure(self) -> Failure:
        failure, self._failure = self._failure, None
        assert failure is not None
        return failure

    def _fence(self) -> None:
        self._end(instructions.EndFenced())
        self._emit(instructions.EndRun(None, Step.WAITING_TO_RETRY))

    def _decide(self) -> None:
        """Retry later, or fail the task."""
        failure = self._held_failure()
        pause_ms = self._pause_after_outage(failure)
        if pause_ms is None:
            pause_ms = self._pause_before_retry(failure)
        if pause_ms is not None:
            self._end_run(pause_ms, Step.WAITING_TO_RETRY)
            return
        is_limit = isinstance(failure.error, TooManyErrorsError)
        self._end(
            instructions.EndFailed(
                failure.error,
                FailureCause.LIMIT if is_limit else failure.cause,
                fault=failure.fault,
                loss_count=self._losses.count,
            )
        )
        self._emit(instructions.EndRun(None, Step.WAITING_TO_RETRY))

    def _pause_after_outage(self, failure: Failure) -> int | None:
        """How long the batch waits; None when the failure is the task's."""
        if failure.fault is Fault.LOST:
            self._losses.add(self._now_ms)
        # without Spark the engine is about to end, so every error is due to that
        engine_ends = not failure.spark_is_running
        if engine_ends:
            self._emit(instructions.KeepInFlight())
        if engine_ends or (failure.fault is Fault.LOST and not self._losses.are_too_many):
            self.restart_wanted = True
            reason = _LOST
        elif failure.fault is Fault.EXECUTOR:
            self.restart_wanted = True
            reason = _NO_EXECUTOR
        elif failure.fault is Fault.UNAVAILABLE:
            reason = _UNAVAILABLE
        else:
            return None
        pause_ms = ceil_ms(self._retries.next_pause_s())
        message = f"{reason}: {failure.text}"
        self._emit(instructions.NoteRetry("batch", reason, failure.text, message, pause_ms))
        return pause_ms

    def _pause_before_retry(self, failure: Failure) -> int | None:
        """How long to wait before the failed call is retried; None for no retry."""
        if failure.kind is not FailureKind.RETRIABLE:
            return None
        pause_ms = self._calls.pause_ms(self._failed_phase, self._now_ms)
        if pause_ms is None:
            return None
        operation = CALLS.get(self._failed_phase, "batch")
        reason = "a call failed and is retried"
        self._emit(instructions.NoteRetry(operation, reason, failure.text, failure.text, pause_ms))
        return pause_ms

    # --- the claim ---------------------------------------------------------------------------

    def _check_read_claim(self, claim: Term | None) -> bool:
        """Whether the claim is known to be current; False if the coordinator has to confirm it.

        Raises:
            FailedPreconditionError: STALE_CLAIM.
        """
        if claim is None:  # only the coordinator has the claims
            return self.commits.is_confirmed(self._now_ms)
        if claim != self.settings.claim:
            raise FailedPreconditionError(
                Reason.STALE_CLAIM, f"task {self.settings.task} was claimed by another owner"
            )
        return True

    # --- the table ---------------------------------------------------------------------------

    _cached_table: ClassVar[TransitionTable | None] = None

    @classmethod
    def _table(cls) -> TransitionTable:
        if cls._cached_table is None:
            cls._cached_table = cls.transitions()
        return cls._cached_table

    def _no_transition(self, event: TaskEvent) -> NoTransitionError:
        recent = "\n".join(f"  {each}" for each in self._recent)
        return NoTransitionError(
            f"task {self.settings.task} got {type(event).__name__} in phase {self.phase}, which is "
            f"a defect of Drover: restart the task, and report it with these events, the last one "
            f"at the end:\n{recent}"
        )


def _short(event: TaskEvent) -> str:
    """The event in one line; without the values of plugins, whose text may be long."""
    if isinstance(event, events.OperationFailed):
        failure = event.failure
        return f"OperationFailed ({type(failure.error).__name__}, {failure.kind}, {failure.fault})"
    if isinstance(event, events.CommitAnswered):
        return f"CommitAnswered {event.number} {event.outcome}"
    return type(event).__name__


_ANYWHERE: Mapping[type[Any], Transition] = {
    events.PauseSet: TaskCore._pause_set,
    events.CommitAnswered: TaskCore._commit_answered,
    events.TransactionStepEnded: lambda core, event: core._transaction_step_ended(event),
    events.TransactionGivenUp: lambda core, event: core._transaction_given_up(event),
    events.StopRequested: TaskCore._stop_requested,
    events.Overdue: TaskCore._overdue,
    events.Abandoned: TaskCore._abandoned,
    events.InstanceReleased: TaskCore._instance_released,
}
#: The phases in which an operation may fail.
_FAILING = frozenset(Phase) - {Phase.OVER, Phase.CHECKING_CLAIM_AFTER_FAILURE}
_AFTER_FAILURE = Phase.CHECKING_CLAIM_AFTER_FAILURE
#: The transitions of every task.
_TRANSITIONS: TransitionTable = {
    **{(phase, events.OperationFailed): TaskCore._operation_failed for phase in _FAILING},
    (Phase.NEW, events.StartRequested): TaskCore._start_requested,
    (Phase.RESTING, events.StartRequested): TaskCore._start_requested,
    (Phase.RESTING, events.RunBegan): TaskCore._run_began,
    (Phase.RESTING, events.SettleRequested): TaskCore._settle_requested,
    (Phase.STOPPING_INSTANCE, events.InstanceStopped): TaskCore._instance_stopped,
    (Phase.AWAITING_COMMITS, events.CommitsAwaited): TaskCore._commits_awaited,
    (Phase.AWAITING_COMMITS, events.OperationFailed): TaskCore._stop_failed,
    (_AFTER_FAILURE, events.ClaimRead): TaskCore._claim_read_after_failure,
    (_AFTER_FAILURE, events.OperationFailed): TaskCore._claim_unknown_after_failure,
}
