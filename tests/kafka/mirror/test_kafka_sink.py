"""Topics written to a real Kafka cluster: each record once, with all its fields."""

import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition

import drover.connector
from drover.connector import RetriableError
from drover.connector.settings import parse_config
from drover.connectors.datagen.source import DatagenSource
from drover.connectors.kafka import writer
from drover.connectors.kafka.cluster import ClusterError
from drover.connectors.kafka.sink import KafkaSink, target_of
from drover.connectors.kafka.writer import ClusterWriter, Target, set_back
from drover.connectors.refused_records import RefusedRecordError
from drover.record.batch import HEADERS_TYPE, make_batch
from tests.spark.pipeline import Pipeline
from tests.support.kafka.broker import KafkaBroker
from tests.support.kafka.choice import Kafka
from tests.support.kafka.clients import QUIET, create_topic, wait_until_groups_answer
from tests.support.kafka.fixtures import USERS
from tests.support.kafka.tokens import token_issuer
from tests.support.waiting import wait_until

#: In the past, but recent enough for the broker's retention.
SOME_TIME_MS = int(time.time() * 1_000) - 3_600_000
KILLS = 5


def raw(kafka: Kafka, topic: str, **changed: str) -> dict[str, str]:
    return {
        "name": f"sink-{topic}",
        "connector.class": "KafkaSink",
        "topics": topic,
        "target.cluster.bootstrap.servers": kafka.bootstrap,
        "topic.format": "west.${topic}",
        "target.producer.linger.ms": "5",
        **changed,
    }


def target(kafka: Kafka, topic: str, **changed: str) -> Target:
    config = parse_config(KafkaSink, raw(kafka, topic, **changed)).require_valid()
    return target_of(config, f"sink-{topic}")


def records(
    topic: str, first: int, count: int, *, partition: int = 0, headers: Any = None
) -> pa.RecordBatch:
    values = pa.array([b"%d" % n for n in range(first, first + count)], pa.binary())
    keys = pa.array([b"k", *[None] * (count - 1)], pa.binary())
    moments = pa.array([SOME_TIME_MS] * count).cast(pa.timestamp("ms", tz="UTC"))
    return make_batch(
        count,
        topic=pa.array([topic] * count),
        partition=pa.array([partition] * count, pa.int32()),
        offset=pa.array(range(first, first + count), pa.int64()),
        timestamp=moments.cast(pa.timestamp("us", tz="UTC")),
        key=(pa.field("key", pa.binary()), keys),
        value=(pa.field("value", pa.binary()), values),
        **({} if headers is None else {"headers": pa.array([headers] * count, HEADERS_TYPE)}),
    )


def write(found: Target, *batches: pa.RecordBatch, anew: bool = False, output_id: str = "") -> int:
    """Write batches; with ``anew`` as another process. ``output_id`` is that of partition 0."""
    topics = {each.column("topic")[0].as_py() for each in batches}
    ids = {drover.connector.TopicPartition(each, 0): output_id for each in topics if output_id}
    with patch.object(writer, "_lanes", {} if anew else writer._lanes):
        (answer,) = ClusterWriter(found, ids)(batches)
    return int(answer.column("rows")[0].as_py())


def copied(kafka: Kafka, topic: str, partitions: Sequence[int] = (0,)) -> list[Any]:
    """All committed records of the copy."""
    settings = {"bootstrap.servers": kafka.bootstrap, "group.id": "reader", **QUIET}
    places = [TopicPartition(f"west.{topic}", each, 0) for each in partitions]
    whole = Consumer({**settings, "isolation.level": "read_uncommitted"})
    consumer = Consumer(
        {**settings, "isolation.level": "read_committed", "enable.partition.eof": True}
    )

    def ended() -> bool:  # brokers complete a transaction after the client's commit returns
        return all(
            consumer.get_watermark_offsets(each, 30) == whole.get_watermark_offsets(each, 30)
            for each in places
        )

    wait_until(ended)
    whole.close()
    consumer.assign(places)
    found: list[Any] = []
    finished = 0
    while finished < len(places):
        message = consumer.poll(30)
        assert message is not None
        error = message.error()
        if error is not None:
            assert error.name() == "_PARTITION_EOF", error
            finished += 1
        else:
            found.append(message)
    consumer.close()
    return found


def values(kafka: Kafka, topic: str, partitions: Sequence[int] = (0,)) -> list[int]:
    return [int(each.value()) for each in copied(kafka, topic, partitions)]


def test_records_keep_all_that_they_have(kafka: Kafka, topic_prefix: str) -> None:
    wait_until_groups_answer(kafka.bootstrap)
    topic = f"{topic_prefix}kept"
    headers = [("a", b"1", None), ("a", b"\xff", None), ("none", None, None)]
    items = [dict(zip(("key", "value", "type"), each, strict=True)) for each in headers]
    assert write(target(kafka, topic), records(topic, 0, 2, partition=2, headers=items)) == 2
    first, second = copied(kafka, topic, (0, 1, 2))
    assert (first.partition(), first.key(), first.value()) == (2, b"k", b"0")
    assert first.headers() == [(key, value) for key, value, _ in headers]
    assert first.timestamp()[1] == SOME_TIME_MS
    assert second.key() is None


