"""Kafka Connect's schemas and Avro's: the conventions of Confluent's converter."""

import json
from dataclasses import replace
from typing import Any

import pytest

from drover.convert.avro.avro_schemas import avro_text
from drover.convert.avro.connect_schemas import connect_schema
from drover.convert.avro.schemas import parse_avro
from drover.record import schema as schemas
from drover.record.errors import SchemaError
from drover.record.schema import Field, Schema, Type, arrow_field, schema_of

_STRING = Schema(Type.STRING)
_CONNECT = "io.confluent.connect.avro"
_COLOURS = {
    f"{_CONNECT}.Enum": "a.Colour",
    f"{_CONNECT}.Enum.RED": "RED",
    f"{_CONNECT}.Enum.BLUE": "BLUE",
}


def struct(name: str | None = None, **fields: Schema) -> Schema:
    return Schema(
        Type.STRUCT, name=name, fields=tuple(Field(key, each) for key, each in fields.items())
    )


def avro_of(schema: Schema, **more: Any) -> Any:
    return json.loads(avro_text(schema, **({"enums": True, "meta_data": True} | more)))


def connect_of(avro: Any) -> Schema:
    return connect_schema(parse_avro(json.dumps(avro)))


_DECIMAL = Schema(
    Type.BYTES,
    name=schemas.DECIMAL,
    version=1,
    parameters={"scale": "2", "connect.decimal.precision": "9"},
)

#: Connect schemas, and the Avro schemas that Confluent's converter registers for them.
_BOTH_WAYS: list[tuple[Schema, Any]] = [
    (Schema(Type.INT32), "int"),
    (Schema(Type.INT8), {"type": "int", "connect.type": "int8"}),
    (Schema(Type.INT16, optional=True), ["null", {"type": "int", "connect.type": "int16"}]),
    (Schema(Type.STRING, name="x.Y", version=3),
     {"type": "string", "connect.name": "x.Y", "connect.version": 3}),
    (_DECIMAL,
     {"type": "bytes", "logicalType": "decimal", "scale": 2, "precision": 9,
      "connect.name": schemas.DECIMAL, "connect.version": 1,
      "connect.parameters": {"scale": "2", "connect.decimal.precision": "9"}}),
    (Schema(Type.BYTES, name=schemas.DECIMAL, version=1, parameters={"scale": "0"}),
     {"type": "bytes", "logicalType": "decimal", "scale": 0, "precision": 64,
      "connect.name": schemas.DECIMAL, "connect.version": 1,
      "connect.parameters": {"scale": "0"}}),
    (Schema(Type.INT32, name=schemas.DATE, version=1),
     {"type": "int", "logicalType": "date", "connect.name": schemas.DATE, "connect.version": 1}),
    (Schema(Type.INT32, name=schemas.TIME, version=1),
     {"type": "int", "logicalType": "time-millis", "connect.name": schemas.TIME,
      "connect.version": 1}),
    (Schema(Type.INT64, name=schemas.TIMESTAMP, version=1),
     {"type": "long", "logicalType": "timestamp-millis", "connect.name": schemas.TIMESTAMP,
      "connect.version": 1}),
    (Schema(Type.STRING, default='"a"', optional=True),
     [{"type": "string", "connect.default": "a"}, "null"]),
    (Schema(Type.ARRAY, value_schema=_STRING), {"type": "array", "items": "string"}),
    (Schema(Type.MAP, key_schema=_STRING, value_schema=Schema(Type.INT64)),
     {"type": "map", "values": "long"}),
    (Schema(Type.MAP, key_schema=Schema(Type.INT32), value_schema=_STRING),
     {"type": "array", "items": {
         "type": "record", "name": "MapEntry", "namespace": _CONNECT,
         "fields": [{"name": "key", "type": "int"}, {"name": "value", "type": "string"}]}}),
    (Schema(Type.STRING, name="a.Colour", parameters=_COLOURS),
     {"type": "enum", "name": "Colour", "namespace": "a", "symbols": ["RED", "BLUE"]}),
    (struct(id=Schema(Type.INT64), note=Schema(Type.STRING, optional=True)),
     {"type": "record", "name": "ConnectDefault", "namespace": _CONNECT, "fields": [
         {"name": "id", "type": "long"},
         {"name": "note", "type": ["null", "string"], "default": None}]}),
    (replace(struct("shop.Order", total=replace(_DECIMAL, default='"AQ=="')), version=2,
             doc="An order"),
     {"type": "record", "name": "Order", "namespace": "shop", "doc": "An order", "fields": [
         {"name": "total", "default": "\x01", "type": {
             "type": "bytes", "logicalType": "decimal", "scale": 2, "precision": 9,
             "connect.name": schemas.DECIMAL, "connect.version": 1,
             "connect.parameters": {"scale": "2", "connect.decimal.precision": "9"},
             "connect.default": "\x01"}}],
      "connect.name": "shop.Order", "connect.version": 2}),
    (replace(struct(f"{_CONNECT}.Union", int=Schema(Type.INT32, optional=True),
                    R=replace(struct("n.R", a=_STRING), optional=True)), optional=True),
     ["null", "int", {"type": "record", "name": "R", "namespace": "n", "connect.name": "n.R",
                      "fields": [{"name": "a", "type": "string"}]}]),
]  # fmt: skip


