"""A source task: poll, stage on executors, publish records and offsets in one transaction."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from drover.connector import SourceBatch, SourceTask, SourceTaskContext
from drover.connector.offsets import source_offsets
from drover.connector.settings import PARTITIONER_KEYLESS, POLL_INTERVAL_MS, TOPIC_PARTITIONS
from drover.dataplane.frames import stage_frame
from drover.dataplane.staging import Stager
from drover.dataplane.values import StagedBlob
from drover.model.offsets import CommittedOffset
from services.worker.engine.task_runner import TaskRunner


@dataclass(frozen=True, slots=True)
class _Staged:
    """A batch on disk that readers do not see yet."""

    blobs: Sequence[StagedBlob]
    offsets: Sequence[CommittedOffset]
    started_s: float


class SourceRunner(TaskRunner):
    """Runs a SourceTask."""

    #: Waits for its transaction; polled again only after that.
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
        stager = Stager(
            self._tools.store.path,
            self.spec.task,
            self.spec.claim,
            topic=batch.topic,
            partition_count=self._config[TOPIC_PARTITIONS],
            spread_keyless=self._config[PARTITIONER_KEYLESS] == "spread",
        )
        # when it fails the task object has moved on already: it starts again from the offsets
        self._restart_wanted = True
        with self._spark_jobs():
            blobs = stage_frame(batch.frame, stager)
        self._restart_wanted = False
        return _Staged(blobs, offsets, started_s)

    def _publish(self, staged: _Staged) -> float:
        if self.over:  # abandoned meanwhile
            return 0
        result = self._tools.store.publish(
            self.spec.task, self.spec.claim, staged.blobs, staged.offsets
        )
        self._staged = None
        self._tools.watcher.published()
        self._moved(result.record_count, staged.started_s)
        return 0

    def _idle_pause(self) -> float:
        """Longer from one empty poll to the next, up to the limit."""
        first_s = self._config[POLL_INTERVAL_MS] / 1000
        longest_s = max(first_s, self._tools.limits.idle_poll_ms / 1000)
        self._idle_pause_s = min(max(self._idle_pause_s * 2, first_s), longest_s)
        return self._idle_pause_s
