"""Runs a sink task: executes what its core decides about reads, writes and commits."""

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any, ClassVar

from drover.config.patterns import Pattern
from drover.connector import SinkConnector, SinkTask, SinkTaskContext, TopicPartition
from drover.connector.offsets import SinkOffset
from drover.connector.settings import (
    AUTO_OFFSET_RESET,
    BATCH_WAIT_MS,
    TOPICS,
    TOPICS_REGEX,
)
from drover.connector.sink_control import SinkControl
from drover.dataplane.plane import DeadLetterWriter, PartitionKey
from drover.dataplane.values import ReadPlan
from drover_worker.engine.core import events, instructions
from drover_worker.engine.core.events import TaskEvent
from drover_worker.engine.core.sink import SinkCore
from drover_worker.engine.core.sink_positions import SinkSettings
from drover_worker.engine.core.sink_starts import checked_task_count, knows_starts
from drover_worker.engine.core.steps import Step
from drover_worker.engine.core.task import TaskCore
from drover_worker.engine.tasks.record_path import dead_letter_destination
from drover_worker.engine.tasks.sink_lag import SinkLag
from drover_worker.engine.tasks.sink_replay import SinkReplay
from drover_worker.engine.tasks.task_runner import Execution, TaskRunner, TaskSpec, TaskTools
from drover_worker.engine.tasks.task_times import timed

#: A figure of sink tasks: the number of committed offsets that were lost and committed again.
_RESTORED = "restored_offset_count"


