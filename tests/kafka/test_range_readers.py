"""Offset ranges read by whole fetches and by single messages: the results are equal."""

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from drover.dataplane.kafka.message_reader import MessageReader
from drover.dataplane.kafka.range_fetcher import RangeFetcher
from drover.dataplane.kafka.range_reader import RangeReader
from drover.dataplane.plane import ALL_COLUMNS
from drover.dataplane.values import ReadRange
from drover.errors import DroverError, OutOfRangeError, Reason
from drover.log.storage import KafkaStorage
from tests.support.addresses import free_ports
from tests.support.kafka.choice import Kafka
from tests.support.kafka.clients import CALL_TIMEOUT_S, QUIET, create_topic, produce


@pytest.fixture
def storage(kafka: Kafka) -> KafkaStorage:
    return KafkaStorage(bootstrap_servers=kafka.bootstrap, group_id="range-readers")


@pytest.fixture(params=[RangeFetcher, MessageReader])
def kind(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def reader(kind: Any, storage: KafkaStorage) -> Iterator[RangeReader]:
    made: RangeReader = kind(storage)
    yield made
    made.close()


def read(
    reader: RangeReader,
    topic: str,
    start: int,
    end: int,
    *,
    size_bytes: int = 1 << 20,
    columns: frozenset[str] = ALL_COLUMNS,
) -> list[dict[str, Any]]:
    wanted = ReadRange(topic, 0, start, end, size_bytes)
    return [row for rows in reader.read(wanted, columns) for row in rows.to_pylist()]


def transactional(kafka: Kafka, name: str) -> Producer:
    settings = {"bootstrap.servers": kafka.bootstrap, "transactional.id": name, **QUIET}
    producer = Producer(settings)
    producer.init_transactions(CALL_TIMEOUT_S)
    return producer


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_come_with_all_they_have_whatever_the_range(
    kafka: Kafka, reader: RangeReader, topic_prefix: str, codec: str
) -> None:
    topic = f"{topic_prefix}{codec}"
    create_topic(kafka.bootstrap, topic, config={"retention.ms": "-1"})
    producer = Producer(
        {
            "bootstrap.servers": kafka.bootstrap,
            "compression.type": codec,
            "batch.num.messages": 7,
            **QUIET,
        }
    )
    for number in range(100):
        producer.produce(
            topic,
            None if number % 10 == 3 else b"value %d" % number,
            None if number % 3 else b"key %d" % number,
            partition=0,
            timestamp=1_700_000_000_000 + number,
            headers=[("h", b"%d" % number), ("none", None)] if number % 4 == 0 else None,
        )
    producer.flush(CALL_TIMEOUT_S)
    rows = read(reader, topic, 0, 100)
    assert [row["offset"] for row in rows] == list(range(100))
    for number, row in enumerate(rows):
        assert row["value"] == (None if number % 10 == 3 else b"value %d" % number)
        assert row["key"] == (None if number % 3 else b"key %d" % number)
        assert int(row["timestamp"].timestamp() * 1000 + 0.5) == 1_700_000_000_000 + number
        both = [{"key": "h", "value": b"%d" % number}, {"key": "none", "value": None}]
        assert row["headers"] == (both if number % 4 == 0 else None)
        assert (row["topic"], row["partition"]) == (topic, 0)
    for start, end in ((0, 1), (3, 12), (50, 51), (93, 100)):
        assert read(reader, topic, start, end) == rows[start:end]
    values = read(reader, topic, 3, 12, columns=frozenset({"value"}))
    assert [row["value"] for row in values] == [row["value"] for row in rows[3:12]]
    assert {row["key"] for row in values} == {None}


def test_more_than_one_fetch_is_read_in_order_to_the_end_of_the_range(
    kafka: Kafka, reader: RangeReader, topic_prefix: str
) -> None:
    topic = f"{topic_prefix}long"
    create_topic(kafka.bootstrap, topic)
    produce(
        kafka.bootstrap, topic, ((None, b"%06d" % number + b"x" * 1_000) for number in range(5_000))
    )
    for end, size_bytes in ((5_000, 5_000_000), (4_500, 0)):
        rows = read(reader, topic, 100, end, size_bytes=size_bytes)
        assert [int(row["value"][:6]) for row in rows] == list(range(100, end))


def test_a_record_that_is_larger_than_a_fetch_is_read(
    kafka: Kafka, reader: RangeReader, topic_prefix: str
) -> None:
    topic, large = f"{topic_prefix}large", b"x" * 3_000_000
    create_topic(kafka.bootstrap, topic, config={"max.message.bytes": "4000000"})
    settings = {"bootstrap.servers": kafka.bootstrap, "message.max.bytes": 4_000_000, **QUIET}
    producer = Producer(settings)
    for value in (b"before", large, b"after"):
        producer.produce(topic, value, partition=0)
        producer.flush(CALL_TIMEOUT_S)
    rows = read(reader, topic, 0, 3, size_bytes=1)
    assert [row["value"] for row in rows] == [b"before", large, b"after"]


def test_only_committed_records_are_read_and_markers_end_a_range(
    kafka: Kafka, reader: RangeReader, topic_prefix: str
) -> None:
    topic = f"{topic_prefix}transactions"
    create_topic(kafka.bootstrap, topic)
    writers = [transactional(kafka, f"{topic}-{number}") for number in range(2)]
    for number, commits in enumerate((True, False, True, False)):
        for which, writer in enumerate(writers):
            writer.begin_transaction()
            writer.produce(topic, b"%d of %d" % (number, which), partition=0)
            writer.flush(CALL_TIMEOUT_S)
        for which, writer in enumerate(writers):
            if commits == (which == 0):
                writer.commit_transaction(CALL_TIMEOUT_S)
            else:
                writer.abort_transaction(CALL_TIMEOUT_S)
    rows = read(reader, topic, 0, 16)
    assert [row["value"] for row in rows] == [b"0 of 0", b"1 of 1", b"2 of 0", b"3 of 1"]
    assert [row["offset"] for row in rows] == [0, 5, 8, 13]
    assert read(reader, topic, 14, 16) == []
    assert [row["offset"] for row in read(reader, topic, 1, 8)] == [5]


def test_records_that_retention_removed_meanwhile_are_told(
    kafka: Kafka, reader: RangeReader, topic_prefix: str
) -> None:
    topic = f"{topic_prefix}removed"
    create_topic(kafka.bootstrap, topic)
    produce(kafka.bootstrap, topic, ((None, b"%d" % number) for number in range(10)))
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, **QUIET})
    for done in admin.delete_records([TopicPartition(topic, 0, 5)]).values():
        done.result(CALL_TIMEOUT_S)
    with pytest.raises(OutOfRangeError, match=f"{topic}-0 were removed") as caught:
        read(reader, topic, 3, 10)
    assert caught.value.reason is Reason.REVISION_COMPACTED
    assert len(read(reader, topic, 5, 10)) == 5


def test_a_topic_that_is_not_there_is_told_and_not_made(
    kafka: Kafka, storage: KafkaStorage, topic_prefix: str
) -> None:
    topic = f"{topic_prefix}missing"
    with pytest.raises(DroverError, match=topic) as caught:
        read(RangeFetcher(storage), topic, 0, 3)
    assert caught.value.reason is Reason.STORAGE_MISCONFIGURED
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, **QUIET})
    assert topic not in admin.list_topics(timeout=CALL_TIMEOUT_S).topics


def test_brokers_that_are_away_are_told(kind: Any) -> None:
    (port,) = free_ports(1)
    storage = KafkaStorage(bootstrap_servers=f"127.0.0.1:{port}", group_id="range-readers")
    with pytest.raises(DroverError, match=f"127.0.0.1:{port}") as caught:
        read(kind(storage), "t", 0, 3)
    assert caught.value.reason is Reason.STORAGE_UNAVAILABLE
