"""The commits of one task's offsets: one in flight at a time, in order. Pure.

A commit is answered when it is durable or refused, even if the coordinator is unavailable for a
long time, so the committed offsets are known here without a fetch. Commits that are added before
the answer are queued; the next one is sent after the answer even if the task has stopped, unless a
commit was refused.
"""

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from drover.connector.offsets import SinkOffset
from drover.errors import FailedPreconditionError, Reason
from drover.model.offset_json import canonical_json
from drover.model.offsets import CommitOutcome, CommittedOffset, TopicPartition
from drover.pipeline import PassReport
from drover_worker.engine.core.instructions import SendCommit
from drover_worker.engine.core.staged import StagedBatch

#: A claim that the coordinator confirmed this recently is not checked again.
CONFIRMED_FOR_MS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DoneBatch:
    """A batch that is complete when its offsets are durable.

    Attributes:
        report: Its records by outcome.
        started_ms: When it began.
        topics: The topics of its records.
        size_bytes: Their approximate size.
        staged: The batch of a source; None for a sink's.
    """

    report: PassReport
    started_ms: int
    topics: Collection[str]
    size_bytes: int
    staged: StagedBatch[Any] | None = None


@dataclass(slots=True, eq=False)
class Commit:
    """Offsets to commit.

    Attributes:
        number: Its number among the commits of the task.
        offsets: The offsets.
        began_ms: When it was requested.
        batch: What is complete when they are durable; None for offsets without a batch.
        shown: The offsets that the task object of a sink sees then.
        refreshes_marks: Whether the offsets are committed only to keep them.
        are_starts: Whether nothing was written yet of these partitions.
        is_sent: Whether it was sent.
        outcome: The answer; None before it.
        message: The reason for a refusal.
    """

    number: int
    offsets: Sequence[CommittedOffset]
    began_ms: int
    batch: DoneBatch | None = None
    shown: Mapping[TopicPartition, SinkOffset] = field(default_factory=dict)
    refreshes_marks: bool = False
    are_starts: bool = False
    is_sent: bool = False
    outcome: CommitOutcome | None = None
    message: str = ""


class Commits:
    """The commits of one task under its claim."""

    def __init__(self, committed: Sequence[CommittedOffset]) -> None:
        self._committed = {canonical_json(each.partition_json): each for each in committed}
        #: Commits with unprocessed answers, oldest first.
        self._open: deque[Commit] = deque()
        self._confirmed_ms: int | None = None
        self._count = 0

    @property
    def committed(self) -> Sequence[CommittedOffset]:
        """The connector's committed offsets at the task's start, updated by the task's commits."""
        return tuple(self._committed.values())

    @property
    def open_count(self) -> int:
        """Commits that are not known to be durable; see ``settle``."""
        return len(self._open)

    @property
    def is_in_flight(self) -> bool:
        """Whether a commit was sent and is not answered."""
        return any(each.is_sent and each.outcome is None for each in self._open)

    def is_confirmed(self, now_ms: int) -> bool:
        """Whether the coordinator confirmed the claim recently enough to skip a check.

        Needs a monotonic clock, which keeps running while the process is suspended.
        """
        return self._confirmed_ms is not None and now_ms - self._confirmed_ms < CONFIRMED_FOR_MS

    def confirmed(self, now_ms: int) -> None:
        """The coordinator confirmed the claim."""
        self._confirmed_ms = now_ms

    def add(
        self,
        offsets: Sequence[CommittedOffset],
        now_ms: int,
        *,
        batch: DoneBatch | None = None,
        shown: Mapping[TopicPartition, SinkOffset] | None = None,
        refreshes_marks: bool = False,
        are_starts: bool = False,
    ) -> SendCommit | None:
        """Commit the offsets after the queued ones; the instruction if it can be sent now."""
        self._count += 1
        commit = Commit(
            self._count,
            offsets,
            now_ms,
            batch=batch,
            shown=shown or {},
            refreshes_marks=refreshes_marks,
            are_starts=are_starts,
        )
        self._open.append(commit)
        return self._next()

    def answered(
        self, number: int, outcome: CommitOutcome, message: str, now_ms: int
    ) -> SendCommit | None:
        """Take the answer to a commit; the instruction for the next one.

        Raises:
            KeyError: No commit with this number is in flight.
        """
        commit = next((each for each in self._open if each.number == number), None)
        if commit is None or not commit.is_sent or commit.outcome is not None:
            raise KeyError(number)
        commit.outcome, commit.message = outcome, message
        if outcome is CommitOutcome.COMMITTED:
            self._confirmed_ms = now_ms
        return self._next()

    def settle(self) -> Commit | None:
        """Take the oldest commit, which became durable; None if its answer is missing.

        Raises:
            FailedPreconditionError: STALE_CLAIM, another worker has claimed the task.
            ValueError: The offsets were refused for another reason.
        """
        if not self._open or self._open[0].outcome is None:
            return None
        commit = self._open[0]
        if commit.outcome is not CommitOutcome.COMMITTED:
            self._open.clear()  # those after it were not sent
            if commit.outcome is CommitOutcome.STALE_CLAIM:
                raise FailedPreconditionError(Reason.STALE_CLAIM, commit.message)
            raise ValueError(f"the coordinator refused the batch's offsets: {commit.message}")
        self._open.popleft()
        for each in commit.offsets:
            self._committed[canonical_json(each.partition_json)] = each
        return commit

    def drop_unsent(self) -> None:
        """Forget the queued commits, because the claim is lost."""
        self._open = deque(each for each in self._open if each.is_sent)

    def validate(self) -> None:
        """Raise AssertionError when an invariant is broken."""
        numbers = [each.number for each in self._open]
        assert numbers == sorted(set(numbers)), f"commits are out of order: {numbers}"
        sent = [each.is_sent for each in self._open]
        assert sent == sorted(sent, reverse=True), f"a later commit was sent first: {numbers}"
        unanswered = [each.number for each in self._open if each.is_sent and each.outcome is None]
        assert len(unanswered) <= 1, f"several commits are in flight: {unanswered}"

    def _next(self) -> SendCommit | None:
        """Send the oldest unsent commit, unless one before it is in flight or was refused."""
        for each in self._open:
            if not each.is_sent:
                each.is_sent = True
                return SendCommit(each.number, each.offsets, each.refreshes_marks, each.are_starts)
            if each.outcome is not CommitOutcome.COMMITTED:
                return None
        return None
