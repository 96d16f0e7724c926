"""Validation reports converters whose values a sink cannot use."""

from typing import Any

import pytest

from drover.connector.settings import validate_config
from drover.connectors.files.files_sink import FilesSink
from drover.connectors.files.s3_sink import S3Sink
from drover.connectors.lakehouse.delta_sink import DeltaSink
from drover.connectors.lakehouse.iceberg_sink import IcebergSink

STRING = {"value.converter": "org.apache.kafka.connect.storage.StringConverter"}
SCHEMALESS = {
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
}
HOIST = {"transforms": "t", "transforms.t.type": "HoistField$Value", "transforms.t.field": "v"}
ROUTE = {
    "transforms": "t",
    "transforms.t.type": "org.apache.kafka.connect.transforms.RegexRouter",
    "transforms.t.regex": "a",
    "transforms.t.replacement": "b",
}
KEY = {"transforms": "t", "transforms.t.type": "HoistField$Key", "transforms.t.field": "v"}
SQL = {
    "transforms": "t",
    "transforms.t.type": "Sql",
    "transforms.t.query": "SELECT value FROM batch",
}
FILES = (FilesSink, {"connector.class": "FilesSink", "path": "/tmp/out"})
S3 = (
    S3Sink,
    {
        "connector.class": "io.confluent.connect.s3.S3SinkConnector",
        "s3.bucket.name": "bucket",
        "format.class": "io.confluent.connect.s3.format.json.JsonFormat",
        "flush.size": "3",
    },
)
DELTA = (DeltaSink, {"connector.class": "DeltaSink", "table.uri": "/tmp/table"})
ICEBERG = (
    IcebergSink,
    {
        "connector.class": "IcebergSink",
        "iceberg.catalog.uri": "http://127.0.0.1:1",
        "iceberg.tables": "app.orders",
    },
)
PARTITIONER = "io.confluent.connect.storage.partitioner."
BY_FIELD = {
    "partitioner.class": f"{PARTITIONER}FieldPartitioner",
    "partition.field.name": "city",
}
BY_TIME = {
    "partitioner.class": f"{PARTITIONER}DailyPartitioner",
    "timestamp.extractor": "RecordField",
    "timestamp.field": "at",
}
PARQUET = {"format.class": "io.confluent.connect.s3.format.parquet.ParquetFormat"}


def texts(case: tuple[Any, dict[str, str]], *changed: dict[str, str]) -> tuple[str, str]:
    """The errors and the warnings, with their settings."""
    kind, config = case
    raw = {"name": "c", "topics": "a", **config}
    for each in changed:
        raw |= each
    values = validate_config(kind, raw, use_systems=False)
    errors = [f"{each.key.name}: {text}" for each in values for text in each.errors]
    warnings = [f"{each.key.name}: {text}" for each in values for text in each.warnings]
    return "; ".join(errors), "; ".join(warnings)


@pytest.mark.parametrize(
    ("case", "changed", "setting"),
    [
        (FILES, {"partition.by": "day,city"}, "partition.by"),
        (FILES, {"partition.by": "month(at)"}, "partition.by"),
        (S3, BY_FIELD, "partition.field.name"),
        (S3, BY_TIME, "timestamp.field"),
        (DELTA, {}, "value.converter"),
        (ICEBERG, {}, "value.converter"),
    ],
)
def test_values_without_fields_are_reported_where_fields_are_needed(
    case: tuple[Any, dict[str, str]], changed: dict[str, str], setting: str
) -> None:
    for name in ("StringConverter", "ByteArrayConverter", "LongConverter"):
        plain = {"value.converter": f"org.apache.kafka.connect.converters.{name}"}
        if name == "StringConverter":
            plain = STRING
        errors, _ = texts(case, changed, plain)
        assert errors.startswith(f"{setting}: ")
        assert name in errors
        for transform in (ROUTE, KEY):
            assert texts(case, changed, plain, transform)[0] == errors
        for transform in (HOIST, SQL):
            assert texts(case, changed, plain, transform)[0] == ""
    assert texts(case, changed, SCHEMALESS)[0] == ""
    assert texts(case, changed)[0] == ""


@pytest.mark.parametrize("changed", [{}, {"partition.by": "day"}, {"format": "json"}])
def test_files_of_plain_values_need_no_fields(changed: dict[str, str]) -> None:
    assert texts(FILES, changed, STRING) == ("", "")
    assert texts(S3, {**BY_TIME, "timestamp.extractor": "Record"}, STRING) == ("", "")


@pytest.mark.parametrize(
    ("case", "changed", "warned"),
    [
        (FILES, {}, "format"),
        (FILES, {"format": "csv"}, "format"),
        (FILES, {"format": "json"}, ""),
        (S3, {}, ""),
        (S3, PARQUET, "format.class"),
    ],
)
def test_columns_of_json_without_schemas_are_warned_about(
    case: tuple[Any, dict[str, str]], changed: dict[str, str], warned: str
) -> None:
    errors, warnings = texts(case, changed, SCHEMALESS)
    assert errors == ""
    assert warnings.partition(":")[0] == warned
    assert texts(case, changed, SCHEMALESS, ROUTE)[1] == warnings
    assert texts(case, changed, SCHEMALESS, SQL)[1] == ""
    assert texts(case, changed, {"value.converter": "JsonConverter"})[1] == ""


def test_formats_that_are_not_there_are_reported() -> None:
    for name in ("AvroFormat", "ByteArrayFormat"):
        errors, _ = texts(S3, {"format.class": f"io.confluent.connect.s3.format.avro.{name}"})
        assert "must be one of JsonFormat, ParquetFormat, not" in errors
