"""How sinks write values that JSON has no type for."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from drover.connectors.console_sink import FirstRows
from drover.connectors.http.sink import messages_of
from drover.connectors.jdbc.exact_values import compact_json
from drover.connectors.jdbc.json_columns import with_columns
from drover.connectors.jdbc.staged_columns import TargetColumn, staged_column
from drover.record.batch import VALUE, make_batch
from drover.record.json.schemaless import dumps
from drover.record.schema import arrow_field

AT = datetime(2024, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
ROW: dict[str, Any] = {"at": AT, "day": AT.date(), "raw": b"\xff", "price": Decimal("1.50")}
PLAIN = '{"at":"2024-01-02T03:04:05.678000Z","day":"2024-01-02","raw":"/w==","price":1.50}'


def records(values: pa.Array, field: pa.Field | None = None) -> pa.RecordBatch:
    count = len(values)
    return make_batch(
        count,
        topic=pa.array(["t"] * count),
        partition=pa.array([0] * count, pa.int32()),
        offset=pa.array(range(count), pa.int64()),
        key=(pa.field("key", pa.binary()), pa.nulls(count, pa.binary())),
        value=(field or pa.field("value", values.type), values),
    )


def schemaless(*values: Any) -> pa.RecordBatch:
    texts = [None if each is None else dumps(each) for each in values]
    return records(pa.array(texts, pa.string()), arrow_field("value", None))


BOTH = pytest.mark.parametrize(
    "batch", [records(pa.array([ROW, None])), schemaless(ROW, None)], ids=["schema", "none"]
)


@BOTH
def test_a_request_has_them_in_plain_json(batch: pa.RecordBatch) -> None:
    assert [each.body for each in messages_of(batch)] == [PLAIN.encode(), None]


@BOTH
def test_the_console_shows_them_in_plain_json(batch: pa.RecordBatch) -> None:
    shown = [row for each in FirstRows(9, 1_000)([batch]) for row in each.to_pylist()]
    assert [each["line"] for each in shown] == [PLAIN, "null"]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
def test_a_request_has_texts_and_bytes_as_they_are(kind: pa.DataType) -> None:
    values = pa.array(['{"a"', None]).cast(kind)
    assert [each.body for each in messages_of(records(values))] == [b'{"a"', None]


DOCUMENT = '{"at":"2024-01-02T03:04:05.678000Z","day":"2024-01-02","raw":"/w==","price":"1.50"}'


def test_a_document_of_a_database_keeps_the_digits_of_decimals() -> None:
    assert compact_json(ROW) == DOCUMENT
    for base in ("jsonb", "text"):
        found = staged_column(
            "c0", pa.array([ROW, None]), TargetColumn(base, base, True), is_document=False
        )
        assert found.values.to_pylist() == [DOCUMENT, None]


def test_maps_are_objects_in_a_document_of_a_database() -> None:
    kind = pa.map_(pa.date32(), pa.list_(pa.map_(pa.string(), pa.int8())))
    values = pa.array([[(date(2024, 1, 2), [[("a", 1), ("b", None)], []])]], kind)
    found = staged_column("c0", values, TargetColumn("jsonb", "jsonb", True), is_document=False)
    assert found.values.to_pylist() == ['{"2024-01-02":[{"a":1,"b":null},{}]}']


def test_fields_of_values_without_a_schema_become_documents() -> None:
    found = with_columns(schemaless({"id": 1, "doc": ROW}), with_key=False)
    assert found is not None
    assert found.column(VALUE).to_pylist() == [{"id": 1, "doc": DOCUMENT}]
