"""A source task: poll, write the batch with its offsets, commit those that the write left over.

An embedded store takes records and offsets in one transaction: exactly once. On Kafka the records
are durable first, then the coordinator commits the offsets under the task's claim, and only then is
the task polled again: at least once. What a crash, a lost claim or a failed batch leaves between
the two is written again by whoever runs the task next.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from drover.backoff import Backoff
from drover.connector import (
    RetriableError,
    SourceBatch,
    SourceConnector,
    SourceTask,
    SourceTaskContext,
)
from drover.connector.offset_forms import refuse_foreign
from drover.connector.offsets import sink_offset, source_offsets
from drover.connector.settings import (
    BATCH_MAX_BYTES,
    BATCH_MAX_RECORDS,
    PARTITIONER_KEYLESS,
    POLL_INTERVAL_MS,
)
from drover.dataplane.plane import Destination, NotPublishedError, OutgoingBatch, TopicWriter
from drover.dataplane.values import ReadPlan
from drover.model.offsets import CommittedOffset
from drover_worker.engine.record_path import source_topic_creation
from drover_worker.engine.replaying import Replaying, parted_letters
from drover_worker.engine.task_runner import TaskRunner, TaskSpec, TaskTools
from drover_worker.engine.task_times import timed

_Offsets = Sequence[tuple[Mapping[str, Any], Mapping[str, Any] | None]]


@dataclass(frozen=True, slots=True)
class _Polled:
    """A batch of the task, and how far it brings the source."""

    batch: OutgoingBatch
    offsets: Sequence[CommittedOffset]
    #: The same as the task said them; None of dead letters.
    said: _Offsets | None
    started_s: float
    #: What it is of, when it is of dead letters.
    letters: ReadPlan | None = None


class SourceRunner(TaskRunner):
    """Runs a SourceTask."""

    def __init__(self, spec: TaskSpec, tools: TaskTools, *, paused: bool) -> None:
        super().__init__(spec, tools, paused=paused)
        self._creation = source_topic_creation(self._config, self._path.errors)
        self._writer: TopicWriter
        #: The batch that is not written yet; the task is polled again only after that.
        self._polled: _Polled | None = None
        #: The committed offsets that the task was not told of yet.
        self._untold: _Offsets | None = None
        #: Dead letters that are to come once more, before all else.
        self._replaying: Replaying | None = None
        first_s = self._config[POLL_INTERVAL_MS] / 1000
        longest_s = max(first_s, tools.limits.idle_poll_ms / 1000)
        #: Longer from one empty poll to the next.
        self._idle = Backoff(first_s, longest_s)

    def _start_instance(self, instance: Any, committed: Sequence[CommittedOffset]) -> None:
        kind = self.spec.connector_class
        assert issubclass(kind, SourceConnector)
        committed = self._begin_replay(committed)
        refuse_foreign(self.spec.task.connector, kind.__name__, kind.offset_forms, committed)
        self._polled, self._untold = None, None
        self._writer = self._tools.plane.writer(
            self.spec.task, self.spec.claim, abandoned=lambda: self.over
        )
        context = SourceTaskContext(
            task=self.spec.task,
            claim=self.spec.claim,
            config=self._config,
            spark=self._tools.spark,
            stopping=lambda: self.stopping,
            report=self._figures.report,
            committed=tuple(committed),
        )
        instance.start(context)

    def _begin_replay(self, committed: Sequence[CommittedOffset]) -> list[CommittedOffset]:
        """Take the dead letters up where they are; the offsets that are the source's own.

        One task has all of them.
        """
        topic = self._path.errors.dead_letter_topic
        own, replayed = parted_letters(committed, topic) if topic else (list(committed), {})
        self._replaying = None
        if self._path.replay is not None and self.spec.task.task == 0:
            self._replaying = Replaying(self._path.replay, replayed, task=0, task_count=1)
        return own

    def _replayed(self) -> _Polled | None:
        """The next letters; None when there are no more."""
        if self._replaying is None:
            return None
        started_s = time.monotonic()
        plan = self._replaying.plan(
            self._tools.plane,
            max_records=self._config[BATCH_MAX_RECORDS],
            max_bytes=self._config[BATCH_MAX_BYTES],
        )
        if plan is None:
            self._replaying = None
            return None
        rows, pipeline = self._path.replayed_source_batch(self._tools.plane, plan)
        keys = sorted({(each.topic, each.partition) for each in plan.ranges})
        offsets = [sink_offset(*key, plan.next_offsets[key]) for key in keys]
        batch = OutgoingBatch(rows, pipeline, self._destination(None))
        return _Polled(batch, offsets, None, started_s, plan)

    def _run_batch(self) -> float | None:
        self._tell_committed()
        if self._polled is None and not self._paused:
            self._polled = self._replayed()
        if self._polled is None:
            if self._paused:
                return None
            started_s = time.monotonic()
            batch = self._poll()
            if batch is None or self.over:
                return self._idle.next_pause_s()
            self._idle.reset()
            offsets = source_offsets(batch.offsets)
            self._polled = _Polled(self._outgoing(batch), offsets, batch.offsets, started_s)
        return self._write(self._polled)

    def _poll(self) -> SourceBatch | None:
        task = self._instance
        assert isinstance(task, SourceTask)
        limit_ms = self._tools.limits.poll_ms
        with self._time_limit("poll()", limit_ms), timed(self._times.polls):
            batch = task.poll()
        if batch is not None and not isinstance(batch, SourceBatch):
            raise TypeError(f"poll() must return a SourceBatch or None, not {type(batch).__name__}")
        return batch

    def _outgoing(self, batch: SourceBatch) -> OutgoingBatch:
        rows, pipeline = self._path.source_batch(batch)
        return OutgoingBatch(rows, pipeline, self._destination(batch.topic))

    def _destination(self, topic: str | None) -> Destination:
        return Destination(
            topic=topic,
            creation=self._creation,
            spread_keyless=self._config[PARTITIONER_KEYLESS] == "spread",
        )

    def _write(self, polled: _Polled) -> float | None:
        # when it fails the task object has moved on already: it starts again from the offsets
        self._restart_wanted = True
        try:
            with self._spark_jobs(), timed(self._times.writes):
                receipt = self._writer.write(polled.batch, polled.offsets)
        except NotPublishedError:
            self._restart_wanted = False  # the batch is staged: the next run writes it again
            raise
        self._restart_wanted = False
        self._polled = None
        self._tools.watcher.published()
        report = self._path.report(read_count=receipt.record_count)

        def committed() -> None:
            self._untold = polled.said
            if polled.letters is not None and self._replaying is not None:
                self._replaying.move(polled.letters)
            self._moved(report, polled.started_s, receipt.topics, receipt.size_bytes)

        if not receipt.uncommitted:
            committed()
            self._tell_committed()
            return 0
        self._commit(receipt.uncommitted, committed)
        return None

    def _tell_committed(self) -> None:
        """Tell the task that its last batch is committed."""
        offsets = self._untold
        if offsets is None:
            return
        task = self._instance
        assert isinstance(task, SourceTask)
        self._restart_wanted = True
        try:
            with self._time_limit("committed()", self._tools.limits.poll_ms):
                task.committed(offsets)
        except RetriableError:
            self._restart_wanted = False
            raise
        self._restart_wanted, self._untold = False, None
