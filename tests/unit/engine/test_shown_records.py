"""Keys and values in readable form."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from drover.record.batch import VALUE
from drover.record.json.schemaless import dumps
from drover.record.schema import arrow_field, with_identity
from drover_worker.engine.topics.shown_records import shown_record, shown_texts

AT = datetime(2024, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)


def shown(values: pa.Array, field: pa.Field | None = None) -> list[str | None]:
    schema = pa.schema([field or pa.field(VALUE, values.type)])
    return shown_texts(pa.RecordBatch.from_arrays([values], schema=schema), VALUE)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b'{"a": 1}', '{"a": 1}'),
        ("ü\n".encode(), '"ü\\n"'),
        (b"\x00\xff", '{"bytes": "AP8="}'),
        ("12", '"12"'),
        (7, "7"),
        (AT, '"2024-01-02T03:04:05.678000Z"'),
        ({"at": AT, "price": Decimal("1.50")},
         '{"at":"2024-01-02T03:04:05.678000Z","price":1.50}'),
    ],
    ids=str,
)  # fmt: skip
def test_a_value_is_shown_as_json(value: Any, text: str) -> None:
    assert shown(pa.array([value, None])) == [text, None]


def test_maps_are_objects() -> None:
    kind = pa.map_(pa.int8(), pa.binary())
    assert shown(pa.array([[(1, b"\xff")]], kind)) == ['{"1":{"bytes":"/w=="}}']


def test_bytes_in_a_value_differ_from_text_with_the_same_base64() -> None:
    values = pa.array([{"raw": b"\x00\xff", "text": "AP8="}])
    assert shown(values) == ['{"raw":{"bytes":"AP8="},"text":"AP8="}']
    texts = pa.array([dumps({"raw": b"\x00\xff"})])
    assert shown(texts, arrow_field(VALUE, None)) == ['{"raw":{"bytes":"AP8="}}']


def test_numbers_that_are_not_finite_and_times_out_of_range_are_no_nulls() -> None:
    assert shown(pa.array([float("nan"), float("-inf")])) == ['"NaN"', '"-Infinity"']
    years = pa.array([253_402_300_800_000, 2**62], pa.int64()).cast(pa.timestamp("ms", tz="UTC"))
    assert shown(years) == ['"10000-01-01T00:00:00.000Z"', "4611686018427387904"]


@pytest.mark.parametrize(
    ("name", "kind", "number", "text"),
    [
        ("Date", pa.int32(), 19_000, '"2022-01-08"'),
        ("Time", pa.int32(), 36_000_001, '"10:00:00.001"'),
        ("MicroTime", pa.int64(), 36_000_000_001, '"10:00:00.000001"'),
        ("MicroTime", pa.int64(), 86_400_000_000, "86400000000"),
        ("NanoTime", pa.int64(), 36_000_000_000_001, '"10:00:00.000000001"'),
        ("Timestamp", pa.int64(), 1_704_060_060_001, '"2023-12-31T22:01:00.001"'),
        ("MicroTimestamp", pa.int64(), -1, '"1969-12-31T23:59:59.999999"'),
        ("MicroTimestamp", pa.int64(), 2**63 - 1, "9223372036854775807"),
        ("NanoTimestamp", pa.int64(), 1_001, '"1970-01-01T00:00:00.000001001"'),
        ("MicroDuration", pa.int64(), 5, "5"),
    ],
)
def test_debeziums_times_are_shown_as_times(
    name: str, kind: pa.DataType, number: int, text: str
) -> None:
    field = with_identity(pa.field("at", kind), name=f"io.debezium.time.{name}")
    struct = pa.StructArray.from_arrays([pa.array([number, None], kind)], fields=[field])
    assert shown(struct) == [f'{{"at":{text}}}', '{"at":null}']
    items = pa.field(VALUE, pa.list_(field))
    assert shown(pa.array([[number]], items.type), items) == [f"[{text}]"]


def test_a_decimal_of_any_scale_is_shown_as_a_number() -> None:
    kind = pa.struct([("scale", pa.int32()), ("value", pa.binary())])
    field = with_identity(pa.field(VALUE, kind), name="io.debezium.data.VariableScaleDecimal")
    values = [{"scale": 3, "value": b"\x01\xe2\x40"}, {"scale": -2, "value": b"\xff"}, None]
    assert shown(pa.array(values, kind), field) == ["123.456", "-1E+2", None]


def test_a_value_without_a_schema_is_shown_without_tags() -> None:
    texts = pa.array(['{"a": 1}', dumps({"at": AT}), None])
    assert shown(texts, arrow_field(VALUE, None)) == [
        '{"a": 1}', '{"at":"2024-01-02T03:04:05.678000Z"}', None,
    ]  # fmt: skip


def test_types_that_no_schema_has_are_shown_all_the_same() -> None:
    assert shown(pa.array([timedelta(seconds=5)])) == ['"5000000"']
    interval = pa.array([pa.MonthDayNano([1, 2, 3])])
    assert shown(interval) == ["[1,2,3]"]


def test_a_column_that_is_missing_is_null() -> None:
    assert shown_texts(pa.RecordBatch.from_pydict({"other": [1, 2]}), VALUE) == [None, None]


def test_a_record_is_cut_to_what_a_preview_holds() -> None:
    record = shown_record(pa.RecordBatch.from_pydict({VALUE: ["x" * 100_000]}), "t")
    assert (record.topic, len(record.value), record.HasField("key")) == ("t", 16 * 1024, False)
