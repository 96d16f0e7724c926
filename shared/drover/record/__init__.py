"""Records with a structure, as Arrow batches; what converters, transforms and connectors share.

A batch of records (``batch.RECORD_COLUMNS``) has one schema for its keys and one for its values:
records of another schema come in a batch of their own. Keys and values are

- structured: an Arrow type, with what Kafka Connect's schemas say besides it (name, version,
  default, ...) in the fields' metadata: ``schema.Schema`` is the same as a value;
- schemaless: a text column that is marked, one JSON text for each value (``schemaless``);
- as they are: bytes and text are schemas like any other (``BYTES``, ``STRING``).
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
