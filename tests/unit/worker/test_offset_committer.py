import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from drover.errors import InvalidArgumentError, Reason, UnavailableError
from drover.model.ids import TaskId, Term
from drover.model.offsets import CommitOutcome, CommitResult, CommittedOffset, TaskOffsets
from drover_worker.shell.offset_committer import BATCH_BYTES_MAX, OffsetCommitter
from tests.support.waiting import wait_until_async


class Coordinator:
    """Keeps the commits that it gets; the first calls fail with ``errors``."""

    def __init__(self) -> None:
        self.calls: list[list[TaskOffsets]] = []
        self.errors: list[Exception] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def commit_offsets(
        self, *, group_id: str, tasks: Sequence[TaskOffsets], timeout_s: float
    ) -> Sequence[CommitResult]:
        self.calls.append(list(tasks))
        await self.gate.wait()
        if self.errors:
            raise self.errors.pop(0)
        return [CommitResult(offsets.task, CommitOutcome.COMMITTED) for offsets in tasks]


class Engine:
    def __init__(self) -> None:
        self.answers: dict[int, CommitResult] = {}

    async def answer(self, call_id: int, result: CommitResult) -> None:
        self.answers[call_id] = result


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator()


@pytest.fixture
def engine() -> Engine:
    return Engine()


@pytest.fixture
async def committer(coordinator: Coordinator, engine: Engine) -> AsyncIterator[OffsetCommitter]:
    committer = OffsetCommitter(coordinator, "drover", engine.answer)
    running = asyncio.create_task(committer.run())
    yield committer
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def offsets(index: int, text: str = "{}") -> TaskOffsets:
    task = TaskId("c", index)
    return TaskOffsets(task, Term(1, index), (CommittedOffset(text, "{}"),))


async def test_each_commit_is_answered_under_its_own_call_id(
    committer: OffsetCommitter, engine: Engine
) -> None:
    committer.commit(7, offsets(0))
    committer.commit(9, offsets(1))
    await wait_until_async(lambda: len(engine.answers) == 2)
    assert engine.answers[7].task == TaskId("c", 0)
    assert engine.answers[9].task == TaskId("c", 1)


async def test_commits_that_come_during_a_call_go_together_in_the_next(
    committer: OffsetCommitter, coordinator: Coordinator, engine: Engine
) -> None:
    coordinator.gate.clear()
    committer.commit(1, offsets(0))
    await wait_until_async(lambda: coordinator.calls)
    for index in (1, 2, 3):
        committer.commit(index + 1, offsets(index))
    coordinator.gate.set()
    await wait_until_async(lambda: len(engine.answers) == 4)
    assert [len(call) for call in coordinator.calls] == [1, 3]


async def test_a_coordinator_that_is_away_is_waited_for(
    committer: OffsetCommitter, coordinator: Coordinator, engine: Engine
) -> None:
    coordinator.errors = [UnavailableError(Reason.SERVICE_UNREACHABLE, "away")] * 2
    committer.commit(1, offsets(0))
    await wait_until_async(lambda: engine.answers)
    assert engine.answers[1].outcome is CommitOutcome.COMMITTED
    assert len(coordinator.calls) == 3


async def test_a_repeated_commit_keeps_its_number_and_a_later_one_has_a_higher(
    committer: OffsetCommitter, coordinator: Coordinator, engine: Engine
) -> None:
    coordinator.errors = [UnavailableError(Reason.SERVICE_UNREACHABLE, "away")]
    committer.commit(1, offsets(0))
    await wait_until_async(lambda: engine.answers)
    committer.commit(2, offsets(0))
    await wait_until_async(lambda: len(engine.answers) == 2)
    first, again, later = (call[0].number for call in coordinator.calls)
    assert 0 < first == again < later


async def test_a_refused_commit_is_told_to_the_engine(
    committer: OffsetCommitter, coordinator: Coordinator, engine: Engine
) -> None:
    coordinator.errors = [InvalidArgumentError(Reason.INVALID_REQUEST, "not JSON")]
    committer.commit(1, offsets(0))
    await wait_until_async(lambda: engine.answers)
    assert engine.answers[1] == CommitResult(TaskId("c", 0), CommitOutcome.INVALID, "not JSON")


async def test_the_commits_of_an_engine_that_ended_are_not_answered(
    committer: OffsetCommitter, coordinator: Coordinator, engine: Engine
) -> None:
    coordinator.gate.clear()
    committer.commit(1, offsets(0))
    await wait_until_async(lambda: coordinator.calls)
    committer.commit(2, offsets(1))
    committer.forget(lambda _: False)
    committer.commit(1, offsets(2))
    coordinator.gate.set()
    await wait_until_async(lambda: engine.answers)
    assert {call_id: result.task for call_id, result in engine.answers.items()} == {
        1: TaskId("c", 2)
    }


async def test_a_batch_is_bounded_in_bytes(
    committer: OffsetCommitter, coordinator: Coordinator, engine: Engine
) -> None:
    big = '{"f":"' + "x" * (BATCH_BYTES_MAX // 2) + '"}'
    for index in range(3):
        committer.commit(index, offsets(index, big))
    await wait_until_async(lambda: len(engine.answers) == 3)
    assert [len(call) for call in coordinator.calls] == [1, 1, 1]


async def test_a_task_that_asks_again_whether_its_claim_counts_waits_for_one_answer(
    coordinator: Coordinator, engine: Engine, committer: OffsetCommitter
) -> None:
    coordinator.gate.clear()
    committer.commit(1, offsets(0))
    await wait_until_async(lambda: coordinator.calls)
    claim = Term(1, 1)
    for call_id in (2, 3):
        committer.commit(call_id, TaskOffsets(TaskId("c", 1), claim, ()))
    committer.commit(4, TaskOffsets(TaskId("c", 2), claim, (), own_producer=True))
    coordinator.gate.set()
    await wait_until_async(lambda: engine.answers.keys() == {1, 3, 4})
    question, written = coordinator.calls[1]
    assert (question.number, question.own_producer) == (0, False), "a claim check records no number"
    assert written.number > 0
