"""Mirrors do not reach the internals of the Kafka cluster that Drover runs on."""

import threading
from dataclasses import replace

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from drover.connector.settings import parse_config
from drover.connectors.kafka.cluster import ReservedError
from drover.connectors.kafka.settings import group_sync_of
from drover.connectors.kafka.sink import KafkaSink, target_of
from drover.connectors.kafka.source import KafkaSource
from drover.connectors.kafka.writer import ClusterWriter, set_back
from drover.log.kafka.client import KafkaClient
from drover.log.storage import KafkaStorage
from drover.policy.own_cluster import OWN_CLUSTER_VARIABLE, OwnCluster
from drover_worker.engine.own_cluster import announce_own_cluster
from tests.support.kafka.choice import Kafka
from tests.support.kafka.clients import QUIET, create_topic
from tests.support.lake_records import records
from tests.support.waiting import wait_until


@pytest.fixture
def own(kafka: Kafka, topic_prefix: str, monkeypatch: pytest.MonkeyPatch) -> OwnCluster:
    """The test's cluster is Drover's own, and the topic ``configs`` is internal."""
    client = KafkaClient(KafkaStorage(bootstrap_servers=kafka.bootstrap, group_id="workers"))
    found = OwnCluster(client.cluster_id_now(), "workers", frozenset((f"{topic_prefix}configs",)))
    assert found.cluster_id
    monkeypatch.setenv(OWN_CLUSTER_VARIABLE, found.encoded())
    create_topic(kafka.bootstrap, f"{topic_prefix}configs")
    create_topic(kafka.bootstrap, f"{topic_prefix}orders")
    return found


def source(kafka: Kafka, topics: str, **changed: str) -> dict[str, str]:
    return {
        "name": "a-g",
        "connector.class": "KafkaSource",
        "source.cluster.bootstrap.servers": kafka.bootstrap,
        "topics": topics,
        **changed,
    }


def sink(kafka: Kafka, topic: str, **changed: str) -> dict[str, str]:
    return {
        "name": "a-g",
        "connector.class": "KafkaSink",
        "topics": topic,
        "target.cluster.bootstrap.servers": kafka.bootstrap,
        "topic.format": "x.${topic}",
        **changed,
    }


def test_an_engine_announces_its_cluster(
    kafka: Kafka, own: OwnCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(OWN_CLUSTER_VARIABLE)
    storage = KafkaStorage(bootstrap_servers=kafka.bootstrap, group_id="workers")
    found: list[str] = []
    announce_own_cluster(storage, threading.Event(), found.append)
    first = OwnCluster.of_worker()
    assert first is not None
    assert first.topics == storage.topics.names
    wait_until(lambda: OwnCluster.of_worker() == replace(first, cluster_id=own.cluster_id))
    wait_until(lambda: found == [own.cluster_id])


def test_a_source_does_not_read_internal_topics(
    kafka: Kafka, topic_prefix: str, own: OwnCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = source(kafka, f"{topic_prefix}.*")
    (fault,) = parse_config(KafkaSource, config).violations
    assert fault.field == "topics"
    assert f"the topic {topic_prefix}configs is internal in Drover's own" in fault.description
    assert "topics.exclude" in fault.description
    everything = source(kafka, "__consumer_offsets|.*orders", **{"topics.exclude": "none"})
    found = parse_config(KafkaSource, everything).violations
    assert [each.field for each in found] in ([], ["topics"])  # it may not exist yet
    assert parse_config(KafkaSource, source(kafka, f"{topic_prefix}orders")).violations == ()
    other = OwnCluster("other", own.group_id, own.topics)
    monkeypatch.setenv(OWN_CLUSTER_VARIABLE, other.encoded())
    assert parse_config(KafkaSource, config).violations == ()


def test_a_sink_does_not_write_internal_topics(
    kafka: Kafka, topic_prefix: str, own: OwnCluster
) -> None:
    topic = topic_prefix.removesuffix("-") + "configs"
    config = sink(kafka, "configs", **{"topic.format": f"{topic_prefix}${{topic}}"})
    (fault,) = parse_config(KafkaSink, config).violations
    assert fault.field == "topic.format"
    values = parse_config(KafkaSink, config).values
    with pytest.raises(ReservedError, match="is internal in Drover's own"):
        list(ClusterWriter(target_of(values, "a-g"))([batch("configs")]))
    assert parse_config(KafkaSink, sink(kafka, topic)).violations == ()


@pytest.mark.parametrize("group", ["connect-b-sink", "workers", "drover-groups"])
def test_a_sink_does_not_use_groups_of_others(kafka: Kafka, own: OwnCluster, group: str) -> None:
    config = sink(kafka, "a", **{"offsets.group.id": group})
    (fault,) = parse_config(KafkaSink, config).violations
    assert fault.field == "offsets.group.id"
    target = target_of(parse_config(KafkaSink, config).values, "a-g")
    with pytest.raises(ReservedError, match="belongs to Drover or another connector"):
        set_back(target, None)
    with pytest.raises(ReservedError, match="belongs to Drover or another connector"):
        list(ClusterWriter(target)([batch("a")]))


def test_translated_groups_leave_groups_of_others_alone(
    kafka: Kafka, topic_prefix: str, own: OwnCluster
) -> None:
    original, group = f"{topic_prefix}orders", f"connect-{topic_prefix}b-sink"
    create_topic(kafka.bootstrap, f"source.{original}")
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, **QUIET})
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": group, **QUIET})
    consumer.commit(offsets=[TopicPartition(original, 0, 0)], asynchronous=False)
    consumer.close()
    config = source(
        kafka,
        original,
        **{
            "sync.group.offsets.enabled": "true",
            "target.cluster.bootstrap.servers": kafka.bootstrap,
            "groups": f"connect-{topic_prefix}.*",
            "groups.exclude": "none",
        },
    )
    sync = group_sync_of(parse_config(KafkaSource, config).require_valid())
    assert sync.run({original: 1}) == 0
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    found = asked[group].result(15).topic_partitions or []
    assert [each.topic for each in found] == [original]


