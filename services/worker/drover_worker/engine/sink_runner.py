"""A sink task: plan the next ranges of its topic partitions, write them, have them committed."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

import structlog

from drover.connector import OffsetRange, SinkBatch, SinkTask, SinkTaskContext
from drover.connector.offsets import parse_sink_offsets, sink_offset
from drover.connector.settings import BATCH_MAX_BYTES, BATCH_MAX_RECORDS, TOPICS
from drover.dataplane.plane import PartitionKey
from drover.dataplane.values import ReadPlan
from drover.model.offsets import METADATA_MAX_BYTES, CommittedOffset
from drover.pipeline import sink_pipeline
from drover_worker.engine.connectors import TASK_COUNT
from drover_worker.engine.task_runner import TaskRunner, TaskSpec, TaskTools

#: Topic partitions that one warning names.
_NAMED_MAX = 20

log = structlog.get_logger(__name__)


class SinkRunner(TaskRunner):
    """Runs a SinkTask."""

    def __init__(self, spec: TaskSpec, tools: TaskTools, *, paused: bool) -> None:
        super().__init__(spec, tools, paused=paused)
        self._pipeline = sink_pipeline()
        self._topics: list[str] = self._config[TOPICS]
        self._task_count = checked_task_count(spec)
        #: Where to read on, by topic partition of this task.
        self._positions: dict[PartitionKey, int] = {}
        #: How many partitions each topic was seen to have.
        self._partition_counts: dict[str, int] = {}
        self._committed: Mapping[PartitionKey, int] = {}
        #: Log starts that were logged because retention had removed the records before them.
        self._logged_starts: dict[PartitionKey, int] = {}
        #: The next commit is the first since the task object was started.
        self._fresh = True

    def _start_instance(self, instance: Any, committed: Sequence[CommittedOffset]) -> None:
        parsed = parse_sink_offsets(committed)
        self._committed = {(key.topic, key.partition): each.offset for key, each in parsed.items()}
        self._positions, self._partition_counts = {}, {}
        self._fresh = True
        context = SinkTaskContext(
            task=self.spec.task,
            claim=self.spec.claim,
            config=self._config,
            spark=self._tools.spark,
            stopping=lambda: self.stopping,
            committed=parsed,
        )
        instance.start(context)

    def _run_batch(self) -> float | None:
        if self._paused:
            self._tools.watcher.forget(self._wake)
            return None
        self._find_partitions()
        started_s = time.monotonic()
        plan = self._tools.plane.plan_read(
            self._positions,
            max_records=self._config[BATCH_MAX_RECORDS],
            max_bytes=self._config[BATCH_MAX_BYTES],
        )
        self._log_skipped(plan)
        if not plan.record_count:
            self._positions = dict(plan.next_offsets)
            self._tools.watcher.wait(self._wake, self._positions, self._partition_counts)
            return None
        self._check_claim()  # a zombie should not write what it cannot commit
        metadata = self._write(plan)
        self._send_commit(plan, metadata, started_s)
        return None

    def _find_partitions(self) -> None:
        """Take on the partitions that topics have by now, this task's share of them."""
        counts = self._tools.plane.partition_counts(self._topics)
        for topic in self._topics:
            known, count = self._partition_counts.get(topic, 0), counts.get(topic, 0)
            for partition in range(known, count):
                if partition % self._task_count == self.spec.task.task:
                    key = (topic, partition)
                    self._positions[key] = self._committed.get(key, 0)
            self._partition_counts[topic] = max(known, count)

    def _log_skipped(self, plan: ReadPlan) -> None:
        """Warn, once each, of records that retention removed before this task read them."""
        starts = {key: self._positions[key] + count for key, count in plan.skipped.items()}
        news = [key for key, start in starts.items() if start > self._logged_starts.get(key, 0)]
        if not news:
            return
        self._logged_starts.update(starts)
        log.warning(
            "retention removed records that were not read; going on at the log start",
            record_count=sum(plan.skipped[key] for key in news),
            log_starts={f"{topic}-{n}": starts[topic, n] for topic, n in news[:_NAMED_MAX]},
        )

    def _write(self, plan: ReadPlan) -> str:
        task = self._instance
        assert isinstance(task, SinkTask)
        # when it fails nobody knows how far the write came: it starts again from the offsets
        self._restart_wanted = True
        with self._spark_jobs():
            rows = self._tools.plane.rows(self._tools.spark, plan).through(self._pipeline)
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
        keys = {(each.topic, each.partition) for each in plan.ranges}
        if self._fresh:  # all of the task's offsets say what this start of it made of them
            keys |= self._committed.keys() & plan.next_offsets.keys()

        def committed() -> None:
            self._positions = dict(plan.next_offsets)
            self._fresh = False
            self._moved(plan.record_count, started_s, {each.topic for each in plan.ranges})

        offsets = [sink_offset(*key, plan.next_offsets[key], metadata) for key in sorted(keys)]
        self._commit(offsets, committed)

    def _wait_settled(self, limit_s: float) -> bool:
        self._tools.watcher.forget(self._wake)
        return super()._wait_settled(limit_s)


def checked_task_count(spec: TaskSpec) -> int:
    """How many tasks share the partitions.

    Raises:
        ValueError: The task's config does not say, and it is not the only task.
    """
    count = int(spec.own_config.get(TASK_COUNT, "1"))
    if spec.task.task >= count:
        raise ValueError(
            f"the config of task {spec.task} does not say how many tasks share the topics "
            f"({TASK_COUNT}): restart the connector, which writes it again"
        )
    return count


def joined_ranges(plan: ReadPlan) -> list[OffsetRange]:
    """One range for each topic partition of the plan, in order."""
    joined: dict[tuple[str, int], tuple[int, int]] = {}
    for each in plan.ranges:
        key = (each.topic, each.partition)
        start, _ = joined.get(key, (each.start_offset, 0))
        joined[key] = (start, each.end_offset)
    return [OffsetRange(*key, start, end) for key, (start, end) in joined.items()]