@pytest.mark.parametrize(("connect", "avro"), _BOTH_WAYS, ids=str)
def test_schemas_of_kafka_connect_go_through_avro(connect: Schema, avro: Any) -> None:
    assert avro_of(connect) == avro
    assert connect_of(avro) == connect
    # the Arrow field keeps the whole schema
    assert schema_of(arrow_field("value", connect)) == connect


_GENERAL = "org.apache.kafka.connect.data"
_GENERAL_COLOURS = {
    f"{_GENERAL}.Enum": "a.Colour",
    f"{_GENERAL}.Enum.RED": "0",
    f"{_GENERAL}.Enum.BLUE": "1",
}


def general_union(number: int, **fields: Schema) -> Schema:
    name = f"connect_union_{number}"
    parameters = {f"{_GENERAL}.Union": name}
    return replace(struct(name, **fields), optional=True, parameters=parameters)


#: Schemas of Confluent's converter with generalized.sum.type.support.
_GENERALIZED: list[tuple[Any, Schema]] = [
    (["null", "int", "string"],
     general_union(0, connect_union_field_1=Schema(Type.INT32, optional=True),
                   connect_union_field_2=Schema(Type.STRING, optional=True))),
    (["null", "int"], Schema(Type.INT32, optional=True)),
    ({"type": "enum", "name": "Colour", "namespace": "a", "symbols": ["RED", "BLUE"]},
     Schema(Type.STRING, name="a.Colour", parameters=_GENERAL_COLOURS)),
    (["null", "int", {"type": "array", "items": ["null", "long", "string"]}],
     general_union(0, connect_union_field_1=Schema(Type.INT32, optional=True),
                   connect_union_field_2=Schema(Type.ARRAY, optional=True, value_schema=
                       general_union(1, connect_union_field_1=Schema(Type.INT64, optional=True),
                                     connect_union_field_2=Schema(Type.STRING, optional=True))))),
]  # fmt: skip


@pytest.mark.parametrize(("avro", "connect"), _GENERALIZED, ids=str)
def test_unions_and_enums_have_general_names_and_go_back(avro: Any, connect: Schema) -> None:
    found = connect_schema(parse_avro(json.dumps(avro)), sum_types=True)
    assert found == connect
    assert avro_of(found) == avro
    assert schema_of(arrow_field("value", found)) == found


def test_types_of_a_union_keep_their_places_behind_a_null() -> None:
    schema = connect_schema(parse_avro('["int", "null", "string"]'), sum_types=True)
    assert schema.optional
    names = [each.name for each in schema.fields]
    assert names == ["connect_union_field_0", "connect_union_field_2"]


