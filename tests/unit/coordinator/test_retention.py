"""The coordinator's retention: on a timer, between commits, and after errors of the store."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from drover.dataplane import retention as dataplane_retention
from drover.dataplane.payload import encode
from drover.dataplane.store import EmbeddedStore
from drover.dataplane.values import RetentionResult, StagedBlob
from drover.errors import InvalidArgumentError, Reason, UnavailableError
from drover.model.ids import TaskId, Term
from drover.model.offsets import CommitOutcome, CommittedOffset, TaskOffsets
from drover.model.times import DAY_MS
from drover.rpc.settings import load_settings
from drover.testing import ManualClock
from drover_coordinator.backends.embedded.offsets import EmbeddedOffsets
from drover_coordinator.backends.embedded.retention import RetentionTimer
from drover_coordinator.settings import CoordinatorSettings
from tests.support.group_members import RunningCoordinator
from tests.support.waiting import wait_until_async

TASK = TaskId("source", 0)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(tmp_path: Path, clock: ManualClock) -> EmbeddedStore:
    return EmbeddedStore(tmp_path / "data.db", clock=clock)


@pytest.fixture
async def offsets(store: EmbeddedStore) -> AsyncIterator[EmbeddedOffsets]:
    front = EmbeddedOffsets(store)
    yield front
    await front.close()


def fill(store: EmbeddedStore, batch_count: int) -> Term:
    store.ensure_topic("t")
    claim = store.claim_task(TASK, generation=1, owner="tests", request_id="")
    for _ in range(batch_count):
        blob = store.stage(TASK, claim, encode([]))
        store.publish(TASK, claim, [StagedBlob(0, 0, "t", 0, 1, 10, blob)])
    return claim


def timer(offsets: EmbeddedOffsets, **changes: float | None) -> RetentionTimer:
    settings: dict[str, float | None] = {
        "retention_ms": DAY_MS,
        "retention_bytes": None,
        "interval_s": 0.01,
        "pause_s": 0.001,
    }
    return RetentionTimer(offsets, **{**settings, **changes})  # type: ignore[arg-type]


async def test_each_sweep_removes_what_became_too_old(
    store: EmbeddedStore, offsets: EmbeddedOffsets, clock: ManualClock
) -> None:
    fill(store, 3)
    running = timer(offsets)
    running.start()
    clock.advance(DAY_MS + 1)
    await wait_until_async(lambda: store.start_offsets("t") == {0: 3})
    fill(store, 2)
    clock.advance(DAY_MS + 1)
    await wait_until_async(lambda: store.start_offsets("t") == {0: 5})
    await running.close()
    await running.close()


async def test_a_sweep_counts_what_it_removed_over_its_steps(
    store: EmbeddedStore,
    offsets: EmbeddedOffsets,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dataplane_retention, "BATCHES_AT_ONCE", 2)
    fill(store, 7)
    clock.advance(DAY_MS + 1)
    assert await timer(offsets).sweep() == 7
    assert await timer(offsets).sweep() == 0
    fill(store, 3)
    assert await timer(offsets, retention_ms=None).sweep() == 0
    assert await timer(offsets, retention_ms=None, retention_bytes=10).sweep() == 2


async def test_commits_are_taken_between_the_steps(
    store: EmbeddedStore,
    offsets: EmbeddedOffsets,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dataplane_retention, "BATCHES_AT_ONCE", 1)
    claim = fill(store, 30)
    clock.advance(DAY_MS + 1)
    sweeping = asyncio.create_task(timer(offsets).sweep())
    starts = []
    while not sweeping.done():
        commit = TaskOffsets(TASK, claim, [CommittedOffset("{}", '{"at":1}')])
        assert (await offsets.commit([commit]))[0].outcome is CommitOutcome.COMMITTED
        starts.append(store.start_offsets("t")[0])
    assert await sweeping == 30
    assert len(set(starts)) > 5


@pytest.mark.parametrize(
    "error", [UnavailableError(Reason.STORAGE_UNAVAILABLE, "locked"), ValueError("a defect")]
)
async def test_a_failure_does_not_end_the_timer(
    store: EmbeddedStore,
    offsets: EmbeddedOffsets,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
) -> None:
    fill(store, 1)
    clock.advance(DAY_MS + 1)
    apply = store.apply_retention
    failures = [error, error]

    def failing_at_first(**limits: int | None) -> RetentionResult:
        if failures:
            raise failures.pop()
        return apply(**limits)

    monkeypatch.setattr(store, "apply_retention", failing_at_first)
    running = timer(offsets)
    running.start()
    await wait_until_async(lambda: store.start_offsets("t") == {0: 1})
    await running.close()


@pytest.mark.parametrize(
    ("retention_ms", "retention_bytes", "start"), [(DAY_MS, -1, 4), (-1, 10, 3)]
)
async def test_a_coordinator_removes_what_its_settings_say(
    tmp_path: Path, retention_ms: int, retention_bytes: int, start: int
) -> None:
    # the store's clock is decades behind the coordinator's
    store = EmbeddedStore(tmp_path / "data.db", clock=ManualClock())
    fill(store, 4)
    running = RunningCoordinator(
        tmp_path, topic_retention_ms=retention_ms, topic_retention_bytes=retention_bytes
    )
    await running.start()
    await wait_until_async(lambda: store.start_offsets("t") == {0: start})
    await running.stop()
    store.close()


async def test_nothing_is_removed_without_limits(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path / "data.db", clock=ManualClock())
    offsets = EmbeddedOffsets(store)
    fill(store, 4)
    assert await timer(offsets, retention_ms=None).sweep() == 0
    await offsets.close()


@pytest.mark.parametrize("name", ["TOPIC_RETENTION_MS", "TOPIC_RETENTION_BYTES"])
@pytest.mark.parametrize("value", ["0", "-2", "seven days", "99999999999999999999"])
def test_limits_that_cannot_be(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(f"DROVER_{name}", value)
    with pytest.raises(InvalidArgumentError) as caught:
        load_settings(CoordinatorSettings)
    assert [each.field for each in caught.value.violations] == [f"DROVER_{name}"]


def test_topics_are_kept_for_seven_days_unless_told(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load_settings(CoordinatorSettings)
    assert settings.topic_retention_ms == 7 * DAY_MS
    assert settings.topic_retention_bytes == -1
    monkeypatch.setenv("DROVER_TOPIC_RETENTION_MS", "-1")
    assert load_settings(CoordinatorSettings).topic_retention_ms == -1
