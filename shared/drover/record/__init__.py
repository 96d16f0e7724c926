"""Structured records as Arrow batches, shared by converters, transforms and connectors.

A batch of records (``batch.RECORD_COLUMNS``) has one schema for its keys and one for its values:
records of another schema are in a separate batch. Keys and values are

- structured: an Arrow type, with the other attributes of Kafka Connect's schemas (name, version,
  default, ...) in the fields' metadata; ``schema.Schema`` holds the same as a Python value;
- schemaless: a marked text column with one JSON text for each value (``schemaless``);
- raw: bytes and text are schemas like any other (``BYTES``, ``STRING``).
"""

from drover.record.batch import (
    HEADERS_TYPE,
    ORIGIN,
    RECORD_COLUMNS,
    column_schema,
    make_batch,
    with_column,
)
from drover.record.errors import (
    ErrorStage,
    PassError,
    RecordError,
    RetriableError,
    SchemaError,
    StageError,
    failing_at,
)
from drover.record.schema import Field, Schema, Type, arrow_field, arrow_type, schema_of

__all__ = [
    "HEADERS_TYPE",
    "ORIGIN",
    "RECORD_COLUMNS",
    "ErrorStage",
    "Field",
    "PassError",
    "RecordError",
    "RetriableError",
    "Schema",
    "SchemaError",
    "StageError",
    "Type",
    "arrow_field",
    "arrow_type",
    "column_schema",
    "failing_at",
    "make_batch",
    "schema_of",
    "with_column",
]