class SinkRunner(TaskRunner):
    """Runs a SinkTask."""

    _core: SinkCore
    _core_class: ClassVar[type[SinkCore]] = SinkCore

    def __init__(self, spec: TaskSpec, tools: TaskTools, *, paused: bool) -> None:
        super().__init__(spec, tools, paused=paused)
        #: What the task object sees of its committed offsets and outputs.
        self._committed_offsets: dict[TopicPartition, SinkOffset] = {}
        self._output_ids: dict[TopicPartition, str] = {}
        #: Requests of the task object.
        self._control = SinkControl()
        self._lag = SinkLag(self._figures.report)
        #: Dead letters to replay before all other records.
        self._replay: SinkReplay | None = None
        #: The writer for the dead letters of the batch in progress.
        self._dead_letters: DeadLetterWriter | None = None

    def lag_is_due(self, now_s: float) -> bool:
        """See LaggingTask."""
        return not self.stopping and self._lag.is_due(self._activity.step, now_s)

    def partitions(self) -> Collection[PartitionKey]:
        """See LaggingTask."""
        return tuple(self._core.positions)

    def report_lag(self, ends: Mapping[PartitionKey, int]) -> None:
        """See LaggingTask."""
        self._lag.measured(ends, dict(self._core.positions), dict(self._core.committed))

    def _make_core(self, *, paused: bool) -> TaskCore:
        spec, config = self.spec, self._config
        kind = spec.connector_class
        assert issubclass(kind, SinkConnector)
        pattern = config[TOPICS_REGEX]
        settings = SinkSettings(
            task=spec.task,
            claim=spec.claim,
            errors=self._path.errors,
            limits=self._limits,
            topics=config[TOPICS],
            pattern=Pattern(pattern) if pattern is not None else None,
            task_count=checked_task_count(spec.task, spec.own_config),
            auto_offset_reset=config[AUTO_OFFSET_RESET],
            batch_wait_ms=config[BATCH_WAIT_MS],
            writes_ahead=kind.task_class.writes_ahead,
            knows_starts=knows_starts(kind),
            has_replay=self._path.replay is not None,
        )
        return self._core_class(settings, spec.committed, paused=paused)

    @property
    def _task(self) -> SinkTask:
        assert isinstance(self._instance, SinkTask)
        return self._instance

    # --- the start ---------------------------------------------------------------------------

    def _begin_replay(self, instruction: instructions.BeginReplay) -> TaskEvent:
        count = self._core.settings.task_count
        self._replay = replay = SinkReplay.begun(
            self.spec, self._config, self._tools, self._path, instruction.committed, count
        )
        if replay is None:
            return events.ReplayBegun(None)
        begun = events.LetterReplay(
            replay.topic, dict(replay.positions), frozenset(replay.begun_partitions), replay.output
        )
        return events.ReplayBegun(begun)

    def _start_sink(self, instruction: instructions.StartSink) -> TaskEvent:
        self._committed_offsets = dict(instruction.committed)
        self._output_ids = dict(instruction.output_ids)
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
            assigned=self._assigned,
            control=self._control,
        )

        def start(task: SinkTask) -> object:
            task.start(context)
            return task.positions()

        found = self._new_instance(start, is_restart=instruction.is_restart)
        return events.InstanceStarted(positions=found)

    def _assigned(self) -> Mapping[TopicPartition, int]:
        positions = dict(self._core.positions)
        return {TopicPartition(*key): offset for key, offset in positions.items()}

    def _show_offsets(self, instruction: instructions.ShowOffsets) -> None:
        self._committed_offsets.update(instruction.committed)
        self._output_ids.update(instruction.output_ids)

    # --- topics ------------------------------------------------------------------------------

    def _find_topics(self, instruction: instructions.FindTopics) -> TaskEvent:
        plane = self._tools.plane
        return events.TopicsFound(
            plane.topics() if instruction.all_names else tuple(plane.reserved_topics())
        )

    def _count_partitions(self, instruction: instructions.CountPartitions) -> TaskEvent:
        return events.PartitionsCounted(self._tools.plane.partition_counts(instruction.topics))

    def _identify_topics(self, instruction: instructions.IdentifyTopics) -> TaskEvent:
        found = self._tools.plane.topic_ids(instruction.topics, fresh=instruction.fresh)
        return events.TopicsIdentified(found)

    def _find_ends(self, instruction: instructions.FindEnds) -> TaskEvent:
        return events.EndsFound(self._tools.plane.end_offsets(instruction.partitions))

    def _read_retention(self, _instruction: instructions.ReadRetention) -> TaskEvent:
        return events.RetentionRead(self._tools.plane.offsets_retention_ms())

    def _watch_topics(self, instruction: instructions.WatchTopics) -> None:
        self._tools.watcher.wait(
            self._wake,
            instruction.next_offsets,
            instruction.partition_counts,
            instruction.topic_ids,
        )

    def _stop_watching(self, _instruction: instructions.StopWatching) -> None:
        self._tools.watcher.forget(self._wake)

    def _note_passed(self, instruction: instructions.NotePassed) -> None:
        self._lag.passed(instruction.positions, instruction.next_offsets, instruction.committed)

    def _measure_lag(self, _instruction: instructions.MeasureLag) -> TaskEvent:
        if self._lag.is_due_before_batch():
            self.report_lag(self._tools.plane.end_offsets(self._core.positions))
        return events.LagMeasured()

    # --- batches -----------------------------------------------------------------------------

    def _trace_output(self, instruction: instructions.TraceOutput) -> TaskEvent:
        kind = self.spec.connector_class
        assert issubclass(kind, SinkConnector)
        found = kind.traced_offsets(self.spec.task.connector, self._config, instruction.outputs)
        return events.OutputTraced(found)

    def _get_first_metadata(self, _instruction: instructions.GetFirstMetadata) -> TaskEvent:
        return events.FirstMetadataReturned(self._task.first_metadata())

    def _read_requests(self, _instruction: instructions.ReadRequests) -> TaskEvent:
        control = self._control
        idle_in_s = control.idle_in_s()
        idle_in_ms = None if idle_in_s is None else -int(-idle_in_s * 1000 // 1)
        return events.RequestsRead(control.take_rewinds(), control.paused, idle_in_ms)

    def _plan_replay(self, instruction: instructions.PlanReplay) -> TaskEvent:
        assert self._replay is not None
        return events.ReadPlanned(self._replay.plan(instruction.max_records))

    def _plan_read(self, instruction: instructions.PlanRead) -> TaskEvent:
        plan = self._tools.plane.plan_read(
            instruction.starts,
            max_records=instruction.max_records,
            max_bytes=instruction.max_bytes,
        )
        return events.ReadPlanned(plan)

    def _write_batch(self, instruction: instructions.WriteBatch) -> TaskEvent:
        self._control.called()
        self._path.begin_pass()
        plane, plan = self._tools.plane, instruction.plan
        self._dead_letters = plane.dead_letters(
            self.spec.task, self.spec.claim, dead_letter_destination(self._path.errors)
        )
        if instruction.is_replay:
            self._check_replay(plan)
        with self._spark_jobs(), timed(self._times.writes):
            batch = self._path.sink_batch(
                plane, plan, self._dead_letters, replayed=instruction.is_replay
            )
            with self._tools.in_flight.plugin_call():
                found = self._task.write(batch)
            report = self._path.report(read_count=plan.record_count)
        return events.BatchWritten(found, report, self._control.take_rewinds())

    def _check_replay(self, plan: ReadPlan) -> None:
        assert self._replay is not None
        with self._spark_jobs():
            self._replay.check(plan)

    def _publish_letters(self, instruction: instructions.PublishLetters) -> TaskEvent:
        assert self._dead_letters is not None
        self._dead_letters.publish(instruction.rows)
        self._tools.watcher.published()
        return events.LettersPublished()

    def _advance_replay(self, instruction: instructions.AdvanceReplay) -> None:
        assert self._replay is not None
        self._replay.move(instruction.plan)

    def _call_idle(self, _instruction: instructions.CallIdle) -> TaskEvent:
        self._control.called()
        with self._spark_jobs():
            found = self._task.idle()
        return events.IdleReturned(found, self._control.take_rewinds())

    def _request_idle(self, _instruction: instructions.RequestIdle) -> None:
        self._control.call_after(0)

    def _note_restored(self, instruction: instructions.NoteRestored) -> None:
        self._figures.report(_RESTORED, instruction.total_count)

    _JOB_STEP = Step.WRITING
    _STEPS: ClassVar[Mapping[type[Any], Step]] = {
        instructions.StopInstance: Step.STARTING,
        instructions.WriteBatch: Step.WRITING,
        instructions.CallIdle: Step.NOTIFYING,
    }
    _OWN_EXECUTIONS: ClassVar[Mapping[type[Any], Execution]] = {
        instructions.BeginReplay: _begin_replay,
        instructions.StartSink: _start_sink,
        instructions.ShowOffsets: _show_offsets,
        instructions.FindTopics: _find_topics,
        instructions.CountPartitions: _count_partitions,
        instructions.IdentifyTopics: _identify_topics,
        instructions.FindEnds: _find_ends,
        instructions.ReadRetention: _read_retention,
        instructions.WatchTopics: _watch_topics,
        instructions.StopWatching: _stop_watching,
        instructions.NotePassed: _note_passed,
        instructions.MeasureLag: _measure_lag,
        instructions.TraceOutput: _trace_output,
        instructions.GetFirstMetadata: _get_first_metadata,
        instructions.ReadRequests: _read_requests,
        instructions.PlanReplay: _plan_replay,
        instructions.PlanRead: _plan_read,
        instructions.WriteBatch: _write_batch,
        instructions.PublishLetters: _publish_letters,
        instructions.AdvanceReplay: _advance_replay,
        instructions.CallIdle: _call_idle,
        instructions.RequestIdle: _request_idle,
        instructions.NoteRestored: _note_restored,
    }
