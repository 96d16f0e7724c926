"""Records of a sink's batch as Python objects: every value is the one of its topic."""

import datetime
import decimal
from typing import Any

import pyarrow as pa
import pytest

from drover.connector import SinkBatch, SinkRecord
from drover.connector.records import RecordError, records_of
from drover.connector.sink_records import UnreadableRecord, packed, unpacked
from drover.record.batch import HEADERS_TYPE, make_batch
from drover.record.schema import arrow_field

UTC = datetime.UTC
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=UTC)
SCHEMALESS = arrow_field("value", None)


def batch_of(values: pa.Array, field: pa.Field | None = None, **columns: Any) -> pa.RecordBatch:
    count = len(values)
    return make_batch(
        count,
        topic=pa.array(["t"] * count),
        partition=pa.array([0] * count, pa.int32()),
        offset=pa.array(range(count), pa.int64()),
        value=(field or pa.field("value", values.type), values),
        **columns,
    )


def value_of(array: pa.Array, field: pa.Field | None = None) -> Any:
    (record,) = records_of(batch_of(array, field))
    return record.value


def test_a_record_has_its_place_its_time_and_its_headers() -> None:
    headers = [[{"key": "h", "value": b"1", "type": None}, {"key": "h", "value": None}]]
    batch = batch_of(
        pa.array([b"v"], pa.binary()),
        key=(pa.field("key", pa.int64()), pa.array([7])),
        timestamp=pa.array([1_500], pa.timestamp("ms", tz="UTC")),
        headers=pa.array(headers, HEADERS_TYPE),
        original_topic=pa.array(["source"]),
    )
    (record,) = records_of(batch)
    time = datetime.datetime(1970, 1, 1, 0, 0, 1, 500_000, UTC)
    headers_found = (("h", b"1"), ("h", None))
    assert record == SinkRecord("t", 0, 0, 7, b"v", time, headers_found, "source")
    assert record.place == "source-0@0"
    assert not record.is_tombstone


@pytest.mark.parametrize(
    ("array", "value"),
    [
        (pa.array([2**63 - 1]), 2**63 - 1),
        (pa.array([decimal.Decimal("1.10")]), decimal.Decimal("1.10")),
        (pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())), {"a": 1}),
        (pa.array([{"a": [None, b"x"]}]), {"a": [None, b"x"]}),
        (pa.array([0], pa.date32()), datetime.date(1970, 1, 1)),
        (pa.array([1], pa.time32("ms")), datetime.time(microsecond=1000)),
        (pa.array([1], pa.timestamp("us", tz="UTC")), EPOCH + datetime.timedelta(microseconds=1)),
        (pa.array(["2"]), "2"),
        (pa.array([None], pa.string()), None),
    ],
)
def test_values_have_the_types_of_their_schema(array: pa.Array, value: Any) -> None:
    found = value_of(array)
    assert found == value
    assert type(found) is type(value)


def test_nanoseconds_are_kept() -> None:
    found = value_of(pa.array([1_001], pa.timestamp("ns", tz="UTC")))
    assert (found.microsecond, found.nanosecond) == (1, 1)


def test_values_without_a_schema_are_parsed_without_loss_of_digits() -> None:
    texts = ['{"n": 1, "f": 0.1, "d": 0.12345678901234567890}', None, "true"]
    records = list(records_of(batch_of(pa.array(texts), SCHEMALESS)))
    exact = decimal.Decimal("0.12345678901234567890")
    assert [each.value for each in records] == [{"n": 1, "f": 0.1, "d": exact}, None, True]
    assert [each.is_tombstone for each in records] == [False, True, False]


def test_a_date_that_python_cannot_express_is_named_by_its_position() -> None:
    batch = batch_of(pa.array([0, 3_000_000], pa.date32()))
    found = records_of(batch)
    assert next(found).value == datetime.date(1970, 1, 1)
    with pytest.raises(RecordError, match="record t-0@1: the value of type date32"):
        next(found)


def test_a_map_with_two_equal_keys_loses_none_of_them_silently() -> None:
    array = pa.array([[("a", 1), ("a", 2)]], pa.map_(pa.string(), pa.int64()))
    with pytest.raises(RecordError, match="record t-0@0"):
        next(records_of(batch_of(array)))


@pytest.mark.parametrize("count", [0, 1, 999, 1_000, 1_001, 2_500])
def test_records_pass_from_executors_in_order_with_their_schemas(count: int) -> None:
    texts = pa.array([f'{{"n": {n}}}' for n in range(count)], pa.string())
    batches = [batch_of(texts, SCHEMALESS), batch_of(pa.array(range(count), pa.int64()))]
    rows = [row for each in packed(batches) for row in each.to_pylist()]
    found = [each.value for each in unpacked(rows) if isinstance(each, SinkRecord)]
    assert found == [{"n": n} for n in range(count)] + list(range(count))


def test_an_unreadable_record_is_rejected_and_the_others_are_delivered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    batch = batch_of(pa.array([0, 3_000_000, 1], pa.date32()))
    rows = [row for each in packed([batch]) for row in each.to_pylist()]
    rejected = []
    sink_batch = SinkBatch(None, [], on_reject=lambda *place: rejected.append(place))  # type: ignore[arg-type]
    monkeypatch.setattr(SinkBatch, "run_in_arrow", lambda _self, _function: rows)
    assert [each.offset for each in sink_batch.records()] == [0, 2]
    ((topic, partition, offset, reason),) = rejected
    assert (topic, partition, offset) == ("t", 0, 1)
    assert "date32" in str(reason)
    assert any(isinstance(each, UnreadableRecord) for each in unpacked(rows))
