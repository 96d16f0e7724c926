"""The asynchronous front of the store: shared transactions, pages, bounds."""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from drover.dataplane.store import EmbeddedStore
from drover.errors import FailedPreconditionError, Reason, ResourceExhaustedError, UnavailableError
from drover.model.claims import ClaimRequest
from drover.model.ids import TaskId, Term
from drover.model.offsets import CommitOutcome, CommitResult, CommittedOffset, TaskOffsets
from drover_coordinator import offset_store as offset_store_module
from drover_coordinator import shared_writes
from drover_coordinator.backends.embedded.offsets import EmbeddedOffsets
from tests.support.waiting import wait_until_async

TASK = TaskId("c", 0)


class GatedStore(EmbeddedStore):
    """A store whose commits and claims wait for ``gate``."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, lock_timeout_ms=150)
        self.gate = threading.Event()
        self.gate.set()
        self.batches: list[int] = []
        self.claim_batches: list[int] = []

    def commit_offsets(self, commits: Sequence[TaskOffsets]) -> list[CommitResult]:
        self.batches.append(len(commits))
        assert self.gate.wait(30)
        return super().commit_offsets(commits)

    def claim_tasks(self, requests: Sequence[ClaimRequest]) -> list[Term | FailedPreconditionError]:
        self.claim_batches.append(len(requests))
        assert self.gate.wait(30)
        return super().claim_tasks(requests)


@pytest.fixture
async def store(tmp_path: Path) -> GatedStore:
    return await asyncio.to_thread(GatedStore, tmp_path / "data.db")


@pytest.fixture
async def offsets(store: GatedStore) -> AsyncIterator[EmbeddedOffsets]:
    front = EmbeddedOffsets(store)
    yield front
    store.gate.set()
    await front.close()


async def claim(offsets: EmbeddedOffsets, task: TaskId = TASK, generation: int = 1) -> Term:
    return await offsets.claim(ClaimRequest(task, generation, "m", f"{task}-{generation}", 0))


def commit_of(term: Term, position: int, task: TaskId = TASK) -> TaskOffsets:
    offset = CommittedOffset('{"file":"f"}', f'{{"position":{position}}}')
    return TaskOffsets(task, term, (offset,))


async def test_commits_that_wait_share_a_transaction(
    offsets: EmbeddedOffsets, store: GatedStore
) -> None:
    tasks = [TaskId("c", index) for index in range(6)]
    terms = [await claim(offsets, task) for task in tasks]
    store.gate.clear()
    calls = [
        asyncio.create_task(offsets.commit([commit_of(term, 1, task)]))
        for task, term in zip(tasks, terms, strict=True)
    ]
    await wait_until_async(lambda: len(store.batches) == 1)
    store.gate.set()
    results = await asyncio.gather(*calls)
    assert [result[0].task for result in results] == tasks
    assert {result[0].outcome for result in results} == {CommitOutcome.COMMITTED}
    assert sum(store.batches) == 6
    assert len(store.batches) <= 2


async def test_claims_that_wait_share_a_transaction_and_each_has_its_own_answer(
    offsets: EmbeddedOffsets, store: GatedStore
) -> None:
    held = await claim(offsets, TaskId("c", 3), generation=5)
    store.claim_batches.clear()
    store.gate.clear()
    calls = [
        asyncio.create_task(claim(offsets, TaskId("c", index), generation=4)) for index in range(7)
    ]
    await wait_until_async(lambda: store.claim_batches)
    calls.append(asyncio.create_task(claim(offsets, TaskId("other", 0), generation=1)))
    await asyncio.sleep(0)
    store.gate.set()
    *answers, last = await asyncio.gather(*calls, return_exceptions=True)
    assert last == Term(1, 1)
    for index, answer in enumerate(answers):
        if index == 3:  # a later generation owns the task
            assert isinstance(answer, FailedPreconditionError)
            assert answer.reason is Reason.STALE_TERM
        else:
            assert answer == Term(4, 1)
    assert await asyncio.to_thread(store.current_claim, TaskId("c", 3)) == held
    assert sum(store.claim_batches) == 8
    assert len(store.claim_batches) <= 2


async def test_a_claim_that_is_given_up_before_its_turn_fences_nobody(
    offsets: EmbeddedOffsets, store: GatedStore
) -> None:
    held = await claim(offsets)
    store.claim_batches.clear()
    store.gate.clear()
    first = asyncio.create_task(claim(offsets, TaskId("c", 1)))
    await wait_until_async(lambda: store.claim_batches)
    gone = asyncio.create_task(claim(offsets, generation=2))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.wait([gone])
    store.gate.set()
    await first
    assert await claim(offsets, TaskId("c", 2)) == Term(1, 1)
    assert await asyncio.to_thread(store.current_claim, TASK) == held


async def test_a_claim_that_waited_for_too_long_is_unavailable_and_the_next_is_served(
    offsets: EmbeddedOffsets, store: GatedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.gate.clear()
    first = asyncio.create_task(claim(offsets, TaskId("c", 1)))
    await wait_until_async(lambda: store.claim_batches)
    monkeypatch.setattr(shared_writes, "WAIT_MAX_S", -1.0)
    late = asyncio.create_task(claim(offsets))
    await asyncio.sleep(0)
    monkeypatch.setattr(shared_writes, "WAIT_MAX_S", 30.0)
    store.gate.set()
    assert await first == Term(1, 1)
    with pytest.raises(UnavailableError) as caught:
        await late
    assert caught.value.reason is Reason.STORAGE_UNAVAILABLE
    assert await claim(offsets) == Term(1, 1)


async def test_a_transaction_takes_on_so_much_and_no_more(
    offsets: EmbeddedOffsets, store: GatedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_writes, "BATCH_MAX_ITEMS", 10)
    term = await claim(offsets)
    store.gate.clear()
    many = [CommittedOffset(f'{{"file":"{index}"}}', "{}") for index in range(20)]
    calls = [
        asyncio.create_task(offsets.commit([TaskOffsets(TASK, term, many[:count])]))
        for count in (1, 4, 4, 4, 20)
    ]
    await wait_until_async(lambda: store.batches)
    store.gate.set()
    for call in calls:
        assert (await call)[0].outcome is CommitOutcome.COMMITTED
    assert store.batches in ([2, 2, 1], [1, 2, 1, 1])


async def test_a_caller_that_goes_away_takes_nobody_with_it(
    offsets: EmbeddedOffsets, store: GatedStore
) -> None:
    term = await claim(offsets)
    store.gate.clear()
    gone = asyncio.create_task(offsets.commit([commit_of(term, 1)]))
    stays = asyncio.create_task(offsets.commit([commit_of(term, 2)]))
    await wait_until_async(lambda: len(store.batches) == 1)
    gone.cancel()
    await asyncio.wait([gone])
    store.gate.set()
    assert (await stays)[0].outcome is CommitOutcome.COMMITTED


async def test_a_busy_store_is_unavailable_and_serves_again(
    offsets: EmbeddedOffsets, store: GatedStore
) -> None:
    term = await claim(offsets)
    other = sqlite3.connect(store.path, isolation_level=None)
    try:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(UnavailableError) as caught:
            await offsets.commit([commit_of(term, 1)])
        assert caught.value.reason is Reason.STORAGE_UNAVAILABLE
        other.execute("ROLLBACK")
    finally:
        other.close()
    assert (await offsets.commit([commit_of(term, 1)]))[0].outcome is CommitOutcome.COMMITTED


async def test_waiting_calls_are_bounded(
    offsets: EmbeddedOffsets, store: GatedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    term = await claim(offsets)
    monkeypatch.setattr(offset_store_module, "WAITING_MAX", 2)
    offsets = EmbeddedOffsets(store)
    store.gate.clear()
    calls = [asyncio.create_task(offsets.commit([commit_of(term, 1)]))]
    await wait_until_async(lambda: len(store.batches) == 1)
    calls += [asyncio.create_task(offsets.commit([commit_of(term, n)])) for n in (2, 3)]
    await asyncio.sleep(0)
    with pytest.raises(ResourceExhaustedError) as caught:
        await offsets.commit([commit_of(term, 4)])
    assert caught.value.reason is Reason.QUEUE_FULL
    store.gate.set()
    for call in calls:
        assert (await call)[0].outcome is CommitOutcome.COMMITTED
