"""Commits a task's offsets through the coordinator: one commit at a time, in order.

A commit is answered when it is durable or refused, even if the coordinator is unavailable for a
long time, so the committed offsets are known here without a fetch. Commits that are added before
the answer are queued; the next one is sent after the answer even if the task has stopped, unless a
commit was refused.
"""

import itertools
import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from drover.api.coordinator.v1 import coordinator_service_pb2
from drover.api.engine.v1 import engine_pb2
from drover.codec.coordinator import decode_offset, encode_task_offsets
from drover.errors import FailedPreconditionError, Reason, UnavailableError
from drover.model.ids import TaskId, Term
from drover.model.offset_json import canonical_json
from drover.model.offsets import CommittedOffset, TaskOffsets

_OUTCOMES = coordinator_service_pb2.CommitOutcome
#: Unique among the engines of this machine, so that a late answer never matches another's call.
_commit_ids = itertools.count((os.getpid() << 32) + 1)

#: Receives the herder's answer to a call of the engine.
Answer = Callable[[Any], None]
#: A claim that the coordinator confirmed this recently is not checked again.
_CONFIRMED_FOR_S = 1.0


@dataclass(slots=True, eq=False)
class _Commit:
    """Offsets to commit; ``on_committed`` is called when they are durable."""

    offsets: Sequence[CommittedOffset]
    on_committed: Callable[[], None]
    refreshes_marks: bool = False
    result: engine_pb2.CommitResult | None = None


@dataclass(slots=True, eq=False)
class _Waiting:
    """A call in progress."""

    answered: threading.Event = field(default_factory=threading.Event)
    answer: Any = None

    def take(self, answer: Any) -> None:
        self.answer = answer
        self.answered.set()


