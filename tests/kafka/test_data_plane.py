"""Topics of a real broker as record batches: planned, read and written without Spark."""

import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from drover.dataplane.kafka.clients import shared_client
from drover.dataplane.kafka.plane import KafkaPlane
from drover.dataplane.kafka.producing import RecordProducer
from drover.dataplane.partitioner import partitions_for_keys
from drover.dataplane.payload import FrameError
from drover.dataplane.topic_creation import TopicCreation, TopicRule
from drover.dataplane.values import ReadPlan, ReadRange
from drover.errors import DataLossError, InvalidArgumentError, OutOfRangeError
from drover.model.times import DAY_MS
from drover_worker.engine.tasks.topic_watcher import TopicWatcher
from tests.support.kafka.broker import KafkaBroker
from tests.support.kafka.choice import Kafka
from tests.support.kafka.clients import CALL_TIMEOUT_S, create_topic, produce
from tests.support.kafka.data_topic import Topic
from tests.support.waiting import wait_until


@pytest.fixture
def topic(kafka: Kafka, topic_prefix: str) -> Topic:
    topic = Topic.at(kafka.bootstrap, f"{topic_prefix}topic")
    # a task retries; this test does not
    shared_client(topic.storage).timeout_s = CALL_TIMEOUT_S
    return topic


def test_a_record_keeps_all_that_it_has(kafka: Kafka, topic: Topic) -> None:
    # its timestamps are old, and the test broker applies retention often
    create_topic(kafka.bootstrap, topic.name, config={"retention.ms": "-1"})
    headers = [{"key": "h", "value": b"\xff"}, {"key": "h", "value": None}]
    when = datetime(2013, 1, 2, 3, 4, 5, 678_000, UTC)
    columns = {
        "key": [b"", b"k", None],
        "value": [b"\xff\x00", None, b""],
        "headers": [headers, None, []],
        "timestamp": pa.array([when] * 3, pa.timestamp("ms", tz="UTC")),
    }
    assert topic.write(columns) == 3
    first, second, third = topic.rows()
    assert first == {
        "topic": topic.name,
        "partition": 0,
        "offset": 0,
        "key": b"",
        "value": b"\xff\x00",
        "headers": headers,
        "timestamp": when,
    }
    assert (second["key"], second["value"], second["headers"]) == (b"k", None, None)
    assert (third["key"], third["value"], third["headers"]) == (None, b"", None)


def test_a_missing_topic_is_made_and_one_that_is_there_left_alone(topic: Topic) -> None:
    assert topic.plane.partition_counts([topic.name]) == {}
    topic.write({"value": [b"v"]}, partition_count=3)
    wait_until(lambda: topic.plane.partition_counts([topic.name]) == {topic.name: 3})
    topic.write({"value": [b"v"]}, partition_count=5)
    assert KafkaPlane(topic.storage).partition_counts([topic.name]) == {topic.name: 3}


def test_a_copy_gets_the_partitions_that_its_original_got(topic: Topic) -> None:
    def write(partition: int, *, original_count: int) -> None:
        creation = TopicCreation(TopicRule(1)).for_copies(
            {topic.name: TopicRule(original_count, config={"cleanup.policy": "compact"})},
            counts_set=False,
        )
        producer = RecordProducer(topic.storage, topic=topic.name, creation=creation)
        columns = {"key": [b"k"], "value": [b"%d" % partition], "partition": [partition]}
        list(producer(iter([pa.RecordBatch.from_pydict(columns)])))

    write(0, original_count=2)
    assert topic.plane.topic_bounds(topic.name) == {0: (0, 1), 1: (0, 0)}
    assert topic.plane.topic_settings(topic.name)["cleanup.policy"] == "compact"
    write(3, original_count=2)  # a task whose other topics have not changed
    assert topic.plane.topic_bounds(topic.name).keys() == {0, 1, 2, 3}
    write(4, original_count=6)
    assert topic.plane.topic_bounds(topic.name).keys() == {0, 1, 2, 3, 4, 5}
    write(1, original_count=2)  # never fewer
    assert topic.values(0, 1, 2, 3, 4, 5) == [b"0", b"1", b"3", b"4"]


