"""Parsing of storage URLs."""

from pathlib import Path

import pytest

from drover.errors import InvalidArgumentError, Reason
from drover.log.storage import EmbeddedStorage, KafkaStorage, KafkaTopics, parse_storage
from drover.testing import raises_reason


def test_sqlite_names_a_directory() -> None:
    found = parse_storage("sqlite:///var/drover", group_id="g")
    assert found == EmbeddedStorage(Path("/var/drover"))


def test_kafka_names_brokers_and_takes_topics_and_client_settings_along() -> None:
    topics = KafkaTopics(config="connect-configs")
    found = parse_storage(
        "kafka://a:9092, b:9093",
        group_id="g",
        topics=topics,
        client_config={"security.protocol": "SSL"},
    )
    assert found == KafkaStorage(
        bootstrap_servers="a:9092,b:9093",
        group_id="g",
        topics=topics,
        client_config={"security.protocol": "SSL"},
    )


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("kafka://", "is not host:port"),
        ("kafka://broker", "is not host:port"),
        ("kafka://broker:0", "is not host:port"),
        ("kafka://broker:99999", "is not host:port"),
        ("kafka://a:9092,,b:9092", "is not host:port"),
        ("kafka:a:9092", "name brokers only"),
        ("kafka://a:9092/topic", "name brokers only"),
        ("kafka://user:secret@a:9092", "name brokers only"),
        ("kafka://a:9092?x=y", "name brokers only"),
    ],
)
def test_a_kafka_url_that_is_wrong_is_explained(url: str, said: str) -> None:
    with raises_reason(Reason.INVALID_CONFIG, said):
        parse_storage(url, group_id="g")


def test_a_password_that_does_not_belong_in_the_url_is_not_repeated() -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        parse_storage("kafka://user:secret@a:9092", group_id="g")
    assert "secret" not in str(caught.value)
