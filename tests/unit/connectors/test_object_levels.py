"""Directory layouts and settings of Confluent's S3 sink."""

import random
import zoneinfo
from datetime import UTC, date, datetime, timedelta
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
from drover.connectors.files.partition_levels import PartitionBy
from drover.connectors.files.row_files import RowFileWriter
from drover.connectors.files.s3_sink import S3Sink, S3SinkTask
from drover.connectors.refused_records import RefusedRecordError
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
    with pytest.raises(RefusedRecordError, match="record orders-3@0: it has no value"):
        list(writer([empty]))
    # a batch that was written before leaves no rows, so no value can be missing
    assert list(RowFileWriter(None, layout, (("orders", 3, 2),))([rows])) == []  # type: ignore[arg-type]


ZONES = [
    "UTC",
    "Europe/Berlin",
    "Asia/Kolkata",
    "America/New_York",
    "Australia/Lord_Howe",
    "America/Sao_Paulo",
    "Asia/Beirut",
    "Pacific/Apia",
]
HOUR_MS = 3_600_000


def confluent_bucket(ms: int, duration_ms: int, zone: str) -> str:
    """TimeBasedPartitioner.getPartition: to local time, round down, and back."""
    own = zoneinfo.ZoneInfo(zone)
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    local = (epoch + timedelta(milliseconds=ms)).astimezone(own).replace(tzinfo=None)
    step = timedelta(milliseconds=duration_ms)
    naive = datetime(1970, 1, 1)
    start = naive + (local - naive) // step * step
    moment = start.replace(tzinfo=own).astimezone(UTC).astimezone(own)
    return moment.strftime("%Y-%m-%d %H:%M:%S")


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("duration_ms", [7 * 60_000, HOUR_MS, 6 * HOUR_MS, 24 * HOUR_MS])
def test_times_are_rounded_in_local_time(zone: str, duration_ms: int) -> None:
    chance = random.Random(1)
    # around the changes of these zones, and anywhere from 1905 to 2123
    changes = ["2024-03-31", "2024-10-27", "2024-03-10", "2024-11-03", "2024-04-07", "2024-10-06"]
    changes += ["2018-11-04", "2018-02-18", "2011-12-30", "1969-12-31"]
    days = [datetime.fromisoformat(f"{each}T00:00Z") for each in changes]
    moments = [
        int(day.timestamp()) * 1000 + chance.randrange(-36 * HOUR_MS, 60 * HOUR_MS)
        for day in days
        for _ in range(40)
    ]
    moments += [chance.randrange(-2_050_000_000_000, 4_840_000_000_000) for _ in range(200)]
    level = TimeLevels("%Y-%m-%d %H:%M:%S", zone, field="at", duration_ms=duration_ms)
    assert names(level, at=moments) == [confluent_bucket(n, duration_ms, zone) for n in moments]


@pytest.mark.parametrize(
    ("moment", "zone", "duration_ms", "directory"),
    [
        ("2024-05-01T04:30Z", "America/New_York", 24 * HOUR_MS, "2024-05-01 00"),
        ("2024-05-01T22:30Z", "Europe/Berlin", 24 * HOUR_MS, "2024-05-02 00"),
        ("2024-05-01T04:45Z", "Asia/Kolkata", HOUR_MS, "2024-05-01 10"),
        ("1969-12-31T23:30Z", "UTC", HOUR_MS, "1969-12-31 23"),
        ("2024-10-27T00:30Z", "Europe/Berlin", HOUR_MS, "2024-10-27 02"),
        ("2024-10-27T01:30Z", "Europe/Berlin", HOUR_MS, "2024-10-27 02"),
        ("1969-12-31T23:59:59.999999Z", "UTC", 0, "1969-12-31 23"),
    ],
)
def test_a_time_is_in_the_directory_of_its_zone(
    moment: str, zone: str, duration_ms: int, directory: str
) -> None:
    level = TimeLevels("%Y-%m-%d %H", zone, field="at", duration_ms=duration_ms)
    assert names(level, at=[moment]) == [directory]
    assert names(level, at=[datetime.fromisoformat(moment)]) == [directory]


def test_texts_of_times_have_any_precision_and_any_zone_in_one_batch() -> None:
    texts = [
        "2024-10-27T01:30:00.123456+00:00",
        "2024-10-27T01:30:00.123456789Z",
        "2024-10-27T01:30:00.1234567890123+02:00",
        "2024-10-27 01:30:00",
        "2024-10-27T01:30:00.5",
        "2024-10-27",
        "2024-10-27T01:30-0330",
        "2024-10-27T01+05",
        "9999-12-31T23:59:59.999999999Z",
        "0001-01-01T00:00:00Z",
    ]
    assert names(TimeLevels("%Y-%m-%d %H:%M:%S", "UTC", field="at"), at=texts) == [
        "2024-10-27 01:30:00",
        "2024-10-27 01:30:00",
        "2024-10-26 23:30:00",
        "2024-10-27 01:30:00",
        "2024-10-27 01:30:00",
        "2024-10-27 00:00:00",
        "2024-10-27 05:00:00",
        "2024-10-26 20:00:00",
        "9999-12-31 23:59:59",
        "0001-01-01 00:00:00",
    ]


@pytest.mark.parametrize("moment", [1_714_537_800_000_000_000, -(2**62), "garbage", "2024-02-30"])
def test_a_time_without_a_directory_is_told(moment: Any) -> None:
    for level in (TimeLevels("%Y", "UTC", field="at"), PartitionBy("at", "year")):
        with pytest.raises(ValueError, match=r"ISO 8601|in the years|needs a time"):
            names(level, at=[moment])