def test_records_that_the_cluster_refuses_are_found_one_by_one(
    kafka: Kafka, topic_prefix: str
) -> None:
    wait_until_groups_answer(kafka.bootstrap)
    topic = f"{topic_prefix}refused"
    limits = {"cleanup.policy": "compact", "max.message.bytes": "5000"}
    create_topic(kafka.bootstrap, f"west.{topic}", config=limits)
    bad = {2: (b"k", b"x" * 10_000), 5: (None, b"5"), 6: (b"k", b"x" * 2_000_000)}
    rows = [bad.get(n, (b"%d" % n, b"%d" % n)) for n in range(9)]
    plain = records(topic, 0, 9)
    batch = plain.set_column(
        plain.schema.get_field_index("key"), "key", pa.array([row[0] for row in rows], pa.binary())
    )
    batch = batch.set_column(
        batch.schema.get_field_index("value"),
        "value",
        pa.array([row[1] for row in rows], pa.binary()),
    )
    own = target(kafka, topic, **{"target.producer.compression.type": "none"})
    with pytest.raises(RefusedRecordError, match=r"refused-0@2: .*too large"):
        write(own, batch, anew=True)
    (answer,) = ClusterWriter(own, tolerates=True)([batch])
    refused = [each for each in answer.to_pylist() if each["reason"] is not None]
    assert [(each["topic"], each["offset"]) for each in refused] == [(topic, n) for n in bad]
    assert values(kafka, topic) == [n for n in range(9) if n not in bad]


def test_records_that_come_again_are_left_out(kafka: Kafka, topic_prefix: str) -> None:
    topic = f"{topic_prefix}again"
    own = target(kafka, topic)
    assert write(own, records(topic, 0, 10)) == 10
    assert write(own, records(topic, 5, 10)) == 5
    assert write(own, records(topic, 5, 15), anew=True) == 5
    assert write(own, records(topic, 0, 20), records(topic, 0, 5, partition=1)) == 5
    assert values(kafka, topic) == list(range(20))
    assert values(kafka, topic, (1,)) == list(range(5))


def test_of_two_writers_of_one_partition_each_goes_on_behind_the_other(
    kafka: Kafka, topic_prefix: str
) -> None:
    topic = f"{topic_prefix}two"
    own = target(kafka, topic)
    write(own, records(topic, 0, 10))
    write(own, records(topic, 10, 10), anew=True)  # another task took over
    assert write(own, records(topic, 10, 15)) == 5  # the old task keeps writing
    assert write(own, records(topic, 15, 20), anew=True) == 10
    assert values(kafka, topic) == list(range(35))


def test_a_transaction_that_was_left_open_does_not_count(kafka: Kafka, topic_prefix: str) -> None:
    topic = f"{topic_prefix}open"
    own = target(kafka, topic)
    lane = writer._Lane(own, (topic, 0), "")
    with (
        patch.object(lane, "_producer", _Killed(lane._producer)),
        pytest.raises(KeyboardInterrupt),
    ):
        lane.write(records(topic, 0, 10), tolerates=False)
    lane._producer.flush(30)
    assert write(own, records(topic, 0, 12), anew=True) == 12
    assert values(kafka, topic) == list(range(12))


class _Killed:
    """A producer whose process ends before the commit."""

    def __init__(self, producer: Any) -> None:
        self._producer = producer

    def __getattr__(self, name: str) -> Any:
        if name == "commit_transaction":
            raise KeyboardInterrupt
        return getattr(self._producer, name)


def test_a_topic_of_the_target_that_is_not_to_be_made_is_told(
    kafka: Kafka, topic_prefix: str
) -> None:
    topic = f"{topic_prefix}made"
    own = replace(target(kafka, topic), creates=False)
    with pytest.raises(ClusterError, match=r"has no partition 0 of .* or set topics\.create"):
        write(own, records(topic, 0, 1))
    create_topic(kafka.bootstrap, f"west.{topic}")
    assert write(own, records(topic, 0, 1)) == 1


def test_offsets_that_are_set_back_are_written_again(kafka: Kafka, topic_prefix: str) -> None:
    topic = f"{topic_prefix}back"
    own = target(kafka, topic)
    write(own, records(topic, 0, 10), records(topic, 0, 10, partition=1))
    set_back(own, {(topic, 0): 7})
    assert write(own, records(topic, 0, 10), anew=True) == 3
    set_back(own, None)
    assert write(own, records(topic, 0, 10, partition=1), anew=True) == 10
    assert values(kafka, topic) == [*range(10), 7, 8, 9]


