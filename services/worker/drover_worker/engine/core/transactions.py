"""Which staged batches of a source are published together, and what became of them. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic

from drover.dataplane.plane import Receipt, StagedT
from drover_worker.engine.core.failures import Failure, FailureKind
from drover_worker.engine.core.instructions import BeginTransaction, ContinueTransaction
from drover_worker.engine.core.publishing import Ended, Publishing, PublishingStep
from drover_worker.engine.core.staged import StagedBatch

#: With this many records a transaction ends before its interval is over.
GATHERED_RECORDS_MAX = 1_000_000
#: The steps of a transaction.
_TAKEN = frozenset(PublishingStep) - {
    PublishingStep.FETCH,
    PublishingStep.READY,
    PublishingStep.GIVE_UP,
}


@dataclass(slots=True, eq=False)
class Transaction(Generic[StagedT]):
    """Batches that are published together; it has ended if it has a receipt or a failure."""

    number: int
    batches: Sequence[StagedBatch[StagedT]]
    began_ms: int
    ended_ms: int = 0
    receipt: Receipt | None = None
    failure: Failure | None = None

    @property
    def has_ended(self) -> bool:
        """Whether its outcome is known."""
        return self.receipt is not None or self.failure is not None


class Transactions(Generic[StagedT]):
    """One transaction at a time; batches are gathered for ``interval_ms``."""

    def __init__(self, interval_ms: int) -> None:
        self._interval_ms = interval_ms
        self._gathered: list[StagedBatch[StagedT]] = []
        self._gathering_since_ms = 0
        self._current: Transaction[StagedT] | None = None
        self._count = 0
        #: Whether the last transaction was not published, so that its batches are first.
        self._is_repeating = False
        #: The number of the last transaction whose thread was given up.
        self._given_up_number = 0
        #: The steps of the task's producer.
        self.publishing = Publishing()

    @property
    def is_idle(self) -> bool:
        """Whether no batch waits and no transaction is in progress or unsettled."""
        return self._current is None and not self._gathered

    @property
    def is_in_progress(self) -> bool:
        """Whether a transaction has not ended."""
        return self._current is not None and not self._current.has_ended

    def takes_more(self, now_ms: int) -> bool:
        """Whether another batch can be added now.

        A transaction that is repeated does not grow: a larger one is even less likely to succeed.
        """
        if self._is_repeating:
            return False
        return not self._gathered or not self._is_due(now_ms)

    def add(self, batch: StagedBatch[StagedT], now_ms: int) -> None:
        """Queue a batch for publishing after the earlier ones."""
        if not self._gathered:
            self._gathering_since_ms = now_ms
        self._gathered.append(batch)

    def due_in_ms(self, now_ms: int) -> int | None:
        """In how long the next transaction is due; None if no batch waits or one is in progress."""
        if self._current is not None or not self._gathered:
            return None
        if self._is_due(now_ms):
            return 0
        return self._gathering_since_ms + self._interval_ms - now_ms

    def begin(self, now_ms: int) -> BeginTransaction:
        """Publish what is gathered; there must be no other transaction."""
        assert self._current is None
        assert self._gathered
        self._count += 1
        batches, self._gathered = tuple(self._gathered), []
        self._current = Transaction(self._count, batches, now_ms)
        self.publishing.begin_batch()
        return BeginTransaction(
            self._count,
            self.publishing.step,
            [each.staged for each in batches],
            [offset for each in batches for offset in each.offsets],
        )

    def step_ended(
        self, number: int, receipt: Receipt | None, failure: Failure | None, now_ms: int
    ) -> ContinueTransaction | None:
        """Take the result of a step; returns the next one, None at the end of the transaction.

        Raises:
            KeyError: The transaction is not in progress.
        """
        current, publishing = self._current, self.publishing
        if current is None or current.number != number or current.has_ended:
            if number <= self._given_up_number:
                return None  # its thread is late
            raise KeyError(number)
        final = publishing.failed(failure) if failure is not None else publishing.succeeded()
        if final is None and publishing.step is not PublishingStep.READY:
            return ContinueTransaction(number, publishing.step)
        current.receipt = receipt if final is None else None
        current.failure, current.ended_ms = final, now_ms
        return None

    def give_up(self, number: int, failure: Failure, now_ms: int) -> None:
        """End a transaction whose thread may still run; does nothing if it has ended."""
        current = self._current
        if current is not None and current.number == number and not current.has_ended:
            self._given_up_number = number
            self.publishing.ended(Ended.FAILED)
            current.failure, current.ended_ms = failure, now_ms

    def settle(self) -> Transaction[StagedT] | None:
        """Take the transaction that ended; None if there is none.

        The batches of one that was not published wait again, before the others.
        """
        current = self._current
        if current is None or not current.has_ended:
            return None
        self._current = None
        failure = current.failure
        self._is_repeating = failure is not None and failure.kind is FailureKind.NOT_PUBLISHED
        if self._is_repeating:
            self._gathered = [*current.batches, *self._gathered]
            self._gathering_since_ms = -self._interval_ms
        return current

    def drop(self) -> list[StagedBatch[StagedT]]:
        """Forget all batches, which must not be in progress; returns them."""
        assert not self.is_in_progress, "a transaction is in progress"
        left = [*(self._current.batches if self._current else ()), *self._gathered]
        self._current, self._gathered, self._is_repeating = None, [], False
        return left

    def validate(self) -> None:
        """Raise AssertionError when an invariant is broken."""
        current = self._current.batches if self._current else ()
        starts = [each.started_ms for each in (*current, *self._gathered)]
        assert starts == sorted(starts), f"batches are out of order: {starts}"
        self.publishing.validate()
        assert not self.is_in_progress or self.publishing.step in _TAKEN, "no step is in progress"

    def _is_due(self, now_ms: int) -> bool:
        return (
            now_ms >= self._gathering_since_ms + self._interval_ms
            or sum(each.record_count for each in self._gathered) >= GATHERED_RECORDS_MAX
        )
