"""Topics keep their records for a while, and no longer."""

import threading
from pathlib import Path

import pytest

from drover.dataplane.payload import encode
from drover.dataplane.store import DAY_MS, DEFAULT_RETENTION_MS, EmbeddedStore
from drover.dataplane.values import RetentionResult, StagedBlob
from drover.errors import Reason, UnavailableError
from drover.model.ids import TaskId
from drover.testing.clock import ManualClock
from services.worker.engine.housekeeping import start_housekeeping
from tests.support.waiting import wait_until


def _publish(store: EmbeddedStore, count: int) -> None:
    task = TaskId("source", 0)
    claim = store.claim_task(task, generation=1, owner="tests", request_id="")
    for _ in range(count):
        blob = store.stage(task, claim, encode([]))
        store.publish(task, claim, [StagedBlob(0, 0, "t", 0, 1, 10, blob)])


def test_records_over_their_age_are_removed_and_younger_ones_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    store = EmbeddedStore(tmp_path / "data.db", clock=clock)
    store.ensure_topic("t")
    _publish(store, 100)  # more than one transaction removes
    clock.advance(DEFAULT_RETENTION_MS - DAY_MS)
    _publish(store, 5)
    clock.advance(DAY_MS + 1)
    apply = store.apply_retention
    calls = []

    def first_unavailable(**limits: int | None) -> RetentionResult:
        calls.append(limits)
        if len(calls) == 1:
            raise UnavailableError(Reason.STORAGE_UNAVAILABLE, "locked")
        return apply(**limits)

    monkeypatch.setattr(store, "apply_retention", first_unavailable)
    closed = threading.Event()
    thread = start_housekeeping(store, closed, interval_s=0.01)
    wait_until(lambda: store.start_offsets("t") == {0: 100}, describe="the removal")
    closed.set()
    thread.join()
    assert store.start_offsets("t") == {0: 100}
    assert store.end_offsets("t") == {0: 105}
