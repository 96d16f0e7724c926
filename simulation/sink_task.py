"""A simulated sink: its partitions always have more records, and its plugin may keep some in
memory, write only a part of a batch, and ask for records again.
"""

from collections.abc import Mapping
from typing import Any

from drover.connector import RetriableError, TopicPartition, Written
from drover.dataplane.values import ReadPlan, ReadRange
from drover.pipeline import PassReport
from drover_worker.core.instructions import StartTask
from drover_worker.engine.core import events, instructions
from drover_worker.engine.core.events import TaskEvent
from drover_worker.engine.core.instructions import TaskInstruction
from drover_worker.engine.core.sink import SinkCore
from drover_worker.engine.core.sink_positions import SinkSettings
from drover_worker.engine.core.task import TaskLimits
from simulation.brokers import Batch
from simulation.events import What, position
from simulation.tasks import SimulatedTask
from tests.support.task_driver import errors

BATCH_MAX_RECORDS = 6
#: On brokers: offsets are committed again after a quarter of this time.
RETENTION_MS = 8_000


class SinkTask(SimulatedTask):
    """See SimulatedTask."""

    def _make_core(self, start: StartTask) -> SinkCore:
        chance = self.engine.world.chance
        self._topic = start.task.connector
        #: How far the plugin was given records, and how far it reported them written.
        self._given: dict[int, int] = {}
        self._reported: dict[int, int] = {}
        self._was_busy = False
        self._is_idle_wanted = False
        self._watch = 0
        settings = SinkSettings(
            task=start.task,
            claim=start.claim,
            errors=errors(**self.SETTINGS),
            limits=TaskLimits(
                batch_max_records=BATCH_MAX_RECORDS,
                batch_max_bytes=1_000_000,
                rate_max_records=20 if chance(0.1) else 0,
            ),
            topics=(self._topic,),
            task_count=int(start.task_config["task.count"]),
            auto_offset_reset="earliest",
            batch_wait_ms=200 if chance(0.2) else 0,
            writes_ahead=chance(0.7),
            knows_starts=chance(0.5),
        )
        return SinkCore(settings, start.offsets, paused=start.paused)

    def _operations(self) -> Mapping[type[Any], Any]:
        partitions = int(self.config["partitions"])
        retention_ms = None if self.engine.data.brokers is None else RETENTION_MS
        return {
            instructions.StartSink: self._start,
            instructions.FindTopics: lambda _: events.TopicsFound(()),
            instructions.CountPartitions: lambda op: events.PartitionsCounted(
                dict.fromkeys(op.topics, partitions)
            ),
            instructions.IdentifyTopics: lambda op: events.TopicsIdentified(
                {topic: f"id of {topic}" for topic in op.topics}
            ),
            instructions.ReadRetention: lambda _: events.RetentionRead(retention_ms),
            instructions.TraceOutput: lambda _: events.OutputTraced({}),
            instructions.GetFirstMetadata: lambda _: events.FirstMetadataReturned(""),
            instructions.ReadRequests: self._read_requests,
            instructions.PlanRead: self._plan_read,
            instructions.MeasureLag: lambda _: events.LagMeasured(),
            instructions.WriteBatch: self._write,
            instructions.PublishLetters: self._publish_letters,
            instructions.CallIdle: self._call_idle,
        }

    def _execute(self, instruction: TaskInstruction) -> None:
        match instruction:
            case instructions.WatchTopics():
                self._watch_topics()
            case instructions.StopWatching():
                self._watch += 1
            case instructions.RequestIdle():
                self._is_idle_wanted = True
            case _:
                super()._execute(instruction)

    def _watch_topics(self) -> None:
        self._watch += 1
        watch, work_ms = self._watch, self.engine.network.mix.work_ms

        def look() -> None:
            if watch == self._watch:
                self.wake()

        self.engine.after(self.engine.world.between(work_ms // 2, work_ms), look)

    async def _start(self, operation: instructions.StartSink) -> TaskEvent:
        self.plugin_may_fail()
        committed = {key.partition: each.offset for key, each in operation.committed.items()}
        mine = {p: at for p, at in committed.items() if p in self.partitions}
        self._given, self._reported = dict(mine), dict(mine)
        self._was_busy = False
        return events.InstanceStarted()

    # --- requests of the plugin --------------------------------------------------------------

    def _read_requests(self, _operation: instructions.ReadRequests) -> TaskEvent:
        world, mix = self.engine.world, self.engine.network.mix
        behind = [p for p, at in sorted(self._given.items()) if self._reported.get(p, 0) < at]
        rewinds: Mapping[TopicPartition, int] = {}
        if behind and world.chance(3 * mix.rewinds if self._was_busy else mix.rewinds / 2):
            rewinds = self._rewind(world.random.choice(behind))
        self._was_busy = False
        idle = self._is_idle_wanted or (bool(behind) and world.chance(mix.rewinds))
        return events.RequestsRead(rewinds, (), 0 if idle else None)

    def _rewind(self, partition: int) -> Mapping[TopicPartition, int]:
        """Ask for records again that the plugin has not reported as written."""
        at = self.engine.world.between(self._reported.get(partition, 0), self._given[partition])
        self._given[partition] = at
        rewound = [position(str(partition), at)]
        self.engine.rules.did(What.REWOUND, self.task, self.claim, rewound)
        return {TopicPartition(self._topic, partition): at}

    async def _call_idle(self, _operation: instructions.CallIdle) -> TaskEvent:
        self._is_idle_wanted = False
        self.plugin_may_fail()
        if self.engine.world.chance(0.3):
            return events.IdleReturned(None)
        self._reported = dict(self._given)
        up_to = {TopicPartition(self._topic, p): at for p, at in self._given.items()}
        return events.IdleReturned(Written(up_to=up_to))

    # --- batches -----------------------------------------------------------------------------

    def _plan_read(self, operation: instructions.PlanRead) -> TaskEvent:
        ranges, nexts, left = [], dict(operation.starts), operation.max_records
        for (topic, partition), at in sorted(operation.starts.items()):
            count = min(left, self.engine.world.between(0, 3))
            if count:
                ranges.append(ReadRange(topic, partition, at, at + count))
                nexts[topic, partition] = at + count
                left -= count
        return events.ReadPlanned(ReadPlan(tuple(ranges), nexts))

    async def _write(self, operation: instructions.WriteBatch) -> TaskEvent:
        world, mix = self.engine.world, self.engine.network.mix
        batch = {p.partition: (p.start_offset, p.end_offset) for p in operation.plan.ranges}
        self.did(What.POLLED, batch)
        await self.plugin_works(mix.work_ms)
        partitions = sorted(batch)
        try:
            self.plugin_may_fail()
            if world.chance(mix.rewinds / 2):
                raise RetriableError("the system of the plugin is busy")
        except Exception:
            self._was_busy = True
            self.did(What.DELIVERED, {p: batch[p] for p in partitions[: world.between(0, 2)]})
            raise
        letters = [p for p in partitions if world.chance(mix.rejections)]
        self.did(What.DELIVERED, {p: (s, e - (p in letters)) for p, (s, e) in batch.items()})
        self._given.update({p: end for p, (_, end) in batch.items()})
        returned = self._written(batch)
        rewinds: Mapping[TopicPartition, int] = {}
        if not letters and world.chance(mix.rewinds / 2):
            rewinds = self._rewind(world.random.choice(partitions))
        rows = [{"partition": p, "offset": batch[p][1] - 1} for p in letters]
        count = operation.plan.record_count
        report = PassReport(count, count - len(rows), 0, len(rows), dead_letter_rows=rows)
        return events.BatchWritten(returned, report, rewinds)

    def _written(self, batch: Batch) -> Written:
        """How far the plugin has written; it may keep the last records in memory."""
        world, mix = self.engine.world, self.engine.network.mix
        keeps = world.chance(mix.rewinds)
        for partition, (_, end) in batch.items():
            low = self._reported.get(partition, 0) if keeps else end
            self._reported[partition] = world.between(low, end)
        up_to = {TopicPartition(self._topic, p): self._reported[p] for p in batch}
        return Written(up_to=up_to) if keeps else Written()

    async def _publish_letters(self, operation: instructions.PublishLetters) -> TaskEvent:
        await self.plugin_works(20)
        letters = {row["partition"]: (row["offset"], row["offset"] + 1) for row in operation.rows}
        self.did(What.DELIVERED, letters)
        return events.LettersPublished()
