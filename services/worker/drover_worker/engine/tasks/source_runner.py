"""Runs a source task: executes what its core decides about polls, batches and transactions."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from drover.connector import SourceBatch, SourceConnector, SourceTask, SourceTaskContext
from drover.connector.exactly_once_settings import (
    INTERVAL,
    TRANSACTION_BOUNDARY,
    TRANSACTION_BOUNDARY_INTERVAL_MS,
)
from drover.connector.offset_forms import refuse_foreign
from drover.connector.offsets import sink_offset
from drover.connector.settings import (
    BATCH_MAX_BYTES,
    BATCH_MAX_RECORDS,
    PARTITIONER_KEYLESS,
    POLL_INTERVAL_MS,
    SPREAD,
)
from drover.connector.topic_settings import source_topic_creation
from drover.dataplane.plane import Destination, OutgoingBatch, Receipt, TransactionalWriter
from drover.dataplane.topic_creation import TopicCreation
from drover.model.config import OFFSETS_TOPIC_SETTING
from drover.model.letter_states import replay_progress
from drover.model.offsets import CommittedOffset
from drover.model.sink_outputs import SinkMetadata
from drover_worker.engine.core import events, instructions
from drover_worker.engine.core.events import TaskEvent
from drover_worker.engine.core.publishing import PublishingStep
from drover_worker.engine.core.source import SourceCore, SourceSettings
from drover_worker.engine.core.steps import Step
from drover_worker.engine.core.task import TaskCore
from drover_worker.engine.plugins.threads import Outcome, Raised, Returned
from drover_worker.engine.tasks.record_path import check_creation, copies_creation
from drover_worker.engine.tasks.replay_check import ReplayCheck
from drover_worker.engine.tasks.replaying import Replaying, split_replay_offsets
from drover_worker.engine.tasks.task_runner import (
    CLAIM_CHECK_S,
    Execution,
    TaskRunner,
    TaskSpec,
    TaskTools,
)
from drover_worker.engine.tasks.task_times import since, timed

#: Longer than every timeout within a transaction.
_TRANSACTION_MS = 300_000


class SourceRunner(TaskRunner):
    """Runs a SourceTask."""

    _core: SourceCore[Any]
    _core_class: ClassVar[type[SourceCore[Any]]] = SourceCore

    def __init__(self, spec: TaskSpec, tools: TaskTools, *, paused: bool) -> None:
        super().__init__(spec, tools, paused=paused)
        self._creation = source_topic_creation(self._config, self._path.errors)
        #: The config for the task object, with the size limits of its next batch.
        self._task_config = dict(self._config)
        #: Dead letters to replay before polling.
        self._replaying: Replaying | None = None
        self._replay_check: ReplayCheck | None = None

    @property
    def _transactional(self) -> TransactionalWriter[Any]:
        assert isinstance(self._writer, TransactionalWriter)
        return self._writer

    def _make_core(self, *, paused: bool) -> TaskCore:
        spec, config, tools = self.spec, self._config, self._tools
        self._writer = tools.plane.writer(
            spec.task,
            spec.claim,
            abandoned=lambda: self.over,
            check_claim=lambda: self._calls.write_claim(CLAIM_CHECK_S),
            offsets_topic=config[OFFSETS_TOPIC_SETTING] or "",
        )
        kind = spec.connector_class
        assert issubclass(kind, SourceConnector)
        reads_ahead = kind.task_class.reads_ahead
        has_rate = bool(self._limits.rate_max_records or self._limits.rate_max_bytes)
        gathers = reads_ahead and not has_rate and config[TRANSACTION_BOUNDARY] == INTERVAL
        first_ms = config[POLL_INTERVAL_MS]
        settings = SourceSettings(
            task=spec.task,
            claim=spec.claim,
            errors=self._path.errors,
            limits=self._limits,
            publishes_apart=isinstance(self._writer, TransactionalWriter),
            reads_ahead=reads_ahead,
            interval_ms=config[TRANSACTION_BOUNDARY_INTERVAL_MS] if gathers else 0,
            idle_first_ms=first_ms,
            idle_longest_ms=max(first_ms, tools.limits.idle_poll_ms),
        )
        return self._core_class(settings, spec.committed, paused=paused)

    @property
    def _task(self) -> SourceTask:
        assert isinstance(self._instance, SourceTask)
        return self._instance

    # --- the start ---------------------------------------------------------------------------

    def _take_step(self, instruction: instructions.TakeStep) -> TaskEvent:
        self._take(instruction.step, (), instruction.offsets)
        return events.StepTaken()

    def _find_starts(self, instruction: instructions.FindStarts) -> TaskEvent:
        found = self._transactional.starts(instruction.committed)
        return events.StartsFound(found.committed, found.behind)

    def _start_source(self, instruction: instructions.StartSource) -> TaskEvent:
        def start(task: SourceTask) -> None:
            kind = self.spec.connector_class
            assert issubclass(kind, SourceConnector)
            check_creation(self._creation, self._tools.plane)
            committed = self._begin_replay(instruction.committed)
            refuse_foreign(self.spec.task.connector, kind.__name__, kind.offset_forms, committed)
            self._activity.report_snapshot(None)
            task.start(
                SourceTaskContext(
                    task=self.spec.task,
                    claim=self.spec.claim,
                    config=self._task_config,
                    spark=self._tools.spark,
                    stopping=lambda: self.stopping,
                    report=self._figures.report,
                    report_snapshot=self._activity.report_snapshot,
                    committed=tuple(committed),
                    commits_with_records=self._writer.commits_with_records,
                )
            )

        self._new_instance(start, is_restart=instruction.is_restart)
        return events.InstanceStarted(has_letters=self._replaying is not None)

    def _begin_replay(self, committed: Sequence[CommittedOffset]) -> list[CommittedOffset]:
        """Resume the replay of dead letters; returns the source's own offsets.

        Task 0 replays all of them.
        """
        topic = self._path.errors.dead_letter_topic
        own, letters = split_replay_offsets(committed, topic) if topic else (list(committed), [])
        self._replaying, replay = None, self._path.replay
        if replay is not None and self.spec.task.task == 0:
            progress = replay_progress(letters, replay.topic, replay.topic_id)
            self._replaying = Replaying.in_topic(
                replay, self._tools.plane, progress, task=0, task_count=1
            )
            self._replay_check = ReplayCheck.begun(
                replay, self.spec, self._config, self._tools, self._path
            )
        return own

    # --- batches -----------------------------------------------------------------------------

    def _notify(self, instruction: instructions.Notify) -> TaskEvent:
        with self._time_limit("committed()", self._tools.limits.poll_ms):
            if instruction.placement is not None:
                self._task.placed(instruction.placement, instruction.batch_count)
            self._task.committed(instruction.offsets)
        return events.Notified()

    def _plan_letters(self, _instruction: instructions.PlanLetters) -> TaskEvent:
        assert self._replaying is not None
        plan = self._replaying.plan(
            self._tools.plane,
            max_records=self._config[BATCH_MAX_RECORDS],
            max_bytes=self._config[BATCH_MAX_BYTES],
        )
        return events.LettersPlanned(plan)

    def _check_letters(self, instruction: instructions.CheckLetters) -> TaskEvent:
        if self._replay_check is not None:
            with self._spark_jobs():
                self._replay_check.refuse(instruction.plan)
        return events.LettersChecked()

    def _stage_letters(self, instruction: instructions.StageLetters) -> TaskEvent:
        replaying, plan = self._replaying, instruction.plan
        assert replaying is not None
        rows, pipeline = self._path.replayed_source_batch(self._tools.plane, plan)
        keys = sorted({(each.topic, each.partition) for each in plan.ranges})
        progress = SinkMetadata(output=replaying.output).text
        offsets = [sink_offset(*key, plan.next_offsets[key], progress) for key in keys]
        batch = OutgoingBatch(rows, pipeline, self._destination(None))
        staged = self._staged(batch, offsets, is_counted=instruction.is_counted)
        replaying.move(plan)
        return staged

    def _poll(self, instruction: instructions.Poll) -> TaskEvent:
        self._task_config[BATCH_MAX_BYTES] = instruction.max_bytes
        self._task_config[BATCH_MAX_RECORDS] = instruction.max_records
        with (
            self._time_limit("poll()", self._tools.limits.poll_ms),
            timed(self._times.polls),
        ):
            return events.Polled(self._task.poll())

    def _stage(self, instruction: instructions.Stage) -> TaskEvent:
        batch = self._outgoing(instruction.batch)
        return self._staged(batch, None, is_counted=instruction.is_counted)

    def _outgoing(self, batch: SourceBatch) -> OutgoingBatch:
        rows, pipeline = self._path.source_batch(batch)
        creation = copies_creation(self._creation, batch, self._config, self._tools.plane)
        return OutgoingBatch(rows, pipeline, self._destination(batch.topic, creation))

    def _destination(self, topic: str | None, creation: TopicCreation | None = None) -> Destination:
        return Destination(
            topic=topic,
            creation=creation or self._creation,
            spread_keyless=self._config[PARTITIONER_KEYLESS] == SPREAD,
        )

    def _staged(
        self,
        batch: OutgoingBatch,
        offsets: Sequence[CommittedOffset] | None,
        *,
        is_counted: bool,
    ) -> TaskEvent:
        snapshot = self._activity.snapshot
        with self._spark_jobs(passes_only=True):
            staged = self._writer.stage(batch)
        count = staged.record_count if is_counted else 0
        report = self._path.report(read_count=count) if is_counted else None
        return events.Staged(staged, count, report, offsets, snapshot)

    # --- publishing --------------------------------------------------------------------------

    def _publish(self, instruction: instructions.Publish) -> TaskEvent | None:
        assert not isinstance(self._writer, TransactionalWriter)
        with self._spark_jobs():
            receipt = self._writer.publish(instruction.staged, instruction.offsets)
        return events.Published(receipt, self._path.report(read_count=receipt.record_count))

    def _begin_transaction(self, instruction: instructions.BeginTransaction) -> None:
        self._tools.threads.run(
            f"publish:{self.spec.task}",
            lambda: self._run_transaction(instruction),
            limit_ms=_TRANSACTION_MS,
            on_done=lambda outcome: self._transaction_ended(instruction.number, outcome),
            key=self.spec.task,
        )

    def _run_transaction(self, begun: instructions.BeginTransaction) -> None:
        """Take step after step, as the core decides."""
        step: PublishingStep | None = begun.step
        while step is not None:
            event, step = self._step_ended(begun, step), None
            for instruction in self._step(event):
                if isinstance(instruction, instructions.ContinueTransaction):
                    step = instruction.step
                else:
                    self._execute(instruction)

    def _step_ended(
        self, begun: instructions.BeginTransaction, step: PublishingStep
    ) -> events.TransactionStepEnded:
        try:
            receipt = self._take(step, begun.staged, begun.offsets)
        except BaseException as error:  # noqa: BLE001 - the core decides
            return events.TransactionStepEnded(begun.number, failure=self._failure(error))
        return events.TransactionStepEnded(begun.number, receipt)

    def _take(
        self, step: PublishingStep, staged: Sequence[Any], offsets: Sequence[CommittedOffset]
    ) -> Receipt | None:
        """Take a step of the writer; a commit returns what was published."""
        writer = self._transactional
        match step:
            case PublishingStep.INIT:
                writer.init()
            case PublishingStep.CHECK_CLAIM:
                writer.check_claim()
            case PublishingStep.PRODUCE:
                writer.produce(staged)
            case PublishingStep.ADD_OFFSETS:
                writer.add_offsets(offsets)
            case PublishingStep.COMMIT:
                writer.commit()
                return writer.published(staged)
            case _:
                raise AssertionError(f"{step} is not a step of the writer")
        return None

    def _transaction_ended(self, number: int, outcome: Outcome) -> None:
        if isinstance(outcome, Returned):
            return
        if isinstance(outcome, Raised):
            error = outcome.error
        else:
            error = TimeoutError(f"a batch was not published within {_TRANSACTION_MS // 1000} s")
        self._deliver(events.TransactionGivenUp(number, self._failure(error)))

    def _await_transaction(self, instruction: instructions.AwaitTransaction) -> TaskEvent:
        limit_ms, transactions = instruction.limit_ms, self._core.transactions
        limit_s = self._stop_left_s if limit_ms is None else limit_ms / 1000
        in_time = self._wait_until(lambda: not transactions.is_in_progress, limit_s)
        return events.TransactionAwaited(in_time)

    def _discard(self, instruction: instructions.Discard) -> None:
        self._writer.discard(instruction.staged)

    def _close_writer(self, _instruction: instructions.CloseWriter) -> None:
        self._writer.close()

    def _note_written(self, instruction: instructions.NoteWritten) -> None:
        self._times.writes.add(since(instruction.began_ms))

    def _wake_readers(self, _instruction: instructions.WakeReaders) -> None:
        self._tools.watcher.published()

    def _note_snapshot(self, instruction: instructions.NoteSnapshot) -> None:
        self._activity.batch_written(instruction.snapshot, instruction.record_count)

    _JOB_STEP = Step.CONVERTING
    _STEPS: ClassVar[Mapping[type[Any], Step]] = {
        instructions.StopInstance: Step.STARTING,
        instructions.Notify: Step.NOTIFYING,
        instructions.Poll: Step.POLLING,
        instructions.StageLetters: Step.CONVERTING,
        instructions.Stage: Step.CONVERTING,
        instructions.Publish: Step.WRITING,
    }
    _OWN_EXECUTIONS: ClassVar[Mapping[type[Any], Execution]] = {
        instructions.TakeStep: _take_step,
        instructions.FindStarts: _find_starts,
        instructions.StartSource: _start_source,
        instructions.Notify: _notify,
        instructions.PlanLetters: _plan_letters,
        instructions.CheckLetters: _check_letters,
        instructions.StageLetters: _stage_letters,
        instructions.Poll: _poll,
        instructions.Stage: _stage,
        instructions.Publish: _publish,
        instructions.BeginTransaction: _begin_transaction,
        instructions.AwaitTransaction: _await_transaction,
        instructions.Discard: _discard,
        instructions.CloseWriter: _close_writer,
        instructions.NoteWritten: _note_written,
        instructions.WakeReaders: _wake_readers,
        instructions.NoteSnapshot: _note_snapshot,
    }
