"""What a mirror decides without a cluster: logins, shares."""

from typing import Any

import pytest

from drover.connector import Password
from drover.connectors.mirror.cluster import client_settings
from drover.connectors.mirror.source import share_of


def test_a_login_of_java_is_understood() -> None:
    login = (
        "org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="me" password="p w;\'x";'
    )
    config: dict[str, Any] = {
        "source.cluster.bootstrap.servers": "a:1",
        "source.cluster.alias": "east",
        "source.cluster.security.protocol": "SASL_SSL",
        "source.cluster.sasl.mechanism": "SCRAM-SHA-256",
        "source.cluster.sasl.jaas.config": Password(login),
        "source.consumer.fetch.min.bytes": "7",
        "source.cluster.fetch.min.bytes": "1",
        "topics": "x",
    }
    assert client_settings(config, "source.cluster.", "source.consumer.") == {
        "bootstrap.servers": "a:1",
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": "SCRAM-SHA-256",
        "sasl.username": "me",
        "sasl.password": "p w;'x",
        "fetch.min.bytes": "7",
    }


def test_a_login_without_a_password_is_told() -> None:
    config = {"source.cluster.sasl.jaas.config": Password("x required username=me;")}
    with pytest.raises(ValueError, match="a username and a password"):
        client_settings(config, "source.cluster.")


def test_partitions_are_spread_over_tasks() -> None:
    shares = [share_of("topic", partition, 4) for partition in range(12)]
    assert sorted(shares) == sorted([0, 1, 2, 3] * 3)
    assert share_of("topic", 5, 1) == 0
