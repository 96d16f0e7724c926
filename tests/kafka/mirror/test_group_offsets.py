"""Group offsets translated from one real Kafka cluster to another: they may lag, never lead."""

import random
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from drover.connector.settings import parse_config
from drover.connectors.kafka.settings import group_sync_of
from drover.connectors.kafka.source import KafkaSource
from tests.support.kafka.choice import Kafka
from tests.support.kafka.clients import QUIET, create_topic
from tests.support.waiting import wait_until

PARTITIONS = 3
RECORDS = 60
#: Recent enough for the broker's retention.
START_MS = int(time.time() * 1_000) - 3_600_000

#: A record's number in the original topic, and its timestamp.
Record = tuple[int, int]


def raw(kafka: Kafka, topic: str, **changed: str) -> dict[str, str]:
    return {
        "name": "mirror",
        "connector.class": "KafkaSource",
        "source.cluster.bootstrap.servers": kafka.bootstrap,
        "source.cluster.alias": "east",
        "topics": topic,
        "sync.group.offsets.enabled": "true",
        "target.cluster.bootstrap.servers": kafka.bootstrap,
        **changed,
    }


def sync(kafka: Kafka, topic: str, groups: str) -> int:
    """Translate offsets; returns the number of changed ones."""
    config = parse_config(KafkaSource, raw(kafka, topic, groups=groups)).require_valid()
    return group_sync_of(config).run({topic: PARTITIONS})


def send(kafka: Kafka, topic: str, records: Mapping[int, Sequence[Record]]) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, **QUIET})
    for partition, own in records.items():
        for number, moment in own:
            producer.produce(topic, b"%d" % number, partition=partition, timestamp=moment)
    assert producer.flush(30) == 0


def commit(kafka: Kafka, group: str, topic: str, offsets: Mapping[int, int]) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, **QUIET})
    positions = [TopicPartition(topic, partition, at) for partition, at in offsets.items()]
    wanted = [ConsumerGroupTopicPartitions(group, positions)]

    def done() -> bool:  # the group's coordinator may have just moved
        answer = admin.alter_consumer_group_offsets(wanted)[group].result(30)
        return all(each.error is None for each in answer.topic_partitions or [])

    wait_until(done)


def committed(kafka: Kafka, group: str, topic: str) -> dict[int, int]:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, **QUIET})
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    found = asked[group].result(30).topic_partitions or []
    return {each.partition: each.offset for each in found if each.topic == topic}


def test_a_group_misses_no_record(kafka: Kafka, topic_prefix: str) -> None:
    """Holds for any record timestamps, any progress of the copy, and duplicate records."""
    rng = random.Random(14)
    topic = f"{topic_prefix}orders"
    originals = {
        partition: [(n, START_MS + 10 * n + rng.randrange(60)) for n in range(RECORDS)]
        for partition in range(PARTITIONS)
    }
    copies = {}
    for partition, own in originals.items():
        reached = (RECORDS, RECORDS // 2, rng.randrange(RECORDS))[partition]
        again = rng.randrange(10)
        copies[partition] = [*own[:reached], *own[max(0, reached - again) : reached]]
    for name, records in ((topic, originals), (f"east.{topic}", copies)):
        create_topic(kafka.bootstrap, name, partitions=PARTITIONS)
        send(kafka, name, records)
    read = {
        f"{topic_prefix}group-{n}": {
            partition: rng.choice([0, RECORDS, rng.randrange(RECORDS)])
            for partition in range(PARTITIONS)
        }
        for n in range(12)
    }
    for group, offsets in read.items():
        commit(kafka, group, topic, offsets)
    changed = sync(kafka, topic, f"{topic_prefix}group-.*")
    assert changed == len(read) * PARTITIONS
    exact = 0
    for group, offsets in read.items():
        found = committed(kafka, group, f"east.{topic}")
        for partition, offset in offsets.items():
            rest = {number for number, _ in copies[partition][found[partition] :]}
            missed = {n for n, _ in copies[partition] if n >= offset} - rest
            assert not missed, (group, partition, offset, found[partition])
            exact += not {n for n in rest if n < offset - 10}
    assert exact >= 2 * changed // 3  # translation does not reset to the start
    assert sync(kafka, topic, f"{topic_prefix}group-.*") == 0


@contextmanager
def member(kafka: Kafka, group: str, topic: str) -> Iterator[None]:
    settings = {"bootstrap.servers": kafka.bootstrap, "group.id": group, **QUIET}
    consumer = Consumer({**settings, "enable.auto.commit": False})
    consumer.subscribe([topic])
    wait_until(lambda: consumer.poll(0.1) is None and consumer.assignment() != [])
    try:
        yield
    finally:
        consumer.close()


def test_a_group_is_not_set_back_nor_moved_under_its_members(
    kafka: Kafka, topic_prefix: str
) -> None:
    topic, group = f"{topic_prefix}a", f"{topic_prefix}group"
    copy = f"east.{topic}"
    records = {0: [(n, START_MS + n) for n in range(10)]}
    for name in (topic, copy):
        create_topic(kafka.bootstrap, name, partitions=PARTITIONS)
        send(kafka, name, records)
    commit(kafka, group, topic, {0: 4})
    with member(kafka, group, f"{topic_prefix}a"):
        assert sync(kafka, topic, group) == 0
    assert sync(kafka, topic, group) == 1
    assert committed(kafka, group, copy) == {0: 4}
    commit(kafka, group, copy, {0: 8})
    commit(kafka, group, topic, {0: 6})
    assert sync(kafka, topic, group) == 0
    assert committed(kafka, group, copy) == {0: 8}


def test_a_copy_with_times_of_its_own_is_left_alone(
    kafka: Kafka, topic_prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    topic, group = f"{topic_prefix}a", f"{topic_prefix}group"
    create_topic(kafka.bootstrap, topic, partitions=1)
    own = {"message.timestamp.type": "LogAppendTime"}
    create_topic(kafka.bootstrap, f"east.{topic}", partitions=1, config=own)
    send(kafka, topic, {0: [(0, START_MS)]})
    commit(kafka, group, topic, {0: 1})
    assert sync(kafka, topic, group) == 0
    assert "to CreateTime" in caplog.text


def test_what_it_needs_is_told_at_once(kafka: Kafka) -> None:
    config = raw(kafka, "a", **{"partitions.keep": "false"})
    del config["target.cluster.bootstrap.servers"]
    faults = {each.field for each in parse_config(KafkaSource, config).violations}
    assert faults == {"target.cluster.bootstrap.servers", "partitions.keep"}
