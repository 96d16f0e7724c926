"""Kafka Connect's schemas as JSON, and back."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given

from drover.record import Field, RecordError, Schema, Type, arrow_field
from drover.record import schema as schemas
from drover.record.json.form import CONNECT_NUMERIC
from drover.record.json.schema_parser import parse_schema
from drover.record.json.schema_writer import schema_text
from drover.record.json.values import default_column
from tests.support.json_records import columns

PRICE = Schema(
    Type.BYTES, True, schemas.DECIMAL, 1, "the price", '"AJY="', parameters={"scale": "2"}
)
ORDER = Schema(
    Type.STRUCT,
    name="shop.Order",
    version=2,
    fields=(
        Field("price", PRICE),
        Field(
            "ü",
            Schema(
                Type.MAP,
                key_schema=Schema(Type.STRING),
                value_schema=Schema(Type.ARRAY, True, value_schema=Schema(Type.INT8)),
            ),
        ),
    ),
)


@given(columns())
def test_a_schema_comes_back_from_its_text(found: tuple[Schema, Any]) -> None:
    schema, _ = found
    assert parse_schema(schema_text(schema)) == schema


def test_keys_are_in_the_order_of_kafka_connect() -> None:
    price = (
        '{"type":"bytes","optional":true,"name":"org.apache.kafka.connect.data.Decimal",'
        '"version":1,"doc":"the price","parameters":{"scale":"2"},"default":"AJY=",'
        '"field":"price"}'
    )
    lists = '{"type":"array","items":{"type":"int8","optional":false},"optional":true}'
    expected = (
        f'{{"type":"struct","fields":[{price},{{"type":"map","keys":{{"type":"string",'
        f'"optional":false}},"values":{lists},"optional":false,"field":"ü"}}],"optional":false,'
        '"name":"shop.Order","version":2}'
    )
    assert schema_text(ORDER) == expected
    numeric = schema_text(ORDER, CONNECT_NUMERIC)
    assert numeric == expected.replace('"default":"AJY="', '"default":1.50')
    assert parse_schema(numeric) == parse_schema(expected) == ORDER


def test_no_schema_is_null() -> None:
    assert schema_text(None) == "null"
    assert parse_schema("null") is None


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("{", "the schema is no JSON"),
        ("[]", "must be a JSON object"),
        ("{}", "must contain the field 'type'"),
        ('{"type":"date"}', "unknown schema type 'date'"),
        ('{"type":"array"}', "must contain the field 'items'"),
        ('{"type":"map","keys":{"type":"string"}}', "must contain the field 'values'"),
        ('{"type":"struct"}', "an array called 'fields'"),
        ('{"type":"struct","fields":[{"type":"int8"}]}', "must say its name"),
        ('{"type":"struct","fields":[{"type":"int8","field":"a"},{"type":"int8","field":"a"}]}',
         "the field 'a' twice"),
        ('{"type":"int8","parameters":{"a":1}}', "must have string values"),
        ('{"type":"int8","default":"x"}', "is no value of type int8"),
    ],
)  # fmt: skip
def test_what_is_no_schema_says_why(text: str, fault: str) -> None:
    with pytest.raises(RecordError) as raised:
        parse_schema(text)
    assert fault in str(raised.value)


@pytest.mark.parametrize(
    ("schema", "kind", "values"),
    [
        (Schema(Type.INT32, default="7"), pa.int32(), [7, 7]),
        (PRICE, pa.decimal128(38, 2), ["1.50", "1.50"]),
        (Schema(Type.INT64, name=schemas.TIMESTAMP, version=1, default="1500"),
         pa.timestamp("us", "UTC"), [1_500_000, 1_500_000]),
        (Schema(Type.ARRAY, value_schema=Schema(Type.INT8, True), default="[1,null]"),
         pa.list_(pa.int8()), [[1, None], [1, None]]),
    ],
    ids=lambda each: str(getattr(each, "type", "")),
)  # fmt: skip
def test_a_default_becomes_a_column_of_its_field(
    schema: Schema, kind: pa.DataType, values: list[Any]
) -> None:
    field = arrow_field("it", schema).with_type(kind)
    found = default_column(field, 2)
    assert found is not None
    assert found.type == kind
    if pa.types.is_timestamp(kind):
        found = found.cast(pa.int64())
    elif pa.types.is_decimal(kind):
        found = found.cast(pa.string())
    assert found.to_pylist() == values


def test_a_schema_without_a_default_gives_no_column() -> None:
    assert default_column(arrow_field("it", Schema(Type.INT8)), 2) is None
