"""Engines, members and retention write to one file, with short lock timeouts."""

import asyncio
import sqlite3
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import TypeVar

import pytest

from drover.dataplane import retention as dataplane_retention
from drover.dataplane.payload import encode
from drover.dataplane.store import EmbeddedStore
from drover.dataplane.values import StagedBlob
from drover.errors import Reason, UnavailableError
from drover.model.claims import ClaimRequest
from drover.model.ids import TaskId, Term
from drover.model.offsets import CommitOutcome, CommittedOffset, TaskOffsets
from drover_coordinator import shared_writes
from drover_coordinator.backends.embedded.offsets import EmbeddedOffsets
from drover_coordinator.backends.embedded.retention import RetentionTimer
from tests.support.waiting import wait_until_async

T = TypeVar("T")

ENGINES = 3
#: How long each writer waits for the file's lock.
LOCK_TIMEOUT_MS = 300


class Engine:
    """Publishes until ``end`` is called, with separate connections, like another process."""

    def __init__(self, path: Path, number: int) -> None:
        self.topic = f"t{number}"
        self.published_count = 0
        self.refused: Counter[Reason] = Counter()
        self.defects: list[BaseException] = []
        self._task = TaskId(f"source-{number}", 0)
        self._ended = threading.Event()
        self._path = path
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            store = EmbeddedStore(self._path, lock_timeout_ms=LOCK_TIMEOUT_MS)
            claim: Term | None = None
            while not self._ended.wait(0.02):  # an engine does not publish all the time
                try:
                    if claim is None:
                        store.ensure_topic(self.topic)
                        claim = store.claim_task(
                            self._task, generation=1, owner="engine", request_id=""
                        )
                    blob = store.stage(self._task, claim, encode([]))
                    offset = CommittedOffset("{}", f'{{"at":{self.published_count + 1}}}')
                    staged = StagedBlob(0, 0, self.topic, 0, 1, 10, blob)
                    store.publish(self._task, claim, [staged], [offset])
                    self.published_count += 1
                except UnavailableError as error:
                    self.refused[error.reason] += 1
            store.close()
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            self.defects.append(error)


