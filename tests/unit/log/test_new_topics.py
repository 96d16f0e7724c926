"""Why brokers reject a new topic, in terms of settings."""

import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import NewTopic

from drover.log.kafka.new_topics import CreationFault, creation_fault
from drover.log.storage import PARTITIONS, REPLICATION_FACTOR

SETTINGS = {
    PARTITIONS: "p",
    REPLICATION_FACTOR: "r",
    "retention.ms": "c.retention.ms",
    "delete.retention.ms": "c.delete.retention.ms",
}


def fault(code: int, text: str, *, factor: int = 3, brokers: int = 1) -> CreationFault | None:
    config = {"retention.ms": "x", "delete.retention.ms": "y"}
    topic = NewTopic("t", 1, factor, config=config)
    return creation_fault(KafkaError(code, text), topic, SETTINGS, broker_count=brokers)


@pytest.mark.parametrize(
    ("factor", "brokers", "setting", "text"),
    [
        (3, 1, "r", "is 3, but the cluster has 1 broker: set it to at most 1 or to -1"),
        (4, 2, "r", "is 4, but the cluster has 2 brokers: set it to at most 2"),
        (2, 3, "r", "is 2, which the 3 brokers of the cluster reject: must be odd"),
        (-1, 2, "", "default.replication.factor of the brokers cannot be reached"),
    ],
)
def test_replication_factors(factor: int, brokers: int, setting: str, text: str) -> None:
    code = KafkaError.INVALID_REPLICATION_FACTOR
    found = fault(code, "must be odd", factor=factor, brokers=brokers)
    assert found is not None
    assert found.setting == setting
    assert text in found.text


@pytest.mark.parametrize(
    ("code", "text", "setting"),
    [
        (KafkaError.INVALID_PARTITIONS, "too many", "p"),
        (
            KafkaError.INVALID_CONFIG,
            "Invalid value y for delete.retention.ms",
            SETTINGS["delete.retention.ms"],
        ),
        (KafkaError.INVALID_CONFIG, "Invalid value x for retention.ms", SETTINGS["retention.ms"]),
        (KafkaError.POLICY_VIOLATION, "names start with team-", ""),
        (KafkaError.TOPIC_EXCEPTION, "collides with t.x", ""),
    ],
)
def test_other_faults(code: int, text: str, setting: str) -> None:
    found = fault(code, text)
    assert found is not None
    assert found.setting == setting
    assert text in found.text


def test_errors_that_are_no_fault_of_the_topic() -> None:
    assert fault(KafkaError.TOPIC_AUTHORIZATION_FAILED, "no") is None
    assert fault(KafkaError._TIMED_OUT, "no") is None
