"""Which batches retention removes, in which steps, and how it frees disk space."""

import itertools
import os
import sqlite3
from pathlib import Path

import pytest

from drover.dataplane import retention
from drover.dataplane.store import EmbeddedStore
from drover.model.ids import TaskId
from drover.model.times import DAY_MS
from tests.unit.dataplane.writer import Clock, Writer, blob_count, values


def sweep(store: EmbeddedStore, **limits: int | None) -> list[int]:
    """Run retention to its end; returns the batch count of each step."""
    steps = []
    while count := store.apply_retention(**limits).batch_count:
        steps.append(count)
    return steps


def page_count(store: EmbeddedStore) -> int:
    with store._database.read() as connection:
        return int(connection.execute("PRAGMA page_count").fetchone()[0])


def noise(size: int = 400_000) -> bytes:
    """A value that cannot be compressed."""
    return os.urandom(size)


def test_a_step_removes_a_bounded_number_of_batches(
    writer: Writer, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "BATCHES_AT_ONCE", 4)
    for topic in ("a", "topic", "topic"):
        for _ in range(3):
            writer.publish([b"x"], topic)
    clock.time_ms += 8 * DAY_MS
    assert sweep(writer.store) == [4, 4, 1]
    assert blob_count(writer.store) == 0
    assert writer.store.start_offsets("a") == {0: 3}
    assert writer.store.start_offsets("topic") == {0: 6}


def test_a_step_removes_a_bounded_number_of_bytes_but_one_batch_at_least(
    writer: Writer, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(4):
        writer.publish([b"x" * 1_000])
    clock.time_ms += 8 * DAY_MS
    monkeypatch.setattr(retention, "BYTES_AT_ONCE", 1_500)
    assert sweep(writer.store) == [2, 2]
    writer.publish([b"x" * 1_000])
    clock.time_ms += 8 * DAY_MS
    monkeypatch.setattr(retention, "BYTES_AT_ONCE", 1)
    assert sweep(writer.store) == [1]


def test_both_limits_count(writer: Writer, clock: Clock) -> None:
    writer.publish([b"old"])
    clock.time_ms += 2_000
    for _ in range(4):
        writer.publish([b"x" * 1_000], "large")
    kept_bytes = writer.store.plan_read({("large", 0): 2}).size_bytes
    assert sum(sweep(writer.store, retention_ms=1_000, retention_bytes=kept_bytes)) == 3
    assert writer.store.start_offsets("topic") == {0: 1}
    assert writer.store.start_offsets("large") == {0: 2}


def test_a_clock_that_was_set_back_makes_no_hole_in_a_topic(writer: Writer, clock: Clock) -> None:
    clock.time_ms += 10 * DAY_MS
    writer.publish([b"first"])
    clock.time_ms -= 10 * DAY_MS
    writer.publish([b"second"])
    clock.time_ms += 10 * DAY_MS
    assert sweep(writer.store) == []
    assert values(writer.store) == [b"first", b"second"]
    clock.time_ms += 8 * DAY_MS
    assert sweep(writer.store) == [2]


def test_nothing_to_remove_waits_for_nobody(writer: Writer, clock: Clock, tmp_path: Path) -> None:
    writer.publish([b"new"])
    impatient = EmbeddedStore(tmp_path / "data.db", clock=clock, lock_timeout_ms=3)
    other = sqlite3.connect(tmp_path / "data.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    assert impatient.apply_retention(retention_bytes=1_000_000).batch_count == 0
    assert impatient.give_space_back() is False
    other.close()
    impatient.close()


def test_the_space_of_removed_batches_is_used_again(writer: Writer, clock: Clock) -> None:
    sizes = []
    for _ in range(5):
        for _ in range(10):
            writer.publish([noise()])
        sizes.append(page_count(writer.store))
        clock.time_ms += 8 * DAY_MS
        assert sum(sweep(writer.store)) == 10
    assert max(sizes) < sizes[0] * 1.1


def test_a_file_that_is_mostly_free_shrinks_step_by_step(
    writer: Writer, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(20):
        writer.publish([noise()])
    clock.time_ms += 8 * DAY_MS
    kept = noise()
    writer.publish([kept])
    full = page_count(writer.store)
    sweep(writer.store)
    monkeypatch.setattr(retention, "PAGES_AT_ONCE", 100)
    sizes = [page_count(writer.store)]
    while writer.store.give_space_back():
        sizes.append(page_count(writer.store))
    assert sizes[0] == full
    assert len(sizes) > 3
    assert all(0 < before - after <= 100 for before, after in itertools.pairwise(sizes))
    assert page_count(writer.store) < full / 4
    assert values(writer.store) == [kept]
    writer.store.close()
    connection = sqlite3.connect(tmp_path / "data.db")
    assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
    connection.close()


def test_a_plan_says_what_retention_took_from_it(store: EmbeddedStore, clock: Clock) -> None:
    writer = Writer(store, TaskId("source", 0))
    writer.publish([b"a"] * 5)
    clock.time_ms += 8 * DAY_MS
    assert sum(sweep(store)) == 1
    plan = store.plan_read({("topic", 0): 2})
    assert (plan.record_count, plan.skipped) == (0, {("topic", 0): 3})
    writer.publish([b"b"])
    assert store.plan_read({("topic", 0): 2}).skipped == {("topic", 0): 3}
    assert store.plan_read({("topic", 0): 5}).skipped == {}
