"""The broker fixture, for parameters marked with ``kafka``."""

from tests.support.kafka.fixtures import kafka, topic_prefix

__all__ = ["kafka", "topic_prefix"]
