"""Runs a source task: poll, stage the batch, publish it with its offsets.

The embedded store and Kafka (ADR 0020) take records and offsets in one transaction: exactly once. A
Kafka transaction waits for brokers, so it runs on a separate thread while a task that reads ahead
stages its next batch. With transactions disabled, the records become durable first, then the
coordinator commits the offsets under the task's claim: records without committed offsets are
written again after a crash.
"""

import time
from collections import deque
from collections.abc import Collection, Sequence
from typing import Any

from drover.connector import (
    RetriableError,
    SourceBatch,
    SourceConnector,
    SourceTask,
    SourceTaskContext,
)
from drover.connector.exactly_once_settings import (
    INTERVAL,
    TRANSACTION_BOUNDARY,
    TRANSACTION_BOUNDARY_INTERVAL_MS,
)
from drover.connector.offset_forms import refuse_foreign
from drover.connector.offsets import sink_offset, source_offsets
from drover.connector.settings import (
    BATCH_MAX_BYTES,
    BATCH_MAX_RECORDS,
    PARTITIONER_KEYLESS,
    POLL_INTERVAL_MS,
)
from drover.connector.topic_settings import source_topic_creation
from drover.dataplane.plane import Destination, NotPublishedError, OutgoingBatch
from drover.dataplane.topic_creation import TopicCreation
from drover.errors import Reason, UnavailableError
from drover.model.config import OFFSETS_TOPIC_SETTING
from drover.model.letter_states import replay_progress
from drover.model.offsets import CommittedOffset
from drover.model.sink_outputs import SinkMetadata
from drover.pipeline import PassReport
from drover_worker.engine.tasks.activity import Step
from drover_worker.engine.tasks.batch_size import BatchSize
from drover_worker.engine.tasks.idle_pauses import IdlePauses
from drover_worker.engine.tasks.publisher import (
    GatheredBatch,
    Publisher,
    SourceOffsets,
    StagedBatch,
)
from drover_worker.engine.tasks.record_path import check_creation, copies_creation
from drover_worker.engine.tasks.replay_check import ReplayCheck
from drover_worker.engine.tasks.replaying import Replaying, split_replay_offsets
from drover_worker.engine.tasks.task_runner import CLAIM_CHECK_S, TaskRunner, TaskSpec, TaskTools
from drover_worker.engine.tasks.task_times import timed

#: How long a failed task waits for the transaction in progress.
_PUBLISHING_S = 120.0


