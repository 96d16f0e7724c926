"""Where the status store keeps its log."""

import pytest
from pydantic import ValidationError

from drover.log.kafka.topics import status_topic
from drover.log.storage import KafkaStorage
from drover_status_store.settings import StatusStoreSettings


@pytest.mark.parametrize("topic", ["", " ", "a b"])
def test_a_blank_topic_is_refused(topic: str) -> None:
    with pytest.raises(ValidationError, match="status_storage_topic"):
        StatusStoreSettings(storage_url="kafka://localhost:9092", status_storage_topic=topic)


def test_the_topic_is_made_as_it_is_set() -> None:
    settings = StatusStoreSettings(
        storage_url="kafka://localhost:9092",
        status_storage_topic="connect-status",
        status_storage_partitions=7,
        storage_replication_factor=3,
    )
    storage = settings.storage()
    assert isinstance(storage, KafkaStorage)
    spec = status_topic(storage)
    assert (spec.name, spec.partition_count, spec.replication_factor) == ("connect-status", 7, 3)
