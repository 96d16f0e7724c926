"""Runs a sink task: plan the next offset ranges, write them, commit them."""

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any
from zlib import crc32

import structlog

from drover.config.patterns import Pattern
from drover.connector import RetriableError, SinkConnector, SinkTask, SinkTaskContext, Written
from drover.connector.offsets import SinkOffset, parse_sink_offsets, sink_offset
from drover.connector.settings import (
    AUTO_OFFSET_RESET,
    BATCH_MAX_BYTES,
    BATCH_MAX_RECORDS,
    BATCH_WAIT_MS,
    LATEST,
    TOPICS,
    TOPICS_REGEX,
)
from drover.connector.sink_control import SinkControl
from drover.dataplane.arrow_rows import MixedSchemasError
from drover.dataplane.plane import PartitionKey
from drover.dataplane.values import ReadPlan
from drover.errors import DataLossError, UnavailableError
from drover.model.offsets import CommittedOffset, TopicPartition
from drover.model.sink_outputs import OutputMark, SinkOutput
from drover.pipeline import PassReport
from drover_worker.engine.tasks.activity import Step
from drover_worker.engine.tasks.record_path import dead_letter_destination
from drover_worker.engine.tasks.sink_commits import (
    checked_metadata,
    checked_positions,
    checked_written,
    offsets_of,
    rewound,
)
from drover_worker.engine.tasks.sink_lag import SinkLag
from drover_worker.engine.tasks.sink_replay import SinkReplay
from drover_worker.engine.tasks.sink_starts import (
    changed_topics,
    checked_task_count,
    fetched_partitions,
    knows_starts,
    lost_offsets,
    missing_offsets,
    recommitted,
    starts_at_earliest,
    starts_of,
    with_outputs,
)
from drover_worker.engine.tasks.task_runner import CLAIM_CHECK_S, TaskRunner, TaskSpec, TaskTools
from drover_worker.engine.tasks.task_times import timed

#: How often an idle sink with topics.regex checks for new topics.
_NEW_TOPICS_S = 5.0
#: How often a paused sink checks for new topics and partitions, which are a part of its lag.
_PAUSED_LOOK_S = 30.0
#: How often a batch that waits for more records checks for them.
_WAITING_S = 1.0
#: The longest time between two commits of an unchanged offset, and the share of the time after
#: which the brokers remove it.
_RECOMMIT_MAX_S = 3_600.0
_RECOMMIT_SHARE = 0.25
#: A figure of sink tasks: the number of committed offsets that were lost and committed again.
_RESTORED = "restored_offset_count"
#: Topic partitions listed in one warning.
_NAMED_MAX = 20

log = structlog.get_logger(__name__)


