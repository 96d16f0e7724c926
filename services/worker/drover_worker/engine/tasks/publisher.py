"""Publishes staged batches on a separate thread while the task stages the next one."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from drover.connector.task import SnapshotProgress
from drover.dataplane.plane import NotPublishedError, Receipt, TopicWriter
from drover.model.ids import TaskId
from drover.model.offsets import CommittedOffset
from drover.pipeline import PassReport
from drover_worker.engine.plugins.threads import Outcome, PluginThreads, Raised, Returned

#: Longer than every timeout within a transaction.
_LIMIT_MS = 300_000
#: With this many records a transaction ends before its interval is over.
_GATHERED_RECORDS_MAX = 1_000_000


SourceOffsets = Sequence[tuple[Mapping[str, Any], Mapping[str, Any] | None]]


@dataclass(frozen=True, slots=True)
class StagedBatch:
    """A staged batch that waits to be published, with its source offsets.

    ``task_offsets`` are the offsets in the task's form, for ``committed()``; None for dead letters.
    ``follows`` means that the batch came right after another one. ``snapshot`` is the table that
    was being read completely.
    """

    staged: Any
    offsets: Sequence[CommittedOffset]
    task_offsets: SourceOffsets | None
    started_s: float
    write_started_s: float
    made_s: float
    follows: bool
    snapshot: SnapshotProgress | None = None


@dataclass(frozen=True, slots=True)
class GatheredBatch:
    """A staged batch and the report about its records."""

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
    """A finished transaction; ``took_s`` is its duration divided by the number of batches."""

    batches: Sequence[GatheredBatch]
    receipt: Receipt
    took_s: float


class Publisher:
    """Runs one transaction at a time; batches are gathered for ``interval_s``.

    Its methods are called on the task's thread. ``wake`` is called when a transaction has ended.
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
        """Whether no batch waits and no transaction is in progress."""
        return self._under_way is None and not self._gathered

    @property
    def takes_more(self) -> bool:
        """Whether another batch can be added now."""
        return not self._gathered or not self._is_due(time.monotonic())

    def add(self, batch: GatheredBatch) -> None:
        """Queue a batch for publishing after the earlier ones."""
        if not self._gathered:
            self._gathering_since_s = time.monotonic()
        self._gathered.append(batch)

    def settle(self) -> Settled | None:
        """Process the end of the current transaction; None while it is in progress or there is
        none.

        Raises:
            NotPublishedError: Retry with ``publish``.
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
        """Start the next transaction if it is due; ``at_once`` skips the interval.

        Returns:
            Seconds until it is due; None when no batch waits.
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
        """Wait for the current transaction; whether it ended in time."""
        transaction = self._under_way
        return transaction is None or transaction.ended.wait(max(limit_s, 0))

    def drop(self) -> None:
        """Discard unpublished batches; the current transaction must have ended."""
        left = [*(self._under_way.batches if self._under_way else ()), *self._gathered]
        self._under_way, self._gathered = None, []
        self._writer.discard([each.batch.staged for each in left])

    def _is_due(self, now_s: float) -> bool:
        return (
            now_s >= self._gathering_since_s + self._interval_s
            or sum(each.record_count for each in self._gathered) >= _GATHERED_RECORDS_MAX
        )
