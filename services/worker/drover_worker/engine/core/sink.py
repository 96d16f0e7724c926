"""The core of a sink task: plan the next offset ranges, write them, commit them."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import ClassVar

from drover.connector import Written
from drover.connector.offsets import parse_sink_offsets, sink_offset
from drover.dataplane.plane import PartitionKey
from drover.dataplane.values import ReadPlan
from drover.model.offsets import CommittedOffset, TopicPartition
from drover.pipeline import PassReport
from drover_worker.engine.core import events, instructions
from drover_worker.engine.core.commits import Commit, DoneBatch
from drover_worker.engine.core.failures import FailureKind
from drover_worker.engine.core.phases import Phase
from drover_worker.engine.core.sink_commits import (
    checked_metadata,
    checked_written,
    offsets_of,
)
from drover_worker.engine.core.sink_positions import SinkSettings
from drover_worker.engine.core.sink_starts import (
    lost_offsets,
    with_outputs,
)
from drover_worker.engine.core.sink_topics import SinkTopics
from drover_worker.engine.core.steps import Step
from drover_worker.engine.core.task import TransitionTable

#: How often an idle sink with topics.regex checks for new topics.
_NEW_TOPICS_MS = 5_000
#: How often a paused sink checks for new topics and partitions, which are a part of its lag.
_PAUSED_LOOK_MS = 30_000
#: How often a batch that waits for more records checks for them.
_WAITING_MS = 1_000
_SKIPPED = "retention removed unread records; reading resumes at the log start"


class SinkCore(SinkTopics):
    """One sink task; see TaskCore.

    A run looks for new partitions, then commits starts or writes one batch. Offsets are committed
    only up to what ``write`` and ``idle`` reported, and never below what was committed.
    """

    def __init__(
        self, settings: SinkSettings, committed: Sequence[CommittedOffset], *, paused: bool
    ) -> None:
        super().__init__(settings, committed, paused=paused)
        self._writes_ahead = settings.writes_ahead and not self.rate.is_set
        #: The plan of this run, and what was read of it.
        self._plan = ReadPlan()
        self._started_ms = 0
        self._returned: object = ""
        self._report = PassReport()
        self._back_wanted: Mapping[TopicPartition, int] = {}
        #: The partitions whose starts are being committed.
        self._starts: dict[TopicPartition, int] = {}
        #: The record limit of a plan; halved after a batch with several schemas.
        self._batch_limit = settings.limits.batch_max_records
        #: When the first records of the waiting batch were available.
        self._waits_since_ms: int | None = None
        #: The requests of the task object in this run.
        self._held: Collection[TopicPartition] = ()
        self._idle_in_ms: int | None = None

    def validate(self) -> None:
        """See TaskCore."""
        super().validate()
        assert 1 <= self._batch_limit <= max(1, self.settings.limits.batch_max_records)
        for key, at in self.committed.items():
            assert at >= 0, f"a negative offset of {key}"
        if not self._writes_ahead:
            assert self.commits.open_count <= 1, "a batch was written ahead"
        assert self.commits.open_count <= 2, "more than one batch ahead"

    # --- starts ------------------------------------------------------------------------------

    def _commit_chosen_starts(self) -> None:
        starts, self._at.unsent_starts = self._at.unsent_starts, set()
        if not self._commit_starts(starts):  # a restart must not choose a later start
            self._operate(Phase.READING_REQUESTS, instructions.ReadRequests())

    def _commit_starts_of_plan(self) -> None:
        keys = {(each.topic, each.partition) for each in self._plan.ranges}
        if not self._commit_starts(keys):
            self._waits_since_ms = None
            self._operate(Phase.MEASURING_LAG, instructions.MeasureLag())

    def _commit_starts(self, partitions: Collection[PartitionKey]) -> bool:
        """Commit where the partitions without a committed offset start, before their first write.

        So a committed offset exists whenever there is output. Returns whether there is such a
        commit to wait for.
        """
        keys = {*partitions} - self.committed.keys()
        if not keys:
            return False
        positions = {**self._at.letters, **self.positions}
        self._starts = {_partition(key): positions[key] for key in sorted(keys)}
        # a position in the output itself is exact
        unknown = [key for key in self._starts if key not in self._at.own_positions]
        if unknown:
            outputs = {key: self._at.output_ids.get(key, "") for key in unknown}
            self._operate(Phase.TRACING_OUTPUT, instructions.TraceOutput(outputs))
        else:
            self._get_first_metadata()
        return True

    def _output_traced(self, event: events.OutputTraced) -> None:
        unknown = {key: at for key, at in self._starts.items() if key not in self._at.own_positions}
        lost = lost_offsets(self.settings.task.connector, self._at.marks, event.offsets, unknown)
        if lost is not None:
            raise lost
        self._get_first_metadata()

    def _get_first_metadata(self) -> None:
        self._operate(Phase.GETTING_FIRST_METADATA, instructions.GetFirstMetadata())

    def _first_metadata_returned(self, event: events.FirstMetadataReturned) -> None:
        metadata = checked_metadata(event.metadata, "first_metadata")
        offsets = [sink_offset(*key, at, metadata) for key, at in self._starts.items()]
        self._send(offsets, are_starts=True)
        self._is_behind = False  # the next run waits for the answer
        self._end_run(None)

    # --- a batch -----------------------------------------------------------------------------

    def _requests_read(self, event: events.RequestsRead) -> None:
        if event.rewinds:
            self._at.rewind(event.rewinds)
            self._retry_plan = None
        self._held, self._idle_in_ms = event.paused, event.idle_in_ms
        if event.idle_in_ms == 0 and self._retry_plan is None:
            self._operate(Phase.READING_CLAIM_FOR_IDLE, instructions.ReadClaim())
            return
        if self._paused:
            waits_ms = (_PAUSED_LOOK_MS, event.idle_in_ms or None, self._recommit_in_ms() or None)
            self._end_run(_first_of(waits_ms))
            return
        self._started_ms = self._now_ms
        if self._retry_plan is not None:
            self._planned(self._retry_plan)
        elif not self._replay_is_over:
            self._operate(Phase.PLANNING_REPLAY, instructions.PlanReplay(self._batch_limit))
        else:
            self._plan_next()

    def _replay_planned(self, event: events.ReadPlanned) -> None:
        if event.plan is None:
            self._replay_is_over = True
            self._plan_next()
        else:
            self._planned(event.plan)

    def _plan_next(self) -> None:
        starts = {key: at for key, at in self.positions.items() if key not in self._held}
        self._operate(
            Phase.PLANNING,
            instructions.PlanRead(starts, self._batch_limit, self.settings.limits.batch_max_bytes),
        )

    def _read_planned(self, event: events.ReadPlanned) -> None:
        assert event.plan is not None
        skipped = self._at.skipped(event.plan)
        if skipped is not None:
            self._emit(instructions.Log(_SKIPPED, skipped))
        self._planned(event.plan)

    def _planning_failed(self, event: events.OperationFailed) -> None:
        if event.failure.kind is FailureKind.DATA_LOSS and not self._examines:
            self._failed_phase = Phase.PLANNING
            self._failure = event.failure
            self._compare_topics(self._at.topic_ids, Phase.COMPARING_TOPICS_AFTER_LOSS)
        else:
            self._operation_failed(event)

    def _planned(self, plan: ReadPlan) -> None:
        self._plan = plan
        if not plan.record_count:
            self._wait_for_records(plan)
            return
        limit_ms = self.settings.batch_wait_ms
        if limit_ms and plan is not self._retry_plan and not self._at.is_replay(plan):
            if self._waits_since_ms is None:
                self._waits_since_ms = self._now_ms
            if self._wait_left_ms() > 0:
                self._operate(
                    Phase.LOOKING_FOR_MORE, instructions.PlanRead(plan.next_offsets, 1, 1)
                )
                return
        self._take_plan()

    def _wait_left_ms(self) -> int:
        since_ms = self._now_ms if self._waits_since_ms is None else self._waits_since_ms
        return self.settings.batch_wait_ms - (self._now_ms - since_ms)

    def _looked_for_more(self, event: events.ReadPlanned) -> None:
        left_ms = self._wait_left_ms()
        # more records are available than fit
        is_full = event.plan is not None and event.plan.record_count > 0
        if is_full or left_ms <= 0:
            self._take_plan()
        else:
            waits_ms = (left_ms, _WAITING_MS, self._idle_in_ms or None)
            self._end_run(_first_of(waits_ms), Step.GATHERING)

    def _wait_for_records(self, plan: ReadPlan) -> None:
        passed = instructions.NotePassed(
            dict(self.positions), plan.next_offsets, dict(self.committed)
        )
        self._emit(passed)
        self._at.read_up_to(plan.next_offsets)
        self._recovered()
        self._emit(
            instructions.WatchTopics(
                plan.next_offsets, dict(self._at.partition_counts), dict(self._at.topic_ids)
            )
        )
        new_topics_ms = _NEW_TOPICS_MS if self.settings.pattern is not None else None
        self._end_run(_first_of((new_topics_ms, self._idle_in_ms, self._recommit_in_ms())))

    def _take_plan(self) -> None:
        if self._at.is_replay(self._plan):
            self._commit_starts_of_plan()
        else:
            topics = {each.topic for each in self._plan.ranges}
            self._compare_topics(topics, Phase.COMPARING_TOPICS_OF_PLAN)

    def _lag_measured(self, _event: events.LagMeasured) -> None:
        # a fenced task should not write what it cannot commit
        self._operate(Phase.READING_CLAIM, instructions.ReadClaim())

    def _claim_read(self, event: events.ClaimRead) -> None:
        if self._check_read_claim(event.claim):
            self._write()
        else:
            self._operate(Phase.CONFIRMING_CLAIM, instructions.ConfirmClaim())

    def _claim_confirmed(self, _event: events.ClaimConfirmed) -> None:
        self.commits.confirmed(self._now_ms)
        self._write()

    def _write(self) -> None:
        # after a failure the extent of the write is unknown: restart from the committed offsets
        is_replay = self._at.is_replay(self._plan)
        self._operate(Phase.WRITING, instructions.WriteBatch(self._plan, is_replay))

    def _write_failed(self, event: events.OperationFailed) -> None:
        if self._examines:
            self._operation_failed(event)
        elif event.failure.kind is FailureKind.MIXED_SCHEMAS:
            self._split(event)
        else:
            if event.failure.kind is FailureKind.RETRIABLE:
                self._retry_plan = self._plan
            self._operation_failed(event)

    def _split(self, event: events.OperationFailed) -> None:
        limit = min(self._batch_limit, self._plan.record_count) // 2
        if not limit:
            self._operation_failed(event)
            return
        self._batch_limit = limit
        text = "a batch has records of several schemas and is split"
        self._emit(instructions.Log(text, {}, is_warning=False))
        self._end_run(0)

    def _batch_written(self, event: events.BatchWritten) -> None:
        self._report, self._back_wanted = event.report, event.rewinds
        self._returned = event.returned
        if event.report.dead_letter_rows:
            self._operate(
                Phase.PUBLISHING_LETTERS, instructions.PublishLetters(event.report.dead_letter_rows)
            )
        else:
            self._commit_batch()

    def _letters_published(self, _event: events.LettersPublished) -> None:
        self._commit_batch()

    def _commit_batch(self) -> None:
        self.restart_wanted, self._retry_plan = False, None
        plan, written = self._plan, checked_written(self._returned)
        self._is_behind = self._is_full(plan)
        self._batch_limit = min(2 * self._batch_limit, self.settings.limits.batch_max_records)
        keys = {(each.topic, each.partition) for each in plan.ranges}
        if self._at.is_replay(plan):
            self._at.replayed(plan)
            self._emit(instructions.AdvanceReplay(plan))
        else:
            self._at.read_up_to(plan.next_offsets)
        self._at.rewind(self._back_wanted)
        if self._fresh:  # update the metadata of all partitions after a start
            keys |= self.committed.keys() & self._at.given.keys()
        offsets = self._offsets_of(written, keys)
        self._fresh = False
        batch = DoneBatch(
            report=self._report,
            started_ms=self._started_ms,
            topics={each.topic for each in plan.ranges},
            size_bytes=plan.size_bytes,
        )
        if not offsets:
            self._moved(batch)
            self._end_run(0)
            return
        self._send(offsets, batch)
        self._end_run(0 if self._may_run_ahead else None)

    def _is_full(self, plan: ReadPlan) -> bool:
        """Whether more records were probably available."""
        return (
            plan.record_count >= self._batch_limit
            or plan.size_bytes >= self.settings.limits.batch_max_bytes // 2
        )

    # --- calls without records ---------------------------------------------------------------

    def _claim_read_for_idle(self, event: events.ClaimRead) -> None:
        if self._check_read_claim(event.claim):
            self._operate(Phase.CALLING_IDLE, instructions.CallIdle())
        else:
            self._operate(Phase.CONFIRMING_CLAIM_FOR_IDLE, instructions.ConfirmClaim())

    def _claim_confirmed_for_idle(self, _event: events.ClaimConfirmed) -> None:
        self.commits.confirmed(self._now_ms)
        self._operate(Phase.CALLING_IDLE, instructions.CallIdle())

    def _idle_failed(self, event: events.OperationFailed) -> None:
        if event.failure.kind is FailureKind.RETRIABLE and not self._examines:
            self._emit(instructions.RequestIdle())
        self._operation_failed(event)

    def _idle_returned(self, event: events.IdleReturned) -> None:
        """Commit the offsets that idle() returned."""
        self.restart_wanted = False
        self._at.rewind(event.rewinds)
        found = event.returned
        if found is None:
            self._end_run(0)
            return
        if not isinstance(found, Written):
            raise TypeError(f"idle() must return Written or None, not {type(found).__name__}")
        offsets = self._offsets_of(checked_written(found), ())
        if not offsets:
            self._end_run(0)
            return
        self._send(offsets)
        self._end_run(None)

    def _offsets_of(
        self, written: Written, keys: Collection[PartitionKey]
    ) -> list[CommittedOffset]:
        at = self._at
        return offsets_of(written, keys, self.committed, at.given, at.highest_given)

    # --- commits -----------------------------------------------------------------------------

    @property
    def _may_run_ahead(self) -> bool:
        """At most one batch ahead, and only while the claim is confirmed: otherwise the answer to
        the pending commit has to confirm it.
        """
        return (
            self._writes_ahead
            and self._is_behind
            and self._recommit_in_ms() != 0
            and self.commits.open_count == 1
            and self.commits.is_confirmed(self._now_ms)
        )

    def _send(
        self,
        offsets: Sequence[CommittedOffset],
        batch: DoneBatch | None = None,
        *,
        are_starts: bool = False,
    ) -> None:
        sent = parse_sink_offsets(offsets)
        self._at.committed.update({key: each.offset for key, each in sent.items()})
        outputs = self._at.outputs_of(sent)
        is_shown = self.settings.knows_starts or not are_starts
        self._commit(
            with_outputs(sent, outputs, are_starts=are_starts),
            batch=batch,
            shown=sent if is_shown else {},
            are_starts=are_starts,
        )

    def _commit_done(self, commit: Commit) -> None:
        if commit.shown:
            self._emit(instructions.ShowOffsets(commit.shown))
        if commit.batch is not None:
            self._moved(commit.batch)

    def _begin_stop(self) -> None:
        self._emit(instructions.StopWatching())
        super()._begin_stop()

    _OWN_TRANSITIONS: ClassVar[TransitionTable] = {
        **SinkTopics._OWN_TRANSITIONS,
        (Phase.TRACING_OUTPUT, events.OutputTraced): _output_traced,
        (Phase.GETTING_FIRST_METADATA, events.FirstMetadataReturned): _first_metadata_returned,
        (Phase.READING_REQUESTS, events.RequestsRead): _requests_read,
        (Phase.PLANNING_REPLAY, events.ReadPlanned): _replay_planned,
        (Phase.PLANNING, events.ReadPlanned): _read_planned,
        (Phase.PLANNING, events.OperationFailed): _planning_failed,
        (Phase.LOOKING_FOR_MORE, events.ReadPlanned): _looked_for_more,
        (Phase.MEASURING_LAG, events.LagMeasured): _lag_measured,
        (Phase.READING_CLAIM, events.ClaimRead): _claim_read,
        (Phase.CONFIRMING_CLAIM, events.ClaimConfirmed): _claim_confirmed,
        (Phase.WRITING, events.BatchWritten): _batch_written,
        (Phase.WRITING, events.OperationFailed): _write_failed,
        (Phase.PUBLISHING_LETTERS, events.LettersPublished): _letters_published,
        (Phase.READING_CLAIM_FOR_IDLE, events.ClaimRead): _claim_read_for_idle,
        (Phase.CONFIRMING_CLAIM_FOR_IDLE, events.ClaimConfirmed): _claim_confirmed_for_idle,
        (Phase.CALLING_IDLE, events.IdleReturned): _idle_returned,
        (Phase.CALLING_IDLE, events.OperationFailed): _idle_failed,
    }
    _RESTARTS: ClassVar[Mapping[Phase, frozenset[FailureKind]]] = {
        Phase.WRITING: frozenset({FailureKind.RETRIABLE}),
        Phase.PUBLISHING_LETTERS: frozenset(),
        Phase.CALLING_IDLE: frozenset({FailureKind.RETRIABLE}),
    }


def _first_of(waits_ms: Iterable[int | None]) -> int | None:
    return min((each for each in waits_ms if each is not None), default=None)


def _partition(key: PartitionKey) -> TopicPartition:
    return TopicPartition(*key)
