"""The replay of dead letters by a sink's task."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from drover.connector.replay_settings import Replay
from drover.connector.settings import BATCH_MAX_BYTES
from drover.dataplane.plane import PartitionKey
from drover.dataplane.values import ReadPlan
from drover.model.letter_states import replay_progress
from drover.model.offsets import CommittedOffset
from drover.model.sink_outputs import SinkOutput
from drover_worker.engine.tasks.record_path import RecordPath
from drover_worker.engine.tasks.replay_check import ReplayCheck
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
        check: ReplayCheck | None,
    ) -> None:
        """``check`` is None for a replay that writes all dead letters."""
        self.topic = replay.topic
        self._replaying = replaying
        self._config = config
        self._tools = tools
        self._check = check

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
        check = ReplayCheck.begun(replay, spec, config, tools, path)
        return cls(replay, replaying, config, tools, check)

    @property
    def begun_partitions(self) -> Collection[PartitionKey]:
        """The partitions with a committed offset of this replay."""
        return self._replaying.begun

    @property
    def positions(self) -> Mapping[PartitionKey, int]:
        """The next dead letter of each partition."""
        return self._replaying.positions

    @property
    def output(self) -> SinkOutput:
        """The output of the dead letters."""
        return self._replaying.output

    def plan(self, max_records: int) -> ReadPlan | None:
        """The next read; None when all dead letters have been replayed."""
        return self._replaying.plan(
            self._tools.plane, max_records=max_records, max_bytes=self._config[BATCH_MAX_BYTES]
        )

    def check(self, plan: ReadPlan) -> None:
        """Decide which dead letters of the plan are written, directly before the write."""
        if self._check is not None:
            self._check.refuse(plan)

    def move(self, plan: ReadPlan) -> None:
        """Advance past a plan's dead letters, which are committed."""
        self._replaying.move(plan)
