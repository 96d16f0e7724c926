"""What another cluster would reject of a mirror: validation and the run agree."""

from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from drover.connector import RetriableError
from drover.connector.settings import parse_config, validate_config
from drover.connectors.kafka.cluster import ClusterError
from drover.connectors.kafka.sink import KafkaSink, target_of
from drover.connectors.kafka.source import KafkaSource
from drover.policy.own_cluster import OWN_CLUSTER_VARIABLE, OwnCluster
from tests.kafka.mirror.test_kafka_sink import faults, raw, records, write
from tests.kafka.mirror.test_kafka_source import Copy
from tests.kafka.mirror.test_kafka_source import faults as faults_of_source
from tests.kafka.mirror.test_kafka_source import raw as source_of
from tests.support.kafka.acls import GROUP, TOPIC, TRANSACTIONAL_ID, Right, grant
from tests.support.kafka.broker import KafkaBroker
from tests.support.kafka.choice import Kafka
from tests.support.kafka.clients import create_topic, produce
from tests.support.kafka.fixtures import USERS
from tests.support.waiting import wait_until


def run_of(topic: str, config: dict[str, str]) -> str:
    """The message of a sink's write; empty if it succeeds."""
    found = target_of(parse_config(KafkaSink, config, use_systems=False).values, f"sink-{topic}")
    told: list[str] = []

    def has_ended() -> bool:
        """Fails while the broker looks up the group's coordinator."""
        try:
            write(found, records(topic, 0, 1), anew=True)
        except RetriableError:
            return False
        except ClusterError as error:
            told.append(str(error))
        return True

    wait_until(has_ended)
    return "".join(told)


def test_copies_with_more_replicas_than_brokers_are_predicted(
    kafka: Kafka, topic_prefix: str
) -> None:
    topic = f"{topic_prefix}a"
    config = {**raw(kafka, topic), "topics.replication.factor": "3"}
    (found,) = faults(config).items()
    assert found[0] == "topics.replication.factor"
    assert "is 3, but the target cluster has 1 broker: set it to at most 1" in found[1]
    assert "INVALID_REPLICATION_FACTOR" in run_of(topic, config)
    assert f"west.{topic}" not in seen_by(kafka).topics, "validation creates nothing"
    create_topic(kafka.bootstrap, f"west.{topic}")
    assert faults(config) == {}


def test_missing_copies_that_must_not_be_created_are_predicted(
    kafka: Kafka, topic_prefix: str
) -> None:
    topic = f"{topic_prefix}a"
    config = {**raw(kafka, topic), "topics.create": "false"}
    assert f"has no topic west.{topic}" in faults(config)["topics.create"]
    assert "set topics.create" in run_of(topic, config)


@pytest.mark.parametrize("form", ["we st.${topic}", "x" * 240 + "${topic}"])
def test_names_of_copies_that_kafka_rejects_are_predicted(
    kafka: Kafka, topic_prefix: str, form: str
) -> None:
    config = {**raw(kafka, f"{topic_prefix}a"), "topic.format": form}
    assert "names the copy of" in faults(config)["topic.format"]


def test_an_alias_that_makes_invalid_names_is_predicted(kafka: Kafka, topic_prefix: str) -> None:
    create_topic(kafka.bootstrap, f"{topic_prefix}a")
    config = {**source_of(kafka, f"{topic_prefix}a"), "source.cluster.alias": "the east"}
    assert "names the copy of" in faults_of_source(config)["source.cluster.alias"]


def seen_by(kafka: Kafka) -> Any:
    return AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0}).list_topics()


@pytest.fixture
def own_cluster(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    """The shared broker is Drover's own cluster."""
    own = OwnCluster(str(seen_by(kafka).cluster_id), "workers", frozenset(("configs",)))
    monkeypatch.setenv(OWN_CLUSTER_VARIABLE, own.encoded())


@pytest.mark.usefixtures("own_cluster")
def test_a_sink_that_reads_its_own_copies_is_predicted(kafka: Kafka, topic_prefix: str) -> None:
    topic = f"{topic_prefix}a"
    create_topic(kafka.bootstrap, topic)
    config = raw(kafka, topic)
    assert faults(config) == {}
    same = {**config, "topic.format": "${topic}"}
    assert "which the connector reads itself" in faults(same)["topic.format"]
    by_pattern = {key: value for key, value in config.items() if key != "topics"}
    by_pattern["topics.regex"] = f".*{topic_prefix}.*"
    assert "which the connector reads itself" in faults(by_pattern)["topic.format"]
    narrow = {**by_pattern, "topics.regex": f"{topic_prefix}.*"}
    assert faults(narrow) == {}
    for each in (same, by_pattern):
        assert "which the connector reads itself" in run_of(topic, each)


def login(side: str) -> dict[str, str]:
    return {f"{side}.{key}": v for key, v in USERS.java_client_settings("drover").items()}


@pytest.mark.parametrize(
    ("lacking", "setting"), [("WRITE", "topics"), ("READ", "offsets.group.id"), ("ID", "")]
)
def test_a_user_of_a_sink_who_lacks_one_right_is_predicted_and_named(
    mortal_broker: KafkaBroker, topic_prefix: str, lacking: str, setting: str
) -> None:
    topic = f"{topic_prefix}a"
    create_topic(mortal_broker.bootstrap, f"west.{topic}")
    group = f"drover-sink-{topic}"
    rights: dict[str, Right] = {
        "WRITE": (TOPIC, f"west.{topic}", "WRITE"),
        "READ": (GROUP, group, "READ"),
        "ID": (TRANSACTIONAL_ID, f"{group}-{topic}-0", "WRITE"),
    }
    resource = rights.pop(lacking)[1]
    grant(mortal_broker, [*rights.values()])
    guarded = Kafka(mortal_broker.sasl_bootstrap)
    config = {**raw(guarded, topic), **login("target.cluster")}
    values = validate_config(KafkaSink, config)
    found = {each.key.name: "".join(each.errors) for each in values if each.errors}
    assert [*found] == [setting] * bool(setting)
    if setting:
        operation = lacking.capitalize()
        assert f"User:drover lacks the operation {operation} on the" in found[setting]
        assert resource in found[setting]
    skipped = [text for each in values for text in each.skipped_checks]
    assert any("transactional ids" in text for text in skipped)
    message = run_of(topic, config)
    assert "add an ACL that allows User:drover" in message
    assert resource in message


def test_a_user_of_a_source_who_may_not_read_is_predicted_and_named(
    mortal_broker: KafkaBroker, topic_prefix: str
) -> None:
    topic = f"{topic_prefix}a"
    create_topic(mortal_broker.bootstrap, topic)
    produce(mortal_broker.bootstrap, topic, [(None, b"v")])
    grant(mortal_broker, [(TOPIC, topic, "DESCRIBE")])
    guarded = Kafka(mortal_broker.sasl_bootstrap)
    config = {**source_of(guarded, topic), **login("source.cluster")}
    text = faults_of_source(config)["topics"]
    assert f"User:drover lacks the operation Read on the topic {topic}" in text
    grant(mortal_broker, [(TOPIC, topic, "READ")])
    assert faults_of_source(config) == {}
    warned = [text for each in validate_config(KafkaSource, config) for text in each.warnings]
    assert f"lacks the operation DescribeConfigs on the topic {topic}" in warned[0]
    copy = Copy(config)
    assert [row["value"] for row in copy.run_until(1)] == [b"v"]
    copy.close()