def test_a_struct_that_comes_again_is_written_by_its_name() -> None:
    place = struct("n.Place", city=_STRING)
    found = avro_of(struct("n.Trip", start=place, end=replace(place, optional=True)))
    start, end = found["fields"]
    assert start["type"]["name"] == "Place"
    assert end == {"name": "end", "type": ["null", "n.Place"], "default": None}
    trip = connect_of(found)
    assert [each.schema.type for each in trip.fields] == [Type.STRUCT, Type.STRUCT]


def test_structs_and_maps_without_names_get_one_each() -> None:
    by_number = Schema(Type.MAP, key_schema=Schema(Type.INT32), value_schema=_STRING)
    by_flag = Schema(Type.MAP, key_schema=Schema(Type.BOOLEAN), value_schema=_STRING)
    schema = struct(a=struct(b=_STRING), c=struct(d=_STRING), e=by_number, f=by_flag)
    found = avro_of(schema)
    fields = {each["name"]: each["type"] for each in found["fields"]}
    assert (fields["a"]["name"], fields["c"]["name"]) == ("ConnectDefault2", "ConnectDefault3")
    assert fields["e"]["items"]["name"] == "MapEntry"
    assert fields["f"]["items"]["name"] == "MapEntry2"
    assert connect_of(found) == schema


@pytest.mark.parametrize(
    ("schema", "fault"),
    [
        (Schema(Type.STRUCT, fields=(Field("a-b", _STRING),)), "field 'a-b'.*ReplaceField"),
        (struct("1.x"), "'1.x' is no name in Avro.*SetSchemaMetadata"),
        (struct("n.A", a=struct("n.B", x=_STRING), b=struct("n.B", y=_STRING)), "two different"),
        (struct("n.A", a=struct("n.A", x=_STRING)), "two different"),
    ],
)
def test_names_that_avro_does_not_take_are_told(schema: Schema, fault: str) -> None:
    with pytest.raises(SchemaError, match=fault):
        avro_of(schema)


def test_without_meta_data_only_what_avro_knows_is_told() -> None:
    schema = replace(struct("n.A", a=replace(_DECIMAL, default='"AQ=="')), version=7)
    assert avro_of(schema, meta_data=False) == {
        "type": "record",
        "name": "A",
        "namespace": "n",
        "fields": [
            {
                "name": "a",
                "type": {"type": "bytes", "logicalType": "decimal", "scale": 2, "precision": 9},
                "default": "\x01",
            }
        ],
    }


def test_without_enhanced_support_an_enum_is_text() -> None:
    found = avro_of(Schema(Type.STRING, name="a.Colour", parameters=_COLOURS), enums=False)
    assert found["type"] == "string"
    assert found["connect.parameters"] == _COLOURS


@pytest.mark.parametrize(
    ("avro", "connect"),
    [
        # Avro schemas that only other writers use
        ({"type": "long", "logicalType": "timestamp-micros"}, Schema(Type.INT64)),
        ({"type": "string", "logicalType": "uuid"}, Schema(Type.STRING)),
        ({"type": "fixed", "name": "n.F", "size": 4},
         Schema(Type.BYTES, name="n.F", parameters={"connect.fixed.size": "4"})),
        ({"type": "fixed", "name": "D", "size": 4, "logicalType": "decimal", "precision": 9,
          "scale": 2}, _DECIMAL),
        ({"type": "string", "avro.java.string": "String"}, Schema(Type.STRING)),
        (["int", "null"], Schema(Type.INT32, optional=True)),
    ],
)  # fmt: skip
def test_schemas_of_others_are_read(avro: Any, connect: Schema) -> None:
    assert connect_of(avro) == connect


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("{", "no schema of Avro"),
        ('{"type": "record", "fields": []}', "no schema of Avro"),
        ('{"type": "array", "items": "n.Missing"}', "no schema of Avro"),
        ('"null"', "null alone"),
        (json.dumps({"type": "record", "name": "R", "fields": [
            {"name": "next", "type": ["null", "R"]}]}), "R contains itself"),
        ("[" * 5000, "no schema of Avro"),
    ],
)  # fmt: skip
def test_schemas_that_cannot_be_are_told(text: str, fault: str) -> None:
    with pytest.raises(SchemaError, match=fault):
        connect_schema(parse_avro(text))
