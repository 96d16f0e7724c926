"""Arrow batches of records: the names of their columns, and the meaning of their fields.

``run_in_arrow`` passes such batches to a sink, and the rows of a source are converted to them. In a
structured sink all keys of a batch have one schema, and all values. A column of values without a
schema is text and ``is_schemaless``: one JSON text for each value.
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
from drover.record.json.schemaless import loads
from drover.record.schema import is_schemaless, with_identity

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
