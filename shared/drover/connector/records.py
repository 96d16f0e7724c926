"""Arrow batches of records: the names of their columns, and the meaning of their fields.

``run_in_arrow`` passes such batches to a sink, and the rows of a source are converted to them. In a
structured sink all keys of a batch have one schema, and all values. A column of values without a
schema is text and ``is_schemaless``: one JSON text for each value, which ``loads`` parses.

``json_texts`` and ``value_text`` write records as JSON: timestamps, dates and times are ISO 8601
texts, bytes are base64, and numbers that are not finite are null. ``records_of`` creates a Python
object for each record.
"""

from drover.connector.sink_records import records_of
from drover.record.arrow import (
    WHOLE_MAX,
    has_decimal,
    has_float,
    in_unit,
    is_binary,
    is_list,
    is_text,
)
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
from drover.record.decimals import of_texts as decimals_of_texts
from drover.record.errors import RecordError
from drover.record.json.encode import base64_texts, iso_texts, json_texts
from drover.record.json.form import PLAIN_FOR_DATABASES
from drover.record.json.numbers import Fraction, fraction_of, is_double
from drover.record.json.schemaless import dumps, loads, value_text
from drover.record.schema import is_schemaless, with_identity

__all__ = [
    "ERROR_COLUMN",
    "HEADERS",
    "KEY",
    "OFFSET",
    "ORIGINAL_TOPIC",
    "ORIGIN_COLUMN",
    "PARTITION",
    "PLAIN_FOR_DATABASES",
    "RAW_COLUMN",
    "TIMESTAMP",
    "TIMESTAMP_COLUMN",
    "TOPIC",
    "TOPIC_COLUMN",
    "VALUE",
    "WHOLE_MAX",
    "Fraction",
    "RecordError",
    "base64_texts",
    "decimals_of_texts",
    "dumps",
    "fraction_of",
    "has_decimal",
    "has_float",
    "in_unit",
    "is_binary",
    "is_double",
    "is_list",
    "is_schemaless",
    "is_text",
    "iso_texts",
    "json_texts",
    "loads",
    "original_topics",
    "records_of",
    "value_text",
    "with_column",
    "with_identity",
]