class TaskCommits:
    """The commits of one task under its claim."""

    def __init__(
        self,
        task: TaskId,
        claim: Term,
        committed: Sequence[CommittedOffset],
        *,
        send: Callable[[engine_pb2.EngineReport], None],
        answers: dict[int, Answer],
        wake: Callable[[], None],
        consumer_group: str = "",
    ) -> None:
        """``answers`` maps call ids to the receivers of their answers."""
        self._consumer_group = consumer_group
        self._task = task
        self._claim = claim
        self._committed = {canonical_json(each.partition_json): each for each in committed}
        self._send = send
        self._answers = answers
        self._wake = wake
        self._lock = threading.Lock()
        #: Commits with unprocessed answers, oldest first; the first one without an answer is in
        #: flight.
        self._open: deque[_Commit] = deque()
        #: When the coordinator last confirmed the claim.
        self._confirmed_s = -math.inf
        self._settled = threading.Event()
        self._settled.set()

    @property
    def committed(self) -> Sequence[CommittedOffset]:
        """The connector's committed offsets at the task's start, updated by the task's commits."""
        return tuple(self._committed.values())

    @property
    def open_count(self) -> int:
        """Commits that are not known to be durable; see ``settle``."""
        return len(self._open)

    @property
    def claim_is_confirmed(self) -> bool:
        """Whether the coordinator confirmed the claim recently enough to skip a check.

        Uses the monotonic clock, which keeps running while the process is suspended.
        """
        return time.monotonic() - self._confirmed_s < _CONFIRMED_FOR_S

    def send(
        self,
        offsets: Sequence[CommittedOffset],
        on_committed: Callable[[], None],
        *,
        refreshes_marks: bool = False,
    ) -> None:
        """Commit the offsets after the queued ones; each answer wakes the task."""
        commit = _Commit(offsets, on_committed, refreshes_marks)
        with self._lock:
            before = [each.result for each in self._open]
            self._open.append(commit)
            if any(result is not None and not _is_committed(result) for result in before):
                return  # settle raises for the refused commit, which ends the task
            self._settled.clear()
        if None not in before:
            self._send_now(commit)

    def settle(self) -> None:
        """Process the answers that have arrived.

        Raises:
            FailedPreconditionError: STALE_CLAIM, another worker has claimed the task.
            ValueError: The offsets were refused for another reason.
        """
        while self._open:
            commit = self._open[0]
            if commit.result is None:
                return
            self._settle_commit(commit, commit.result)

    def _settle_commit(self, commit: _Commit, result: engine_pb2.CommitResult) -> None:
        if not _is_committed(result):
            with self._lock:
                self._open.clear()  # those after it were not sent
            if result.outcome == _OUTCOMES.COMMIT_OUTCOME_STALE_CLAIM:
                raise FailedPreconditionError(Reason.STALE_CLAIM, result.message)
            raise ValueError(f"the coordinator refused the batch's offsets: {result.message}")
        with self._lock:
            self._open.popleft()
        for each in commit.offsets:
            self._committed[canonical_json(each.partition_json)] = each
        commit.on_committed()

    def check_claim(self, limit_s: float) -> None:
        """Check the claim with the coordinator unless it was confirmed recently; blocks.

        Raises:
            FailedPreconditionError: STALE_CLAIM, another worker has claimed the task.
            UnavailableError: STORAGE_UNAVAILABLE, no answer within ``limit_s``.
        """
        if not self.claim_is_confirmed:
            self._check(TaskOffsets(self._task, self._claim, ()), limit_s)

    def write_claim(self, limit_s: float) -> None:
        """Record that the task commits under its claim with its own producer; blocks.

        Raises:
            DroverError: As ``check_claim``.
        """
        self._check(TaskOffsets(self._task, self._claim, (), own_producer=True), limit_s)

    def fetch(self, limit_s: float, *, with_positions: bool = False) -> Sequence[CommittedOffset]:
        """Fetch the connector's committed offsets, a sink's ``with_positions``; blocks.

        Raises:
            UnavailableError: STORAGE_UNAVAILABLE, no answer within ``limit_s``.
        """
        wanted = engine_pb2.FetchOffsets(
            connector=self._task.connector,
            with_positions=with_positions,
            consumer_group=self._consumer_group if with_positions else "",
        )
        answer = self._call(engine_pb2.EngineReport(fetch_offsets=wanted), limit_s)
        return tuple(decode_offset(each) for each in answer.offsets)

    def _check(self, offsets: TaskOffsets, limit_s: float) -> None:
        message = encode_task_offsets(offsets)
        answer = self._call(engine_pb2.EngineReport(commit_offsets=message), limit_s)
        if answer.outcome == _OUTCOMES.COMMIT_OUTCOME_STALE_CLAIM:
            raise FailedPreconditionError(Reason.STALE_CLAIM, answer.message)
        if answer.outcome != _OUTCOMES.COMMIT_OUTCOME_COMMITTED:
            raise ValueError(f"the claim of the task cannot be checked: {answer.message}")
        self._confirmed_s = time.monotonic()

    def _call(self, report: engine_pb2.EngineReport, limit_s: float) -> Any:
        waiting = _Waiting()
        call_id = report.call_id = next(_commit_ids)
        self._answers[call_id] = waiting.take
        self._send(report)
        if not waiting.answered.wait(limit_s):
            self._answers.pop(call_id, None)
            raise UnavailableError(
                Reason.STORAGE_UNAVAILABLE, f"the coordinator did not answer within {limit_s:.0f} s"
            )
        return waiting.answer

    def wait_settled(self, limit_s: float) -> bool:
        """Wait for the answers to all commits; whether they arrived in time."""
        return self._settled.wait(max(limit_s, 0))

    def _send_now(self, commit: _Commit) -> None:
        call_id = next(_commit_ids)
        self._answers[call_id] = lambda result: self._take(commit, result)
        message = encode_task_offsets(
            TaskOffsets(
                self._task,
                self._claim,
                commit.offsets,
                consumer_group=self._consumer_group,
                refreshes_marks=commit.refreshes_marks,
            )
        )
        self._send(engine_pb2.EngineReport(call_id=call_id, commit_offsets=message))

    def _take(self, commit: _Commit, result: engine_pb2.CommitResult) -> None:
        following = None
        with self._lock:
            commit.result = result
            if _is_committed(result):
                self._confirmed_s = time.monotonic()
                following = next((each for each in self._open if each.result is None), None)
            if following is None:
                self._settled.set()
        if following is not None:
            self._send_now(following)
        self._wake()


def _is_committed(result: engine_pb2.CommitResult) -> bool:
    return result.outcome == _OUTCOMES.COMMIT_OUTCOME_COMMITTED
