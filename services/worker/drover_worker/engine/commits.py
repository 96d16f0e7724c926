"""A task's offsets, on their way to the coordinator and back: one commit at a time.

A commit is answered once it is durable or refused, however long the coordinator is away, so what is
committed is known here without asking anybody.
"""

import itertools
import math
import os
import threading
import time
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
#: Unlike those of any other engine of this machine, so that a late answer fits nobody else's.
_commit_ids = itertools.count((os.getpid() << 32) + 1)

#: What the herder answers to a call of the engine's own.
Answer = Callable[[Any], None]
#: A claim that the coordinator has acknowledged so lately is not asked about again.
_CONFIRMED_FOR_S = 1.0


@dataclass(slots=True, eq=False)
class _Commit:
    """Offsets that were sent; ``on_committed`` is called when they are durable."""

    call_id: int
    offsets: Sequence[CommittedOffset]
    on_committed: Callable[[], None]
    result: engine_pb2.CommitResult | None = None


@dataclass(slots=True, eq=False)
class _Waiting:
    """A call that its caller waits for."""

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
        """``answers`` is where the engine looks up who gets an answer, by its call id."""
        self._consumer_group = consumer_group
        self._task = task
        self._claim = claim
        self._committed = {canonical_json(each.partition_json): each for each in committed}
        self._send = send
        self._answers = answers
        self._wake = wake
        self._commit: _Commit | None = None
        #: When the coordinator last said that the claim counts.
        self._confirmed_s = -math.inf
        self._settled = threading.Event()
        self._settled.set()

    @property
    def committed(self) -> Sequence[CommittedOffset]:
        """What the connector had committed when the task started, and the task's own since."""
        return tuple(self._committed.values())

    def send(self, offsets: Sequence[CommittedOffset], on_committed: Callable[[], None]) -> None:
        """Have the offsets committed; the task is woken by the answer."""
        commit = _Commit(next(_commit_ids), offsets, on_committed)
        self._settled.clear()
        self._commit = commit
        self._answers[commit.call_id] = lambda result: self._take(commit, result)
        message = encode_task_offsets(
            TaskOffsets(self._task, self._claim, offsets, consumer_group=self._consumer_group)
        )
        self._send(engine_pb2.EngineReport(call_id=commit.call_id, commit_offsets=message))

    def settle(self) -> bool:
        """Take up the answer to the last commit; False while it has none.

        Raises:
            FailedPreconditionError: STALE_CLAIM, somebody else has the task.
            ValueError: The offsets were refused for another reason.
        """
        commit = self._commit
        if commit is None:
            return True
        if commit.result is None:
            return False
        self._commit = None
        outcome = commit.result.outcome
        if outcome == _OUTCOMES.COMMIT_OUTCOME_STALE_CLAIM:
            raise FailedPreconditionError(Reason.STALE_CLAIM, commit.result.message)
        if outcome != _OUTCOMES.COMMIT_OUTCOME_COMMITTED:
            raise ValueError(f"the offsets of the batch were refused: {commit.result.message}")
        self._confirmed_s = time.monotonic()
        for each in commit.offsets:
            self._committed[canonical_json(each.partition_json)] = each
        commit.on_committed()
        return True

    def check_claim(self, limit_s: float) -> None:
        """Ask whether the claim counts, unless the coordinator said so a moment ago; blocks.

        A clock that stands still while the process is suspended would be of no use here; this one
        goes on.

        Raises:
            FailedPreconditionError: STALE_CLAIM, somebody else has the task.
            UnavailableError: STORAGE_UNAVAILABLE, there is no answer yet.
        """
        if time.monotonic() - self._confirmed_s >= _CONFIRMED_FOR_S:
            self._check(TaskOffsets(self._task, self._claim, ()), limit_s)

    def write_claim(self, limit_s: float) -> None:
        """Have written down that the task commits under its claim by its own producer; blocks.

        Raises:
            DroverError: As ``check_claim``.
        """
        self._check(TaskOffsets(self._task, self._claim, (), own_producer=True), limit_s)

    def fetch(self, limit_s: float) -> Sequence[CommittedOffset]:
        """What the connector has committed by now; blocks.

        Raises:
            UnavailableError: STORAGE_UNAVAILABLE, there is no answer yet.
        """
        wanted = engine_pb2.FetchOffsets(connector=self._task.connector)
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
                Reason.STORAGE_UNAVAILABLE, f"the coordinator gave no answer for {limit_s:.0f} s"
            )
        return waiting.answer

    def wait_settled(self, limit_s: float) -> bool:
        """Wait for the answer to the last commit; whether it came in time."""
        return self._settled.wait(max(limit_s, 0))

    def _take(self, commit: _Commit, result: engine_pb2.CommitResult) -> None:
        commit.result = result
        self._settled.set()
        self._wake()
