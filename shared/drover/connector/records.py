"""The Arrow batches that ``run_in_arrow`` gives a sink and that rows of a source become: the names
of their columns, and what their fields say.

A batch of a structured sink has one schema for its keys and one for its values. A value without a
schema is a text column that ``is_schemaless``: one JSON text for each value.
"""

from drover.record.batch import (
    ERROR_COLUMN,
    HEADERS,
    KEY,
    OFFSET,
    ORIGIN_COLUMN,
    ORIGINAL_TOPIC,
    PARTITION,
    RAW_COLUMN,
    TIMESTAMP,
    TIMESTAMP_COLUMN,
    TOPIC,
    TOPIC_COLUMN,
    VALUE,
    original_topics,
    with_column,
)
from drover.record.schema import is_schemaless, with_identity
from drover.record.schemaless import loads

__all__ = [
    "ERROR_COLUMN",
    "HEADERS",
    "KEY",
    "OFFSET",
    "ORIGINAL_TOPIC",
    "ORIGIN_COLUMN",
    "PARTITION",
    "RAW_COLUMN",
    "TIMESTAMP",
    "TIMESTAMP_COLUMN",
    "TOPIC",
    "TOPIC_COLUMN",
    "VALUE",
    "is_schemaless",
    "loads",
    "original_topics",
    "with_column",
    "with_identity",
]
