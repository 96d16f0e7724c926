"""Runs source and sink tasks over an embedded store, batch by batch, as an engine would."""

import itertools
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from pyspark.sql import SparkSession

from drover.connector import (
    Connector,
    ConnectorContext,
    SinkConnector,
    SinkOffset,
    SinkTask,
    SinkTaskContext,
    SourceConnector,
    SourceTask,
    SourceTaskContext,
    TopicPartition,
)
from drover.connector.offset_forms import refuse_foreign
from drover.connector.offsets import parse_sink_offsets, sink_offset, source_offsets
from drover.connector.settings import parse_config, task_config
from drover.connector.task import TaskFigures
from drover.dataplane.embedded import EmbeddedPlane
from drover.dataplane.plane import Destination, OutgoingBatch, Receipt
from drover.dataplane.store import EmbeddedStore
from drover.dataplane.topic_creation import TopicCreation, TopicRule
from drover.dataplane.values import ReadPlan
from drover.model.ids import TaskId, Term
from drover.model.offsets import CommitOutcome, CommittedOffset, TaskOffsets
from drover_worker.engine.tasks.record_path import (
    RecordPath,
    dead_letter_destination,
    possible_rules,
)


class RunningSource:
    """One source task under a claim."""

    def __init__(
        self,
        pipeline: "Pipeline",
        task: TaskId,
        claim: Term,
        source: SourceTask,
        path: RecordPath,
        figures: TaskFigures,
    ) -> None:
        self.claim = claim
        self._path = path
        self.source = source
        self.figures = figures
        self.partition_count = 1
        self.spread_keyless = False
        self._plane = pipeline.plane
        self._writer = pipeline.plane.writer(task, claim, abandoned=lambda: False)

    def step(self) -> Receipt | None:
        """Move one batch; None when idle."""
        batch = self.source.poll()
        if batch is None:
            return None
        creation = TopicCreation(TopicRule(self.partition_count))
        if batch.originals:
            creation = creation.for_copies(
                possible_rules(batch.originals, self._plane), counts_set=False
            )
        destination = Destination(
            topic=batch.topic,
            creation=creation,
            spread_keyless=self.spread_keyless,
        )
        outgoing = OutgoingBatch(*self._path.source_batch(batch), destination)
        receipt = self._writer.publish(
            [self._writer.stage(outgoing)], source_offsets(batch.offsets)
        )
        self.report = self._path.report(read_count=receipt.record_count)
        self.source.committed(batch.offsets)
        return receipt

    def run_until_idle(self, max_steps: int = 1000) -> int:
        """Move batches until there are none; returns the records moved."""
        moved = 0
        for _ in range(max_steps):
            result = self.step()
            if result is None:
                return moved
            moved += result.record_count
        raise AssertionError(f"still busy after {max_steps} batches")


class RunningSink:
    """One sink task under a claim."""

    def __init__(
        self,
        pipeline: "Pipeline",
        task: TaskId,
        claim: Term,
        sink: SinkTask,
        path: RecordPath,
        starts: dict[tuple[str, int], int],
        committed: dict[TopicPartition, SinkOffset],
    ) -> None:
        self._committed = committed
        self._pipeline = pipeline
        self._task = task
        self.claim = claim
        self.sink = sink
        self._path = path
        self._starts: Mapping[tuple[str, int], int] = starts

    def plan(self, max_records: int = 500_000) -> ReadPlan:
        return self._pipeline.store.plan_read(self._starts, max_records=max_records)

    def plan_of(self, topic: str) -> ReadPlan:
        """A plan with the records of one topic."""
        starts = {key: at for key, at in self._starts.items() if key[0] == topic}
        return self._pipeline.store.plan_read(starts, max_records=500_000)

    def write(self, plan: ReadPlan) -> str:
        """Write a plan's records without committing them. As in an engine, a position is committed
        before the first record of a topic partition is written.
        """
        new = [each for each in plan.ranges if (each.topic, each.partition) not in self._committed]
        if new:
            first = self.sink.first_metadata()
            self._commit(
                [sink_offset(each.topic, each.partition, each.start_offset, first) for each in new]
            )
        dead_letters = self._pipeline.plane.dead_letters(
            self._task, self.claim, dead_letter_destination(self._path.errors)
        )
        self._path.begin_pass()
        batch = self._path.sink_batch(self._pipeline.plane, plan, dead_letters)
        metadata = self.sink.write(batch)
        assert isinstance(metadata, str)
        self.report = self._path.report(read_count=plan.record_count)
        dead_letters.publish(self.report.dead_letter_rows)
        return metadata

    def commit(self, plan: ReadPlan, metadata: str) -> CommitOutcome:
        touched = {(each.topic, each.partition) for each in plan.ranges}
        offsets = [
            sink_offset(topic, partition, plan.next_offsets[topic, partition], metadata)
            for topic, partition in sorted(touched)
        ]
        outcome = self._commit(offsets)
        if outcome is CommitOutcome.COMMITTED:
            self._starts = {**self._starts, **plan.next_offsets}
        return outcome

    def _commit(self, offsets: Sequence[CommittedOffset]) -> CommitOutcome:
        commit = TaskOffsets(self._task, self.claim, offsets)
        outcome = self._pipeline.store.commit_offsets([commit])[0].outcome
        if outcome is CommitOutcome.COMMITTED:
            self._committed.update(parse_sink_offsets(offsets))
        return outcome

    def run_until_idle(self, max_steps: int = 1000, max_records: int = 500_000) -> int:
        moved = 0
        for _ in range(max_steps):
            plan = self.plan(max_records)
            if not plan.ranges:
                return moved
            assert self.commit(plan, self.write(plan)) is CommitOutcome.COMMITTED
            moved += plan.record_count
        raise AssertionError(f"still busy after {max_steps} batches")