class Members:
    """Loops of claims, commits and fetches through the coordinator's front."""

    def __init__(self, offsets: EmbeddedOffsets) -> None:
        self.done: Counter[str] = Counter()
        self.refused: Counter[tuple[str, Reason]] = Counter()
        self._offsets = offsets
        self._terms: dict[TaskId, Term] = {}
        self._loops = [
            asyncio.create_task(loop)
            for loop in (self._claim(), self._commit(), self._commit(), self._fetch())
        ]

    async def end(self) -> None:
        for loop in self._loops:
            loop.cancel()
        for result in await asyncio.gather(*self._loops, return_exceptions=True):
            assert isinstance(result, asyncio.CancelledError), result

    async def _claim(self) -> None:
        number = 0
        while True:
            number += 1
            task = TaskId("sink", number % 5)
            call = self._offsets.claim(ClaimRequest(task, 1, "m", str(number), number // 100))
            term = await self._count("claim", call)
            if term is not None:
                self._terms[task] = term

    async def _commit(self) -> None:
        while True:
            commits = [
                TaskOffsets(task, term, [CommittedOffset("{}", '{"at":1}')])
                for task, term in self._terms.items()
            ]
            results = await self._count("commit", self._offsets.commit(commits))
            for result in results or ():
                assert result.outcome is not CommitOutcome.INVALID
            await asyncio.sleep(0)

    async def _fetch(self) -> None:
        while True:
            await self._count("fetch", self._offsets.fetch("sink", ""))

    async def _count(self, what: str, call: Awaitable[T]) -> T | None:
        try:
            answer = await call
        except UnavailableError as error:
            self.refused[what, error.reason] += 1
            return None
        self.done[what] += 1
        return answer


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[EmbeddedStore]:
    store = EmbeddedStore(tmp_path / "data.db", lock_timeout_ms=LOCK_TIMEOUT_MS)
    yield store
    store.close()


async def test_whoever_has_to_wait_too_long_hears_unavailable_and_nothing_is_lost(
    store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dataplane_retention, "BATCHES_AT_ONCE", 3)
    offsets = EmbeddedOffsets(store)
    timer = RetentionTimer(
        offsets, retention_ms=None, retention_bytes=50, interval_s=0.05, pause_s=0.001
    )
    engines = [Engine(store.path, number) for number in range(ENGINES)]
    members = Members(offsets)
    timer.start()
    reader = EmbeddedStore(store.path)

    def progress() -> dict[str, int]:
        """Calls that succeeded, and of each topic the published batches and the log start."""
        return {
            **{what: members.done[what] for what in ("claim", "commit", "fetch")},
            **{engine.topic: engine.published_count for engine in engines},
            **{
                f"start of {engine.topic}": reader.start_offsets(engine.topic).get(0, 0)
                for engine in engines
            },
        }

    async def everybody_moves() -> None:
        since = progress()
        await wait_until_async(
            lambda: all(count > since[what] for what, count in progress().items()),
            timeout_s=300,
            describe=lambda: f"more than {since}: {progress()}",
        )

    await everybody_moves()
    bully = sqlite3.connect(store.path, isolation_level=None, timeout=60)
    bully.execute("BEGIN IMMEDIATE")
    fetched = members.done["fetch"]
    refused_before = [engine.refused.total() for engine in engines]
    calls_before = Counter(members.refused)
    await wait_until_async(
        lambda: (
            members.done["fetch"] > fetched + 5  # reads continue
            and all(
                members.refused[what, Reason.STORAGE_UNAVAILABLE]
                > calls_before[what, Reason.STORAGE_UNAVAILABLE]
                for what in ("claim", "commit")
            )
            and all(
                engine.refused.total() > before
                for engine, before in zip(engines, refused_before, strict=True)
            )
        ),
        timeout_s=300,
    )
    bully.execute("ROLLBACK")
    bully.close()
    await everybody_moves()

    await members.end()
    await timer.close()
    for engine in engines:
        await asyncio.to_thread(engine.end)
        assert engine.defects == []
        assert set(engine.refused) == {Reason.STORAGE_UNAVAILABLE}
        assert reader.end_offsets(engine.topic) == {0: engine.published_count}
    assert {reason for _, reason in members.refused} == {Reason.STORAGE_UNAVAILABLE}
    assert not any(what == "fetch" for what, _ in members.refused)
    reader.close()
    await offsets.close()


async def test_a_call_whose_turn_comes_too_late_is_refused(
    store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    offsets = EmbeddedOffsets(store)
    gate, entered = threading.Event(), threading.Event()

    def slow() -> bool:
        entered.set()
        return not gate.wait(30)

    monkeypatch.setattr(store, "give_space_back", slow)
    blocking = asyncio.create_task(offsets.give_space_back())
    await wait_until_async(entered.is_set)
    monkeypatch.setattr(shared_writes, "WAIT_MAX_S", 0.0)
    late = asyncio.create_task(offsets.claim(ClaimRequest(TaskId("c", 0), 1, "m", "r", 0)))
    await asyncio.sleep(0)
    gate.set()
    with pytest.raises(UnavailableError, match="retry"):
        await late
    await blocking
    assert store.current_claim(TaskId("c", 0)) is None
    await offsets.close()


async def test_a_call_given_up_before_its_turn_is_not_carried_out(
    store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    offsets = EmbeddedOffsets(store)
    gate, entered = threading.Event(), threading.Event()

    def slow() -> bool:
        entered.set()
        return not gate.wait(30)

    monkeypatch.setattr(store, "give_space_back", slow)
    blocking = asyncio.create_task(offsets.give_space_back())
    await wait_until_async(entered.is_set)
    given_up = asyncio.create_task(offsets.claim(ClaimRequest(TaskId("c", 0), 1, "m", "r", 0)))
    await asyncio.sleep(0)
    given_up.cancel()
    await asyncio.wait([given_up])
    gate.set()
    await blocking
    await offsets.close()
    reader = EmbeddedStore(store.path)
    assert reader.current_claim(TaskId("c", 0)) is None
    reader.close()
