"""A sink task: plan the next ranges of its topic partitions, write them, have them committed."""

import itertools
import os
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import structlog

from drover.api.coordinator.v1 import coordinator_service_pb2
from drover.api.engine.v1 import engine_pb2
from drover.codec.coordinator import encode_task_offsets
from drover.connector import OffsetRange, SinkBatch, SinkTask, SinkTaskContext
from drover.connector.offsets import parse_sink_offsets, sink_offset
from drover.connector.settings import BATCH_MAX_BYTES, BATCH_MAX_RECORDS, TOPICS
from drover.dataplane.frames import topic_rows
from drover.dataplane.values import ReadPlan
from drover.errors import FailedPreconditionError, Reason
from drover.model.offsets import METADATA_MAX_BYTES, CommittedOffset, TaskOffsets
from services.worker.engine.connectors import TASK_COUNT
from services.worker.engine.task_runner import TaskRunner, TaskSpec, TaskTools

_OUTCOMES = coordinator_service_pb2.CommitOutcome
#: Topic partitions that one warning names.
_TOLD_MAX = 20
#: Unlike those of any other engine of this machine, so that a late answer fits nobody else's.
_commit_ids = itertools.count((os.getpid() << 32) + 1)

log = structlog.get_logger(__name__)


@dataclass(slots=True, eq=False)
class _Commit:
    """A batch that is written; its offsets are on their way to the coordinator."""

    call_id: int
    next_offsets: Mapping[tuple[str, int], int]
    record_count: int
    started_s: float
    result: engine_pb2.CommitResult | None = None


