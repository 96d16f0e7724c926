"""Settings of a log's Kafka clients, tested without a broker."""

import json

import pytest
from confluent_kafka import Consumer, Producer

from drover.errors import DroverError
from drover.log.kafka.client import KafkaClient
from tests.support.kafka.logs import storage_on
from tests.support.waiting import wait_until

NOWHERE = "127.0.0.1:1"


def name_told_by(client: Producer | Consumer, told: list[str]) -> str:
    """The client id in the client's statistics."""

    def has_told() -> bool:
        client.poll(0.01)
        return bool(told)

    told.clear()
    wait_until(has_told)
    return str(json.loads(told[0])["client_id"])


async def test_clients_are_named_after_the_cluster() -> None:
    for config, name in (({}, "drover-x-cluster"), ({"client.id": "mine"}, "mine")):
        client = KafkaClient(storage_on(NOWHERE, "x-", config))
        told: list[str] = []
        statistics = {"statistics.interval.ms": 10, "stats_cb": told.append, "log_level": 0}
        consumer = client.consumer(statistics)
        assert name_told_by(client.producer(statistics), told) == name
        assert name_told_by(consumer, told) == name
        consumer.close()
        await client.close()


@pytest.mark.parametrize(
    "setting",
    [
        "isolation.level",
        "transactional.id",
        "enable.idempotence",
        "acks",
        "group.id",
        "enable.auto.commit",
        "partitioner",
    ],
)
def test_settings_of_the_log_cannot_be_set_otherwise(setting: str) -> None:
    with pytest.raises(DroverError, match=setting):
        KafkaClient(storage_on(NOWHERE, "x-", {setting: "read_uncommitted"}))
