"""Unions and enums converted between formats: generalized.sum.type.support."""

from typing import Any

import pyarrow as pa

from drover.convert.avro.avro_schemas import avro_text
from drover.convert.avro.connect_schemas import connect_schema as from_avro
from drover.convert.avro.decode import decode_records
from drover.convert.avro.encode import encode_records
from drover.convert.avro.schemas import AvroSchema, parse_avro
from drover.convert.protobuf.connect_schemas import Conventions
from drover.convert.protobuf.connect_schemas import connect_schema as from_proto
from drover.convert.protobuf.decode import decode_messages
from drover.convert.protobuf.descriptors import parse_proto
from drover.convert.protobuf.encode import encode_messages
from drover.convert.protobuf.proto_schemas import proto_text
from drover.convert.protobuf.wire import Wire
from drover.record.schema import Field, Schema, Type, arrow_field

GENERAL = "org.apache.kafka.connect.data"
TAG = "io.confluent.connect.protobuf.Tag"
CONVENTIONS = Conventions(sum_types=True)
TEXT = """syntax = "proto3";

message Row {
  enum Colour {
    RED = 0;
    BLUE = 7;
  }
  oneof choice {
    string left = 2;
    int32 right = 3;
  }
  Colour colour = 1;
}
"""
_, ROW = parse_proto(TEXT).first("Row")
ROWS = [
    {"choice_0": {"left": "a", "right": None}, "colour": "BLUE"},
    {"choice_0": {"left": None, "right": 5}, "colour": "RED"},
    {"choice_0": None, "colour": "BLUE"},
]


def encoded_proto(schema: Schema, values: pa.Array, text: str) -> pa.Array:
    _, message = parse_proto(text).first(schema.name)
    field = arrow_field("value", schema)
    return encode_messages(field, values, message, before=b"", strict=True, conventions=CONVENTIONS)


def decoded_proto(values: pa.Array, schema: Schema, text: str) -> pa.Array:
    _, message = parse_proto(text).first(schema.name)
    wire = Wire(values)
    return decode_messages(wire, wire.records, message, schema)


def through_avro(schema: Schema, values: pa.Array) -> tuple[Schema, pa.Array]:
    avro: AvroSchema = parse_avro(avro_text(schema, enums=True, meta_data=True))
    field = arrow_field("value", schema)
    raw = encode_records(field, values, avro, before=b"", strict=True, defaults=True)
    found = from_avro(avro, sum_types=True)
    return found, decode_records(raw, avro, found, skipped_bytes=0)


def test_a_oneof_and_an_enum_have_general_names() -> None:
    schema = from_proto(ROW, CONVENTIONS)
    choice, colour = (each.schema for each in schema.fields)
    assert choice == Schema(
        Type.STRUCT,
        optional=True,
        name="choice",
        parameters={f"{GENERAL}.Union": "choice"},
        fields=(
            Field("left", Schema(Type.STRING, optional=True, parameters={TAG: "2"})),
            Field("right", Schema(Type.INT32, optional=True, parameters={TAG: "3"})),
        ),
    )
    assert colour.parameters == {
        TAG: "1",
        f"{GENERAL}.Enum": "Colour",
        f"{GENERAL}.Enum.RED": "0",
        f"{GENERAL}.Enum.BLUE": "7",
    }
    assert proto_text(schema, CONVENTIONS) == TEXT


def test_messages_go_through_columns_and_back() -> None:
    schema = from_proto(ROW, CONVENTIONS)
    values = pa.array(ROWS, arrow_field("value", schema).type)
    raw = encoded_proto(schema, values, TEXT)
    assert decoded_proto(raw, schema, TEXT).to_pylist() == ROWS


def test_a_oneof_becomes_a_union_of_avro() -> None:
    schema = from_proto(ROW, CONVENTIONS)
    found, values = through_avro(schema, pa.array(ROWS, arrow_field("value", schema).type))
    union, colour = (each.schema for each in found.fields)
    assert union.parameters == {f"{GENERAL}.Union": "connect_union_0"}
    assert list(colour.parameters)[:3] == [
        f"{GENERAL}.Enum", f"{GENERAL}.Enum.RED", f"{GENERAL}.Enum.BLUE"
    ]  # fmt: skip
    left, right = "connect_union_field_1", "connect_union_field_2"
    assert values.to_pylist() == [
        {"choice_0": {left: "a", right: None}, "colour": "BLUE"},
        {"choice_0": {left: None, right: 5}, "colour": "RED"},
        {"choice_0": None, "colour": "BLUE"},
    ]


def test_a_union_of_avro_becomes_a_oneof() -> None:
    avro = """{"type": "record", "name": "shop.Row", "fields": [
        {"name": "id", "type": ["null", "long", "string"]},
        {"name": "colour", "type": {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}}
    ]}"""
    schema = from_avro(parse_avro(avro), sum_types=True)
    text = proto_text(schema, CONVENTIONS)
    number, name = "connect_union_field_1", "connect_union_field_2"
    rows: list[dict[str, Any]] = [
        {"id": {number: 4, name: None}, "colour": "BLUE"},
        {"id": {number: None, name: "x"}, "colour": "RED"},
        {"id": None, "colour": "BLUE"},
    ]
    raw = encoded_proto(schema, pa.array(rows, arrow_field("value", schema).type), text)
    _, message = parse_proto(text).first("shop.Row")
    assert [each.name for each in message.oneofs] == ["connect_union_0"]
    found = decoded_proto(raw, from_proto(message, CONVENTIONS), text)
    assert found.field("colour").to_pylist() == ["BLUE", "RED", "BLUE"]
    assert found.field("connect_union_0_0").to_pylist() == [each["id"] for each in rows]