@pytest.mark.parametrize("anew", [False, True])
def test_a_topic_of_the_same_name_is_copied_from_its_start(
    kafka: Kafka, topic_prefix: str, anew: bool
) -> None:
    topic, new = f"{topic_prefix}again{anew:d}", "0a1b2c3d"
    own = target(kafka, topic)
    write(own, records(topic, 0, 5), records(topic, 0, 3, partition=1))
    assert write(own, records(topic, 0, 2), anew=anew, output_id=new) == 2
    assert write(own, records(topic, 0, 4), anew=anew, output_id=new) == 2
    assert write(own, records(topic, 0, 4), anew=True, output_id=new) == 0
    assert values(kafka, topic) == [0, 1, 2, 3, 4, 0, 1, 2, 3]
    config = parse_config(KafkaSink, raw(kafka, topic)).require_valid()

    def traced(output_id: str, partition: int = 0) -> object:
        key = drover.connector.TopicPartition(topic, partition)
        return KafkaSink.traced_offsets(f"sink-{topic}", config, {key: output_id}).get(key)

    assert [traced(new), traced("ffffffff"), traced("", 1), traced("", 2)] == [4, None, 3, None]
    set_back(own, {(topic, 0): 3})
    assert write(own, records(topic, 0, 4), anew=True, output_id=new) == 1
    set_back(own, None)
    assert traced(new) is None


def test_rows_arrive_once_however_often_a_task_is_killed(
    kafka: Kafka, topic_prefix: str, pipeline: Pipeline
) -> None:
    topic = f"{topic_prefix}orders"
    source = {"name": "orders", "quickstart": "orders", "topic": topic, "max.records": "900"}
    pipeline.start_source(DatagenSource, source).run_until_idle()
    for count in (300, 500):  # killed after the write and before the commit
        running = pipeline.start_sink(KafkaSink, raw(kafka, topic))
        running.write(running.plan(max_records=count))
    pipeline.start_sink(KafkaSink, raw(kafka, topic)).run_until_idle(max_records=350)
    assert len(copied(kafka, topic)) == 900


def faults(config: dict[str, str]) -> dict[str, str]:
    return {each.field: each.description for each in parse_config(KafkaSink, config).violations}


@pytest.mark.faults("connectors")
def test_a_writer_goes_on_soon_after_its_broker_was_killed(
    mortal_broker: KafkaBroker, topic_prefix: str
) -> None:
    """The writer recovers although the client lost its state."""
    topic = f"{topic_prefix}rows"
    kafka = Kafka(mortal_broker.bootstrap)
    write = ClusterWriter(target(kafka, topic))
    ended = threading.Event()
    written = 0

    def copy() -> None:
        nonlocal written
        while not ended.is_set():
            parts = [records(topic, written * 100, 100, partition=each) for each in range(3)]
            with suppress(RetriableError):
                list(write(parts))
                written += 1

    def wait_until_more() -> None:
        before = written
        wait_until(lambda: written > before, timeout_s=120)

    copying = threading.Thread(target=copy, daemon=True)
    copying.start()
    for _ in range(KILLS):
        wait_until_more()
        mortal_broker.kill()
        mortal_broker.revive()
    wait_until_more()
    ended.set()
    copying.join(120)
    for partition in range(3):
        assert values(kafka, topic, [partition]) == [*range(written * 100)]


def test_a_config_is_tried_at_the_cluster(kafka: Kafka, topic_prefix: str) -> None:
    config = raw(kafka, f"{topic_prefix}a")
    servers = "target.cluster.bootstrap.servers"
    assert faults(config) == {}
    assert "cannot be used" in faults({**config, servers: "127.0.0.1:1"})[servers]
    unknown, group = "target.producer.no.such", "target.cluster.group.id"
    assert "is not among the settings" in faults({**config, unknown: "x"})[unknown]
    assert "set by the connector" in faults({**config, group: "x"})[group]
    json = {"value.converter": "JsonConverter", "transforms": "x"}
    assert "copied as bytes" in faults({**config, **json})["value.converter"]
    assert "copies bytes" in faults({**config, **json})["transforms"]
    assert "must contain ${topic}" in faults({**config, "topic.format": "all"})["topic.format"]


def test_a_client_of_an_identity_provider_writes(
    mortal_broker: KafkaBroker, topic_prefix: str
) -> None:
    topic = f"{topic_prefix}orders"
    with token_issuer(USERS.super_user) as issuer:
        login = {f"target.cluster.{k}": v for k, v in issuer.java_client_settings().items()}
        found = target(Kafka(mortal_broker.sasl_bootstrap), topic, **login)

        def is_written() -> bool:
            """Fails while the broker looks up the group's coordinator."""
            with suppress(RetriableError):
                write(found, records(topic, 0, 3))
                return True
            return False

        wait_until(is_written)
    assert values(Kafka(mortal_broker.bootstrap), topic) == [0, 1, 2]
