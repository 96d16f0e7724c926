"""deploy/kafka-compose.yml over docker-compose.yml: the same cluster on Kafka."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from drover.log.storage import KafkaStorage, parse_storage
from drover_worker.engine.spark_protection import protection

ROOT = Path(__file__).parents[3]
OURS = ["coordinator", "config-store", "status-store", "worker"]


def load(name: str) -> dict[str, Any]:
    loaded = yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))
    assert isinstance(loaded, dict)
    return loaded


@pytest.fixture(scope="module")
def overlay() -> dict[str, Any]:
    return load("deploy/kafka-compose.yml")


@pytest.fixture(scope="module")
def compose(overlay: dict[str, Any]) -> dict[str, Any]:
    """Both files as Compose merges them, mappings key by key."""
    both = merged(load("docker-compose.yml"), overlay)
    assert isinstance(both, dict)
    return both


def merged(below: Any, above: Any) -> Any:
    if not isinstance(below, dict) or not isinstance(above, dict):
        return above
    return {
        **below,
        **{
            key: merged(below[key], value) if key in below else value
            for key, value in above.items()
        },
    }


def test_it_adds_a_broker_to_the_embedded_clusters_services(compose: dict[str, Any]) -> None:
    always = [name for name, each in compose["services"].items() if "profiles" not in each]
    assert sorted(always) == sorted(
        [*OURS, "certs", "forwarder", "gateway", "kafka", "kafka-certs"]
    )
    for name in OURS:
        assert compose["services"][name]["build"]["dockerfile"].startswith("deploy/")


@pytest.mark.parametrize("name", OURS)
def test_everything_of_drover_is_on_the_broker_and_waits_for_it(
    compose: dict[str, Any], name: str
) -> None:
    service = compose["services"][name]
    url = service["environment"]["DROVER_STORAGE_URL"]
    storage = parse_storage(url, group_id="drover")
    assert isinstance(storage, KafkaStorage)
    advertised = compose["services"]["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"]
    assert advertised.split(",")[0] == f"CLUSTER://{storage.bootstrap_servers}"
    assert service["depends_on"]["kafka"] == {"condition": "service_healthy"}


def test_workers_still_wait_for_the_services(compose: dict[str, Any]) -> None:
    waits = compose["services"]["worker"]["depends_on"]
    assert set(waits) == {"certs", "coordinator", "config-store", "status-store", "kafka"}


def test_only_the_storage_is_another(overlay: dict[str, Any]) -> None:
    for name in OURS:
        assert set(overlay["services"][name]) == {"environment", "depends_on"}
        told = overlay["services"][name]["environment"]
        assert set(told) == {"DROVER_STORAGE_URL", "DROVER_KAFKA_CONFIG"}


def test_who_speaks_to_the_broker_shows_the_services_certificate(compose: dict[str, Any]) -> None:
    broker = compose["services"]["kafka"]["environment"]
    protocols = dict(
        p.split(":") for p in broker["KAFKA_LISTENER_SECURITY_PROTOCOL_MAP"].split(",")
    )
    for listener in broker["KAFKA_LISTENERS"].split(","):
        name, _, address = listener.partition("://")
        assert protocols[name] == "SSL" or address.startswith("localhost:"), listener
    assert broker["KAFKA_SSL_CLIENT_AUTH"] == "required"
    assert "--host kafka" in compose["services"]["certs"]["command"][2]
    for name in OURS:
        environment = compose["services"][name]["environment"]
        told = json.loads(environment["DROVER_KAFKA_CONFIG"])
        assert told.pop("security.protocol") == "SSL"
        assert told == {
            "ssl.ca.location": environment["DROVER_TLS_CA"],
            "ssl.certificate.location": environment["DROVER_TLS_CERT"],
            "ssl.key.location": environment["DROVER_TLS_KEY"],
        }


def test_a_spark_cluster_is_of_the_workers_image_and_waits_as_it_should() -> None:
    spark = load("deploy/spark-compose.yml")["services"]
    master = spark["worker"]["environment"]["DROVER_SPARK_MASTER"]
    assert master == "spark://spark-master:7077"
    assert set(json.loads(spark["worker"]["environment"]["DROVER_SPARK_CONF"])) == {
        "spark.authenticate.secret",
        "spark.cores.max",
        "spark.executor.memory",
    }
    assert "DROVER_ALLOW_PLAINTEXT" not in spark["worker"]["environment"]
    for name in ("spark-master", "spark-worker"):
        assert spark[name]["image"].startswith("drover-worker:")
        assert spark[name]["read_only"] is True
        assert "ports" not in spark[name], "its web pages have no authentication"
        written = spark[name]["environment"]["WRITE_SETTINGS"]
        told = dict(line.split("=") for line in written.splitlines() if "=" in line)
        secret = told.pop("spark.authenticate.secret")
        assert secret == "$$DROVER_SPARK_SECRET"
        engine = protection("spark://m:7077", {"spark.authenticate.secret": "s"})
        assert told.items() <= engine.items(), "as the engines speak"
        assert "--properties-file /tmp/spark.properties" in spark[name]["command"][2]
    assert spark["spark-worker"]["command"][2].endswith(master)
    guide = (ROOT / "deploy/README.md").read_text(encoding="utf-8")
    assert "-f deploy/kafka-compose.yml -f deploy/spark-compose.yml up" in guide


def test_the_broker_is_of_the_version_that_the_tests_run_against(overlay: dict[str, Any]) -> None:
    pom = (ROOT / "deploy/kafka/pom.xml").read_text(encoding="utf-8")
    (version,) = re.findall(r"<kafka\.version>(.+)</kafka\.version>", pom)
    assert overlay["services"]["kafka"]["image"] == f"apache/kafka:{version}"


def test_the_broker_is_not_published_and_keeps_its_data_in_a_volume(
    compose: dict[str, Any],
) -> None:
    broker = compose["services"]["kafka"]
    assert "ports" not in broker
    (volume, directory), _ = (mount.split(":")[:2] for mount in broker["volumes"])
    assert volume in compose["volumes"]
    assert broker["environment"]["KAFKA_LOG_DIRS"] == directory


def test_old_and_new_versions_of_compose_can_read_it(overlay: dict[str, Any]) -> None:
    assert set(overlay["services"]["kafka"]["healthcheck"]) <= {
        *("test", "interval", "timeout", "retries", "start_period")
    }


def test_the_deploy_guide_starts_it_as_it_is_meant() -> None:
    guide = (ROOT / "deploy/README.md").read_text(encoding="utf-8")
    assert "docker compose -f docker-compose.yml -f deploy/kafka-compose.yml up" in guide
