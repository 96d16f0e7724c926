import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from drover.dataplane.executor_store import open_store
from drover.dataplane.payload import FrameError
from drover.dataplane.reading import RangeReader, read_range
from drover.dataplane.staging import Stager
from drover.dataplane.store import EmbeddedStore
from drover.dataplane.topic_creation import TopicCreation, TopicRule
from drover.dataplane.values import ReadRange
from drover.errors import OutOfRangeError, UnavailableError
from drover.model.ids import TaskId
from tests.unit.dataplane.writer import Clock, Writer, claim, staged, values

TASK = TaskId("source", 0)


def write(
    store: EmbeddedStore, columns: dict[str, Any], *, schema: pa.Schema | None = None, **plan: Any
) -> None:
    term = store.current_claim(TASK) or claim(store, TASK)
    stager = Stager(store.path, TASK, term, **plan)
    batch = pa.RecordBatch.from_pydict(columns, schema=schema)
    store.publish(TASK, term, staged(stager, [batch]))


def rows(store: EmbeddedStore, topic: str = "topic", partition: int = 0) -> list[dict[str, Any]]:
    plan = store.plan_read({(topic, partition): 0})
    return [
        row
        for each in plan.ranges
        for batch in read_range(store, each)
        for row in batch.to_pylist()
    ]


def test_a_record_keeps_all_that_it_has(store: EmbeddedStore) -> None:
    headers = [{"key": "h", "value": b"\xff"}, {"key": "h", "value": None}]
    write(
        store,
        {
            "topic": ["topic"],
            "key": [b"k"],
            "value": [b"\xff\x00"],
            "headers": [headers],
            "timestamp": pa.array([1234], pa.timestamp("ms", tz="UTC")),
        },
    )
    (row,) = rows(store)
    assert row.pop("timestamp").timestamp() == 1.234
    assert row == {
        "topic": "topic",
        "partition": 0,
        "offset": 0,
        "key": b"k",
        "value": b"\xff\x00",
        "headers": headers,
    }


def test_text_becomes_its_utf8_bytes_and_what_is_missing_null(store: EmbeddedStore) -> None:
    write(store, {"value": ["é", None], "timestamp": [5, None]}, topic="topic")
    first, second = rows(store)
    assert (first["key"], first["value"], first["headers"]) == (None, "é".encode(), None)
    assert first["timestamp"].timestamp() == 0.005
    assert second["value"] is None
    assert second["timestamp"].timestamp() > 1_600_000_000


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"key": [b"k"]}, "no column 'value'"),
        ({"value": [7]}, "'value' must be binary or string, not int64"),
        ({"value": [b"v"], "key": [1.5]}, "'key' must be"),
        ({"value": [b"v"], "headers": ["h"]}, "'headers' must be"),
        ({"value": [b"v"], "timestamp": ["now"]}, "'timestamp' must be"),
        ({"value": [b"v"], "partition": ["0"]}, "'partition' must be an integer"),
        ({"value": [b"v"], "partition": [2]}, "partitions 0 to 1"),
        ({"value": [b"v"], "partition": [-1]}, "partitions 0 to 1"),
        ({"value": [b"v"], "partition": [2**40]}, "must be a partition's number"),
        ({"value": [b"v"], "topic": [7]}, "'topic' must be"),
    ],
)
def test_a_frame_that_is_not_records_is_told_why(
    store: EmbeddedStore, columns: dict[str, Any], message: str
) -> None:
    with pytest.raises(FrameError, match=message):
        write(store, columns, topic="topic", creation=TopicCreation(TopicRule(2)))
    assert store.end_offsets("topic") in ({}, {0: 0, 1: 0})


@pytest.mark.parametrize(
    "columns", [{"value": [b"v"]}, {"value": ["v", "v"], "topic": ["t", None]}]
)
def test_a_record_without_a_topic_is_told_so(store: EmbeddedStore, columns: dict[str, Any]) -> None:
    with pytest.raises(FrameError, match="names no topic"):
        write(store, columns)


def test_one_frame_may_write_to_several_topics(store: EmbeddedStore) -> None:
    write(store, {"topic": ["a", "b", "a", None], "value": [b"1", b"2", b"3", b"4"]}, topic="c")
    assert [values(store, topic) for topic in "abc"] == [[b"1", b"3"], [b"2"], [b"4"]]


def test_a_partition_that_is_given_wins_then_the_key_then_the_first(store: EmbeddedStore) -> None:
    # Kafka's partitioner puts the key 21 (murmur2 -973932308) into partition 1 of 3
    write(
        store,
        {
            "key": [b"21", b"21", None, None],
            "value": [b"given", b"keyed", b"first", b"given too"],
            "partition": pa.array([2, None, None, 2], pa.int64()),
        },
        topic="topic",
        creation=TopicCreation(TopicRule(3)),
    )
    found = [values(store, partition=partition) for partition in range(3)]
    by_key = next(place for place, content in enumerate(found) if b"keyed" in content)
    assert by_key == (-973932308 & 0x7FFFFFFF) % 3
    assert b"first" in found[0]
    assert [value for value in found[2] if b"given" in value] == [b"given", b"given too"]


