"""An engine's settings survive encoding and decoding, and their text hides secrets."""

from pathlib import Path

import pytest

from drover.log.storage import EmbeddedStorage, KafkaStorage, KafkaTopics, Storage
from drover_worker.engine.settings import EngineLimits, EngineSettings

KAFKA = KafkaStorage(
    bootstrap_servers="a:9092,b:9092",
    group_id="g",
    topics=KafkaTopics(config="c", replication_factor=3),
    client_config={"sasl.password": "a secret"},
)


@pytest.mark.parametrize("storage", [EmbeddedStorage(Path("/var/drover")), KAFKA])
def test_settings_come_back_from_their_text(storage: Storage) -> None:
    settings = EngineSettings(
        storage=storage, spark_conf={"a": "b"}, limits=EngineLimits(stop_ms=7)
    )
    assert EngineSettings.from_json(settings.to_json()) == settings


def test_a_password_is_not_shown_where_settings_are() -> None:
    assert "a secret" not in repr(EngineSettings(storage=KAFKA))
