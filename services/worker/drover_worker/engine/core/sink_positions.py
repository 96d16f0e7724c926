"""Which topic partitions a sink task reads, from which offsets, into which outputs. Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

from drover.config.patterns import Pattern
from drover.connector.offsets import SinkOffset
from drover.connector.settings import LATEST
from drover.dataplane.plane import PartitionKey
from drover.dataplane.values import ReadPlan
from drover.model.offsets import CommittedOffset, TopicPartition
from drover.model.sink_outputs import OutputMark, SinkOutput
from drover_worker.engine.core.events import LetterReplay
from drover_worker.engine.core.sink_commits import rewound
from drover_worker.engine.core.sink_starts import (
    SinkStarts,
    fetched_partitions,
    starts_at_earliest,
    starts_of,
)
from drover_worker.engine.core.task import TaskSettings

#: Topic partitions listed in one warning.
NAMED_MAX = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkSettings(TaskSettings):
    """The part of a sink's config that its core needs.

    Attributes:
        topics: The topics to read; None if they match ``pattern``.
        pattern: The pattern of their names.
        task_count: The number of tasks that share the partitions.
        auto_offset_reset: Where a partition without a committed offset starts.
        batch_wait_ms: How long a batch waits for more records.
        writes_ahead: Whether a batch may be written while the one before is being committed.
        knows_starts: Whether the sink expects committed offsets of partitions without output.
        has_replay: Whether the config asks for a replay of dead letters.
    """

    topics: Sequence[str] | None
    pattern: Pattern | None = None
    task_count: int = 1
    auto_offset_reset: str
    batch_wait_ms: int = 0
    writes_ahead: bool = False
    knows_starts: bool = False
    has_replay: bool = False


class SinkPositions:
    """The partitions of a task and their offsets, since its task object started.

    Attributes:
        positions: The next offset to read, by topic partition of this task; change it by
            ``read_up_to`` and ``rewind``.
        committed: Offsets that are committed or sent for commit.
        partition_counts: The last known partition count of each topic.
        topic_ids: The topics whose offsets were taken over, with the ids that they had then.
        output_ids: The ids of outputs that are not a partition's first.
        marks: Partitions that had a committed offset and have none now.
        shown: Committed offsets that the task object sees at its start.
        own_positions: Start positions from the task object, which override committed offsets.
        unsent_starts: Start positions that the config chose and that are not committed yet.
        letters: The next dead letter of each partition of a replay.
    """

    def __init__(self, settings: SinkSettings) -> None:
        self._settings = settings
        #: Log starts that were logged after retention had removed unread records.
        self._logged_starts: dict[PartitionKey, int] = {}
        self.begin(())

    def begin(self, fetched: Sequence[CommittedOffset]) -> None:
        """Forget everything: a task object starts from the coordinator's offsets."""
        self.positions: dict[PartitionKey, int] = {}
        #: The highest position that each partition has had.
        self._highest: dict[PartitionKey, int] = {}
        self.committed: dict[PartitionKey, int] = {}
        self.partition_counts: dict[str, int] = {}
        self.topic_ids: dict[str, str] = {}
        self.output_ids: dict[TopicPartition, str] = {}
        self.marks: dict[TopicPartition, OutputMark] = {}
        self.shown: dict[TopicPartition, SinkOffset] = {}
        self.own_positions: Mapping[PartitionKey, int] = {}
        self.unsent_starts: set[PartitionKey] = set()
        self.letters: dict[PartitionKey, int] = {}
        self.fetched = fetched
        #: Topics that were deleted and created again since a commit.
        self._recreated: set[str] = set()
        #: Whether partitions were found since the task object started.
        self._has_looked = False
        self._replay: LetterReplay | None = None
        #: The offsets up to which dead letters were replayed.
        self._letters_given: dict[PartitionKey, int] = {}

    @property
    def fetched_topics(self) -> list[str]:
        """The topics of the coordinator's offsets and marks.

        Raises:
            ValueError: An offset does not have the form of a sink's offset.
        """
        return sorted({each.topic for each in fetched_partitions(self.fetched)})

    @property
    def given(self) -> dict[PartitionKey, int]:
        """The offsets up to which the task has received records, since the last rewind."""
        return {**self.positions, **self._letters_given}

    @property
    def highest_given(self) -> dict[PartitionKey, int]:
        """The offsets up to which the task has ever received records."""
        return {**self._highest, **self._letters_given}

    def read_up_to(self, offsets: Mapping[PartitionKey, int]) -> None:
        """The records before these offsets were given to the task, or there are none."""
        self.positions.update(offsets)
        for key, at in offsets.items():
            self._highest[key] = max(at, self._highest.get(key, 0))

    def rewind(self, wanted: Mapping[TopicPartition, int]) -> None:
        """Give records again; of several rewinds of a partition the lowest one counts.

        Raises:
            ValueError: See ``rewound``.
        """
        for key, at in rewound(wanted, self._highest).items():
            self.positions[key] = min(at, self.positions[key])

    def take_over(self, ids: Mapping[str, str]) -> SinkStarts:
        """Take over the fetched offsets in topics that are new here."""
        starts = starts_of(self.fetched, ids)
        self.topic_ids.update(ids)
        self.output_ids.update(starts.output_ids)
        self.marks.update(starts.marks)
        self._recreated.update(starts.recreated)
        self.committed.update({key: each.offset for key, each in starts.offsets.items()})
        self.shown.update(self.visible(starts))
        return starts

    def visible(self, starts: SinkStarts) -> Mapping[TopicPartition, SinkOffset]:
        """The offsets that the task object sees."""
        hidden = () if self._settings.knows_starts else starts.unwritten
        return {key: each for key, each in starts.offsets.items() if key not in hidden}

    def begin_replay(self, replay: LetterReplay) -> None:
        """Replay dead letters before all other records."""
        self._replay = replay
        self.letters = dict(replay.positions)
        for key in (TopicPartition(*each) for each in replay.positions):
            if key not in replay.begun:  # the offset of another replay
                self.committed.pop(key, None)
                self.shown.pop(key, None)
            if replay.output.output_id:
                self.output_ids[key] = replay.output.output_id

    def replayed(self, plan: ReadPlan) -> None:
        """The dead letters of a plan are written."""
        self.letters.update(plan.next_offsets)
        self._letters_given.update(plan.next_offsets)

    def is_replay(self, plan: ReadPlan) -> bool:
        """Whether the plan reads dead letters; their topic is not one of the sink's topics."""
        return self._replay is not None and plan.ranges[0].topic == self._replay.topic

    def output(self, key: TopicPartition) -> SinkOutput:
        """The output of a partition."""
        return SinkOutput(self.topic_ids.get(key.topic, ""), self.output_ids.get(key, ""))

    def outputs_of(self, keys: Collection[TopicPartition]) -> dict[TopicPartition, SinkOutput]:
        """The known outputs of partitions, of dead letters too."""
        outputs = {key: self.output(key) for key in keys if key in self.positions}
        if self._replay is not None:
            outputs |= {key: self._replay.output for key in keys if key in self.letters}
        return outputs

    def places_of(self, names: Collection[str]) -> Mapping[str, int]:
        """The topics to read, each with the task number that gets its partition 0.

        Named topics use consecutive numbers, which spreads many small topics evenly. Topics that
        match a pattern use a hash, because the number must not depend on which other topics exist.

        Args:
            names: All topics, or the cluster's internal ones if the config names the topics.

        Raises:
            ValueError: A named topic is internal.
        """
        settings = self._settings
        if settings.pattern is None:
            assert settings.topics is not None
            reserved = sorted({*settings.topics} & {*names})
            if reserved:
                raise ValueError(
                    f"the topic {reserved[0]} is internal to the cluster: connectors may not read "
                    "it"
                )
            return {topic: index for index, topic in enumerate(settings.topics)}
        found = {*filter(settings.pattern.matches, names), *self.partition_counts}
        letters = settings.errors.dead_letter_topic
        return {topic: crc32(topic.encode()) for topic in sorted(found) if topic != letters}

    def new_keys(self, places: Mapping[str, int], counts: Mapping[str, int]) -> list[PartitionKey]:
        """The partitions of this task that are not known yet."""
        count, own = self._settings.task_count, self._settings.task.task
        return [
            (topic, partition)
            for topic, place in places.items()
            if topic in self.topic_ids  # otherwise it was deleted at this moment
            for partition in range(self.partition_counts.get(topic, 0), counts.get(topic, 0))
            if (place + partition) % count == own
        ]

    def starts_at_end(self, keys: Collection[PartitionKey]) -> list[PartitionKey]:
        """The new partitions that are read from their end.

        Raises:
            NoOffsetError: One has no committed offset, and the config forbids to choose.
        """
        # partitions that are found later have only records that are newer than the sink
        known = {*self._recreated, *(topic for topic, _ in self.committed)}
        reset = self._settings.auto_offset_reset
        return [
            key
            for key in keys
            if key not in self.committed
            and not starts_at_earliest(key, reset, is_new=self._has_looked or key[0] in known)
        ]

    def add(
        self,
        places: Mapping[str, int],
        counts: Mapping[str, int],
        ends: Mapping[PartitionKey, int],
    ) -> None:
        """Add the new partitions; ``ends`` has the ones to read from their end."""
        for key in self.new_keys(places, counts):
            start = self.committed.get(key)
            if start is None:
                start = ends.get(key, 0)
                if self._settings.auto_offset_reset == LATEST:
                    self.unsent_starts.add(key)
            self.read_up_to({key: self.own_positions.get(key, start)})
        for topic in places:
            known, count = self.partition_counts.get(topic, 0), counts.get(topic, 0)
            if not count or topic in self.topic_ids:
                self.partition_counts[topic] = max(known, count)
        self._has_looked = True

    def skipped(self, plan: ReadPlan) -> Mapping[str, Any] | None:
        """What to log about records that retention removed unread; each range once."""
        starts = {key: self.positions[key] + count for key, count in plan.skipped.items()}
        news = [key for key, start in starts.items() if start > self._logged_starts.get(key, 0)]
        if not news:
            return None
        self._logged_starts.update(starts)
        return {
            "record_count": sum(plan.skipped[key] for key in news),
            "log_starts": {f"{topic}-{n}": starts[topic, n] for topic, n in news[:NAMED_MAX]},
        }