def test_a_given_partition_wins_then_the_key_as_in_java_then_the_first(topic: Topic) -> None:
    keys = [b"%d" % number for number in range(50)]
    topic.write({"key": keys, "value": keys}, partition_count=4)
    rows = topic.rows(0, 1, 2, 3)
    by_key = partitions_for_keys(pa.array([row["key"] for row in rows], pa.binary()), 4)
    assert [row["partition"] for row in rows] == by_key.to_pylist()
    columns = {
        "key": [b"21", None, b"21", None],
        "value": [b"given", b"given too", b"keyed", b"first"],
        "partition": pa.array([3, 2, None, None], pa.int64()),
    }
    ends = {key[1]: end for key, end in topic.plane.end_offsets(_keys(topic, 4)).items()}
    topic.write(columns)
    found = {row["value"]: row["partition"] for row in topic.read(topic.plan(ends).ranges)}
    (keyed,) = partitions_for_keys(pa.array([b"21"]), 4).to_pylist()
    assert found == {b"given": 3, b"given too": 2, b"keyed": keyed, b"first": 0}


def _keys(topic: Topic, count: int) -> list[tuple[str, int]]:
    return [(topic.name, partition) for partition in range(count)]


def test_a_batch_tells_which_topics_its_records_name(topic: Topic) -> None:
    names = [topic.name, f"{topic.name}-b", None, f"{topic.name}-b"]
    rows = pa.RecordBatch.from_pydict({"topic": names, "value": [b"v"] * 4})
    (answer,) = RecordProducer(topic.storage, topic=f"{topic.name}-c")(iter([rows]))
    (told,) = answer.to_pylist()
    assert told["record_count"] == 4
    assert sorted(told["topics"]) == [topic.name, f"{topic.name}-b", f"{topic.name}-c"]


def test_keyless_records_are_spread_evenly_where_that_is_asked_for(topic: Topic) -> None:
    values = [b"%05d" % number for number in range(1_000)]
    topic.write({"value": values}, partition_count=4, spread_keyless=True)
    shares = [topic.values(partition) for partition in range(4)]
    assert [len(share) for share in shares] == [250] * 4
    assert all(share == sorted(share) for share in shares)


def test_the_order_of_a_batch_is_kept(topic: Topic) -> None:
    values = [b"%d" % number for number in range(30_000)]
    topic.write({"value": values})
    assert topic.values() == values


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"value": [b"v"], "partition": [7]}, "has partitions 0 to 0"),
        ({"value": [7]}, "'value' must be binary or string"),
        ({"key": [b"k"]}, "no column 'value'"),
    ],
)
def test_a_frame_that_is_not_records_is_told_why(
    topic: Topic, columns: dict[str, Any], message: str
) -> None:
    with pytest.raises(FrameError, match=message):
        topic.write(columns)


def test_a_record_over_the_limit_is_told_and_the_next_batch_goes_on(topic: Topic) -> None:
    with pytest.raises(InvalidArgumentError, match=r"message\.max\.bytes"):
        topic.write({"value": [b"small", b"x" * 2_000_000]})
    topic.write({"value": [b"after"]})
    assert topic.values()[-1] == b"after"


# -- transactions ----------------------------------------------------------------------------


def _transactional(topic: Topic) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": topic.storage.bootstrap_servers,
            "transactional.id": f"{topic.name}-{uuid.uuid4().hex}",
        }
    )
    producer.init_transactions(30)
    return producer


def _transaction(producer: Producer, topic: Topic, *values: bytes) -> None:
    producer.begin_transaction()
    for value in values:
        producer.produce(topic.name, value, partition=0)
    producer.flush(30)


def _wait_for_end(topic: Topic, end: int) -> None:
    """Readers see the end of a transaction shortly after the commit returns."""
    key = (topic.name, 0)
    wait_until(lambda: topic.plane.end_offsets([key])[key] == end, describe=f"the end {end}")


