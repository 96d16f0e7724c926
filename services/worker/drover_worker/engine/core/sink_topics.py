"""How a sink task starts, and how each of its runs begins: topics, partitions, kept offsets."""

from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import ClassVar

from drover.dataplane.plane import PartitionKey
from drover.dataplane.values import ReadPlan
from drover.model.offsets import CommittedOffset, TopicPartition
from drover_worker.engine.core import events, instructions
from drover_worker.engine.core.failures import Fault
from drover_worker.engine.core.phases import Phase
from drover_worker.engine.core.sink_commits import checked_positions
from drover_worker.engine.core.sink_positions import NAMED_MAX, SinkPositions, SinkSettings
from drover_worker.engine.core.sink_starts import (
    SinkStarts,
    changed_topics,
    missing_offsets,
    recommitted,
)
from drover_worker.engine.core.task import TaskCore, TransitionTable

#: The longest time between two commits of an unchanged offset, and the share of the time after
#: which the brokers remove it.
_RECOMMIT_MAX_MS = 3_600_000
_RECOMMIT_SHARE = 0.25

_RECREATED = "topics were deleted and created again; their records start a new output"
_RESTARTS = "topics were created again; the task restarts"
_RESTORED = "committed offsets were lost and are committed again"


class SinkTopics(TaskCore):
    """The part of a sink's core before its batches; see SinkCore."""

    settings: SinkSettings

    def __init__(
        self, settings: SinkSettings, committed: Sequence[CommittedOffset], *, paused: bool
    ) -> None:
        super().__init__(settings, committed, paused=paused)
        self._at = SinkPositions(settings)
        #: The number of committed offsets that were lost and committed again.
        self._restored_count = 0
        #: Topics of this run, each with the task number that gets its partition 0.
        self._places: Mapping[str, int] = {}
        self._counts: Mapping[str, int] = {}
        #: Whether all dead letters have been replayed.
        self._replay_is_over = True
        #: Whether the next commit is the first since the task object started.
        self._fresh = True
        #: The plan that write() asked to retry.
        self._retry_plan: ReadPlan | None = None
        #: Whether more records were available than the last batch has.
        self._is_behind = False
        #: When all offsets are committed again, so that the brokers keep them; 0 for at once.
        self._next_recommit_ms: int | None = 0
        self._recommit_is_due = False
        self._recommit_is_first = True
        self._recommitted: Sequence[CommittedOffset] = ()

    @property
    def positions(self) -> Mapping[PartitionKey, int]:
        """The next offset to read, by topic partition of this task."""
        return self._at.positions

    @property
    def committed(self) -> Mapping[PartitionKey, int]:
        """Offsets that are committed or sent for commit."""
        return self._at.committed

    @abstractmethod
    def _commit_chosen_starts(self) -> None:
        """The topics are known: continue the run."""

    @abstractmethod
    def _commit_starts_of_plan(self) -> None:
        """The topics of the plan are the same as before: continue the batch."""

    # --- the start ---------------------------------------------------------------------------

    def _begin_start(self, committed: Sequence[CommittedOffset]) -> None:
        self._at.begin(committed)
        self._replay_is_over = True
        topics = self._at.fetched_topics
        if topics:
            self._operate(Phase.IDENTIFYING_COMMITTED_TOPICS, instructions.IdentifyTopics(topics))
        else:
            self._begin_replay()

    def _committed_topics_identified(self, event: events.TopicsIdentified) -> None:
        self._take_over(event.ids)
        self._begin_replay()

    def _begin_replay(self) -> None:
        if self.settings.has_replay:
            self._operate(Phase.BEGINNING_REPLAY, instructions.BeginReplay(self._at.fetched))
        else:
            self._start_instance()

    def _replay_begun(self, event: events.ReplayBegun) -> None:
        if event.replay is not None:
            self._replay_is_over = False
            self._at.begin_replay(event.replay)
        self._start_instance()

    def _start_instance(self) -> None:
        self._fresh, self._retry_plan, self._is_behind = True, None, False
        self._operate(
            Phase.STARTING_INSTANCE,
            instructions.StartSink(
                dict(self._at.shown), dict(self._at.output_ids), not self._is_first_start
            ),
        )

    def _started(self, event: events.InstanceStarted) -> None:
        self._at.own_positions = checked_positions(event.positions)
        self._instance_started()

    def _take_over(self, ids: Mapping[str, str]) -> SinkStarts:
        starts = self._at.take_over(ids)
        if starts.recreated:
            named = sorted(starts.recreated)[:NAMED_MAX]
            self._emit(instructions.Log(_RECREATED, {"topics": named}))
        return starts

    # --- new partitions ----------------------------------------------------------------------

    def _begin_batch(self) -> None:
        if self._waits_for_rate():
            return
        self._recommit_is_due = self._recommit_in_ms() == 0
        if self._paused:
            self._emit(instructions.StopWatching())
        by_pattern = self.settings.pattern is not None
        self._operate(Phase.FINDING_TOPICS, instructions.FindTopics(by_pattern))

    def _topics_found(self, event: events.TopicsFound) -> None:
        self._places = self._at.places_of(event.names)
        self._operate(Phase.COUNTING_PARTITIONS, instructions.CountPartitions(list(self._places)))

    def _partitions_counted(self, event: events.PartitionsCounted) -> None:
        self._counts = event.counts
        news = sorted(event.counts.keys() - self._at.topic_ids.keys())
        if news:
            self._operate(Phase.IDENTIFYING_NEW_TOPICS, instructions.IdentifyTopics(news))
        else:
            self._add_partitions()

    def _new_topics_identified(self, event: events.TopicsIdentified) -> None:
        starts = self._take_over(event.ids)
        shown = self._at.visible(starts)
        if shown or starts.output_ids:
            self._emit(instructions.ShowOffsets(shown, starts.output_ids))
        self._add_partitions()

    def _add_partitions(self) -> None:
        wanted = self._at.starts_at_end(self._at.new_keys(self._places, self._counts))
        if wanted:
            self._operate(Phase.FINDING_ENDS, instructions.FindEnds(wanted))
        else:
            self._partitions_added({})

    def _ends_found(self, event: events.EndsFound) -> None:
        self._partitions_added(event.ends)

    def _partitions_added(self, ends: Mapping[PartitionKey, int]) -> None:
        self._at.add(self._places, self._counts, ends)
        self._compare_topics(self._at.topic_ids, Phase.COMPARING_TOPICS, fresh=False)

    # --- topics that were created again ------------------------------------------------------

    def _compare_topics(self, topics: Collection[str], phase: Phase, *, fresh: bool = True) -> None:
        if topics:
            self._operate(phase, instructions.IdentifyTopics(list(topics), fresh))
        else:
            self._topics_compared(phase)

    def _topics_identified(self, event: events.TopicsIdentified) -> None:
        changed = changed_topics(self._at.topic_ids, event.ids)
        if changed:
            self._emit(instructions.Log(_RESTARTS, {"topics": changed[:NAMED_MAX]}))
            self.restart_wanted = True
            self._end_run(0)
        else:
            self._topics_compared(self.phase)

    def _topics_compared(self, phase: Phase) -> None:
        following: Mapping[Phase, Callable[[], None]] = {
            Phase.COMPARING_TOPICS: self._recommit_if_due,
            Phase.COMPARING_TOPICS_OF_PLAN: self._commit_starts_of_plan,
            Phase.COMPARING_TOPICS_AFTER_LOSS: self._data_is_lost,
        }
        following[phase]()

    def _data_is_lost(self) -> None:
        self._check_claim_after(self._held_failure())

    # --- offsets that the brokers would remove -----------------------------------------------

    def _recommit_in_ms(self) -> int | None:
        """In how long the offsets are committed again; None for never."""
        if self._next_recommit_ms is None:
            return None
        return max(0, self._next_recommit_ms - self._now_ms)

    def _recommit_if_due(self) -> None:
        if self._recommit_is_due:
            self._operate(Phase.READING_RETENTION, instructions.ReadRetention())
        else:
            self._commit_chosen_starts()

    def _retention_read(self, event: events.RetentionRead) -> None:
        self._recommit_is_first = not self._next_recommit_ms
        if event.retention_ms is None:
            self._next_recommit_ms = None
            self._commit_chosen_starts()
            return
        pause_ms = min(_RECOMMIT_MAX_MS, int(_RECOMMIT_SHARE * event.retention_ms))
        self._next_recommit_ms = self._now_ms + pause_ms
        self._operate(
            Phase.IDENTIFYING_PRESENT_TOPICS, instructions.IdentifyTopics(list(self._at.topic_ids))
        )

    def _present_topics_identified(self, event: events.TopicsIdentified) -> None:
        self._operate(
            Phase.COUNTING_PRESENT_PARTITIONS, instructions.CountPartitions(list(event.ids))
        )

    def _present_partitions_counted(self, event: events.PartitionsCounted) -> None:
        counts = event.counts
        own = [
            TopicPartition(*key)
            for key in self.positions
            if key[1] < counts.get(key[0], 0) and key in self.committed
        ]
        outputs = {key: self._at.output(key) for key in own}
        self._recommitted = recommitted(self.commits.committed, outputs, self._at.letters.keys())
        if not self._recommitted:
            self._commit_chosen_starts()
        elif self._recommit_is_first:
            self._recommit()
        else:
            self._operate(
                Phase.FETCHING_PRESENT_OFFSETS, instructions.FetchOffsets(with_positions=True)
            )

    def _present_offsets_fetched(self, event: events.OffsetsFetched) -> None:
        """Report offsets that the coordinator no longer has; the task has them."""
        lost = missing_offsets(self._recommitted, event.offsets)
        if lost:
            self._restored_count += len(lost)
            self._emit(instructions.NoteRestored(self._restored_count))
            named = [f"{topic}-{number}" for topic, number in lost[:NAMED_MAX]]
            self._emit(instructions.Log(_RESTORED, {"count": len(lost), "partitions": named}))
        self._recommit()

    def _present_offsets_unknown(self, event: events.OperationFailed) -> None:
        if event.failure.fault is Fault.UNAVAILABLE:
            self._recommit()
        else:
            self._operation_failed(event)

    def _recommit(self) -> None:
        self._commit(self._recommitted, refreshes_marks=True)
        self._recommitted = ()
        self._end_run(None)

    _OWN_TRANSITIONS: ClassVar[TransitionTable] = {
        (Phase.IDENTIFYING_COMMITTED_TOPICS, events.TopicsIdentified): _committed_topics_identified,
        (Phase.BEGINNING_REPLAY, events.ReplayBegun): _replay_begun,
        (Phase.STARTING_INSTANCE, events.InstanceStarted): _started,
        (Phase.FINDING_TOPICS, events.TopicsFound): _topics_found,
        (Phase.COUNTING_PARTITIONS, events.PartitionsCounted): _partitions_counted,
        (Phase.IDENTIFYING_NEW_TOPICS, events.TopicsIdentified): _new_topics_identified,
        (Phase.FINDING_ENDS, events.EndsFound): _ends_found,
        (Phase.COMPARING_TOPICS, events.TopicsIdentified): _topics_identified,
        (Phase.COMPARING_TOPICS_OF_PLAN, events.TopicsIdentified): _topics_identified,
        (Phase.COMPARING_TOPICS_AFTER_LOSS, events.TopicsIdentified): _topics_identified,
        (Phase.READING_RETENTION, events.RetentionRead): _retention_read,
        (Phase.IDENTIFYING_PRESENT_TOPICS, events.TopicsIdentified): _present_topics_identified,
        (Phase.COUNTING_PRESENT_PARTITIONS, events.PartitionsCounted): _present_partitions_counted,
        (Phase.FETCHING_PRESENT_OFFSETS, events.OffsetsFetched): _present_offsets_fetched,
        (Phase.FETCHING_PRESENT_OFFSETS, events.OperationFailed): _present_offsets_unknown,
    }
    _BEFORE_INSTANCE: ClassVar[frozenset[Phase]] = frozenset(
        {Phase.IDENTIFYING_COMMITTED_TOPICS, Phase.BEGINNING_REPLAY}
    )
