"""The broker for parameters with the mark ``kafka``."""

from tests.support.kafka.fixtures import kafka, topic_prefix

__all__ = ["kafka", "topic_prefix"]
