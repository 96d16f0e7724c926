"""The core of a source task: poll, stage the batch, publish it with its offsets.

The embedded store and Kafka (ADR 0020) take records and offsets in one transaction: exactly once. A
Kafka transaction waits for brokers, so it runs on a separate thread while a task that reads ahead
stages its next batch (``publishes_apart``). With transactions disabled, the records become durable
first, then the coordinator commits the offsets under the task's claim: records without committed
offsets are written again after a crash.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar, Generic

from drover.connector.offsets import source_offsets
from drover.connector.source import SourceBatch
from drover.dataplane.plane import AbandonedError, Receipt, StagedT
from drover.dataplane.values import Placement, ReadPlan
from drover.errors import Reason, UnavailableError
from drover.model.offsets import CommittedOffset
from drover.pipeline import PassReport
from drover_worker.engine.core import events, instructions
from drover_worker.engine.core.batch_size import BatchSize
from drover_worker.engine.core.commits import Commit, DoneBatch
from drover_worker.engine.core.error_rate import TooManyErrorsError
from drover_worker.engine.core.failures import Failure, FailureKind
from drover_worker.engine.core.idle_pauses import IdlePauses
from drover_worker.engine.core.phases import Phase
from drover_worker.engine.core.publishing import Ended, Publishing, PublishingStep
from drover_worker.engine.core.staged import SourceOffsets, StagedBatch
from drover_worker.engine.core.steps import Step
from drover_worker.engine.core.task import TaskCore, TaskSettings, TransitionTable
from drover_worker.engine.core.transactions import Transaction, Transactions

#: How long a failed task waits for the transaction in progress.
_PUBLISHING_MS = 120_000
#: The rounds of a stop: the current transaction, then the gathered batches, then the end of these.
_STOP_ROUNDS = 2
#: The operations that make the next batch.
_MAKING = frozenset(
    {
        Phase.PLANNING_LETTERS,
        Phase.CHECKING_LETTERS,
        Phase.STAGING_LETTERS,
        Phase.POLLING,
        Phase.STAGING,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSettings(TaskSettings):
    """The part of a source's config that its core needs.

    Attributes:
        publishes_apart: Whether a transaction runs on a separate thread.
        reads_ahead: Whether the next batch may be polled before the last one is published.
        interval_ms: How long batches are gathered for one transaction.
        idle_first_ms: The first pause after an empty poll.
        idle_longest_ms: The longest pause after an empty poll.
    """

    publishes_apart: bool = False
    reads_ahead: bool = False
    interval_ms: int = 0
    idle_first_ms: int = 500
    idle_longest_ms: int = 1_000


class SourceCore(TaskCore, Generic[StagedT]):
    """One source task; see TaskCore.

    A batch is published with its offsets, or its offsets are committed after it: never before. A
    task object whose batch failed has already advanced, so it starts again from the committed
    offsets, unless the staged batch can be published again.
    """

    settings: SourceSettings

    def __init__(
        self, settings: SourceSettings, committed: Sequence[CommittedOffset], *, paused: bool
    ) -> None:
        super().__init__(settings, committed, paused=paused)
        self.transactions: Transactions[StagedT] = Transactions(settings.interval_ms)
        self._reads_ahead = settings.reads_ahead and not self.rate.is_set
        self._batch_size = BatchSize(settings.limits.batch_max_bytes)
        self._idle = IdlePauses(settings.idle_first_ms / 1000, settings.idle_longest_ms / 1000)
        #: Whether the last poll returned data.
        self._had_data = False
        #: The staged batch to publish on the task's thread; no other is polled before that.
        self._polled: StagedBatch[StagedT] | None = None
        #: The calls of committed() that are due.
        self._unnotified: deque[instructions.Notify] = deque()
        #: Whether there may be dead letters to replay before polling.
        self._has_letters = False
        #: The batch that is being made.
        self._batch: SourceBatch | None = None
        self._offsets: Sequence[CommittedOffset] = ()
        self._letters = ReadPlan()
        self._start_offsets: Sequence[CommittedOffset] = ()
        #: The start offsets that the source's own topic or the workers' topic does not have yet.
        self._behind: Sequence[CommittedOffset] = ()
        self._is_released = False
        self._started_ms = 0
        self._write_started_ms = 0
        self._publish_began_ms = 0
        #: Whether the calls of committed() are the last operations of the run.
        self._ends_after_notify = False
        self._stop_rounds = 0

    def validate(self) -> None:
        """See TaskCore."""
        super().validate()
        self.transactions.validate()
        assert self.commits.open_count <= 1, "a batch was published before the last commit"
        if self.settings.publishes_apart:
            assert self._polled is None, "a batch for the task's thread"
        else:
            assert self.transactions.is_idle, "a transaction on a separate thread"
        if any(isinstance(each, instructions.BeginTransaction) for each in self._out):
            failed = self.restart_wanted and self.phase not in self._RESTARTS
            assert not failed, "a batch is published before one that failed"

    # --- the start ---------------------------------------------------------------------------

    def _begin_start(self, committed: Sequence[CommittedOffset]) -> None:
        self._start_offsets = committed
        if self.transactions.is_in_progress:
            self._operate(
                Phase.AWAITING_TRANSACTION_TO_START, instructions.AwaitTransaction(_PUBLISHING_MS)
            )
        else:
            self._open_writer()

    def _awaited_to_start(self, event: events.TransactionAwaited) -> None:
        if not event.in_time:
            raise UnavailableError(
                Reason.STORAGE_UNAVAILABLE,
                "the previous transaction of the task has not ended yet",
            )
        self._open_writer()

    def _open_writer(self) -> None:
        self._drop()
        if self.settings.publishes_apart:
            self._publishing.start_over()
            self._take_step()
        else:
            self._start_at(self._start_offsets)

    @property
    def _publishing(self) -> Publishing:
        return self.transactions.publishing

    def _take_step(self) -> None:
        """Become the only one that publishes as this task, then find out where to start."""
        step = self._publishing.step
        if step is PublishingStep.FETCH:
            self._operate(Phase.FETCHING_OFFSETS, instructions.FetchOffsets())
        elif step is PublishingStep.READY:
            self._start_at(self._start_offsets)
        else:
            self._operate(Phase.TAKING_STEP, instructions.TakeStep(step, self._behind))

    def _step_taken(self, _event: events.StepTaken) -> None:
        self._publishing.ended(Ended.DONE)
        self._take_step()

    def _step_failed(self, event: events.OperationFailed) -> None:
        if self._examines:
            self._operation_failed(event)
            return
        failure = self._publishing.failed(event.failure)
        if failure is None:
            self._take_step()
        else:
            self._operation_failed(events.OperationFailed(failure))

    def _drop(self) -> None:
        """Discard unpublished batches; no transaction may be in progress."""
        if self.settings.publishes_apart:
            left = self.transactions.drop()
            if left:
                self._emit(instructions.Discard([each.staged for each in left]))

    def _offsets_fetched(self, event: events.OffsetsFetched) -> None:
        self._operate(Phase.FINDING_STARTS, instructions.FindStarts(event.offsets))

    def _starts_found(self, event: events.StartsFound) -> None:
        self._start_offsets, self._behind = event.committed, event.behind
        self._publishing.ended(Ended.DONE)
        if event.behind:
            self._publishing.begin_batch()
        self._take_step()

    def _start_at(self, committed: Sequence[CommittedOffset]) -> None:
        self._polled, self._has_letters = None, False
        self._unnotified.clear()
        self._operate(
            Phase.STARTING_INSTANCE,
            instructions.StartSource(committed, not self._is_first_start),
        )

    def _started(self, event: events.InstanceStarted) -> None:
        self._has_letters = event.has_letters
        self._instance_started()

    # --- a run -------------------------------------------------------------------------------

    def _begin_batch(self) -> None:
        self._ends_after_notify = False
        failure = self._settle_transaction()
        if failure is None:
            self._notify()
        else:
            self._failed_phase = Phase.RESTING
            self._check_claim_after(failure)

    def _notify(self) -> None:
        """Call committed() with the offsets of each committed batch, then continue."""
        if self._unnotified:
            self._operate(Phase.NOTIFYING, self._unnotified[0])
        elif self._ends_after_notify:
            self._end_run(0)
        elif self.settings.publishes_apart:
            self._run_apart()
        elif self._polled is not None:
            self._publish(self._polled)
        elif self._paused:
            self._end_run(None)
        else:
            self._make_next()

    def _notified(self, _event: events.Notified) -> None:
        self.restart_wanted = False
        self._unnotified.popleft()
        self._notify()

    def _run_apart(self) -> None:
        self._begin_transaction()  # before staging, so that both run concurrently
        transactions = self.transactions
        takes_more = not self._paused and transactions.takes_more(self._now_ms)
        if takes_more and (transactions.is_idle or self._reads_ahead):
            self._make_next()
        else:
            self._end_run_apart(None)

    def _end_run_apart(self, wait_ms: int | None, *, made: bool = False) -> None:
        transactions = self.transactions
        self._begin_transaction()
        due_ms = transactions.due_in_ms(self._now_ms)
        if made and not (transactions.takes_more(self._now_ms) and self._reads_ahead):
            wait_ms = None  # the end of a transaction wakes the task
        step = Step.WRITING if wait_ms is None and not transactions.is_idle else None
        waits_ms = [each for each in (wait_ms, due_ms) if each is not None]
        self._end_run(min(waits_ms, default=None), step)

    def _begin_transaction(self) -> None:
        """Start the next transaction if it is due, or, while paused, at once."""
        due_ms = self.transactions.due_in_ms(self._now_ms)
        if due_ms is not None and (self._paused or due_ms == 0):
            self._emit(self.transactions.begin(self._now_ms))

    # --- the next batch ----------------------------------------------------------------------

    def _make_next(self) -> None:
        if self._waits_for_rate():
            return
        self._started_ms = self._now_ms
        if self._has_letters:
            self._operate(Phase.PLANNING_LETTERS, instructions.PlanLetters())
        else:
            self._poll()

    def _letters_planned(self, event: events.LettersPlanned) -> None:
        if event.plan is None:
            self._has_letters = False
            self._poll()
            return
        self._letters = event.plan
        self._operate(Phase.CHECKING_LETTERS, instructions.CheckLetters(event.plan))

    def _letters_checked(self, _event: events.LettersChecked) -> None:
        self._write_started_ms = self._now_ms
        self._operate(
            Phase.STAGING_LETTERS,
            instructions.StageLetters(self._letters, self.settings.publishes_apart),
        )

    def _poll(self) -> None:
        records_max = self.rate.next_max_records(self.settings.limits.batch_max_records)
        self._operate(Phase.POLLING, instructions.Poll(self._batch_size.bytes, records_max))

    def _polled_batch(self, event: events.Polled) -> None:
        batch = event.batch
        if batch is None:
            self._nothing_polled()
            return
        if not isinstance(batch, SourceBatch):
            raise TypeError(f"poll() must return a SourceBatch or None, not {type(batch).__name__}")
        self._idle.reset(self._now_ms / 1000)
        self._batch = batch
        self._offsets = source_offsets(batch.offsets)
        # after a failure the task object has already advanced: restart from the committed offsets
        self._write_started_ms = self._now_ms
        self._operate(Phase.STAGING, instructions.Stage(batch, self.settings.publishes_apart))

    def _nothing_polled(self) -> None:
        if self.transactions.is_idle:
            self._recovered()
        self._had_data = False
        wait_ms = round(self._idle.next_pause_s(self._now_ms / 1000) * 1000)
        if self.settings.publishes_apart:
            self._end_run_apart(wait_ms)
        else:
            self._end_run(None if self._paused else wait_ms)

    def _batch_staged(self, event: events.Staged) -> None:
        assert self._batch is not None
        batch, self._batch = self._batch, None
        self._made(self._staged(event, self._offsets, batch.offsets))

    def _letters_staged(self, event: events.Staged) -> None:
        assert event.offsets is not None
        self._made(self._staged(event, event.offsets, None))

    def _staged(
        self,
        event: events.Staged,
        offsets: Sequence[CommittedOffset],
        task_offsets: SourceOffsets | None,
    ) -> StagedBatch[StagedT]:
        self.restart_wanted = False
        follows, self._had_data = self._had_data, True
        return StagedBatch(
            staged=event.staged,
            record_count=event.record_count,
            report=event.report,
            offsets=offsets,
            task_offsets=task_offsets,
            started_ms=self._started_ms,
            write_started_ms=self._write_started_ms,
            made_ms=self._now_ms - self._started_ms,
            follows=follows,
            snapshot=event.snapshot,
        )

    def _made(self, batch: StagedBatch[StagedT]) -> None:
        if self.settings.publishes_apart:
            self.transactions.add(batch, self._now_ms)
            self._end_run_apart(0, made=True)
        else:
            self._polled = batch
            self._publish(batch)

    # --- publishing on the task's thread -----------------------------------------------------

    def _publish(self, batch: StagedBatch[StagedT]) -> None:
        self._publish_began_ms = self._now_ms
        self._operate(Phase.PUBLISHING, instructions.Publish([batch.staged], batch.offsets))

    def _published(self, event: events.Published) -> None:
        batch, receipt = self._polled, event.receipt
        assert batch is not None
        self.restart_wanted = False
        self._polled = None
        took_ms = batch.made_ms + self._now_ms - self._publish_began_ms
        self._batch_size.took(took_ms / 1000, follows=batch.follows)
        self._emit(instructions.NoteWritten(batch.write_started_ms))
        self._emit(instructions.WakeReaders())
        done = _done(batch, event.report, receipt, receipt.size_bytes)
        if receipt.uncommitted:
            self._commit(receipt.uncommitted, batch=done)
            self._end_run(None)
            return
        self._batch_done(done, receipt.placement)
        self._ends_after_notify = True
        self._notify()

    def _commit_done(self, commit: Commit) -> None:
        assert commit.batch is not None
        self._batch_done(commit.batch)

    def _batch_done(
        self, done: DoneBatch, placement: Placement | None = None, batch_count: int = 1
    ) -> None:
        batch = done.staged
        assert batch is not None
        if batch.task_offsets is not None:
            self._unnotified.append(instructions.Notify(batch.task_offsets, placement, batch_count))
        self._emit(instructions.NoteSnapshot(batch.snapshot, done.report.read_count))
        self._moved(done)

    # --- publishing on a separate thread -----------------------------------------------------

    def _transaction_step_ended(self, event: events.TransactionStepEnded) -> None:
        number = event.number
        try:
            following = self.transactions.step_ended(
                number, event.receipt, event.failure, self._now_ms
            )
        except KeyError:
            raise self._no_transition(event) from None
        if following is not None and not self.is_over:
            self._emit(following)
            return
        if following is not None:  # the records of an abandoned task do not become visible
            error = AbandonedError(f"task {self.settings.task} was abandoned")
            self.transactions.give_up(number, Failure(error=error), self._now_ms)
        self._transaction_ended()

    def _transaction_given_up(self, event: events.TransactionGivenUp) -> None:
        self.transactions.give_up(event.number, event.failure, self._now_ms)
        self._transaction_ended()

    def _transaction_ended(self) -> None:
        self._emit(instructions.Wake())
        if self._is_released:
            self._release()

    def _settle_transaction(self) -> Failure | None:
        """Process the end of the current transaction; the failure of a failed one.

        The task object starts again then, unless the staged batches can be published again.

        Raises:
            TooManyErrorsError: As ``_moved``.
        """
        ended = self.transactions.settle()
        if ended is None:
            return None
        if ended.failure is not None:
            is_staged = ended.failure.kind is FailureKind.NOT_PUBLISHED
            self.restart_wanted = self.restart_wanted or not is_staged
            return ended.failure
        self._count_transaction(ended)
        return None

    def _count_transaction(self, ended: Transaction[StagedT]) -> None:
        receipt = ended.receipt
        assert receipt is not None
        self._emit(instructions.WakeReaders())
        took_ms = (ended.ended_ms - ended.began_ms) / len(ended.batches)
        size_bytes = receipt.size_bytes  # total of all batches
        placement = receipt.placement
        too_many: TooManyErrorsError | None = None
        if any(batch.task_offsets is None for batch in ended.batches):
            placement = None  # records of a replay are among them
        for batch in ended.batches:
            assert batch.report is not None
            self._batch_size.took(max(batch.made_ms, took_ms) / 1000, follows=batch.follows)
            self._emit(instructions.NoteWritten(batch.write_started_ms))
            done = _done(batch, batch.report, receipt, size_bytes)
            try:
                self._batch_done(done, placement, len(ended.batches))
            except TooManyErrorsError as error:
                too_many = error  # raised when all are counted
            size_bytes, placement = 0, None
        if too_many is not None:
            raise too_many

    # --- failures ----------------------------------------------------------------------------

    def _react(self, failure: Failure) -> None:
        """Settle the batches staged before the failed one, so that they are not repeated."""
        if not self.settings.publishes_apart or self._failed_phase not in _MAKING:
            super()._react(failure)
            return
        self._failure = failure
        if self.transactions.is_in_progress:
            self._operate(
                Phase.AWAITING_TRANSACTION_AFTER_FAILURE,
                instructions.AwaitTransaction(_PUBLISHING_MS),
            )
        else:
            self._settle_after_failure()

    def _awaited_after_failure(self, event: events.TransactionAwaited) -> None:
        if event.in_time:
            self._settle_after_failure()
        else:
            self._check_claim_after(self._held_failure())

    def _settle_after_failure(self) -> None:
        failure = self._held_failure()
        ended = self._settle_transaction()
        # an outage of the brokers hides no failure of the batch that could not be made: the task
        # object may have advanced
        is_worse = ended is not None and ended.is_final and not failure.is_final
        self._check_claim_after(ended if ended is not None and is_worse else failure)

    # --- the end -----------------------------------------------------------------------------

    def _begin_stop(self) -> None:
        if not self.settings.publishes_apart:
            super()._begin_stop()
            return
        self._stop_rounds = 0
        self._await_to_stop()

    def _await_to_stop(self) -> None:
        self._operate(Phase.AWAITING_TRANSACTION_TO_STOP, instructions.AwaitTransaction(None))

    def _awaited_to_stop(self, event: events.TransactionAwaited) -> None:
        if not event.in_time or self._stop_rounds == _STOP_ROUNDS:
            self._end_stop(event.in_time)
            return
        self._stop_rounds += 1
        failure: Failure | None = None
        with suppress(TooManyErrorsError):  # the task ends, whatever else is found
            failure = self._settle_transaction()
        # later batches are not published before one that failed: its records would be lost
        if failure is not None or self.restart_wanted:
            self._end_stop(True)
            return
        if self.transactions.due_in_ms(self._now_ms) is not None:
            self._emit(self.transactions.begin(self._now_ms))
        self._await_to_stop()

    def _end_stop(self, in_time: bool) -> None:
        """Acknowledge what was committed since the last run, then end the stop."""
        self._settle_last_commits()
        if in_time and self._unnotified and not self.is_over:
            self._operate(Phase.NOTIFYING_AT_STOP, self._unnotified.popleft())
        else:
            super()._end_stop(in_time)

    def _notified_at_stop(self, _event: events.Notified) -> None:
        self._end_stop(True)

    def _notify_failed_at_stop(self, event: events.OperationFailed) -> None:
        self._unnotified.clear()
        self._stop_failed(event, in_time=True)

    def _release(self) -> None:
        self._is_released = True
        if self.settings.publishes_apart and not self.transactions.is_in_progress:
            self._drop()
            self._emit(instructions.CloseWriter())

    _OWN_TRANSITIONS: ClassVar[TransitionTable] = {
        (Phase.AWAITING_TRANSACTION_TO_START, events.TransactionAwaited): _awaited_to_start,
        (Phase.TAKING_STEP, events.StepTaken): _step_taken,
        (Phase.TAKING_STEP, events.OperationFailed): _step_failed,
        (Phase.FETCHING_OFFSETS, events.OffsetsFetched): _offsets_fetched,
        (Phase.FINDING_STARTS, events.StartsFound): _starts_found,
        (Phase.STARTING_INSTANCE, events.InstanceStarted): _started,
        (Phase.NOTIFYING, events.Notified): _notified,
        (Phase.PLANNING_LETTERS, events.LettersPlanned): _letters_planned,
        (Phase.CHECKING_LETTERS, events.LettersChecked): _letters_checked,
        (Phase.STAGING_LETTERS, events.Staged): _letters_staged,
        (Phase.POLLING, events.Polled): _polled_batch,
        (Phase.STAGING, events.Staged): _batch_staged,
        (Phase.PUBLISHING, events.Published): _published,
        (Phase.AWAITING_TRANSACTION_AFTER_FAILURE, events.TransactionAwaited): (
            _awaited_after_failure
        ),
        (Phase.AWAITING_TRANSACTION_TO_STOP, events.TransactionAwaited): _awaited_to_stop,
        (Phase.AWAITING_TRANSACTION_TO_STOP, events.OperationFailed): TaskCore._stop_failed,
        (Phase.NOTIFYING_AT_STOP, events.Notified): _notified_at_stop,
        (Phase.NOTIFYING_AT_STOP, events.OperationFailed): _notify_failed_at_stop,
    }
    _BEFORE_INSTANCE: ClassVar[frozenset[Phase]] = frozenset(
        {
            Phase.AWAITING_TRANSACTION_TO_START,
            Phase.TAKING_STEP,
            Phase.FETCHING_OFFSETS,
            Phase.FINDING_STARTS,
        }
    )
    _RESTARTS: ClassVar[Mapping[Phase, frozenset[FailureKind]]] = {
        Phase.NOTIFYING: frozenset({FailureKind.RETRIABLE}),
        Phase.STAGING_LETTERS: frozenset(),
        Phase.STAGING: frozenset(),
        Phase.PUBLISHING: frozenset({FailureKind.NOT_PUBLISHED}),
    }


def _done(
    batch: StagedBatch[StagedT], report: PassReport, receipt: Receipt, size_bytes: int
) -> DoneBatch:
    return DoneBatch(
        report=report,
        started_ms=batch.started_ms,
        topics=receipt.topics,
        size_bytes=size_bytes,
        staged=batch,
    )
