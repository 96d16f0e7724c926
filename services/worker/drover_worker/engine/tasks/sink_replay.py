"""The replay of dead letters by a sink's task."""

from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any

from drover.connector.offsets import SinkOffset
from drover.connector.replay_settings import Replay
from drover.connector.settings import BATCH_MAX_BYTES
from drover.dataplane.plane import PartitionKey
from drover.dataplane.values import ReadPlan
from drover.model.letter_states import OffsetSet, offsets_of_ranges, replay_progress
from drover.model.offsets import CommittedOffset, TopicPartition
from drover.model.sink_outputs import SinkOutput
from drover_worker.engine.tasks.letter_check import (
    TASK_SEARCH_S,
    LetterCheck,
    LetterDecisions,
    refusal_text,
)
from drover_worker.engine.tasks.record_path import RecordPath
from drover_worker.engine.tasks.replaying import Replaying
from drover_worker.engine.tasks.task_runner import TaskSpec, TaskTools


class SinkReplay:
    """The dead letters that a sink's task replays before all other records."""

    def __init__(
        self,
        replay: Replay,
        replaying: Replaying,
        config: Mapping[str, Any],
        tools: TaskTools,
        path: RecordPath,
        check: LetterCheck | None,
    ) -> None:
        """``check`` is None for a replay that writes all dead letters."""
        self.topic = replay.topic
        self._wanted = offsets_of_ranges(replay.ranges)
        self._replaying: Replaying | None = replaying
        self._positions = replaying
        self._config = config
        self._tools = tools
        self._path = path
        self._check = check
        self._decisions: LetterDecisions | None = None
        #: The offsets up to which dead letters were replayed in this run.
        self.given: dict[PartitionKey, int] = {}

    @classmethod
    def begun(
        cls,
        spec: TaskSpec,
        config: Mapping[str, Any],
        tools: TaskTools,
        path: RecordPath,
        committed: Sequence[CommittedOffset],
        task_count: int,
    ) -> "SinkReplay | None":
        """The replay of a config, behind its committed progress; None if there is none."""
        replay = path.replay
        if replay is None:
            return None
        replaying = Replaying.in_topic(
            replay,
            tools.plane,
            replay_progress(committed, replay.topic, replay.topic_id),
            task=spec.task.task,
            task_count=task_count,
        )
        if replaying is None:
            return None
        check = None
        if replay.skips_newer:
            kind, name = spec.connector_class, spec.task.connector
            check = LetterCheck(kind, config, name, path, tools.plane, tools.spark)
        return cls(replay, replaying, config, tools, path, check)

    def take_over(
        self,
        committed: MutableMapping[PartitionKey, int],
        committed_offsets: MutableMapping[TopicPartition, SinkOffset],
        output_ids: MutableMapping[TopicPartition, str],
    ) -> None:
        """Drop the offsets of other replays, and set the ids of this one's outputs."""
        for topic, partition in self.positions:
            key = TopicPartition(topic, partition)
            if (topic, partition) not in self._positions.begun:
                committed.pop(key, None)
                committed_offsets.pop(key, None)
            if self.output.output_id:
                output_ids[key] = self.output.output_id

    @property
    def positions(self) -> Mapping[PartitionKey, int]:
        """The next dead letter of each partition."""
        return self._positions.positions

    @property
    def output(self) -> SinkOutput:
        """The output of the dead letters."""
        return self._positions.output

    def plan(self, max_records: int) -> ReadPlan | None:
        """The next read; None when all dead letters have been replayed."""
        if self._replaying is None:
            return None
        plan = self._replaying.plan(
            self._tools.plane, max_records=max_records, max_bytes=self._config[BATCH_MAX_BYTES]
        )
        if plan is None:
            self._replaying = None
        return plan

    def check(self, plan: ReadPlan) -> None:
        """Decide which dead letters of the plan are written, directly before the write."""
        if self._check is None:
            return
        if self._decisions is None:
            self._path.refused_letters = {}
            self._decisions = self._check.begin(self.topic, self._wanted, search_s=TASK_SEARCH_S)
        within: dict[int, list[tuple[int, int]]] = {}
        for each in plan.ranges:
            within.setdefault(each.partition, []).append((each.start_offset, each.end_offset))
        found = self._decisions.now({n: OffsetSet.of(each) for n, each in within.items()})
        self._path.refused_letters = {
            place: refusal_text(each) for place, each in found.refused.items()
        }

    def move(self, plan: ReadPlan) -> None:
        """Advance past a plan's dead letters, which are committed."""
        self._positions.move(plan)
        self.given.update(plan.next_offsets)
