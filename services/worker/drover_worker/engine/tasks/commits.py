"""A task's offsets, on their way to the coordinator and back: one commit at a time, in order.

A commit is answered once it is durable or refused, however long the coordinator is away, so what is
committed is known here without asking anybody. One that is made meanwhile is sent when the answer
is there, whether or not the task still runs, unless the one before was refused.
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
#: Unlike those of any other engine of this machine, so that a late answer fits nobody else's.
_commit_ids = itertools.count((os.getpid() << 32) + 1)

#: What the herder answers to a call of the engine's own.
Answer = Callable[[Any], None]
#: A claim that the coordinator has acknowledged so lately is not asked about again.
_CONFIRMED_FOR_S = 1.0


@dataclass(slots=True, eq=False)
class _Commit:
    """Offsets to be committed; ``on_committed`` is called when they are durable."""

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
        self._lock = threading.Lock()
        #: Those whose answers were not taken up, oldest first; the first without one is sent.
        self._open: deque[_Commit] = deque()
        #: When the coordinator last said that the claim counts.
        self._confirmed_s = -math.inf
        self._settled = threading.Event()
        self._settled.set()

    @property
    def committed(self) -> Sequence[CommittedOffset]:
        """What the connector had committed when the task started, and the task's own since."""
        return tuple(self._committed.values())

    @property
    def open_count(self) -> int:
        """Commits that are not known to be durable yet; see ``settle``."""
        return len(self._open)

    @property
    def claim_is_confirmed(self) -> bool:
        """Whether the coordinator said so lately that the claim counts that it is not asked again.

        A clock that stands still while the process is suspended would be of no use here; this one
        goes on.
        """
        return time.monotonic() - self._confirmed_s < _CONFIRMED_FOR_S

    def send(self, offsets: Sequence[CommittedOffset], on_committed: Callable[[], None]) -> None:
        """Have the offsets committed after those before; the task is woken by each answer."""
        commit = _Commit(offsets, on_committed)
        with self._lock:
            before = [each.result for each in self._open]
            self._open.append(commit)
            if any(result is not None and not _is_committed(result) for result in before):
                return  # what settle says of that one ends the task
            self._settled.clear()
        if None not in before:
            self._send_now(commit)

    def settle(self) -> None:
        """Take up the answers that are there.

        Raises:
            FailedPreconditionError: STALE_CLAIM, somebody else has the task.
            ValueError: The offsets were refused for another reason.
        """
        while self._open:
            commit = self._open[0]
            if commit.result is None:
                return
            self._take_up(commit, commit.result)

    def _take_up(self, commit: _Commit, result: engine_pb2.CommitResult) -> None:
        if not _is_committed(result):
            with self._lock:
                self._open.clear()  # those after it were not sent
            if result.outcome == _OUTCOMES.COMMIT_OUTCOME_STALE_CLAIM:
                raise FailedPreconditionError(Reason.STALE_CLAIM, result.message)
            raise ValueError(f"the offsets of the batch were refused: {result.message}")
        with self._lock:
            self._open.popleft()
        for each in commit.offsets:
            self._committed[canonical_json(each.partition_json)] = each
        commit.on_committed()

    def check_claim(self, limit_s: float) -> None:
        """Ask whether the claim counts, unless the coordinator said so a moment ago; blocks.

        Raises:
            FailedPreconditionError: STALE_CLAIM, somebody else has the task.
            UnavailableError: STORAGE_UNAVAILABLE, there is no answer yet.
        """
        if not self.claim_is_confirmed:
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
        """Wait for the answers to all commits; whether they came in time."""
        return self._settled.wait(max(limit_s, 0))

    def _send_now(self, commit: _Commit) -> None:
        call_id = next(_commit_ids)
        self._answers[call_id] = lambda result: self._take(commit, result)
        message = encode_task_offsets(
            TaskOffsets(
                self._task, self._claim, commit.offsets, consumer_group=self._consumer_group
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
