"""Keys and values in readable form."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from drover.record.batch import VALUE
from drover.record.json.schemaless import dumps
from drover.record.schema import arrow_field
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
    assert shown(pa.array([[(1, b"\xff")]], kind)) == ['{"1":"/w=="}']


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
