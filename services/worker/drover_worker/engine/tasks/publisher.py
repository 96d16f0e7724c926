"""Publishing staged batches on a thread of their own, while the task makes the next one."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from drover.dataplane.plane import NotPublishedError, Receipt, TopicWriter
from drover.model.ids import TaskId
from drover.model.offsets import CommittedOffset
from drover.pipeline import PassReport
from drover_worker.engine.plugins.threads import Outcome, PluginThreads, Raised, Returned

#: Over all that a transaction may wait for by itself.
_LIMIT_MS = 300_000
#: A transaction of more records is ended before its interval is over.
_GATHERED_RECORDS_MAX = 1_000_000


SourceOffsets = Sequence[tuple[Mapping[str, Any], Mapping[str, Any] | None]]


@dataclass(frozen=True, slots=True)
class StagedBatch:
    """A batch that waits to be published, and how far it brings the source.

    ``said`` are the offsets as the task said them; None of dead letters. ``follows`` says that it
    was made right after another one.
    """

    staged: Any
    offsets: Sequence[CommittedOffset]
    said: SourceOffsets | None
    started_s: float
    write_started_s: float
    made_s: float
    follows: bool


@dataclass(frozen=True, slots=True)
class GatheredBatch:
    """A staged batch, and what became of its records on the way."""

    batch: StagedBatch
    record_count: int
    report: PassReport


@dataclass(slots=True, eq=False)
class _Transaction:
    """Batches that are published together."""

    batches: Sequence[GatheredBatch]
    ended: threading.Event
    began_s: float
    ended_s: float = 0.0
    outcome: Outcome | None = None


@dataclass(frozen=True, slots=True)
class Settled:
    """What a transaction has published; ``took_s`` are the seconds of each batch, on average."""

    batches: Sequence[GatheredBatch]
    receipt: Receipt
    took_s: float


class Publisher:
    """One transaction at a time; ``interval_s`` is how long batches are gathered for one.

    Its methods are for the task's own thread. ``wake`` is called when a transaction has ended.
    """

    def __init__(
        self,
        writer: TopicWriter,
        threads: PluginThreads,
        *,
        task: TaskId,
        wake: Callable[[], None],
        interval_s: float = 0.0,
    ) -> None:
        self._writer = writer
        self._threads = threads
        self._task = task
        self._wake = wake
        self._interval_s = interval_s
        self._gathered: list[GatheredBatch] = []
        self._gathering_since_s = 0.0
        self._under_way: _Transaction | None = None

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits and nothing is under way."""
        return self._under_way is None and not self._gathered

    @property
    def takes_more(self) -> bool:
        """Whether another batch can be added now."""
        return not self._gathered or not self._is_due(time.monotonic())

    def add(self, batch: GatheredBatch) -> None:
        """A batch to be published after those before."""
        if not self._gathered:
            self._gathering_since_s = time.monotonic()
        self._gathered.append(batch)

    def settle(self) -> Settled | None:
        """Take up the end of the transaction under way; None while there is none.

        Raises:
            NotPublishedError: It has to be published again, which ``publish`` does.
            Exception: As ``TopicWriter.publish``.
        """
        transaction = self._under_way
        if transaction is None or transaction.outcome is None:
            return None
        outcome = transaction.outcome
        self._under_way = None
        if isinstance(outcome, Returned):
            assert isinstance(outcome.value, Receipt)
            took_s = (transaction.ended_s - transaction.began_s) / len(transaction.batches)
            return Settled(transaction.batches, outcome.value, took_s)
        if isinstance(outcome, Raised):
            if isinstance(outcome.error, NotPublishedError):
                self._gathered = [*transaction.batches, *self._gathered]
                self._gathering_since_s = 0.0
            raise outcome.error
        raise TimeoutError(f"a batch was not published within {_LIMIT_MS // 1000} s")

    def publish(self, *, at_once: bool) -> float | None:
        """Begin the next transaction if one is due; ``at_once`` waits for no interval.

        Returns:
            Seconds until it is due; None for nothing to wait for.
        """
        if self._under_way is not None or not self._gathered:
            return None
        now_s = time.monotonic()
        if not at_once and not self._is_due(now_s):
            return self._gathering_since_s + self._interval_s - now_s
        transaction = _Transaction(tuple(self._gathered), threading.Event(), now_s)
        self._gathered = []
        self._under_way = transaction

        def done(outcome: Outcome) -> None:
            transaction.outcome, transaction.ended_s = outcome, time.monotonic()
            transaction.ended.set()
            self._wake()

        staged = [each.batch.staged for each in transaction.batches]
        offsets = [offset for each in transaction.batches for offset in each.batch.offsets]
        self._threads.run(
            f"publish:{self._task}",
            lambda: self._writer.publish(staged, offsets),
            limit_ms=_LIMIT_MS,
            on_done=done,
            key=self._task,
        )
        return None

    def wait(self, limit_s: float) -> bool:
        """Wait for the end of the transaction under way; whether it came in time."""
        transaction = self._under_way
        return transaction is None or transaction.ended.wait(max(limit_s, 0))

    def drop(self) -> None:
        """Forget what is not published; after the end of what was under way."""
        left = [*(self._under_way.batches if self._under_way else ()), *self._gathered]
        self._under_way, self._gathered = None, []
        self._writer.discard([each.batch.staged for each in left])

    def _is_due(self, now_s: float) -> bool:
        return (
            now_s >= self._gathering_since_s + self._interval_s
            or sum(each.record_count for each in self._gathered) >= _GATHERED_RECORDS_MAX
        )