def test_keyless_records_can_be_spread_and_keep_their_order(store: EmbeddedStore) -> None:
    numbers = [str(n).encode() for n in range(1000)]
    write(
        store,
        {"value": numbers},
        topic="topic",
        creation=TopicCreation(TopicRule(4)),
        spread_keyless=True,
    )
    found = [values(store, partition=partition) for partition in range(4)]
    assert [len(each) for each in found] == [250] * 4
    assert all(each == sorted(each, key=int) for each in found)
    assert sorted(int(value) for each in found for value in each) == list(range(1000))


def test_blobs_are_of_bounded_size_and_in_order(store: EmbeddedStore) -> None:
    term = claim(store, TASK)
    stager = Stager(store.path, TASK, term, topic="topic", blob_bytes=1000)
    lines = [b"%d" % n * (1 + n % 50) for n in range(2000)]
    batches = [
        pa.RecordBatch.from_pydict({"value": lines[start : start + 500]})
        for start in range(0, 2000, 500)
    ]
    blobs = staged(stager, batches)
    assert len(blobs) > 20
    assert max(each.size_bytes for each in blobs) <= 3000
    assert [each.sequence for each in blobs] == list(range(len(blobs)))
    store.publish(TASK, term, blobs)
    assert values(store) == lines


def test_many_partitions_share_a_bounded_buffer(
    store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("drover.dataplane.staging.BUFFERS_BYTES", 2000)
    term = claim(store, TASK)
    stager = Stager(store.path, TASK, term, topic="topic", creation=TopicCreation(TopicRule(8)))
    batches = [
        pa.RecordBatch.from_pydict(
            {"value": [b"x" * 100] * 8, "partition": pa.array(range(8), pa.int32())}
        )
        for _ in range(20)
    ]
    blobs = staged(stager, batches)
    assert len(blobs) > 8
    assert max(each.size_bytes for each in blobs) < 2500
    assert store.publish(TASK, term, blobs).record_count == 160


def test_an_empty_frame_stages_nothing(store: EmbeddedStore) -> None:
    term = claim(store, TASK)
    empty = pa.RecordBatch.from_pydict({"value": pa.array([], pa.binary())})
    assert staged(Stager(store.path, TASK, term, topic="topic"), [empty]) == []


def test_a_slice_of_a_batch_is_staged_alone(store: EmbeddedStore) -> None:
    term = claim(store, TASK)
    whole = pa.RecordBatch.from_pydict({"value": [b"x" * 1000] * 1000})
    (blob,) = staged(Stager(store.path, TASK, term, topic="topic"), [whole.slice(500, 2)])
    assert (blob.record_count, blob.size_bytes < 4000) == (2, True)


def test_what_runs_on_executors_can_be_pickled(writer: Writer) -> None:
    stager = Stager(writer.store.path, writer.task, writer.claim, topic="topic")
    batch = pa.RecordBatch.from_pydict({"value": [b"a"]})
    blobs = staged(pickle.loads(pickle.dumps(stager)), [batch])
    writer.store.publish(writer.task, writer.claim, blobs)
    reader = RangeReader(writer.store.path, ((ReadRange("topic", 0, 0, 1),),))
    (read,) = pickle.loads(pickle.dumps(reader))(0)
    assert read.column("value").to_pylist() == [b"a"]


def test_a_range_may_begin_and_end_inside_of_blobs(writer: Writer) -> None:
    for start in range(0, 30, 10):
        writer.publish([b"%d" % n for n in range(start, start + 10)])
    batches = list(read_range(writer.store, ReadRange("topic", 0, 7, 23)))
    found = [(row["offset"], row["value"]) for batch in batches for row in batch.to_pylist()]
    assert found == [(n, b"%d" % n) for n in range(7, 23)]


def test_a_range_that_retention_overtook_is_not_read_in_part(writer: Writer, clock: Clock) -> None:
    writer.publish([b"a"])
    (wanted,) = writer.store.plan_read({("topic", 0): 0}).ranges
    clock.time_ms += 1000
    writer.store.apply_retention(retention_ms=1)
    with pytest.raises(OutOfRangeError, match="removed by retention"):
        list(read_range(writer.store, wanted))


def test_an_executor_does_not_create_the_store(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="cannot be reached"):
        open_store(tmp_path / "data.db")
    assert not (tmp_path / "data.db").exists()


def test_an_executor_opens_a_store_once(store: EmbeddedStore) -> None:
    assert open_store(store.path) is open_store(store.path)
