"""A source task: poll, stage on executors, publish; offsets with the records, or after them.

An embedded store takes records and offsets in one transaction: exactly once. On Kafka the records
are durable first, then the coordinator commits the offsets under the task's claim, and only then is
the task polled again: at least once. What a crash, a lost claim or a failed batch leaves between
the two is published again by whoever runs the task next.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from drover.connector import SourceBatch, SourceTask, SourceTaskContext
from drover.connector.offsets import source_offsets
from drover.connector.settings import PARTITIONER_KEYLESS, POLL_INTERVAL_MS, TOPIC_PARTITIONS
from drover.dataplane.plane import Destination, StagedBatch
from drover.model.offsets import CommittedOffset
from drover_worker.engine.task_runner import TaskRunner


@dataclass(frozen=True, slots=True)
class _Staged:
    """A batch that executors have written, and how far it brings the source."""

    batch: StagedBatch
    offsets: Sequence[CommittedOffset]
    started_s: float


class SourceRunner(TaskRunner):
    """Runs a SourceTask."""

    #: Waits for being published; polled again only after that.
    _staged: _Staged | None = None
    _idle_pause_s = 0.0

    def _start_instance(self, instance: Any, committed: Sequence[CommittedOffset]) -> None:
        self._staged = None
        context = SourceTaskContext(
            task=self.spec.task,
            claim=self.spec.claim,
            config=self._config,
            spark=self._tools.spark,
            stopping=lambda: self.stopping,
            committed=tuple(committed),
        )
        instance.start(context)

    def _turn(self) -> float | None:
        if self._staged is not None:
            return self._publish(self._staged)
        if self._paused:
            return None
        task = self._instance
        assert isinstance(task, SourceTask)
        started_s = time.monotonic()
        with self._time_limit("poll()", self._tools.limits.poll_ms):
            batch = task.poll()
        if batch is None or self.over:
            return self._idle_pause()
        if not isinstance(batch, SourceBatch):
            raise TypeError(f"poll() must return a SourceBatch or None, not {type(batch).__name__}")
        self._idle_pause_s = 0.0
        self._staged = self._stage(batch, started_s)
        return self._publish(self._staged)

    def _stage(self, batch: SourceBatch, started_s: float) -> _Staged:
        offsets = source_offsets(batch.offsets)
        destination = Destination(
            task=self.spec.task,
            claim=self.spec.claim,
            topic=batch.topic,
            partition_count=self._config[TOPIC_PARTITIONS],
            spread_keyless=self._config[PARTITIONER_KEYLESS] == "spread",
        )
        # when it fails the task object has moved on already: it starts again from the offsets
        self._restart_wanted = True
        with self._spark_jobs():
            written = self._tools.plane.stage(self._tools.spark, batch.frame, destination)
        self._restart_wanted = False
        return _Staged(written, offsets, started_s)

    def _publish(self, staged: _Staged) -> float | None:
        if self.over:  # abandoned meanwhile
            return 0
        record_count = staged.batch.publish(staged.offsets)
        self._staged = None
        self._tools.watcher.published()

        def committed() -> None:
            self._moved(record_count, staged.started_s, staged.batch.topics)

        if self._tools.plane.commits_with_records or not staged.offsets:
            committed()
            return 0
        self._commit(staged.offsets, committed)
        return None

    def _idle_pause(self) -> float:
        """Longer from one empty poll to the next, up to the limit."""
        first_s = self._config[POLL_INTERVAL_MS] / 1000
        longest_s = max(first_s, self._tools.limits.idle_poll_ms / 1000)
        self._idle_pause_s = min(max(self._idle_pause_s * 2, first_s), longest_s)
        return self._idle_pause_s
