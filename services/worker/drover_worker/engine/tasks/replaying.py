"""Tracks a task's progress through the dead letters that it replays."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from drover.connector.replay_settings import Replay
from drover.dataplane.plane import DataPlane, PartitionKey
from drover.dataplane.values import ReadPlan
from drover.model.offsets import CommittedOffset
from drover.model.sink_offsets import SinkOffsetError, parse_sink_offset


def split_replay_offsets(
    committed: Iterable[CommittedOffset], topic: str
) -> tuple[list[CommittedOffset], dict[PartitionKey, int]]:
    """The source's own offsets, and the replay positions in the dead letter topic ``topic``."""
    own: list[CommittedOffset] = []
    letters: dict[PartitionKey, int] = {}
    for each in committed:
        try:
            found = parse_sink_offset(each)
        except SinkOffsetError:
            found = None
        if found is not None and found[0].topic == topic:
            letters[topic, found[0].partition] = found[1]
        else:
            own.append(each)
    return own, letters


class Replaying:
    """The dead letters that one run of a task replays: its partitions, by task number."""

    def __init__(
        self, replay: Replay, committed: Mapping[PartitionKey, int], *, task: int, task_count: int
    ) -> None:
        self.topic = replay.topic
        share = [each for each in replay.ranges if each.partition % task_count == task]
        self._ends = {(replay.topic, each.partition): each.end_offset for each in share}
        #: The next offset to read.
        self.positions = {
            (replay.topic, each.partition): max(
                each.start_offset, committed.get((replay.topic, each.partition), 0)
            )
            for each in share
        }

    def plan(self, plane: DataPlane, *, max_records: int, max_bytes: int) -> ReadPlan | None:
        """The next read; None when all remaining dead letters have been replayed."""
        while starts := {key: at for key, at in self.positions.items() if at < self._ends[key]}:
            plan = self._cut(plane.plan_read(starts, max_records=max_records, max_bytes=max_bytes))
            if plan.record_count:
                return plan
            # the range is empty, or retention removed its records
            for key, at in starts.items():
                moved = plan.next_offsets.get(key, at)
                self.positions[key] = moved if moved > at else self._ends[key]
        return None

    def move(self, plan: ReadPlan) -> None:
        """Advance past a plan's dead letters, which are committed."""
        self.positions.update(plan.next_offsets)

    def _cut(self, plan: ReadPlan) -> ReadPlan:
        ranges = [
            replace(each, end_offset=min(each.end_offset, self._ends[each.topic, each.partition]))
            for each in plan.ranges
            if each.start_offset < self._ends[each.topic, each.partition]
        ]
        nexts = {key: min(at, self._ends[key]) for key, at in plan.next_offsets.items()}
        return ReadPlan(tuple(ranges), nexts)
