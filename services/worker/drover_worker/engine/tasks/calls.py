"""A task's calls to the coordinator, which its herder forwards: commits, claims, offsets."""

import itertools
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from drover.api.engine.v1 import engine_pb2
from drover.codec.coordinator import COMMIT_OUTCOMES, decode_offset, encode_task_offsets
from drover.errors import FailedPreconditionError, Reason, UnavailableError
from drover.model.ids import TaskId, Term
from drover.model.offsets import CommitOutcome, CommittedOffset, TaskOffsets

#: Unique among the engines of this machine, so that a late answer never matches another's call.
_call_ids = itertools.count((os.getpid() << 32) + 1)

#: Receives the herder's answer to a call of the engine.
Answer = Callable[[Any], None]


@dataclass(slots=True, eq=False)
class _Waiting:
    """A call in progress."""

    answered: threading.Event = field(default_factory=threading.Event)
    answer: Any = None

    def take(self, answer: Any) -> None:
        self.answer = answer
        self.answered.set()


class TaskCalls:
    """The calls of one task under its claim."""

    def __init__(
        self,
        task: TaskId,
        claim: Term,
        *,
        send: Callable[[engine_pb2.EngineReport], None],
        answers: dict[int, Answer],
        consumer_group: str = "",
    ) -> None:
        """``answers`` maps call ids to the receivers of their answers."""
        self._consumer_group = consumer_group
        self._task = task
        self._claim = claim
        self._send = send
        self._answers = answers

    def commit(
        self,
        offsets: Sequence[CommittedOffset],
        on_answer: Callable[[CommitOutcome, str], None],
        *,
        refreshes_marks: bool = False,
    ) -> None:
        """Commit the offsets; ``on_answer`` gets the outcome and its message, on any thread."""

        def take(answer: engine_pb2.CommitResult) -> None:
            outcome = COMMIT_OUTCOMES.decode_response(answer.outcome, CommitOutcome.INVALID)
            on_answer(outcome, answer.message)

        call_id = next(_call_ids)
        self._answers[call_id] = take
        message = encode_task_offsets(
            TaskOffsets(
                self._task,
                self._claim,
                offsets,
                consumer_group=self._consumer_group,
                refreshes_marks=refreshes_marks,
            )
        )
        self._send(engine_pb2.EngineReport(call_id=call_id, commit_offsets=message))

    def check_claim(self, limit_s: float) -> None:
        """Check the claim with the coordinator; blocks.

        Raises:
            FailedPreconditionError: STALE_CLAIM, another worker has claimed the task.
            UnavailableError: STORAGE_UNAVAILABLE, no answer within ``limit_s``.
        """
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
        outcome = COMMIT_OUTCOMES.decode_response(answer.outcome, CommitOutcome.INVALID)
        if outcome is CommitOutcome.STALE_CLAIM:
            raise FailedPreconditionError(Reason.STALE_CLAIM, answer.message)
        if outcome is not CommitOutcome.COMMITTED:
            raise ValueError(f"the claim of the task cannot be checked: {answer.message}")

    def _call(self, report: engine_pb2.EngineReport, limit_s: float) -> Any:
        return _call(report, limit_s, send=self._send, answers=self._answers)


def fetch_offsets(
    connector: str,
    limit_s: float,
    *,
    send: Callable[[engine_pb2.EngineReport], None],
    answers: dict[int, Answer],
) -> Sequence[CommittedOffset]:
    """Fetch a connector's committed offsets; blocks.

    Raises:
        UnavailableError: STORAGE_UNAVAILABLE, no answer within ``limit_s``.
    """
    wanted = engine_pb2.FetchOffsets(connector=connector)
    answer = _call(
        engine_pb2.EngineReport(fetch_offsets=wanted), limit_s, send=send, answers=answers
    )
    return tuple(decode_offset(each) for each in answer.offsets)


def _call(
    report: engine_pb2.EngineReport,
    limit_s: float,
    *,
    send: Callable[[engine_pb2.EngineReport], None],
    answers: dict[int, Answer],
) -> Any:
    waiting = _Waiting()
    call_id = report.call_id = next(_call_ids)
    answers[call_id] = waiting.take
    send(report)
    if not waiting.answered.wait(limit_s):
        answers.pop(call_id, None)
        raise UnavailableError(
            Reason.STORAGE_UNAVAILABLE, f"the coordinator did not answer within {limit_s:.0f} s"
        )
    return waiting.answer