class SinkRunner(TaskRunner):
    """Runs a SinkTask."""

    def __init__(self, spec: TaskSpec, tools: TaskTools, *, paused: bool) -> None:
        super().__init__(spec, tools, paused=paused)
        self._named_topics: list[str] | None = self._config[TOPICS]
        pattern = self._config[TOPICS_REGEX]
        self._pattern = Pattern(pattern) if pattern is not None else None
        self._task_count = checked_task_count(spec.task, spec.own_config)
        #: The next offset to read, by topic partition of this task.
        self._positions: dict[PartitionKey, int] = {}
        #: The last known partition count of each topic.
        self._partition_counts: dict[str, int] = {}
        #: Offsets that are committed or sent for commit.
        self._committed: dict[PartitionKey, int] = {}
        #: Committed offsets with metadata, for the task object.
        self._committed_offsets: dict[TopicPartition, SinkOffset] = {}
        #: The topics whose offsets were taken over, with the ids that they had then.
        self._topic_ids: dict[str, str] = {}
        #: The ids of outputs that are not a partition's first, for the task object.
        self._output_ids: dict[TopicPartition, str] = {}
        #: Partitions that had a committed offset and have none now.
        self._marks: dict[TopicPartition, OutputMark] = {}
        #: Topics that were deleted and created again since a commit.
        self._recreated: set[str] = set()
        #: The offsets that the coordinator had when the task object started.
        self._fetched: Sequence[CommittedOffset] = ()
        #: Start positions from the task object, which override committed offsets.
        self._own_positions: Mapping[PartitionKey, int] = {}
        #: Start positions that the config chose and that are not committed yet.
        self._unsent_starts: set[PartitionKey] = set()
        #: Whether partitions were found since the task object started.
        self._has_looked = False
        #: Requests of the task object.
        self._control = SinkControl()
        #: Log starts that were logged after retention had removed unread records.
        self._logged_starts: dict[PartitionKey, int] = {}
        #: Whether the next commit is the first since the task object started.
        self._fresh = True
        #: When the first records of the waiting batch were available.
        self._waits_since_s: float | None = None
        self._lag = SinkLag(self._figures.report)
        #: When all offsets are committed again, so that the brokers keep them; 0 for at once.
        self._next_recommit_s: float | None = 0.0
        self._restored_count = 0
        #: Dead letters to replay before all other records.
        self._replay: SinkReplay | None = None
        #: The plan that write() asked to retry.
        self._retry_plan: ReadPlan | None = None
        #: The record limit of a plan; halved after a batch with several schemas.
        self._batch_limit: int = self._config[BATCH_MAX_RECORDS]
        kind = spec.connector_class
        assert issubclass(kind, SinkConnector)
        self._knows_starts = knows_starts(kind)
        self._writes_ahead = kind.task_class.writes_ahead and not self._rate.is_set
        #: Whether more records were available than the last batch has.
        self._is_behind = False

    def _position(self, committed: Sequence[CommittedOffset]) -> Sequence[CommittedOffset]:
        self._committed, self._committed_offsets = {}, {}
        self._topic_ids, self._output_ids, self._marks = {}, {}, {}
        self._recreated = set()
        self._fetched = committed
        self._take_over(each.topic for each in fetched_partitions(committed))
        return committed

    def _start_instance(self, instance: Any, committed: Sequence[CommittedOffset]) -> None:
        self._positions, self._partition_counts = {}, {}
        self._unsent_starts, self._has_looked = set(), False
        self._replay = SinkReplay.begun(
            self.spec, self._config, self._tools, self._path, self._fetched, self._task_count
        )
        if self._replay is not None:
            self._replay.take_over(self._committed, self._committed_offsets, self._output_ids)
        self._fresh, self._retry_plan, self._is_behind = True, None, False
        self._control = SinkControl(self._wake)
        context = SinkTaskContext(
            task=self.spec.task,
            claim=self.spec.claim,
            config=self._config,
            spark=self._tools.spark,
            stopping=lambda: self.stopping,
            report=self._figures.report,
            committed=MappingProxyType(self._committed_offsets),
            output_ids=MappingProxyType(self._output_ids),
            control=self._control,
        )
        instance.start(context)
        self._own_positions = checked_positions(instance.positions())

    def _run_batch(self) -> float | None:
        recommit_in_s = self._recommit_in_s()
        if self._paused:
            self._tools.watcher.forget(self._wake)
        self._find_partitions()
        if self._restarts_for_topics(self._topic_ids):
            return 0
        if recommit_in_s == 0 and self._recommit():
            return None
        if self._paused:
            return min(self._recommit_in_s() or _PAUSED_LOOK_S, _PAUSED_LOOK_S)
        if self._unsent_starts:  # a restart must not choose a later start
            starts, self._unsent_starts = self._unsent_starts, set()
            if self._commit_starts(starts):
                return None
        self._rewind()
        idle_in_s = self._control.idle_in_s()
        if idle_in_s == 0 and self._retry_plan is None:
            return self._call_idle()
        started_s = time.monotonic()
        plan = self._retry_plan or self._plan_replay() or self._plan_next()
        if plan is None:
            return 0
        if not plan.record_count:
            self._lag.passed(self._positions, plan.next_offsets, self._committed)
            self._positions.update(plan.next_offsets)
            return self._wait_for_records(plan, idle_in_s)
        wait_s = 0 if self._is_replay(plan) else self._wait_s(plan)
        if wait_s > 0:
            self._wait_step = Step.GATHERING
            return min(wait_s, _WAITING_S)
        if not self._is_replay(plan):
            topics = {each.topic for each in plan.ranges}
            if self._restarts_for_topics(topics, fresh=True):
                return 0
        if self._commit_starts({(each.topic, each.partition) for each in plan.ranges}):
            return None
        self._waits_since_s = None
        if self._lag.is_due_before_batch():
            self.report_lag(self._tools.plane.end_offsets(self._positions))
        self._check_claim()  # a fenced task should not write what it cannot commit
        try:
            written, report = self._write(plan)
        except MixedSchemasError:
            limit = min(self._batch_limit, plan.record_count) // 2
            if not limit:
                raise
            self._batch_limit = limit
            log.info("a batch has records of several schemas and is split", task=self.name)
            return 0
        self._is_behind = self._is_full(plan)
        self._batch_limit = min(2 * self._batch_limit, self._config[BATCH_MAX_RECORDS])
        return self._send_commit(plan, written, report, started_s)

    @property
    def _may_run_ahead(self) -> bool:
        """At most one batch ahead, and only while the claim is confirmed: otherwise the answer to
        the pending commit has to confirm it.
        """
        return (
            self._writes_ahead
            and self._is_behind
            and self._recommit_in_s() != 0
            and self._commits.open_count == 1
            and self._commits.claim_is_confirmed
        )

    def _is_full(self, plan: ReadPlan) -> bool:
        """Whether more records were probably available."""
        return (
            plan.record_count >= self._batch_limit
            or plan.size_bytes >= self._config[BATCH_MAX_BYTES] // 2
        )

    def _wait_for_records(self, plan: ReadPlan, idle_in_s: float | None) -> float | None:
        """Wait for new records; returns the longest wait in seconds."""
        self._recovered()
        self._tools.watcher.wait(
            self._wake, plan.next_offsets, self._partition_counts, self._topic_ids
        )
        new_topics_s = _NEW_TOPICS_S if self._pattern is not None else None
        waits = (new_topics_s, idle_in_s, self._recommit_in_s())
        return min((s for s in waits if s is not None), default=None)

    def _rewind(self) -> None:
        """Apply the task's rewinds."""
        wanted = self._control.take_rewinds()
        if wanted:
            self._positions.update(rewound(wanted, self._positions))
            self._retry_plan = None

    def _call_idle(self) -> float | None:
        """Call the task's idle(), and commit the offsets that it returns."""
        task = self._instance
        assert isinstance(task, SinkTask)
        self._check_claim()
        self._control.called()
        self._activity.enter(Step.NOTIFYING)
        self._restart_wanted = True
        try:
            with self._spark_jobs():
                found = task.idle()
        except RetriableError:
            self._restart_wanted = False
            self._control.call_after(0)
            raise
        self._restart_wanted = False
        if found is None:
            return 0
        if not isinstance(found, Written):
            raise TypeError(f"idle() must return Written or None, not {type(found).__name__}")
        written = checked_written(found)
        offsets = offsets_of(written, {}, (), self._committed, self._given)
        if not offsets:
            return 0
        self._send(offsets)
        return None

    @property
    def _given(self) -> dict[PartitionKey, int]:
        """The offsets up to which the task has received records."""
        return {**self._positions, **({} if self._replay is None else self._replay.given)}

    def _take_over(self, topics: Iterable[str]) -> None:
        """Take over the fetched offsets in the existing ``topics`` that are new here."""
        news = {*topics} - self._topic_ids.keys()
        if not news:
            return
        topic_ids = self._tools.plane.topic_ids(news, fresh=True)
        starts = starts_of(self._fetched, topic_ids)
        self._topic_ids.update(topic_ids)
        self._output_ids.update(starts.output_ids)
        self._marks.update(starts.marks)
        self._recreated.update(starts.recreated)
        hidden = () if self._knows_starts else starts.unwritten
        shown = {key: each for key, each in starts.offsets.items() if key not in hidden}
        self._committed_offsets.update(shown)
        self._committed.update({key: each.offset for key, each in starts.offsets.items()})
        if starts.recreated:
            log.warning(
                "topics were deleted and created again; their records start a new output",
                topics=sorted(starts.recreated)[:_NAMED_MAX],
            )

    def _restarts_for_topics(self, topics: Collection[str], *, fresh: bool = False) -> bool:
        """Restart the task object if any of the topics was deleted and created again."""
        present = self._tools.plane.topic_ids(topics, fresh=fresh) if topics else {}
        changed = changed_topics(self._topic_ids, present)
        if changed:
            log.warning("topics were created again; the task restarts", topics=changed[:_NAMED_MAX])
            self._restart_wanted = True
        return bool(changed)

    def _commit_starts(self, partitions: Collection[PartitionKey]) -> bool:
        """Commit where the partitions without a committed offset start, before their first write.

        So a committed offset exists whenever there is output. Returns whether there is such a
        commit to wait for.

        Raises:
            FailedPreconditionError: OFFSETS_LOST, records of such a partition were written.
        """
        keys = {*partitions} - self._committed.keys()
        if not keys:
            return False
        task, kind = self._instance, self.spec.connector_class
        assert isinstance(task, SinkTask)
        assert issubclass(kind, SinkConnector)
        letters = {} if self._replay is None else self._replay.positions
        positions = {**letters, **self._positions}
        starts = {TopicPartition(*key): positions[key] for key in sorted(keys)}
        # a position in the output itself is exact
        unknown = {key: at for key, at in starts.items() if key not in self._own_positions}
        if unknown:
            outputs = {key: self._output_ids.get(key, "") for key in unknown}
            traced = kind.traced_offsets(self.spec.task.connector, self._config, outputs)
            lost = lost_offsets(self.spec.task.connector, self._marks, traced, unknown)
            if lost is not None:
                raise lost
        metadata = checked_metadata(task.first_metadata(), "first_metadata")
        offsets = [sink_offset(*key, at, metadata) for key, at in starts.items()]
        self._send(offsets, are_starts=True)
        self._is_behind = False  # the next run waits for the answer
        return True

    def _send(
        self,
        offsets: Sequence[CommittedOffset],
        on_committed: Callable[[], None] = lambda: None,
        *,
        are_starts: bool = False,
    ) -> None:
        sent = parse_sink_offsets(offsets)
        self._committed.update({key: each.offset for key, each in sent.items()})
        outputs = {key: self._output(key) for key in sent if key in self._positions}
        if self._replay is not None:
            letters = sent.keys() & self._replay.positions.keys()
            outputs |= dict.fromkeys(letters, self._replay.output)

        def committed() -> None:
            if self._knows_starts or not are_starts:
                self._committed_offsets.update(sent)
            on_committed()

        self._commit(with_outputs(sent, outputs, are_starts=are_starts), committed)

    def _recommit_in_s(self) -> float | None:
        """In how many seconds the offsets are committed again; None for never."""
        if self._next_recommit_s is None:
            return None
        return max(0.0, self._next_recommit_s - time.monotonic())

    def _recommit(self) -> bool:
        """Commit the offsets of the task's partitions again, so that the brokers keep them; whether
        there is such a commit to wait for.
        """
        is_first, retention_ms = not self._next_recommit_s, self._tools.plane.offsets_retention_ms()
        if retention_ms is None:
            self._next_recommit_s = None
            return False
        pause_s = min(_RECOMMIT_MAX_S, _RECOMMIT_SHARE * retention_ms / 1000)
        self._next_recommit_s = time.monotonic() + pause_s
        own = [TopicPartition(*key) for key in self._present() if key in self._committed]
        letters = () if self._replay is None else self._replay.positions.keys()
        offsets = recommitted(
            self._commits.committed, {key: self._output(key) for key in own}, letters
        )
        if not offsets:
            return False
        if not is_first:
            self._report_lost(offsets)
        self._commit(offsets, lambda: None, refreshes_marks=True)
        return True

    def _present(self) -> list[PartitionKey]:
        """The task's partitions whose topics exist now."""
        plane = self._tools.plane
        counts = plane.partition_counts(plane.topic_ids(self._topic_ids, fresh=True))
        return [key for key in self._positions if key[1] < counts.get(key[0], 0)]

    def _report_lost(self, offsets: Sequence[CommittedOffset]) -> None:
        """Report offsets that the coordinator no longer has; the task has them."""
        try:
            fetched = self._commits.fetch(CLAIM_CHECK_S, with_positions=True)
        except UnavailableError:
            return
        lost = missing_offsets(offsets, fetched)
        if lost:
            self._restored_count += len(lost)
            self._figures.report(_RESTORED, self._restored_count)
            log.warning(
                "committed offsets were lost and are committed again",
                count=len(lost),
                partitions=[f"{topic}-{number}" for topic, number in lost[:_NAMED_MAX]],
            )

    def _output(self, key: TopicPartition) -> SinkOutput:
        return SinkOutput(self._topic_ids.get(key.topic, ""), self._output_ids.get(key, ""))

    def _wait_s(self, plan: ReadPlan) -> float:
        """How long the batch still waits for more records."""
        limit_s = self._config[BATCH_WAIT_MS] / 1000
        if not limit_s or plan is self._retry_plan:
            return 0
        now_s = time.monotonic()
        since_s = now_s if self._waits_since_s is None else self._waits_since_s
        self._waits_since_s = since_s
        left_s: float = limit_s - (now_s - since_s)
        if left_s > 0:
            behind = self._tools.plane.plan_read(plan.next_offsets, max_records=1, max_bytes=1)
            if behind.record_count:  # more records are available than fit
                return 0
        return left_s

    def _plan_replay(self) -> ReadPlan | None:
        return None if self._replay is None else self._replay.plan(self._batch_limit)

    def _is_replay(self, plan: ReadPlan) -> bool:
        """Whether the plan reads dead letters; their topic is not one of the sink's topics."""
        return self._replay is not None and plan.ranges[0].topic == self._replay.topic

    def _plan_next(self) -> ReadPlan | None:
        """The next read; None if the task restarts instead."""
        paused = self._control.paused
        try:
            plan = self._tools.plane.plan_read(
                {key: at for key, at in self._positions.items() if key not in paused},
                max_records=self._batch_limit,
                max_bytes=self._config[BATCH_MAX_BYTES],
            )
        except DataLossError:
            if self._restarts_for_topics(self._topic_ids, fresh=True):
                return None
            raise
        self._log_skipped(plan)
        return plan

    def lag_is_due(self, now_s: float) -> bool:
        """See LaggingTask."""
        return not self.stopping and self._lag.is_due(self._activity.step, now_s)

    def partitions(self) -> Collection[PartitionKey]:
        """See LaggingTask."""
        return tuple(self._positions)

    def report_lag(self, ends: Mapping[PartitionKey, int]) -> None:
        """See LaggingTask."""
        self._lag.measured(ends, dict(self._positions), dict(self._committed))

    def _find_partitions(self) -> None:
        """Add new partitions of the topics that are assigned to this task."""
        topics = self._topics()
        counts = self._tools.plane.partition_counts(topics)
        self._take_over(counts)
        for topic, place in topics.items():
            known, count = self._partition_counts.get(topic, 0), counts.get(topic, 0)
            if count and topic not in self._topic_ids:
                continue  # it was deleted at this moment
            for partition in range(known, count):
                if (place + partition) % self._task_count == self.spec.task.task:
                    key = (topic, partition)
                    start = self._committed.get(key)
                    self._positions[key] = self._own_positions.get(
                        key, self._configured_start(key) if start is None else start
                    )
            self._partition_counts[topic] = max(known, count)
        self._has_looked = True

    def _configured_start(self, key: PartitionKey) -> int:
        """Where a partition without a committed offset is read from."""
        # partitions that are found later have only records that are newer than the sink
        known = {*self._recreated, *(topic for topic, _ in self._committed)}
        is_new = self._has_looked or key[0] in known
        at_earliest = starts_at_earliest(key, self._config[AUTO_OFFSET_RESET], is_new=is_new)
        if self._config[AUTO_OFFSET_RESET] == LATEST:
            self._unsent_starts.add(key)
        return 0 if at_earliest else self._tools.plane.end_offsets([key]).get(key, 0)

    def _topics(self) -> Mapping[str, int]:
        """The topics to read, each with the task number that gets its partition 0.

        Named topics use consecutive numbers, which spreads many small topics evenly. Topics that
        match a pattern use a hash, because the number must not depend on which other topics exist.
        """
        plane = self._tools.plane
        if self._pattern is None:
            assert self._named_topics is not None
            reserved = sorted({*self._named_topics} & {*plane.reserved_topics()})
            if reserved:
                raise ValueError(
                    f"the topic {reserved[0]} is internal to the cluster: connectors may not read "
                    "it"
                )
            return {topic: index for index, topic in enumerate(self._named_topics)}
        found = {*filter(self._pattern.matches, plane.topics()), *self._partition_counts}
        dead_letters = self._path.errors.dead_letter_topic
        return {topic: crc32(topic.encode()) for topic in sorted(found) if topic != dead_letters}

    def _log_skipped(self, plan: ReadPlan) -> None:
        """Warn once about each range of records that retention removed before they were read."""
        starts = {key: self._positions[key] + count for key, count in plan.skipped.items()}
        news = [key for key, start in starts.items() if start > self._logged_starts.get(key, 0)]
        if not news:
            return
        self._logged_starts.update(starts)
        log.warning(
            "retention removed unread records; reading resumes at the log start",
            record_count=sum(plan.skipped[key] for key in news),
            log_starts={f"{topic}-{n}": starts[topic, n] for topic, n in news[:_NAMED_MAX]},
        )

    def _write(self, plan: ReadPlan) -> tuple[Written, PassReport]:
        task = self._instance
        assert isinstance(task, SinkTask)
        # after a failure the extent of the write is unknown: restart from the committed offsets
        self._restart_wanted = True
        self._activity.enter(Step.WRITING)
        self._control.called()
        self._path.begin_pass()
        dead_letters = self._tools.plane.dead_letters(
            self.spec.task, self.spec.claim, dead_letter_destination(self._path.errors)
        )
        try:
            if self._replay is not None and self._is_replay(plan):
                with self._spark_jobs():
                    self._replay.check(plan)
            with self._spark_jobs(), timed(self._times.writes):
                batch = self._path.sink_batch(
                    self._tools.plane, plan, dead_letters, replayed=self._is_replay(plan)
                )
                with self._tools.in_flight.plugin_call():
                    found = task.write(batch)
                report = self._path.report(read_count=plan.record_count)
        except RetriableError:
            self._restart_wanted, self._retry_plan = False, plan
            raise
        if report.dead_letter_rows:
            dead_letters.publish(report.dead_letter_rows)
            self._tools.watcher.published()
        self._restart_wanted, self._retry_plan = False, None
        return checked_written(found), report

    def _send_commit(
        self, plan: ReadPlan, written: Written, report: PassReport, started_s: float
    ) -> float | None:
        keys = {(each.topic, each.partition) for each in plan.ranges}
        replay = self._replay if self._is_replay(plan) else None
        given = {**self._given, **plan.next_offsets}
        if self._fresh:  # update the metadata of all partitions after a start
            keys |= self._committed.keys() & given.keys()
        own = self._positions if replay else {**self._positions, **plan.next_offsets}
        back = rewound(self._control.take_rewinds(), own)
        offsets = offsets_of(written, back, keys, self._committed, given)
        if replay is not None:
            replay.move(plan)
        self._positions = {**own, **back}
        self._fresh = False

        def moved() -> None:
            topics = {each.topic for each in plan.ranges}
            self._moved(report, started_s, topics, plan.size_bytes)

        if not offsets:
            moved()
            return 0
        self._send(offsets, moved)
        return 0 if self._may_run_ahead else None

    def _wait_settled(self, limit_s: float) -> bool:
        self._tools.watcher.forget(self._wake)
        return super()._wait_settled(limit_s)
