"""Directory layouts and settings of Confluent's S3 sink."""

from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest

from drover.connector.settings import parse_config
from drover.connectors.files.levels import (
    FieldLevel,
    PartitionLevel,
    TimeLevels,
    TopicLevel,
    strftime_of,
)
from drover.connectors.files.row_files import RowFileWriter
from drover.connectors.files.s3_sink import S3Sink, S3SinkTask
from drover.record.batch import OFFSET, PARTITION, TIMESTAMP, TOPIC, VALUE

NEW_YEAR = datetime(2023, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)


def batch(**fields: list[Any]) -> pa.RecordBatch:
    """Records of one partition whose values have these fields."""
    count = len(next(iter(fields.values())))
    values = pa.RecordBatch.from_pydict(fields).to_struct_array()
    times = pa.array([NEW_YEAR] * (count - 1) + [None], pa.timestamp("ms", "UTC"))
    return pa.RecordBatch.from_pydict(
        {
            TOPIC: pa.array(["orders"] * count),
            PARTITION: pa.array([3] * count, pa.int32()),
            OFFSET: pa.array(range(count), pa.int64()),
            VALUE: values,
            TIMESTAMP: times,
        }
    )


def names(level: Any, **fields: list[Any]) -> list[str]:
    found: list[str] = level.names(batch(**fields), pa.RecordBatch.from_pydict(fields)).to_pylist()
    return found


@pytest.mark.parametrize(
    ("pattern", "wanted"),
    [
        ("'year'=YYYY/'month'=MM/'day'=dd/'hour'=HH", "year=%Y/month=%m/day=%d/hour=%H"),
        ("yyyy-MM-dd_HH:mm:ss", "%Y-%m-%d_%H:%M:%S"),
        ("'100%'''/yy", "100%%'/%y"),
    ],
)
def test_a_path_format_is_understood(pattern: str, wanted: str) -> None:
    assert strftime_of(pattern) == wanted


@pytest.mark.parametrize(
    ("pattern", "told"),
    [
        ("'year'=YYYYY", "'YYYYY'"),
        ("year", "'y'"),
        ("'year", "unterminated"),
        ("EEE", "'EEE'"),
    ],
)
def test_a_path_format_that_is_not_understood_is_told(pattern: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        strftime_of(pattern)


def test_topics_and_partitions_have_directories() -> None:
    assert names(TopicLevel(), a=[1]) == ["orders"]
    assert names(PartitionLevel(), a=[1, 2]) == ["partition=3", "partition=3"]


def test_values_of_fields_have_directories() -> None:
    found = names(FieldLevel("city"), city=["São Paulo", "a/b", ""])
    assert found == ["city=S%C3%A3o Paulo", "city=a%2Fb", "city="]
    with pytest.raises(ValueError, match=r"its field 'city' \(partition\.field\.name\) is null"):
        names(FieldLevel("city"), city=["Oslo", None])
    assert names(FieldLevel("n"), n=[7]) == ["n=7"]
    with pytest.raises(ValueError, match="which records of topic orders do not have"):
        names(FieldLevel("town"), city=["x"])
    with pytest.raises(ValueError, match="of the unsupported type struct"):
        names(FieldLevel("n"), n=[{"a": 1}])


def test_a_records_own_time_in_a_zone() -> None:
    level = TimeLevels("%Y/%m/%d %H:%M:%S", "Europe/Berlin")
    assert names(level, a=[1, 2]) == ["2024/01/01 00:59:59", "__HIVE_DEFAULT_PARTITION__"]


@pytest.mark.parametrize(
    "moment",
    [
        NEW_YEAR,
        1704067199999,
        "2023-12-31T23:59:59.999Z",
        "2024-01-01T00:59:59.999+01:00",
        "2023-12-31 23:59:59.999",
        date(2023, 12, 31),
    ],
)
def test_a_fields_time(moment: object) -> None:
    assert names(TimeLevels("%Y-%m-%d", "UTC", field="at"), at=[moment]) == ["2023-12-31"]


def test_times_are_rounded_down() -> None:
    level = TimeLevels("%H:%M", "UTC", field="at", duration_ms=900_000)
    assert names(level, at=[NEW_YEAR]) == ["23:45"]


def test_a_field_that_is_no_time_is_told() -> None:
    with pytest.raises(ValueError, match="are not ISO 8601 times"):
        names(TimeLevels("%Y", "UTC", field="at"), at=["yesterday"])
    with pytest.raises(ValueError, match="is of type double"):
        names(TimeLevels("%Y", "UTC", field="at"), at=[1.5])


def raw(**changed: str) -> dict[str, str]:
    return {
        "name": "sink",
        "connector.class": "io.confluent.connect.s3.S3SinkConnector",
        "topics": "orders",
        "s3.bucket.name": "bucket",
        "format.class": "io.confluent.connect.s3.format.json.JsonFormat",
        "flush.size": "1000",
        **changed,
    }


@pytest.mark.parametrize(
    ("changed", "fields"),
    [
        ({"store.kafka.keys": "true", "s3.sse.kms.key.id": "x"}, 2),
        ({"format.class": "io.confluent.connect.s3.format.avro.AvroFormat"}, 1),
        ({"partitioner.class": "x.MyPartitioner", "timezone": "Mars/North"}, 2),
        ({"partitioner.class": "FieldPartitioner"}, 1),
        ({"partitioner.class": "TimeBasedPartitioner"}, 1),
        ({"partitioner.class": "TimeBasedPartitioner", "path.format": "QQ"}, 1),
        ({"flush.size": "0", "s3.bucket.name": "a/b"}, 2),
        ({"file.delim": "-", "behavior.on.null.values": "write"}, 2),
    ],
)
def test_settings_that_would_change_the_data_are_refused(
    changed: dict[str, str], fields: int
) -> None:
    # no server listens at this address
    found = parse_config(S3Sink, raw(**{"store.url": "http://127.0.0.1:1", **changed})).violations
    own = {each.field for each in found} - ({"s3.bucket.name"} - changed.keys())
    assert len(own) == fields, found


def test_files_wait_as_they_rotate() -> None:
    def wait(**changed: str) -> str:
        sink = S3Sink()
        sink.start(None, S3Sink.config_def().parse(raw(**changed)).values)  # type: ignore[arg-type]
        (config,) = sink.task_configs(1)
        return config["batch.wait.ms"]

    assert wait() == "60000"
    assert wait(**{"rotate.interval.ms": "5000", "rotate.schedule.interval.ms": "1000"}) == "1000"
    assert wait(**{"rotate.interval.ms": "5000", "batch.wait.ms": "70"}) == "70"


def test_a_record_without_a_value_is_told() -> None:
    layout = S3SinkTask().layout(S3Sink.config_def().parse(raw()).values)
    assert layout.null_fails
    rows = batch(a=[1, 2])
    empty = rows.set_column(
        rows.schema.get_field_index(VALUE), VALUE, pa.array([None, None], pa.struct([]))
    )
    writer = RowFileWriter(None, layout)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="record orders-3@0: it has no value"):
        list(writer([empty]))
    # a batch that was written before leaves no rows, so no value can be missing
    assert list(RowFileWriter(None, layout, (("orders", 3, 2),))([rows])) == []  # type: ignore[arg-type]
