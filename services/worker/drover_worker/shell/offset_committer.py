"""Commits the offsets of tasks to the coordinator: in batches, with retries."""

import asyncio
import itertools
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Protocol

import structlog

from drover.backoff import Backoff
from drover.errors import (
    DeadlineExceededError,
    DroverError,
    ResourceExhaustedError,
    UnavailableError,
)
from drover.model.offsets import CommitOutcome, CommitResult, TaskOffsets

BATCH_COUNT_MAX = 500
BATCH_BYTES_MAX = 1024 * 1024
_BACKOFF_FIRST_S = 0.1
_BACKOFF_MAX_S = 2.0

_log = structlog.get_logger("drover.worker")

#: Sends the result of a commit to the engine, by its call id.
Answer = Callable[[int, CommitResult], Awaitable[None]]


class CommitOffsets(Protocol):
    """The part of the coordinator's client that the committer uses."""

    async def commit_offsets(
        self, *, group_id: str, tasks: Sequence[TaskOffsets], timeout_s: float
    ) -> Sequence[CommitResult]:
        """Commit offsets of tasks; a result for each, in order."""


class OffsetCommitter:
    """Makes one commit call at a time; offsets that arrive during a call form the next batch."""

    def __init__(self, coordinator: CommitOffsets, group_id: str, answer: Answer) -> None:
        self._coordinator = coordinator
        self._group_id = group_id
        self._answer = answer
        #: Bounded by the number of tasks; entries must not be dropped, because tasks wait for them.
        self._waiting: deque[tuple[int, TaskOffsets]] = deque()
        self._wake = asyncio.Event()
        #: The calls of the batch in progress whose engine has not ended.
        self._under_way: Sequence[tuple[int, TaskOffsets]] = ()
        self._numbers = itertools.count(1)

    def commit(self, call_id: int, offsets: TaskOffsets) -> None:
        """Queue a task's offsets; each task has at most one such call.

        A call without offsets checks the claim; it replaces an earlier check of the task. The check
        is numbered, and so written to the log, when the task's own producer will commit.
        """
        if not offsets.offsets:
            self._forget_questions(offsets)
        if offsets.offsets or offsets.own_producer:
            offsets = replace(offsets, number=next(self._numbers))
        self._waiting.append((call_id, offsets))
        self._wake.set()

    def _forget_questions(self, asked: TaskOffsets) -> None:
        kept = [each for each in self._waiting if each[1].offsets or each[1].task != asked.task]
        if len(kept) < len(self._waiting):
            self._waiting = deque(kept)

    def forget(self, awaits: Callable[[int], bool]) -> None:
        """An engine ended: drop the calls for which ``awaits`` is false; its tasks resume from the
        committed offsets.
        """
        self._waiting = deque(each for each in self._waiting if awaits(each[0]))
        self._under_way = [each for each in self._under_way if awaits(each[0])]

    async def run(self) -> None:
        """Commit until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                await self._commit_batch(self._take_batch())

    def _take_batch(self) -> list[tuple[int, TaskOffsets]]:
        batch: list[tuple[int, TaskOffsets]] = []
        size = 0
        while self._waiting and len(batch) < BATCH_COUNT_MAX:
            size += sum(
                len(o.partition_json) + len(o.offset_json or "") + len(o.metadata) + 64
                for o in self._waiting[0][1].offsets
            )
            if batch and size > BATCH_BYTES_MAX:
                break
            batch.append(self._waiting.popleft())
        return batch

    async def _commit_batch(self, batch: Sequence[tuple[int, TaskOffsets]]) -> None:
        self._under_way = batch
        backoff = Backoff(_BACKOFF_FIRST_S, _BACKOFF_MAX_S)
        while batch := self._under_way:
            try:
                results = await self._coordinator.commit_offsets(
                    group_id=self._group_id,
                    tasks=[offsets for _, offsets in batch],
                    timeout_s=10.0,
                )
            except (UnavailableError, DeadlineExceededError, ResourceExhaustedError) as error:
                _log.warning(
                    "the coordinator is unavailable; commits are retried",
                    count=len(batch),
                    why=error.message,
                )
                await asyncio.sleep(backoff.next_pause_s())
                continue
            except DroverError as error:
                _log.error("the coordinator refused commits", count=len(batch), why=error.message)
                results = [
                    CommitResult(offsets.task, CommitOutcome.INVALID, error.message)
                    for _, offsets in batch
                ]
            for call, result in zip(batch, results, strict=True):
                if batch is self._under_way or call in self._under_way:
                    await self._answer(call[0], result)
            return
