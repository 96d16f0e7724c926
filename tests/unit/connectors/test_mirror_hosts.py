"""The clusters that KafkaSource and KafkaSink may connect to."""

import pytest

from drover.connector.settings import parse_config
from drover.connectors.kafka.cluster import client_settings
from drover.connectors.kafka.sink import KafkaSink
from drover.connectors.kafka.source import KafkaSource
from drover.policy.egress import HOSTS_VARIABLE

TOKEN_URL = "source.cluster.sasl.oauthbearer.token.endpoint.url"


def settings(servers: str, **more: str) -> dict[str, str]:
    config = {"source.cluster.bootstrap.servers": servers, **more}
    return client_settings(config, "source.cluster.")


@pytest.mark.parametrize("server", ["169.254.169.254:80", "[64:ff9b::a9fe:a9fe]", "2852039166"])
def test_metadata_addresses_are_refused(server: str) -> None:
    for plugin, name in (
        (KafkaSource, "source.cluster.bootstrap.servers"),
        (KafkaSink, "target.cluster.bootstrap.servers"),
    ):
        raw = {"name": "a", "connector.class": "x", "topics": "t", name: f"a:1,{server}"}
        faults = {each.field: each.description for each in parse_config(plugin, raw).violations}
        assert "must not call" in faults[name]
    with pytest.raises(ValueError, match="must not call"):
        settings(f"127.0.0.1:1,{server}")


def test_names_are_resolved_before_the_client_connects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HOSTS_VARIABLE, "127.0.0.0/8,::1")
    assert settings("localhost:9092")["bootstrap.servers"] == "localhost:9092"
    monkeypatch.setenv(HOSTS_VARIABLE, "10.0.0.0/8")
    with pytest.raises(ValueError, match="localhost:9092 is not a host that connectors may call"):
        settings("localhost:9092")
    monkeypatch.setenv(HOSTS_VARIABLE, "localhost:9092")
    with pytest.raises(ValueError, match="localhost:9093 is not a host"):
        settings("localhost:9092,localhost:9093")
    with pytest.raises(ValueError, match="localhost:443 is not a host"):
        settings("localhost:9092", **{TOKEN_URL: "https://localhost/token"})
