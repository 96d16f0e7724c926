"""A task's offsets, on their way to the coordinator and back: one commit at a time.

A commit is answered once it is durable or refused, however long the coordinator is away, so what is
committed is known here without asking anybody.
"""

import itertools
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from drover.api.coordinator.v1 import coordinator_service_pb2
from drover.api.engine.v1 import engine_pb2
from drover.codec.coordinator import encode_task_offsets
from drover.errors import FailedPreconditionError, Reason
from drover.model.ids import TaskId, Term
from drover.model.offset_json import canonical_json
from drover.model.offsets import CommittedOffset, TaskOffsets

_OUTCOMES = coordinator_service_pb2.CommitOutcome
#: Unlike those of any other engine of this machine, so that a late answer fits nobody else's.
_commit_ids = itertools.count((os.getpid() << 32) + 1)

Answer = Callable[[engine_pb2.CommitResult], None]


@dataclass(slots=True, eq=False)
class _Commit:
    """Offsets that were sent; ``on_committed`` is called when they are durable."""

    call_id: int
    offsets: Sequence[CommittedOffset]
    on_committed: Callable[[], None]
    result: engine_pb2.CommitResult | None = None


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
        for each in commit.offsets:
            self._committed[canonical_json(each.partition_json)] = each
        commit.on_committed()
        return True

    def wait_settled(self, limit_s: float) -> bool:
        """Wait for the answer to the last commit; whether it came in time."""
        return self._settled.wait(max(limit_s, 0))

    def _take(self, commit: _Commit, result: engine_pb2.CommitResult) -> None:
        commit.result = result
        self._settled.set()
        self._wake()
