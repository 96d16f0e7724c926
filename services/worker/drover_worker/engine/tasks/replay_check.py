"""Decides which dead letters of a replay a task writes, directly before the writes."""

from collections.abc import Mapping
from typing import Any

from drover.connector.replay_settings import Replay
from drover.dataplane.values import ReadPlan
from drover.model.letter_states import OffsetSet, offsets_of_ranges
from drover_worker.engine.tasks.letter_check import TASK_SEARCH_S, LetterCheck, LetterDecisions
from drover_worker.engine.tasks.record_path import RecordPath
from drover_worker.engine.tasks.task_runner import TaskSpec, TaskTools


class ReplayCheck:
    """Refuses dead letters that would overwrite newer data, in the task's record path.

    The dead letter queue is read once, and each record of a topic is searched once.
    """

    def __init__(self, replay: Replay, check: LetterCheck, path: RecordPath) -> None:
        self._replay = replay
        self._check = check
        self._path = path
        self._decisions: LetterDecisions | None = None

    @classmethod
    def begun(
        cls,
        replay: Replay,
        spec: TaskSpec,
        config: Mapping[str, Any],
        tools: TaskTools,
        path: RecordPath,
    ) -> "ReplayCheck | None":
        """The check of a replay; None if it writes all dead letters."""
        if not replay.skips_newer:
            return None
        kind, name = spec.connector_class, spec.task.connector
        check = LetterCheck(kind, config, name, path, tools.plane, tools.spark)
        return cls(replay, check, path)

    def refuse(self, plan: ReadPlan) -> None:
        """Decide about the dead letters of a plan."""
        if self._decisions is None:
            self._path.refused_letters = {}
            wanted = offsets_of_ranges(self._replay.ranges)
            self._decisions = self._check.begin(self._replay.topic, wanted, search_s=TASK_SEARCH_S)
        within: dict[int, list[tuple[int, int]]] = {}
        for each in plan.ranges:
            within.setdefault(each.partition, []).append((each.start_offset, each.end_offset))
        found = self._decisions.now({n: OffsetSet.of(each) for n, each in within.items()})
        # the reason is the cause of a new dead letter
        self._path.refused_letters = {
            place: f"the dead letter was not replayed: {each.message}"
            for place, each in found.refused.items()
        }