def test_aborted_records_are_not_seen_and_markers_do_not_stop_a_reader(
    topic: Topic, kafka: Kafka
) -> None:
    create_topic(kafka.bootstrap, topic.name)
    producer = _transactional(topic)
    _transaction(producer, topic, b"1", b"2")
    producer.commit_transaction(30)
    _transaction(producer, topic, b"aborted", b"too")
    producer.abort_transaction(30)
    _wait_for_end(topic, 6)
    plan = topic.plan({0: 0})
    assert [row["value"] for row in topic.read(plan.ranges)] == [b"1", b"2"]
    # every split of the same offset range, also at offsets without records
    for cut in range(1, 6):
        parts = [ReadRange(topic.name, 0, 0, cut), ReadRange(topic.name, 0, cut, 6)]
        found = [row["value"] for part in parts for row in topic.read([part])]
        assert found == [b"1", b"2"], cut
    assert topic.read([ReadRange(topic.name, 0, 2, 3)]) == []


def test_an_open_transaction_is_waited_for(topic: Topic, kafka: Kafka) -> None:
    create_topic(kafka.bootstrap, topic.name)
    produce(kafka.bootstrap, topic.name, [(None, b"before")])
    producer = _transactional(topic)
    _transaction(producer, topic, b"inside")
    produce(kafka.bootstrap, topic.name, [(None, b"behind")])
    plan = topic.plan({0: 0})
    assert plan.next_offsets == {(topic.name, 0): 1}
    assert [row["value"] for row in topic.read(plan.ranges)] == [b"before"]
    producer.commit_transaction(30)
    _wait_for_end(topic, 4)
    rest = topic.plan({0: 1})
    assert [row["value"] for row in topic.read(rest.ranges)] == [b"inside", b"behind"]


# -- bounds ----------------------------------------------------------------------------------


def test_a_plan_is_bounded_in_records_and_in_bytes_as_a_look_at_them_says(topic: Topic) -> None:
    topic.write({"value": [b"x" * 10_000] * 300})
    assert topic.plan({0: 0}, max_records=7).record_count == 7
    count = topic.plan({0: 0}, max_bytes=1_000_000).record_count
    assert 90 <= count <= 100
    assert topic.plan({0: 299}, max_bytes=1).record_count == 1


def test_one_consumer_goes_back_and_forth_in_a_topic(topic: Topic) -> None:
    values = [b"%06d" % number for number in range(50_000)]
    topic.write({"value": values})
    for start in (40_000, 0, 30_000, 10_000, 49_000, 20_000, 5, 0):
        end = min(start + 777, len(values))
        found = topic.read([ReadRange(topic.name, 0, start, end)])
        assert [row["value"] for row in found] == values[start:end]
        assert found[0]["offset"] == start


def _delete_records(topic: Topic, before: int) -> None:
    admin = AdminClient({"bootstrap.servers": topic.storage.bootstrap_servers})
    (future,) = admin.delete_records([TopicPartition(topic.name, 0, before)]).values()
    future.result(30)


def test_what_retention_removed_is_skipped_and_told(topic: Topic) -> None:
    topic.write({"value": [b"%d" % number for number in range(10)]})
    planned = topic.plan({0: 2})
    _delete_records(topic, 6)
    plan = topic.plan({0: 2})
    assert plan.skipped == {(topic.name, 0): 4}
    assert [row["value"] for row in topic.read(plan.ranges)] == [b"6", b"7", b"8", b"9"]
    with pytest.raises(OutOfRangeError, match="were removed by retention during the read"):
        topic.read(planned.ranges)
    assert [row["value"] for row in topic.read(plan.ranges)] == [b"6", b"7", b"8", b"9"]


def test_a_topic_that_was_made_anew_is_not_taken_for_the_old_one(
    topic: Topic, kafka: Kafka
) -> None:
    topic.write({"value": [b"old"] * 5})
    old = topic.plane.topic_ids([topic.name, f"{topic.name}-none"])
    assert [*old] == [topic.name]
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.delete_topics([topic.name])[topic.name].result(30)
    wait_until(lambda: not topic.plane.end_offsets([(topic.name, 0)]))
    assert topic.plan({0: 5}) == ReadPlan((), {(topic.name, 0): 5})
    wait_until(lambda: _created(topic, kafka))
    with pytest.raises(DataLossError, match="ends at offset 0, but was read up to 5"):
        wait_until(lambda: topic.plan({0: 5}).record_count, timeout_s=30)
    new = topic.plane.topic_ids([topic.name], fresh=True)
    assert [*new] == [topic.name]
    assert new != old
    assert topic.plane.topic_ids([topic.name]) == new


