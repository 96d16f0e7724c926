import contextlib
import os
import pickle
import sqlite3
import sys
import threading
from pathlib import Path

import pytest

from drover.dataplane.store import EmbeddedStore
from drover.dataplane.values import PublishedRange, StagedBlob, TopicInfo
from drover.errors import (
    DataLossError,
    InvalidArgumentError,
    NotFoundError,
    Reason,
    UnavailableError,
)
from drover.model.ids import TaskId
from drover.model.offsets import CommitOutcome, CommittedOffset, TaskOffsets
from drover.model.times import DAY_MS
from tests.unit.dataplane.writer import Clock, Writer, blob_count, values

OFFSET = CommittedOffset('{"file":"f"}', '{"position":1}')


def test_a_topic_keeps_the_partition_count_it_was_created_with(store: EmbeddedStore) -> None:
    assert store.topic("t") is None
    assert store.ensure_topic("t", 3) == TopicInfo("t", 3)
    assert store.ensure_topic("t", 5) == TopicInfo("t", 3)
    assert store.topics() == [TopicInfo("t", 3)]
    assert store.end_offsets("t") == {0: 0, 1: 0, 2: 0}


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "é", "a" * 250, "a\n", "a:b"])
def test_topic_names_follow_kafkas_rule(store: EmbeddedStore, name: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        store.ensure_topic(name, 0)
    assert [each.field for each in caught.value.violations] == ["topic", "partition_count"]


@pytest.mark.parametrize("name", ["a", "...", "A.b_c-9", "a" * 249])
def test_names_that_kafka_allows_are_allowed(store: EmbeddedStore, name: str) -> None:
    assert store.ensure_topic(name).name == name


def test_records_and_offsets_become_visible_together(writer: Writer) -> None:
    blobs = writer.stage([b"a", b"b"])
    assert values(writer.store) == []
    result = writer.store.publish(writer.task, writer.claim, blobs, [OFFSET])
    assert result.ranges == [PublishedRange("topic", 0, 0, 2)]
    assert values(writer.store) == [b"a", b"b"]
    assert writer.store.fetch_offsets("source") == [OFFSET]


def test_offsets_go_on_from_batch_to_batch(writer: Writer) -> None:
    writer.publish([b"a"])
    result = writer.publish([b"b", b"c"])
    assert result.ranges == [PublishedRange("topic", 0, 1, 3)]
    assert writer.store.end_offsets("topic") == {0: 3}


def test_blobs_are_published_in_the_order_of_spark_partition_and_row(writer: Writer) -> None:
    blobs = [*writer.stage([b"second"]), *writer.stage([b"third"]), *writer.stage([b"first"])]
    places = [(1, 0), (1, 1), (0, 7)]
    moved = [
        StagedBlob(place[0], place[1], each.topic, 0, 1, each.size_bytes, each.blob_id)
        for place, each in zip(places, blobs, strict=True)
    ]
    writer.store.publish(writer.task, writer.claim, moved)
    assert values(writer.store) == [b"first", b"second", b"third"]


def test_offsets_may_be_committed_without_records(writer: Writer) -> None:
    assert writer.store.publish(writer.task, writer.claim, [], [OFFSET]).record_count == 0
    assert writer.store.fetch_offsets("source") == [OFFSET]


def test_a_blob_is_published_once(writer: Writer) -> None:
    blobs = writer.stage([b"a"])
    writer.store.publish(writer.task, writer.claim, blobs)
    with pytest.raises(InvalidArgumentError, match="not staged"):
        writer.store.publish(writer.task, writer.claim, blobs, [OFFSET])
    assert writer.store.fetch_offsets("source") == []


def test_a_blob_of_another_task_is_refused(writer: Writer) -> None:
    other = Writer(writer.store, TaskId("other", 0))
    with pytest.raises(InvalidArgumentError, match="not staged"):
        writer.store.publish(writer.task, writer.claim, other.stage([b"a"]))
    assert values(writer.store) == []


def test_a_new_claim_removes_what_was_staged_before(writer: Writer) -> None:
    writer.stage([b"left behind"])
    other = Writer(writer.store, TaskId("source", 1))
    kept = other.stage([b"kept"])
    Writer(writer.store, writer.task)
    assert blob_count(writer.store) == 1
    assert other.store.publish(other.task, other.claim, kept).record_count == 1


def test_publishing_removes_what_failed_attempts_staged(writer: Writer) -> None:
    writer.stage([b"a failed attempt"])
    writer.publish([b"a"])
    assert blob_count(writer.store) == 1
    assert values(writer.store) == [b"a"]


def test_publishing_to_a_topic_or_partition_that_is_not_there(writer: Writer) -> None:
    (blob,) = writer.stage([b"a"])
    nowhere = StagedBlob(0, 0, "nowhere", 0, 1, 1, blob.blob_id)
    with pytest.raises(NotFoundError) as caught:
        writer.store.publish(writer.task, writer.claim, [nowhere])
    assert caught.value.reason is Reason.TOPIC_NOT_FOUND
    beyond = StagedBlob(0, 0, "topic", 3, 1, 1, blob.blob_id)
    with pytest.raises(InvalidArgumentError, match="partitions 0 to 0"):
        writer.store.publish(writer.task, writer.claim, [beyond])


def test_idle_readers_see_what_others_wrote(store: EmbeddedStore, tmp_path: Path) -> None:
    reader = EmbeddedStore(tmp_path / "data.db")
    assert not reader.has_data({("topic", 0): 0})
    Writer(store, TaskId("source", 0)).publish([b"a"])
    assert reader.has_data({("topic", 0): 0})
    assert not reader.has_data({("topic", 0): 1})
    assert reader.end_offsets("topic") == {0: 1}
    reader.close()


def test_an_idle_look_asks_the_file_nothing(store: EmbeddedStore) -> None:
    Writer(store, TaskId("source", 0)).publish([b"a"])
    store.end_offsets("topic")
    statements: list[str] = []
    store._database._reader.set_trace_callback(statements.append)
    for _ in range(10):
        assert not store.has_data({("topic", 0): 1})
    store._database._reader.set_trace_callback(None)
    assert set(statements) == {"PRAGMA data_version"}


def test_a_store_travels_to_another_process_by_its_path(writer: Writer) -> None:
    writer.publish([b"a"])
    copy = pickle.loads(pickle.dumps(writer.store))
    assert values(copy) == [b"a"]
    copy.close()


# -- reading ---------------------------------------------------------------------------------


def test_a_plan_is_cut_where_the_limits_say(writer: Writer) -> None:
    for _ in range(4):
        writer.publish([b"x" * 100] * 10)
    plan = writer.store.plan_read({("topic", 0): 3}, max_records=20)
    assert plan.record_count == 20
    assert plan.next_offsets == {("topic", 0): 23}
    plan = writer.store.plan_read({("topic", 0): 0}, max_bytes=1)
    assert plan.record_count == 1
    plan = writer.store.plan_read({("topic", 0): 0}, range_bytes=1)
    assert [(each.start_offset, each.end_offset) for each in plan.ranges] == [
        (0, 10),
        (10, 20),
        (20, 30),
        (30, 40),
    ]


def test_a_plan_shares_its_limits_among_partitions(store: EmbeddedStore) -> None:
    store.ensure_topic("topic", 1)
    writer = Writer(store, TaskId("source", 0))
    for topic in ("a", "b", "c"):
        writer.publish([b"x"] * 100, topic)
    starts = {("a", 0): 0, ("b", 0): 95, ("c", 0): 0, ("topic", 0): 0, ("missing", 0): 0}
    plan = store.plan_read(starts, max_records=90)
    moved = {each.topic: each.record_count for each in plan.ranges}
    assert moved == {"a": 30, "b": 5, "c": 55}
    assert plan.next_offsets["topic", 0] == 0


def test_nothing_to_read_is_an_empty_plan(store: EmbeddedStore) -> None:
    plan = store.plan_read({("topic", 0): 5})
    assert plan.ranges == ()
    assert plan.next_offsets == {("topic", 0): 5}


# -- retention -------------------------------------------------------------------------------


def test_old_batches_go_after_seven_days(writer: Writer, clock: Clock) -> None:
    writer.publish([b"old"] * 3)
    clock.time_ms += 6 * DAY_MS
    writer.publish([b"new"])
    assert writer.store.apply_retention().batch_count == 0
    clock.time_ms += DAY_MS + 1
    removed = writer.store.apply_retention()
    assert (removed.batch_count, removed.record_count) == (1, 3)
    assert writer.store.start_offsets("topic") == {0: 3}
    assert writer.store.end_offsets("topic") == {0: 4}
    plan = writer.store.plan_read({("topic", 0): 0})
    assert [(each.start_offset, each.end_offset) for each in plan.ranges] == [(3, 4)]
    assert blob_count(writer.store) == 1


def test_the_oldest_batches_go_above_a_size(writer: Writer) -> None:
    for _ in range(5):
        writer.publish([b"x" * 1000])
    size = writer.store.plan_read({("topic", 0): 0}).size_bytes
    assert writer.store.apply_retention(retention_ms=None).batch_count == 0
    writer.store.apply_retention(retention_ms=None, retention_bytes=size // 2)
    assert writer.store.start_offsets("topic") == {0: 3}


def test_offsets_are_not_given_twice_after_everything_was_removed(
    writer: Writer, clock: Clock
) -> None:
    writer.publish([b"a", b"b"])
    clock.time_ms += 8 * DAY_MS
    writer.store.apply_retention()
    assert writer.store.plan_read({("topic", 0): 0}).next_offsets == {("topic", 0): 2}
    assert writer.publish([b"c"]).ranges == [PublishedRange("topic", 0, 2, 3)]


def test_threads_of_one_process_wait_within_bounds_too(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path / "data.db", lock_timeout_ms=3)
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with store._database.write(), store._database.read():
            held.set()
            done.wait(60)

    holder = threading.Thread(target=hold)
    holder.start()
    assert held.wait(60)
    for call in (lambda: Writer(store, TaskId("source", 0)), lambda: store.topics()):
        with pytest.raises(UnavailableError, match="other threads") as caught:
            call()
        assert caught.value.reason is Reason.STORAGE_UNAVAILABLE
    done.set()
    holder.join()
    assert Writer(store, TaskId("source", 0)).publish([b"a"]).record_count == 1
    store.close()


# -- damaged files ---------------------------------------------------------------------------


def test_a_damaged_page_is_data_loss(writer: Writer, tmp_path: Path) -> None:
    writer.publish([b"x" * 200_000])
    path = tmp_path / "data.db"
    writer.store._database._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    writer.store.close()
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(16_384)
        file.write(b"\xff" * (size - 16_384))
    with pytest.raises(DataLossError) as caught:  # noqa: PT012
        store = EmbeddedStore(path)
        store.topics()
    assert caught.value.reason is Reason.LOG_CORRUPT


def test_a_file_of_the_first_version_is_brought_up_to_date(
    store: EmbeddedStore, tmp_path: Path
) -> None:
    store.ensure_topic("kept")
    store.close()
    connection = sqlite3.connect(tmp_path / "data.db")
    connection.executescript("DROP TABLE last_commits; PRAGMA user_version = 1;")
    connection.close()
    with contextlib.closing(EmbeddedStore(tmp_path / "data.db")) as again:
        assert [topic.name for topic in again.topics()] == ["kept"]
        writer = Writer(again, TaskId("c", 0))
        offset = CommittedOffset("{}", '{"at":1}')
        commit = TaskOffsets(writer.task, writer.claim, [offset], 1)
        assert again.commit_offsets([commit])[0].outcome is CommitOutcome.COMMITTED


def test_a_writer_that_does_not_let_go_is_waited_for_within_bounds(tmp_path: Path) -> None:
    path = tmp_path / "data.db"
    store = EmbeddedStore(path, lock_timeout_ms=60)
    store.ensure_topic("known")
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(UnavailableError, match="locked") as caught:
        store.ensure_topic("topic")
    assert caught.value.reason is Reason.STORAGE_UNAVAILABLE
    if sys.platform == "linux":
        assert f"pid {os.getpid()} has the lock" in str(caught.value)
    assert [each.name for each in store.topics()] == ["known"]  # readers do not wait
    holder.execute("ROLLBACK")
    assert store.ensure_topic("topic").name == "topic"
    holder.close()
    store.close()


def test_a_full_disk_leaves_nothing_half_done(writer: Writer) -> None:
    blobs = writer.stage([b"a"])
    connection = writer.store._database._writer
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(UnavailableError, match="full"):
        writer.store.stage(writer.task, writer.claim, bytes(1_000_000))
    connection.execute("PRAGMA max_page_count = 1000000")
    assert writer.store.publish(writer.task, writer.claim, blobs).record_count == 1