class SourceRunner(TaskRunner):
    """Runs a SourceTask."""

    def __init__(self, spec: TaskSpec, tools: TaskTools, *, paused: bool) -> None:
        super().__init__(spec, tools, paused=paused)
        self._creation = source_topic_creation(self._config, self._path.errors)
        self._writer = tools.plane.writer(
            spec.task,
            spec.claim,
            abandoned=lambda: self.over,
            check_claim=lambda: self._commits.write_claim(CLAIM_CHECK_S),
            offsets_topic=self._config[OFFSETS_TOPIC_SETTING] or "",
        )
        self._batch_size = BatchSize(self._config[BATCH_MAX_BYTES])
        #: The config for the task object, with the size limits of its next batch.
        self._task_config = dict(self._config)
        #: Whether the last poll returned data.
        self._had_data = False
        #: The staged batch to publish; the task is not polled again before that.
        self._polled: StagedBatch | None = None
        #: Offsets of committed batches for which committed() has not been called.
        self._unnotified: deque[SourceOffsets] = deque()
        #: Dead letters to replay before polling.
        self._replaying: Replaying | None = None
        self._replay_check: ReplayCheck | None = None
        first_s = self._config[POLL_INTERVAL_MS] / 1000
        self._idle = IdlePauses(first_s, max(first_s, tools.limits.idle_poll_ms / 1000))
        kind = spec.connector_class
        assert issubclass(kind, SourceConnector)
        self._reads_ahead = kind.task_class.reads_ahead and not self._rate.is_set
        self._publisher: Publisher | None = None
        if self._writer.publishes_apart:
            gathers = self._reads_ahead and self._config[TRANSACTION_BOUNDARY] == INTERVAL
            interval_s = self._config[TRANSACTION_BOUNDARY_INTERVAL_MS] / 1000
            self._publisher = Publisher(
                self._writer,
                tools.threads,
                task=spec.task,
                wake=self._wake,
                interval_s=interval_s if gathers else 0.0,
            )

    def _position(self, committed: Sequence[CommittedOffset]) -> Sequence[CommittedOffset]:
        if self._publisher is not None:
            if not self._publisher.wait(_PUBLISHING_S):
                raise UnavailableError(
                    Reason.STORAGE_UNAVAILABLE,
                    "the previous transaction of the task has not ended yet",
                )
            self._publisher.drop()
        if self._writer.open():
            committed = self._commits.fetch(CLAIM_CHECK_S)
        return self._writer.opened(committed)

    def _release(self) -> None:
        if self._publisher is not None and self._publisher.wait(0):
            self._publisher.drop()
            self._writer.close()

    def _start_instance(self, instance: Any, committed: Sequence[CommittedOffset]) -> None:
        kind = self.spec.connector_class
        assert issubclass(kind, SourceConnector)
        check_creation(self._creation, self._tools.plane)
        committed = self._begin_replay(committed)
        refuse_foreign(self.spec.task.connector, kind.__name__, kind.offset_forms, committed)
        self._polled = None
        self._unnotified.clear()
        self._activity.report_snapshot(None)
        context = SourceTaskContext(
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
        instance.start(context)

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

    def _stage_dead_letters(self, started_s: float) -> StagedBatch | None:
        """The next dead letters, staged; None when all are replayed."""
        replaying = self._replaying
        if replaying is None:
            return None
        plan = replaying.plan(
            self._tools.plane,
            max_records=self._config[BATCH_MAX_RECORDS],
            max_bytes=self._config[BATCH_MAX_BYTES],
        )
        if plan is None:
            self._replaying = None
            return None
        if self._replay_check is not None:
            with self._spark_jobs():
                self._replay_check.refuse(plan)
        rows, pipeline = self._path.replayed_source_batch(self._tools.plane, plan)
        keys = sorted({(each.topic, each.partition) for each in plan.ranges})
        progress = SinkMetadata(output=replaying.output).text
        offsets = [sink_offset(*key, plan.next_offsets[key], progress) for key in keys]
        batch = OutgoingBatch(rows, pipeline, self._destination(None))
        staged = self._staged(batch, offsets, None, started_s)
        replaying.move(plan)
        return staged

    def _run_batch(self) -> float | None:
        if self._publisher is not None:
            return self._run_apart(self._publisher)
        self._notify_committed()
        if self._polled is None:
            polled = None if self._paused else self._stage_next()
            if polled is None:
                return None if self._paused else self._idle.next_pause_s(time.monotonic())
            self._polled = polled
        return self._publish(self._polled)

    def _stage_next(self) -> StagedBatch | None:
        """The next dead letters or polled batch, staged; None when there is neither."""
        started_s = time.monotonic()
        letters = self._stage_dead_letters(started_s)
        if letters is not None:
            return letters
        batch = self._poll()
        # with a batch, the retries end when it is committed
        if batch is None and (self._publisher is None or self._publisher.is_idle):
            self._recovered()
        elif batch is None:
            self._retrying_since_s = None
        if batch is None or self.over:
            self._had_data = False
            return None
        self._idle.reset(time.monotonic())
        offsets = source_offsets(batch.offsets)
        return self._staged(self._outgoing(batch), offsets, batch.offsets, started_s)

    def _staged(
        self,
        batch: OutgoingBatch,
        offsets: Sequence[CommittedOffset],
        task_offsets: SourceOffsets | None,
        started_s: float,
    ) -> StagedBatch:
        # after a failure the task object has already advanced: restart from the committed offsets
        self._restart_wanted = True
        self._activity.enter(Step.CONVERTING)
        snapshot = self._activity.snapshot
        write_started_s = time.monotonic()
        with self._spark_jobs(passes_only=True):
            staged = self._writer.stage(batch)
        self._restart_wanted = False
        made_s = time.monotonic() - started_s
        follows, self._had_data = self._had_data, True
        return StagedBatch(
            staged, offsets, task_offsets, started_s, write_started_s, made_s, follows, snapshot
        )

    def _poll(self) -> SourceBatch | None:
        task = self._instance
        assert isinstance(task, SourceTask)
        limit_ms = self._tools.limits.poll_ms
        self._task_config[BATCH_MAX_BYTES] = self._batch_size.bytes
        records_max = self._rate.next_max_records(self._config[BATCH_MAX_RECORDS])
        self._task_config[BATCH_MAX_RECORDS] = records_max
        self._activity.enter(Step.POLLING)
        with self._time_limit("poll()", limit_ms), timed(self._times.polls):
            batch = task.poll()
        if batch is not None and not isinstance(batch, SourceBatch):
            raise TypeError(f"poll() must return a SourceBatch or None, not {type(batch).__name__}")
        return batch

    def _outgoing(self, batch: SourceBatch) -> OutgoingBatch:
        rows, pipeline = self._path.source_batch(batch)
        creation = copies_creation(self._creation, batch, self._config, self._tools.plane)
        return OutgoingBatch(rows, pipeline, self._destination(batch.topic, creation))

    def _destination(self, topic: str | None, creation: TopicCreation | None = None) -> Destination:
        return Destination(
            topic=topic,
            creation=creation or self._creation,
            spread_keyless=self._config[PARTITIONER_KEYLESS] == "spread",
        )

    def _publish(self, polled: StagedBatch) -> float | None:
        self._restart_wanted = True
        self._activity.enter(Step.WRITING)
        began_s = time.monotonic()
        try:
            with self._spark_jobs():
                receipt = self._writer.publish([polled.staged], polled.offsets)
        except NotPublishedError:
            self._restart_wanted = False  # the batch is staged: the next run retries the publish
            raise
        self._restart_wanted = False
        self._polled = None
        now_s = time.monotonic()
        self._times.writes.add(now_s - polled.write_started_s)
        self._batch_size.took(polled.made_s + now_s - began_s, follows=polled.follows)
        self._tools.watcher.published()
        report = self._path.report(read_count=receipt.record_count)

        def committed() -> None:
            self._note_committed(polled, report, receipt.topics, receipt.size_bytes)

        if not receipt.uncommitted:
            committed()
            self._notify_committed()
            return 0
        self._commit(receipt.uncommitted, committed)
        return None

    def _note_committed(
        self, batch: StagedBatch, report: PassReport, topics: Collection[str], size_bytes: int
    ) -> None:
        if batch.task_offsets is not None:
            self._unnotified.append(batch.task_offsets)
        self._activity.batch_written(batch.snapshot, report.read_count)
        self._moved(report, batch.started_s, topics, size_bytes)

    def _notify_committed(self) -> None:
        """Call committed() with the offsets of each committed batch."""
        task = self._instance
        assert isinstance(task, SourceTask)
        while self._unnotified:
            self._restart_wanted = True
            self._activity.enter(Step.NOTIFYING)
            try:
                with self._time_limit("committed()", self._tools.limits.poll_ms):
                    task.committed(self._unnotified[0])
            except RetriableError:
                self._restart_wanted = False
                raise
            self._restart_wanted = False
            self._unnotified.popleft()

    def _run_apart(self, publisher: Publisher) -> float | None:
        self._settle(publisher)
        self._notify_committed()
        publisher.publish(at_once=self._paused)  # before staging, so that both run concurrently
        made, wait_s = False, None
        if not self._paused and publisher.takes_more and (publisher.is_idle or self._reads_ahead):
            try:
                made = self._make_next(publisher)
            except BaseException:
                self._settle_before_restart(publisher)
                raise
            wait_s = 0.0 if made else self._idle.next_pause_s(time.monotonic())
        due_s = publisher.publish(at_once=self._paused)
        if made and not (publisher.takes_more and self._reads_ahead):
            wait_s = None  # the end of a transaction wakes the task
        if wait_s is None and not publisher.is_idle:
            self._wait_step = Step.WRITING
        waits_s = [each for each in (wait_s, due_s) if each is not None]
        return min(waits_s, default=None)

    def _make_next(self, publisher: Publisher) -> bool:
        made = self._stage_next()
        if made is None:
            return False
        count = made.staged.record_count
        publisher.add(GatheredBatch(made, count, self._path.report(read_count=count)))
        return True

    def _settle_before_restart(self, publisher: Publisher) -> None:
        """Settle the batches staged before the failed one, so that they are not repeated."""
        wanted = self._restart_wanted
        try:
            if publisher.wait(_PUBLISHING_S):
                self._settle(publisher)
        finally:
            # even if the previous batch must be published again: the task object has advanced
            self._restart_wanted |= wanted

    def _settle(self, publisher: Publisher) -> None:
        self._restart_wanted = True
        try:
            settled = publisher.settle()
        except NotPublishedError:
            self._restart_wanted = False  # the batch is staged: the next run retries the publish
            raise
        self._restart_wanted = False
        if settled is None:
            return
        receipt = settled.receipt
        self._tools.watcher.published()
        size_bytes = receipt.size_bytes  # total of all batches
        for each in settled.batches:
            took_s = max(each.batch.made_s, settled.took_s)
            self._batch_size.took(took_s, follows=each.batch.follows)
            self._times.writes.add(time.monotonic() - each.batch.write_started_s)
            self._note_committed(each.batch, each.report, receipt.topics, size_bytes)
            size_bytes = 0

    def _wait_settled(self, limit_s: float) -> bool:
        publisher = self._publisher
        if publisher is None:
            return super()._wait_settled(limit_s)
        deadline_s = time.monotonic() + limit_s
        for _ in range(2):  # the current transaction, then the gathered batches
            if not publisher.wait(deadline_s - time.monotonic()):
                return False
            try:
                self._settle(publisher)
            except Exception:  # noqa: BLE001 - the task's next run repeats the batch
                return True
            publisher.publish(at_once=True)
        return publisher.wait(deadline_s - time.monotonic())
