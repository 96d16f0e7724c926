"""Tests that need a real Kafka; each gets the marker ``kafka``."""

from pathlib import Path

import pytest

from tests.support.kafka.fixtures import (
    connect_cluster,
    kafka,
    kafka_jars,
    mortal_broker,
    skip_without_kafka,
    topic_prefix,
)

__all__ = ["connect_cluster", "kafka", "kafka_jars", "mortal_broker", "topic_prefix"]

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The hook sees the tests of all folders."""
    for item in items:
        if item.path.is_relative_to(_HERE):
            item.add_marker(pytest.mark.kafka)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Without Kafka, skip all tests and print the reason once."""
    skip_without_kafka(item)