class Pipeline:
    """A store and its tasks."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self.spark = spark
        self.directory = directory
        self.store = EmbeddedStore(directory / "data.db")
        self.plane = EmbeddedPlane(self.store)
        self._requests = itertools.count()
        self._stops: list[SourceTask | SinkTask] = []

    def start_source(
        self,
        connector_class: type[SourceConnector],
        raw: Mapping[str, str],
        *,
        index: int = 0,
        max_tasks: int = 1,
    ) -> RunningSource:
        config, own = self._task_config(connector_class, raw, index, max_tasks)
        task = TaskId(raw["name"], index)
        claim = self.claim(task)
        source = connector_class.task_class()
        committed = self.store.fetch_offsets(task.connector)
        refuse_foreign(
            task.connector, connector_class.__name__, connector_class.offset_forms, committed
        )
        figures = TaskFigures()
        context = SourceTaskContext(
            task=task,
            claim=claim,
            config=task_config(connector_class, config, own),
            spark=self.spark,
            committed=committed,
            report=figures.report,
        )
        source.start(context)
        self._stops.append(source)
        path = RecordPath(connector_class, context.config, task, self.spark)
        return RunningSource(self, task, claim, source, path, figures)

    def start_sink(
        self,
        connector_class: type[SinkConnector],
        raw: Mapping[str, str],
        *,
        lost: Collection[TopicPartition] = (),
        output_ids: Mapping[TopicPartition, str] = MappingProxyType({}),
    ) -> RunningSink:
        """Start a sink; the offsets of ``lost`` are missing, as after their topics were deleted."""
        config, own = self._task_config(connector_class, raw, 0, 1)
        task = TaskId(raw["name"], 0)
        claim = self.claim(task)
        found = parse_sink_offsets(self.store.fetch_offsets(task.connector))
        committed = {key: at for key, at in found.items() if key not in lost}
        parsed = task_config(connector_class, config, own)
        sink = connector_class.task_class()
        context = SinkTaskContext(
            task=task,
            claim=claim,
            config=parsed,
            spark=self.spark,
            committed=committed,
            output_ids=output_ids,
        )
        sink.start(context)
        self._stops.append(sink)
        starts: dict[tuple[str, int], int] = {}
        for topic in parsed["topics"]:
            for partition in self.store.end_offsets(topic):
                known = committed.get(TopicPartition(topic, partition))
                starts[topic, partition] = known.offset if known is not None else 0
        path = RecordPath(connector_class, parsed, task, self.spark)
        return RunningSink(self, task, claim, sink, path, starts, committed)

    def claim(self, task: TaskId) -> Term:
        return self.store.claim_task(
            task, generation=1, owner="test", request_id=f"request-{next(self._requests)}"
        )

    def close(self) -> None:
        for task in self._stops:
            task.stop()
        self.store.close()

    def _task_config(
        self,
        connector_class: type[Connector],
        raw: Mapping[str, str],
        index: int,
        max_tasks: int,
    ) -> tuple[dict[str, str], Mapping[str, str]]:
        config = {"connector.class": connector_class.__name__, **raw}
        values = parse_config(connector_class, config).require_valid()
        connector = connector_class()
        connector.start(ConnectorContext(raw["name"]), values)
        own = connector.task_configs(max_tasks)[index]
        connector.stop()
        return config, own