def test_the_brokers_retention_of_offsets_is_read(topic: Topic) -> None:
    assert topic.plane.offsets_retention_ms() == 7 * DAY_MS


def _created(topic: Topic, kafka: Kafka) -> bool:
    """The name is free shortly after the topic is deleted."""
    try:
        create_topic(kafka.bootstrap, topic.name)
    except KafkaException:
        return False
    return True


# -- waiting ---------------------------------------------------------------------------------


def test_readers_are_woken_by_a_topic_and_by_its_records(topic: Topic) -> None:
    woken: list[str] = []
    watcher = TopicWatcher(topic.plane, interval_ms=20)
    watcher.wait(_note(woken, "created"), {}, {topic.name: 0})
    topic.write({"value": [b"v"]})
    wait_until(lambda: woken == ["created"], timeout_s=20, describe=lambda: woken)
    watcher.wait(_note(woken, "grown"), {(topic.name, 0): 1}, {topic.name: 1})
    topic.write({"value": [b"v"]})
    wait_until(lambda: woken == ["created", "grown"], timeout_s=20, describe=lambda: woken)


@pytest.mark.parametrize("lose", ["stop", pytest.param("kill", marks=pytest.mark.faults("kafka"))])
def test_readers_are_woken_on_after_a_restart_of_the_broker(
    mortal_broker: KafkaBroker, topic_prefix: str, lose: str
) -> None:
    """Its partitions then have a new leader epoch; requests with the old epoch are rejected."""
    topic = Topic.at(mortal_broker.bootstrap, f"{topic_prefix}topic")
    create_topic(mortal_broker.bootstrap, topic.name)
    key = (topic.name, 0)
    assert topic.plane.end_offsets([key]) == {key: 0}
    woken: list[str] = []
    TopicWatcher(topic.plane, interval_ms=20).wait(_note(woken, "grown"), {key: 0}, {key[0]: 1})
    getattr(mortal_broker, lose)()
    mortal_broker.start()
    produce(mortal_broker.bootstrap, topic.name, [(None, b"v")])
    wait_until(lambda: woken)


def test_a_topic_that_is_missing_keeps_no_reader_of_others_asleep(topic: Topic) -> None:
    topic.write({"value": [b"v"]})
    missing = (f"{topic.name}-missing", 0)
    assert topic.plane.end_offsets([missing]) == {}
    assert topic.plane.end_offsets([missing, (topic.name, 0)]) == {(topic.name, 0): 1}


def _note(woken: list[str], what: str) -> Callable[[], None]:
    return lambda: woken.append(what)


def test_all_idle_readers_share_one_request(topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    topic.write({"value": [b"v"] * 3}, partition_count=4, spread_keyless=True)
    ends = topic.plane.end_offsets(_keys(topic, 4))
    assert sum(ends.values()) == 3
    admin = topic.plane._client.admin
    asked: list[int] = []
    list_offsets = admin.list_offsets

    def counted(partitions: Mapping[Any, Any], **options: Any) -> Any:
        asked.append(len(partitions))
        return list_offsets(partitions, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(admin, "list_offsets", counted)
    watcher = TopicWatcher(topic.plane, interval_ms=20)
    wakes = [_note([], "never") for _ in range(4)]
    for partition, wake in enumerate(wakes):
        start = {(topic.name, partition): ends[topic.name, partition]}
        watcher.wait(wake, start, {topic.name: 4})
    before = len(asked)
    wait_until(lambda: len(asked) >= before + 4, describe=lambda: asked)
    # one request may have been in flight when the last reader arrived
    assert set(asked[before + 1 :]) == {4}, asked
    for wake in wakes:
        watcher.forget(wake)