class SinkRunner(TaskRunner):
    """Runs a SinkTask."""

    def __init__(self, spec: TaskSpec, tools: TaskTools, *, paused: bool) -> None:
        super().__init__(spec, tools, paused=paused)
        self._topics: list[str] = self._config[TOPICS]
        self._task_count = int(spec.own_config.get(TASK_COUNT, "1"))
        #: Where to read on, by topic partition of this task.
        self._positions: dict[tuple[str, int], int] = {}
        self._known_topics: set[str] = set()
        self._committed: Mapping[tuple[str, int], int] = {}
        #: The log starts that were told of because retention had removed what lies before them.
        self._told_starts: dict[tuple[str, int], int] = {}
        self._commit: _Commit | None = None
        self._settled = threading.Event()
        self._settled.set()

    def _take_commit_result(self, commit: _Commit, result: engine_pb2.CommitResult) -> None:
        commit.result = result
        self._settled.set()
        self._tools.scheduler.wake(self)

    def _start_instance(self, instance: Any, committed: Sequence[CommittedOffset]) -> None:
        parsed = parse_sink_offsets(committed)
        self._committed = {(key.topic, key.partition): each.offset for key, each in parsed.items()}
        self._positions, self._known_topics = {}, set()
        context = SinkTaskContext(
            task=self.spec.task,
            claim=self.spec.claim,
            config=self._config,
            spark=self._tools.spark,
            stopping=lambda: self.stopping,
            committed=parsed,
        )
        instance.start(context)

    def _turn(self) -> float | None:
        if self._commit is not None:
            if self._commit.result is None:
                return None  # woken by the answer, however long the coordinator is away
            self._finish_commit(self._commit, self._commit.result)
        if self._paused:
            self._tools.watcher.forget(self._wake)
            return None
        missing = self._find_partitions()
        started_s = time.monotonic()
        plan = self._tools.store.plan_read(
            self._positions,
            max_records=self._config[BATCH_MAX_RECORDS],
            max_bytes=self._config[BATCH_MAX_BYTES],
        )
        self._tell_skipped(plan)
        if not plan.record_count:
            self._positions = dict(plan.next_offsets)
            self._tools.watcher.wait(self._wake, self._positions, missing)
            return None
        self._check_claim()  # a zombie should not write what it cannot commit
        metadata = self._write(plan)
        self._send_commit(plan, metadata, started_s)
        return None

    def _wake(self) -> None:
        self._tools.scheduler.wake(self)

    def _find_partitions(self) -> list[str]:
        """Take on the partitions of topics that were created; returns those that were not yet."""
        for topic in self._topics:
            info = None if topic in self._known_topics else self._tools.store.topic(topic)
            if info is not None:
                self._known_topics.add(topic)
                for partition in range(
                    self.spec.task.task % self._task_count, info.partition_count, self._task_count
                ):
                    key = (topic, partition)
                    self._positions[key] = self._committed.get(key, 0)
        return [topic for topic in self._topics if topic not in self._known_topics]

    def _tell_skipped(self, plan: ReadPlan) -> None:
        """Warn, once each, of records that retention removed before this task read them."""
        starts = {key: self._positions[key] + count for key, count in plan.skipped.items()}
        news = [key for key, start in starts.items() if start > self._told_starts.get(key, 0)]
        if not news:
            return
        self._told_starts.update(starts)
        log.warning(
            "retention removed records that were not read; going on at the log start",
            record_count=sum(plan.skipped[key] for key in news),
            log_starts={f"{topic}-{n}": starts[topic, n] for topic, n in news[:_TOLD_MAX]},
        )

    def _write(self, plan: ReadPlan) -> str:
        task = self._instance
        assert isinstance(task, SinkTask)
        # when it fails nobody knows how far the write came: it starts again from the offsets
        self._restart_wanted = True
        with self._spark_jobs():
            rows = topic_rows(self._tools.spark, self._tools.store.path, plan)
            metadata = task.write(SinkBatch(rows, joined_ranges(plan)))
        self._restart_wanted = False
        if not isinstance(metadata, str):
            raise TypeError(f"write() must return text, not {type(metadata).__name__}")
        if len(metadata.encode()) > METADATA_MAX_BYTES:
            raise ValueError(
                f"write() returned {len(metadata.encode())} bytes of metadata; "
                f"the limit is {METADATA_MAX_BYTES}"
            )
        return metadata

    def _send_commit(self, plan: ReadPlan, metadata: str, started_s: float) -> None:
        moved = {(each.topic, each.partition) for each in plan.ranges}
        offsets = [
            sink_offset(topic, partition, plan.next_offsets[topic, partition], metadata)
            for topic, partition in sorted(moved)
        ]
        commit = _Commit(next(_commit_ids), plan.next_offsets, plan.record_count, started_s)
        with self._lock:
            if self._over:  # abandoned while it wrote
                return
            self._settled.clear()
            self._commit = commit
        self._tools.commits[commit.call_id] = partial(self._take_commit_result, commit)
        task_offsets = TaskOffsets(self.spec.task, self.spec.claim, offsets)
        self._tools.send(
            engine_pb2.EngineReport(
                call_id=commit.call_id, commit_offsets=encode_task_offsets(task_offsets)
            )
        )

    def _finish_commit(self, commit: _Commit, result: engine_pb2.CommitResult) -> None:
        self._commit = None
        if result.outcome == _OUTCOMES.COMMIT_OUTCOME_COMMITTED:
            self._positions = dict(commit.next_offsets)
            self._moved(commit.record_count, commit.started_s)
        elif result.outcome == _OUTCOMES.COMMIT_OUTCOME_STALE_CLAIM:
            raise FailedPreconditionError(Reason.STALE_CLAIM, result.message)
        else:
            raise ValueError(f"the offsets of the batch were refused: {result.message}")

    def _wait_settled(self, limit_s: float) -> bool:
        self._tools.watcher.forget(self._wake)
        return self._settled.wait(max(limit_s, 0))


def joined_ranges(plan: ReadPlan) -> list[OffsetRange]:
    """One range for each topic partition of the plan, in order."""
    joined: dict[tuple[str, int], tuple[int, int]] = {}
    for each in plan.ranges:
        key = (each.topic, each.partition)
        start, _ = joined.get(key, (each.start_offset, 0))
        joined[key] = (start, each.end_offset)
    return [OffsetRange(*key, start, end) for key, (start, end) in joined.items()]