@pytest.mark.faults("security")
@pytest.mark.parametrize(
    ("topics", "changed"),
    [
        ("{0}orders,{0}configs", {}),
        ("(?i){1}CONFIGS", {}),
        ("{0}c.{{6}}", {"topics.exclude": "none"}),
        ("{0}configs", {"source.cluster.bootstrap.servers": "localhost:{2}"}),
        ("{0}configs", {"source.cluster.bootstrap.servers": "127.0.0.1:1,127.0.0.1:{2}"}),
        ("{0}configs", {"source.cluster.alias": "other", "topic.prefix": "y."}),
    ],
)
def test_internal_topics_are_not_read_under_another_name(
    kafka: Kafka, topic_prefix: str, own: OwnCluster, topics: str, changed: dict[str, str]
) -> None:
    port = kafka.bootstrap.split(",")[0].rpartition(":")[2]
    given = {
        name: text.format(topic_prefix, topic_prefix.upper(), port)
        for name, text in {"topics": topics, **changed}.items()
    }
    faults = parse_config(KafkaSource, {**source(kafka, ""), **given}).violations
    told = " ".join(each.description for each in faults if each.field == "topics")
    assert f"the topic {topic_prefix}configs is internal in Drover's own" in told
    assert "which no setting of the worker allows" in told


@pytest.mark.faults("security")
@pytest.mark.parametrize("group", ["connect-b", "connect-A-G", "connect-", "workers-x", "drover-"])
@pytest.mark.parametrize("servers", ["localhost:{0}", "127.0.0.1:1,127.0.0.1:{0}"])
def test_groups_of_others_are_not_used_through_another_address(
    kafka: Kafka, own: OwnCluster, group: str, servers: str
) -> None:
    port = kafka.bootstrap.split(",")[0].rpartition(":")[2]
    changed = {
        "target.cluster.bootstrap.servers": servers.format(port),
        "offsets.group.id": group,
    }
    (fault,) = parse_config(KafkaSink, sink(kafka, "a", **changed)).violations
    assert fault.field == "offsets.group.id"
    assert "belongs to Drover or another connector" in fault.description
    assert "which no setting of the worker allows" in fault.description


@pytest.mark.faults("security")
@pytest.mark.parametrize("target", ["configs", "__consumer_offsets", "__transaction_state"])
def test_records_are_not_routed_into_internal_topics(
    kafka: Kafka, topic_prefix: str, own: OwnCluster, target: str
) -> None:
    internal = target if target.startswith("__") else f"{topic_prefix}{target}"
    values = parse_config(KafkaSink, sink(kafka, "a", **{"topic.format": "${topic}"})).values
    with pytest.raises(ReservedError, match="is internal in Drover's own"):
        list(ClusterWriter(target_of(values, "a-g"))([batch(internal)]))


def batch(topic: str) -> object:
    return records([{"id": 1}], topic=topic)
