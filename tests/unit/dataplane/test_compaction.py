"""Compaction of embedded topics: which records stay, and what happens when a pass ends early."""

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
import pytest

from drover.dataplane import compaction, retention
from drover.dataplane.compaction import Compactor
from drover.dataplane.compaction_state import CompactedBatch, CompactionWork, StoredBatch
from drover.dataplane.reading import read_range
from drover.dataplane.staging import Stager
from drover.dataplane.store import EmbeddedStore
from drover.dataplane.values import ReadRange
from drover.model.times import DAY_MS
from tests.unit.dataplane.writer import Clock, Writer, blob_count, staged

#: (offset, key, value)
Record = tuple[int, bytes, bytes | None]
COMPACT = {"cleanup.policy": "compact"}


@pytest.fixture
def topic(store: EmbeddedStore) -> str:
    store.ensure_topic("topic", settings=COMPACT)
    return "topic"


def publish(writer: Writer, records: Sequence[tuple[bytes, bytes | None]]) -> None:
    stager = Stager(writer.store.path, writer.task, writer.claim, topic="topic")
    keys, values = zip(*records, strict=True)
    columns = {"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())}
    blobs = staged(stager, [pa.RecordBatch.from_pydict(columns)])
    writer.store.publish(writer.task, writer.claim, blobs)


def run(store: EmbeddedStore, holder: str = "a") -> int:
    return Compactor(store, holder, lambda _: False).run().record_count


def records(store: EmbeddedStore, start: int = 0, end: int | None = None) -> list[Record]:
    end = store.end_offsets("topic")[0] if end is None else end
    start = max(start, store.start_offsets("topic")[0])
    if start >= end:
        return []
    return [
        row
        for batch in read_range(store, ReadRange("topic", 0, start, end))
        for row in zip(
            *(batch.column(name).to_pylist() for name in ("offset", "key", "value")), strict=True
        )
    ]


def test_the_latest_record_of_each_key_stays_at_its_offset(writer: Writer, topic: str) -> None:
    store = writer.store
    for number in range(3):
        publish(writer, [(b"a", b"%d" % number), (b"b", b"%d" % number)])
    publish(writer, [(b"c", b"0"), (b"a", b"9")])
    assert run(store) == 5
    assert records(store) == [(5, b"b", b"2"), (6, b"c", b"0"), (7, b"a", b"9")]
    assert store.bounds()[topic, 0] == (0, 8)
    assert store.due_compactions() == []
    assert run(store) == 0


def test_a_topic_that_is_not_compacted_is_left_alone(writer: Writer) -> None:
    writer.store.ensure_topic("topic", settings={"cleanup.policy": "delete"})
    publish(writer, [(b"a", b"1"), (b"a", b"2")])
    assert run(writer.store) == 0
    assert len(records(writer.store)) == 2


def test_a_read_may_start_and_end_where_records_are_missing(writer: Writer, topic: str) -> None:
    publish(writer, [(key, b"x") for key in (b"a", b"b", b"a", b"a", b"c", b"a", b"d")])
    assert run(writer.store) == 3
    for start, end in itertools.combinations(range(8), 2):
        expected = [each for each in (1, 4, 5, 6) if start <= each < end]
        assert [each[0] for each in records(writer.store, start, end)] == expected
    plan = writer.store.plan_read({(topic, 0): 2})
    assert (plan.next_offsets, plan.skipped) == ({(topic, 0): 7}, {})


def test_a_limit_of_records_does_not_count_removed_ones(writer: Writer, topic: str) -> None:
    for _ in range(100):
        publish(writer, [(b"a", b"1"), (b"b", b"2")])
    run(writer.store)
    plan = writer.store.plan_read({(topic, 0): 0}, max_records=2)
    assert plan.next_offsets == {(topic, 0): 200}
    one = writer.store.plan_read({(topic, 0): 0}, max_records=1)
    assert one.next_offsets[topic, 0] < 200
    read = [row for each in one.ranges for row in records(writer.store, 0, each.end_offset)]
    assert len(read) <= 1


def test_small_batches_are_joined_and_their_blobs_removed(writer: Writer, topic: str) -> None:
    for number in range(50):
        publish(writer, [(b"%d" % number, b"x")])
    assert run(writer.store) == 0
    assert blob_count(writer.store) == 1
    assert [each[0] for each in records(writer.store)] == list(range(50))
    with writer.store._database.read() as connection:
        counts = [
            connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
            for table in ("batches", "compacted_blobs")
        ]
    assert counts == [1, 1]


def test_batches_whose_records_are_all_superseded_leave_no_gap_for_plans(
    writer: Writer, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "BATCHES_AT_ONCE", 1)
    for number in range(4):
        publish(writer, [(b"a", b"%d" % number)])
    assert run(writer.store) == 3
    assert records(writer.store) == [(3, b"a", b"3")]
    plan = writer.store.plan_read({(topic, 0): 1}, max_records=1)
    assert plan.next_offsets[topic, 0] > 1


def test_a_tombstone_stays_as_long_as_readers_of_the_value_may_need_it(
    writer: Writer, clock: Clock
) -> None:
    settings = {**COMPACT, "delete.retention.ms": "1000"}
    writer.store.ensure_topic("topic", settings=settings)
    publish(writer, [(b"a", b"1"), (b"b", b"1")])
    publish(writer, [(b"a", None)])
    clock.time_ms += 5_000
    assert run(writer.store) == 1, "the value, which a reader may have read until now"
    assert records(writer.store) == [(1, b"b", b"1"), (2, b"a", None)]
    clock.time_ms += 999
    assert writer.store.due_compactions() == []
    clock.time_ms += 1
    assert run(writer.store) == 1
    assert records(writer.store) == [(1, b"b", b"1")]
    assert writer.store.end_offsets("topic") == {0: 3}
    publish(writer, [(b"a", b"2")])
    assert records(writer.store, 2) == [(3, b"a", b"2")]


def test_records_younger_than_the_lag_are_not_compacted(writer: Writer, clock: Clock) -> None:
    settings = {**COMPACT, "min.compaction.lag.ms": "1000"}
    writer.store.ensure_topic("topic", settings=settings)
    publish(writer, [(b"a", b"1"), (b"a", b"2")])
    clock.time_ms += 900
    publish(writer, [(b"a", b"3")])
    assert run(writer.store) == 0
    clock.time_ms += 100
    assert run(writer.store) == 1
    assert records(writer.store) == [(1, b"a", b"2"), (2, b"a", b"3")]
    clock.time_ms += 900
    assert run(writer.store) == 1


def test_a_large_partition_is_compacted_when_a_quarter_of_it_is_new(
    writer: Writer, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("drover.dataplane.compaction_state.SMALL_BYTES", 0)
    publish(writer, [(b"%d" % number, b"x") for number in range(100)])
    run(writer.store)
    publish(writer, [(b"0", b"y")])
    assert writer.store.due_compactions() == []
    publish(writer, [(b"%d" % number, b"z") for number in range(120)])
    assert writer.store.due_compactions() == [(topic, 0)]
    assert run(writer.store) == 101


def test_more_keys_than_a_pass_notes_are_left_to_the_next(
    writer: Writer, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "KEYS_MAX", 3)
    for _ in range(2):
        for number in range(5):
            publish(writer, [(b"%d" % number, b"x"), (b"%d!" % number, b"x")])
    removed = [run(writer.store) for _ in range(10)]
    assert sum(removed) == 10
    assert [each[0] for each in records(writer.store)] == list(range(10, 20))


def test_compact_and_delete_do_both(writer: Writer, clock: Clock) -> None:
    settings = {"cleanup.policy": "compact,delete", "retention.ms": str(DAY_MS)}
    writer.store.ensure_topic("topic", settings=settings)
    publish(writer, [(b"a", b"1"), (b"b", b"1"), (b"a", b"2")])
    clock.time_ms += DAY_MS // 2
    publish(writer, [(b"c", b"1")])
    assert run(writer.store) == 1
    assert len(records(writer.store)) == 3
    clock.time_ms += DAY_MS // 2 + 1
    while writer.store.apply_retention().batch_count:
        pass
    assert records(writer.store) == [(3, b"c", b"1")], "joining has not made old records young"


def test_retention_leaves_what_compaction_has_replaced_meanwhile(
    writer: Writer, clock: Clock
) -> None:
    settings = {"cleanup.policy": "compact,delete", "retention.ms": "1000000"}
    writer.store.ensure_topic("topic", settings=settings)
    for key in (b"a", b"b", b"c"):
        publish(writer, [(key, b"1")])
    clock.time_ms += 1_000_001
    with writer.store._database.read() as connection:
        expired = retention.find(
            connection, now_ms=clock.time_ms, retention_ms=None, retention_bytes=None
        )
    assert len(expired) == 3
    clock.time_ms -= 1_000_001
    publish(writer, [(b"d", b"1")])
    run(writer.store)
    with writer.store._database.write() as connection:
        assert retention.remove(connection, expired).batch_count == 0
    assert [each[0] for each in records(writer.store)] == [0, 1, 2, 3]
    assert writer.store.start_offsets("topic") == {0: 0}


def test_the_space_of_removed_records_is_used_again(writer: Writer, topic: str) -> None:
    def pages() -> int:
        with writer.store._database.read() as connection:
            return int(connection.execute("PRAGMA page_count").fetchone()[0])

    sizes = []
    for _ in range(5):
        for _ in range(5):
            publish(writer, [(b"%d" % key, os.urandom(40_000)) for key in range(10)])
        assert run(writer.store) > 0
        sizes.append(pages())
    assert max(sizes) < sizes[0] * 1.5


def test_a_reader_finds_its_records_while_batches_are_replaced(writer: Writer, topic: str) -> None:
    for number in range(6):
        publish(writer, [(b"a", b"%d" % number), (b"%d" % number, b"x")])
    reading = read_range(writer.store, ReadRange("topic", 0, 0, 12))
    read = [*next(reading).column("offset").to_pylist()]
    assert run(writer.store) == 5
    for batch in reading:
        read += batch.column("offset").to_pylist()
    assert read == [0, 1, 3, 5, 7, 9, 10, 11]


class Killed(Exception):  # noqa: N818 - no error of the code under test
    """Ends a pass at a chosen step."""


@pytest.mark.parametrize("after", range(4))
@pytest.mark.parametrize("before_commit", [False, True])
def test_a_pass_that_ends_between_two_steps_loses_nothing(
    writer: Writer,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
    after: int,
    before_commit: bool,
) -> None:
    store = writer.store
    monkeypatch.setattr(compaction, "BATCHES_AT_ONCE", 1)
    for number in range(5):
        publish(writer, [(b"a", b"%d" % number), (b"b", None if number == 4 else b"v")])
    before = records(store)
    steps = itertools.count()
    replace = store.replace_batches

    def killed(of: CompactionWork, replaced: Sequence[StoredBatch], by: CompactedBatch) -> bool:
        number = next(steps)
        if before_commit and number == after:
            raise Killed
        done = replace(of, replaced, by)
        if number == after:
            raise Killed
        return done

    with monkeypatch.context() as patch:
        patch.setattr(store, "replace_batches", killed)
        with pytest.raises(Killed):
            run(store)
    left = records(store)
    assert {*left} <= {*before}
    assert left[-2:] == [(8, b"a", b"4"), (9, b"b", None)]
    run(store)
    assert records(store) == [(8, b"a", b"4"), (9, b"b", None)]


_CHILD = """
import sys
from pathlib import Path
from drover.dataplane import compaction, compaction_state
from drover.dataplane.store import EmbeddedStore
compaction.BATCHES_AT_ONCE = 1
store = EmbeddedStore(Path(sys.argv[1]))
replace = compaction_state.replace
def paused(*arguments):
    done = replace(*arguments)
    print("in a transaction", flush=True)
    sys.stdin.readline()
    return done
compaction_state.replace = paused
compaction.Compactor(store, "child", lambda _: False).run()
"""


@pytest.mark.parametrize("step", [1, 2, 3])
def test_a_process_that_is_killed_in_a_transaction_loses_nothing(
    writer: Writer, topic: str, clock: Clock, step: int
) -> None:
    for number in range(4):
        publish(writer, [(b"a", b"%d" % number), (b"b", b"%d" % number)])
    with subprocess.Popen(
        [sys.executable, "-c", _CHILD, str(writer.store.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        for _ in range(step - 1):
            child.stdout.readline()
            child.stdin.write("\n")
            child.stdin.flush()
        child.stdout.readline()
        child.send_signal(signal.SIGKILL)
    assert records(writer.store)[-2:] == [(6, b"a", b"3"), (7, b"b", b"3")]
    assert len(records(writer.store)) == 8 - 2 * (step - 1)
    clock.time_ms = 2**60  # the turn of the killed process ends
    run(writer.store)
    assert records(writer.store) == [(6, b"a", b"3"), (7, b"b", b"3")]


def test_one_process_compacts_at_a_time_until_its_turn_ends(
    writer: Writer, topic: str, clock: Clock
) -> None:
    publish(writer, [(b"a", b"1"), (b"a", b"2")])
    assert writer.store.take_compaction_turn("a", 1_000)
    assert not writer.store.take_compaction_turn("b", 1_000)
    assert run(writer.store, "b") == 0
    clock.time_ms += 1_000
    assert run(writer.store, "b") == 1


def test_a_pass_over_batches_that_another_one_has_replaced_changes_nothing(
    writer: Writer, topic: str
) -> None:
    store = writer.store
    for number in range(3):
        publish(writer, [(b"a", b"%d" % number)])
    stale = store.compaction_work("topic", 0)
    assert stale is not None
    assert run(store) == 2
    nothing = CompactedBatch(b"", 0, 0, None)
    assert not store.replace_batches(stale, stale.batches, nothing)
    assert records(store) == [(2, b"a", b"2")]


def test_a_topic_that_is_created_again_is_compacted_from_its_start(
    writer: Writer, topic: str
) -> None:
    store = writer.store
    publish(writer, [(b"a", b"1"), (b"a", b"2")])
    stale = store.compaction_work("topic", 0)
    assert stale is not None
    run(store)
    with store._database.write() as connection:
        for table, column in (("topics", "name"), ("partitions", "topic"), ("batches", "topic")):
            connection.execute(f"DELETE FROM {table} WHERE {column} = 'topic'")
    store.ensure_topic("topic", settings=COMPACT)
    store.end_compaction(stale, 2)
    publish(writer, [(b"b", b"1"), (b"b", b"2")])
    assert run(store) == 1
    assert records(store) == [(1, b"b", b"2")]


def test_a_process_that_stops_ends_the_pass_after_a_step(
    writer: Writer, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "BATCHES_AT_ONCE", 1)
    for number in range(4):
        publish(writer, [(b"a", b"%d" % number)])
    waits: Iterator[bool] = itertools.chain([False, True], itertools.repeat(False))
    wait: Callable[[float], bool] = lambda _: next(waits)  # noqa: E731
    assert Compactor(writer.store, "a", wait).run().record_count == 1
    assert run(writer.store) == 2
