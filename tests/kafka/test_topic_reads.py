"""Inspecting topics of a real broker."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from drover.api.common.v1 import topics_pb2
from drover.api.common.v1.topics_pb2 import PRODUCE_FORMAT_JSON, ProduceOptions, RecordQuery
from drover.api.engine.v1 import engine_pb2
from drover.errors import InvalidArgumentError, NotFoundError
from drover_worker.engine.topics.reads import describe_topic, list_topics, read_topic
from drover_worker.engine.topics.writes import produce_records
from tests.support.kafka.choice import Kafka
from tests.support.kafka.clients import CALL_TIMEOUT_S, QUIET, create_topic
from tests.support.kafka.data_topic import Topic
from tests.support.waiting import wait_until


@pytest.fixture
def topic(kafka: Kafka, topic_prefix: str) -> Topic:
    topic = Topic.at(kafka.bootstrap, f"{topic_prefix}looked-at")
    config = {"retention.ms": "-1", "retention.bytes": "1000000"}
    create_topic(kafka.bootstrap, topic.name, partitions=2, config=config)
    return topic


def read(topic: Topic, **command: Any) -> engine_pb2.TopicRecords:
    wanted = RecordQuery(topic=topic.name, conditions=command.pop("conditions", []))
    return read_topic(topic.plane, engine_pb2.ReadTopic(query=wanted, **command), {})


def values(found: engine_pb2.TopicRecords) -> list[Any]:
    return [json.loads(each.value) for each in found.records]


def test_a_topic_is_described_read_from_both_ends_and_told_when_it_is_deleted(
    kafka: Kafka, topic: Topic
) -> None:
    assert topic.name in [each.name for each in list_topics(topic.plane, "", 10_000).topics]
    described = describe_topic(topic.plane, topic.name)
    assert not described.HasField("retention")
    assert described.retention_bytes == 1_000_000
    assert [each.end_offset for each in described.partitions] == [0, 0]

    found = read(topic)
    assert (found.at_end, found.record_count) == (True, 0)
    times = pa.array(range(0, 40_000, 1_000), pa.timestamp("ms", tz="UTC"))
    numbers = [b'{"n":%d}' % n for n in range(40)]
    topic.write({"key": numbers, "value": numbers, "timestamp": times})
    found = read(topic, positions=found.positions)
    assert sorted(each["n"] for each in values(found)) == list(range(40))
    assert values(read(topic, last_count=2)) == [{"n": 38}, {"n": 39}]
    assert values(read(topic, last_count=1, conditions=["n<=7"])) == [{"n": 7}]

    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, **QUIET})
    admin.delete_topics([topic.name])[topic.name].result(CALL_TIMEOUT_S)
    wait_until(lambda: not topic.plane.topic_bounds(topic.name))
    with pytest.raises(NotFoundError, match="was deleted, or deleted and created again"):
        read(topic, positions=found.positions)
    with pytest.raises(NotFoundError, match="does not exist"):
        read(topic)


def test_the_last_record_is_found_behind_markers_of_transactions(
    kafka: Kafka, topic: Topic
) -> None:
    settings = {"bootstrap.servers": kafka.bootstrap, "transactional.id": topic.name, **QUIET}
    producer = Producer(settings)
    producer.init_transactions(CALL_TIMEOUT_S)
    for number in range(3):
        producer.begin_transaction()
        producer.produce(topic.name, b"%d" % number, partition=0)
        producer.commit_transaction(CALL_TIMEOUT_S)
    found = read(topic, last_count=2)
    assert values(found) == [1, 2]
    assert found.at_end


@pytest.mark.parametrize("conditions", [[], ["n>=0"]])
def test_markers_and_records_of_aborted_and_open_transactions_do_not_count(
    kafka: Kafka, topic: Topic, conditions: list[str]
) -> None:
    settings = {"bootstrap.servers": kafka.bootstrap, "transactional.id": topic.name, **QUIET}
    producer = Producer(settings)
    producer.init_transactions(CALL_TIMEOUT_S)
    for end in (producer.commit_transaction, producer.abort_transaction) * 2:
        producer.begin_transaction()
        for number in range(3):
            producer.produce(topic.name, b'{"n":%d}' % number, partition=number % 2)
        producer.flush(CALL_TIMEOUT_S)
        end(CALL_TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(topic.name, b'{"n":9}', partition=0)
    producer.flush(CALL_TIMEOUT_S)
    found = read(topic, count_only=True, conditions=conditions)
    assert (found.record_count, found.at_end) == (6, True)
    producer.abort_transaction(CALL_TIMEOUT_S)


def places_from(topic: Topic, time_ms: int) -> list[tuple[int, int]]:
    found = read(topic, start_time_ms=time_ms)
    assert found.at_end
    return sorted((each.partition, json.loads(each.value)) for each in found.records)


def starts_at(topic: Topic, time_ms: int) -> tuple[list[int], list[int]]:
    """The starts and the ends of the partitions; the search may need more than one answer."""
    found = read(topic, start_time_ms=time_ms, find_only=True)
    assert not found.records
    return [each.offset for each in found.positions], [each.offset for each in found.end_positions]


def test_a_read_starts_at_a_time_in_each_partition(kafka: Kafka, topic: Topic) -> None:
    settings = {"bootstrap.servers": kafka.bootstrap, "transactional.id": topic.name, **QUIET}
    producer = Producer(settings)
    producer.init_transactions(CALL_TIMEOUT_S)

    def write(partition: int, *times_ms: int) -> None:
        producer.begin_transaction()
        for at in times_ms:
            producer.produce(topic.name, b"%d" % at, partition=partition, timestamp=at)
        producer.flush(CALL_TIMEOUT_S)

    write(0, 1_000, 3_000, 2_000)
    producer.commit_transaction(CALL_TIMEOUT_S)
    write(1, 1_000)
    producer.commit_transaction(CALL_TIMEOUT_S)
    # the markers of a commit may follow its answer
    everything = [(0, 1_000), (0, 2_000), (0, 3_000), (1, 1_000)]
    wait_until(lambda: places_from(topic, 1_000) == everything)
    assert places_from(topic, 1_001) == [(0, 2_000), (0, 3_000)]
    assert places_from(topic, 3_001) == []
    # the offset of a sink that is moved to a time, and the end where no record is so late
    wait_until(lambda: starts_at(topic, 2_000) == ([1, 2], [4, 2]))

    # the index has the records of aborted transactions as well
    write(1, 5_000)
    producer.abort_transaction(CALL_TIMEOUT_S)
    write(1, 2_000, 6_000, 2_500)
    producer.commit_transaction(CALL_TIMEOUT_S)
    wait_until(lambda: places_from(topic, 4_000) == [(1, 2_500), (1, 6_000)])
    # a record of an open transaction is not there yet
    write(0, 9_000)
    found = read(topic, start_time_ms=8_000)
    assert (found.record_count, found.at_end) == (0, True)
    producer.commit_transaction(CALL_TIMEOUT_S)
    wait_until(lambda: values(read(topic, positions=found.positions)) == [9_000])


def test_the_clusters_own_topics_are_refused(topic: Topic) -> None:
    reserved = topic.plane.reserved_topics()
    assert {"__consumer_offsets", "__transaction_state", topic.storage.topics.config} <= {*reserved}
    for name, contents in reserved.items():
        with pytest.raises(InvalidArgumentError, match="internal topic of the cluster") as refused:
            describe_topic(topic.plane, name)
        assert contents in refused.value.message
    assert not {*topic.plane.topics()} & {*reserved}


def test_a_topic_of_a_connector_with_underscores_is_listed_and_read(
    kafka: Kafka, topic: Topic
) -> None:
    name = f"__debezium-heartbeat.{topic.name}"
    create_topic(kafka.bootstrap, name, partitions=1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, **QUIET})
    producer.produce(name, b"1", partition=0)
    assert producer.flush(CALL_TIMEOUT_S) == 0
    wait_until(lambda: name in topic.plane.topics())
    assert name in [each.name for each in list_topics(topic.plane, "__debezium", 1_000).topics]
    assert describe_topic(topic.plane, name).partitions[0].end_offset == 1
    command = engine_pb2.ReadTopic(query=RecordQuery(topic=name))
    assert values(read_topic(topic.plane, command, {})) == [1]


def test_a_description_on_kafka_shows_where_settings_come_from(kafka: Kafka, topic: Topic) -> None:
    name = f"{topic.name}-settings"
    create_topic(kafka.bootstrap, name, partitions=1, config={"retention.ms": "-1"})
    found = describe_topic(topic.plane, name)
    origins = {each.name: each.origin for each in found.settings}
    assert origins["retention.ms"] == topics_pb2.SETTING_ORIGIN_TOPIC
    assert origins["segment.ms"] == topics_pb2.SETTING_ORIGIN_DEFAULT
    assert not found.HasField("retention")


def test_a_topic_on_kafka_that_is_created_again_ends_the_read(kafka: Kafka, topic: Topic) -> None:
    name = f"{topic.name}-again"
    create_topic(kafka.bootstrap, name, partitions=1)
    command = engine_pb2.ReadTopic(query=RecordQuery(topic=name))
    found = read_topic(topic.plane, command, {})
    assert found.positions[0].topic_id
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, **QUIET})
    admin.delete_topics([name])[name].result(CALL_TIMEOUT_S)
    wait_until(lambda: not topic.plane.topic_ids([name], fresh=True))
    create_topic(kafka.bootstrap, name, partitions=1)
    command.positions.extend(found.positions)
    with pytest.raises(NotFoundError, match="deleted and created again"):
        read_topic(topic.plane, command, {})


def test_an_operators_records_are_written_as_they_are_shown(topic: Topic, tmp_path: Path) -> None:
    path = tmp_path / "input"

    def produce(*lines: dict[str, Any], request_id: str) -> engine_pb2.ProducedRecords:
        path.write_text("\n".join(map(json.dumps, lines)))
        options = ProduceOptions(
            topic=topic.name, format=PRODUCE_FORMAT_JSON, request_id=request_id
        )
        command = engine_pb2.ProduceRecords(options=options, path=str(path))
        return produce_records(topic.plane, command, {})

    good = {"key": "k", "value": {"n": 1}, "headers": {"h": "v", "none": None}, "partition": 1}
    too_large = {"value": "x" * topic.plane.record_bytes_max_of(topic.name)}
    with pytest.raises(InvalidArgumentError) as told:
        produce(good, too_large, request_id="one")
    assert [each.field for each in told.value.violations] == ["line 2"]
    assert not produce(good, {"key": "k", "value": None}, request_id="one").repeated_call
    assert produce(good, {"key": "k", "value": None}, request_id="one").repeated_call
    found = read(topic).records
    shown = next(each for each in found if each.HasField("value"))
    assert (shown.partition, shown.key, shown.value) == (1, '"k"', '{"n":1}')
    assert [(each.key, each.value) for each in shown.headers] == [("h", "v"), ("none", "")]
    assert [each.HasField("value") for each in found].count(False) == 1
    assert read(topic, count_only=True).record_count == 2
