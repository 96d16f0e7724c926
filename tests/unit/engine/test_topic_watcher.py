"""Idle sinks are woken once when new records arrive, and not before."""

import threading
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NoReturn

import pytest

from drover.dataplane.embedded import EmbeddedPlane
from drover.dataplane.payload import encode
from drover.dataplane.plane import PartitionKey
from drover.dataplane.store import EmbeddedStore
from drover.dataplane.values import StagedBlob
from drover.errors import FailedPreconditionError, Reason, UnavailableError
from drover.model.ids import TaskId
from drover_worker.engine.tasks.topic_watcher import TopicWatcher
from tests.support.waiting import wait_until

TASK = TaskId("source", 0)


@pytest.fixture
def store(tmp_path: Path) -> EmbeddedStore:
    return EmbeddedStore(tmp_path / "data.db")


def _publish(store: EmbeddedStore, topic: str) -> None:
    store.ensure_topic(topic)
    claim = store.claim_task(TASK, generation=1, owner="tests", request_id="")
    blob = store.stage(TASK, claim, encode([]))
    store.publish(TASK, claim, [StagedBlob(0, 0, topic, 0, 1, 1, blob)])


class Waiter:
    def __init__(self) -> None:
        self.count = 0

    def wake(self) -> None:
        self.count += 1


def test_records_of_another_process_wake_who_waits_for_them_once(
    store: EmbeddedStore, tmp_path: Path
) -> None:
    watcher = TopicWatcher(EmbeddedPlane(store), interval_ms=5)
    ours, others = Waiter(), Waiter()
    watcher.wait(ours.wake, {("a", 0): 0}, {})
    watcher.wait(others.wake, {("b", 0): 0}, {})
    elsewhere = EmbeddedStore(tmp_path / "data.db")
    _publish(elsewhere, "a")
    wait_until(lambda: ours.count, describe="the wake")
    _publish(elsewhere, "a")
    watcher.wait(others.wake, {("a", 0): 1}, {})
    wait_until(lambda: others.count, describe="the second wake")
    assert (ours.count, others.count) == (1, 1)


def test_records_that_were_there_before_wake_at_once(store: EmbeddedStore) -> None:
    _publish(store, "a")
    waiter = Waiter()
    TopicWatcher(EmbeddedPlane(store), interval_ms=3_600_000).wait(waiter.wake, {("a", 0): 0}, {})
    wait_until(lambda: waiter.count, describe="the wake")


def test_records_of_this_process_wake_without_waiting_for_the_interval(
    store: EmbeddedStore,
) -> None:
    watcher = TopicWatcher(EmbeddedPlane(store), interval_ms=3_600_000)
    waiter = Waiter()
    watcher.wait(waiter.wake, {("a", 0): 0}, {})
    _publish(store, "a")
    watcher.published()
    wait_until(lambda: waiter.count, describe="the wake")


class Late(EmbeddedPlane):
    """Shows new records only at a later look, as brokers may."""

    looks_left = 3

    def end_offsets(self, partitions: Collection[PartitionKey]) -> Mapping[PartitionKey, int]:
        found = super().end_offsets(partitions)
        if any(found.values()) and self.looks_left:
            self.looks_left -= 1
            return dict.fromkeys(found, 0)
        return found


def test_records_that_cannot_be_read_right_after_their_publishing_wake_soon(
    store: EmbeddedStore,
) -> None:
    watcher = TopicWatcher(Late(store), interval_ms=3_600_000)
    waiter = Waiter()
    watcher.wait(waiter.wake, {("a", 0): 0}, {})
    _publish(store, "a")
    watcher.published()
    wait_until(lambda: waiter.count, describe="the wake")


def test_a_topic_that_is_created_wakes_who_misses_it(store: EmbeddedStore) -> None:
    watcher = TopicWatcher(EmbeddedPlane(store), interval_ms=5)
    waiter = Waiter()
    watcher.wait(waiter.wake, {}, {"missing": 0})
    store.ensure_topic("other")
    store.ensure_topic("missing", 3)
    wait_until(lambda: waiter.count, describe="the wake")


def test_who_is_forgotten_is_not_woken(store: EmbeddedStore) -> None:
    watcher = TopicWatcher(EmbeddedPlane(store), interval_ms=5)
    forgotten, kept = Waiter(), Waiter()
    watcher.wait(forgotten.wake, {("a", 0): 0}, {})
    watcher.wait(kept.wake, {("a", 0): 0}, {})
    watcher.forget(forgotten.wake)
    _publish(store, "a")
    wait_until(lambda: kept.count, describe="the other's wake")
    assert forgotten.count == 0


def test_a_store_that_fails_for_a_while_is_watched_again(
    store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = threading.Event()

    def fail() -> NoReturn:
        failed.set()
        raise UnavailableError(Reason.STORAGE_UNAVAILABLE, "locked")

    _publish(store, "a")
    with monkeypatch.context() as patch:
        patch.setattr(store, "bounds", fail)
        waiter = Waiter()
        TopicWatcher(EmbeddedPlane(store), interval_ms=5).wait(waiter.wake, {("a", 0): 0}, {})
        assert failed.wait(10)
    wait_until(lambda: waiter.count, describe="the wake")


class Unreadable(EmbeddedPlane):
    """Refuses every read of the topic "secret"."""

    def end_offsets(self, partitions: Collection[PartitionKey]) -> Mapping[PartitionKey, int]:
        if any(topic == "secret" for topic, _ in partitions):
            raise FailedPreconditionError(Reason.STORAGE_MISCONFIGURED, "not authorised")
        return super().end_offsets(partitions)


def test_a_topic_that_cannot_be_read_keeps_only_its_own_readers_waiting(
    store: EmbeddedStore,
) -> None:
    _publish(store, "a")
    watcher = TopicWatcher(Unreadable(store), interval_ms=5)
    refused, other = Waiter(), Waiter()
    watcher.wait(refused.wake, {("secret", 0): 0}, {})
    watcher.wait(other.wake, {("a", 0): 0}, {})
    wait_until(lambda: other.count, describe="the other's wake")
    assert refused.count == 0
