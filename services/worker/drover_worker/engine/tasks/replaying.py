"""Tracks a task's progress through the dead letters that it replays."""

from collections.abc import Iterable, Mapping

import structlog

from drover.connector.replay_settings import Replay
from drover.dataplane.plane import DataPlane, PartitionKey
from drover.dataplane.values import ReadPlan
from drover.model.letter_states import OffsetSet, ReplayProgress, offsets_of_ranges
from drover.model.offsets import CommittedOffset
from drover.model.sink_offsets import SinkOffsetError, parse_partition
from drover.model.sink_outputs import SinkOutput

log = structlog.get_logger(__name__)


def split_replay_offsets(
    committed: Iterable[CommittedOffset], topic: str
) -> tuple[list[CommittedOffset], list[CommittedOffset]]:
    """The source's own offsets, and those in the dead letter queue ``topic``."""
    own: list[CommittedOffset] = []
    letters: list[CommittedOffset] = []
    for each in committed:
        try:
            is_letter = parse_partition(each.partition_json).topic == topic
        except SinkOffsetError:
            is_letter = False
        (letters if is_letter else own).append(each)
    return own, letters


class Replaying:
    """The dead letters that one run of a task replays: its partitions, by task number."""

    def __init__(
        self, replay: Replay, progress: Mapping[int, ReplayProgress], *, task: int, task_count: int
    ) -> None:
        self.topic = replay.topic
        #: The output of its dead letters, for their committed offsets.
        self.output = SinkOutput(replay.topic_id, replay.id)
        wanted = offsets_of_ranges(replay.ranges)
        self._wanted: dict[PartitionKey, OffsetSet] = {}
        #: The next offset to read.
        self.positions: dict[PartitionKey, int] = {}
        #: The partitions with a committed offset of this replay.
        self.begun: set[PartitionKey] = set()
        for partition, offsets in sorted(wanted.items()):
            found = progress.get(partition)
            if partition % task_count != task or (
                found is not None and found.is_reset_of(replay.id)
            ):
                continue
            key = (replay.topic, partition)
            end = None if found is None else found.end_of(replay.id)
            if end is not None:
                self.begun.add(key)
            self._wanted[key] = offsets
            self.positions[key] = max(offsets.ranges[0][0] if offsets else 0, end or 0)

    @classmethod
    def in_topic(
        cls,
        replay: Replay,
        plane: DataPlane,
        progress: Mapping[int, ReplayProgress],
        *,
        task: int,
        task_count: int,
    ) -> "Replaying | None":
        """As the constructor; None if the queue was deleted and created again since the request."""
        present = plane.topic_ids([replay.topic], fresh=True).get(replay.topic, "")
        if not SinkOutput(replay.topic_id).is_of(present):
            log.warning(
                "dead letters are not replayed: their topic was deleted and created again",
                topic=replay.topic,
            )
            return None
        return cls(replay, progress, task=task, task_count=task_count)

    def plan(self, plane: DataPlane, *, max_records: int, max_bytes: int) -> ReadPlan | None:
        """The next read; None when all remaining dead letters have been replayed."""
        while parts := self._next_parts():
            starts = {key: start for key, (start, _) in parts.items()}
            found = plane.plan_read(starts, max_records=max_records, max_bytes=max_bytes)
            plan = found.until({key: end for key, (_, end) in parts.items()})
            if plan.record_count:
                return plan
            # the range is empty, or retention removed its records
            for key, (start, end) in parts.items():
                moved = plan.next_offsets.get(key, start)
                self.positions[key] = moved if moved > start else end
        return None

    def move(self, plan: ReadPlan) -> None:
        """Advance past a plan's dead letters, which are committed."""
        self.positions.update(plan.next_offsets)

    def _next_parts(self) -> dict[PartitionKey, tuple[int, int]]:
        """The next range of each partition that has one."""
        parts = {}
        for key, at in self.positions.items():
            left = ((max(at, start), end) for start, end in self._wanted[key].ranges if end > at)
            part = next(left, None)
            if part is not None:
                parts[key] = part
        return parts
