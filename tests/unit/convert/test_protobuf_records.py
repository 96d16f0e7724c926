"""Protobuf messages as columns and back, compared with Protobuf's own library."""

import datetime
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given, settings
from hypothesis import strategies as st

from drover.convert.protobuf import wire
from drover.convert.protobuf.connect_schemas import Conventions, connect_schema
from drover.convert.protobuf.decode import decode_messages
from drover.convert.protobuf.descriptors import parse_proto
from drover.convert.protobuf.encode import encode_messages
from drover.convert.protobuf.proto_schemas import proto_text
from drover.convert.protobuf.wire import Wire
from drover.record.errors import RecordError, RowsError, SchemaError
from drover.record.schema import Schema, arrow_field, arrow_type, schema_of

PLAIN = Conventions()
EVERYTHING = parse_proto(
    """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/type/date.proto";
import "google/type/timeofday.proto";
import "google/protobuf/wrappers.proto";
message Row {
  double a_double = 1;
  float a_float = 2;
  int32 an_int32 = 3;
  int64 an_int64 = 4;
  uint32 a_uint32 = 5;
  uint64 a_uint64 = 6;
  sint32 a_sint32 = 7;
  sint64 a_sint64 = 8;
  fixed32 a_fixed32 = 9;
  fixed64 a_fixed64 = 10;
  sfixed32 a_sfixed32 = 11;
  sfixed64 a_sfixed64 = 12;
  bool a_bool = 13;
  string a_string = 14;
  bytes some_bytes = 15;
  Colour colour = 16;
  Inner inner = 17;
  optional int32 maybe = 18;
  optional string perhaps = 19;
  repeated int64 numbers = 20;
  repeated sint32 folded = 21 [packed = false];
  repeated string texts = 22;
  repeated Inner inners = 23;
  map<string, int32> counts = 24;
  map<int32, Inner> by_number = 25;
  oneof choice { string left = 26; int32 right = 27; Inner neither = 28; }
  google.protobuf.Timestamp at = 29;
  google.protobuf.StringValue wrapped = 30;
  repeated double doubles = 2000;
  enum Colour { RED = 0; GREEN = 1; BLUE = 7; }
  message Inner { int32 id = 1; string name = 2; repeated bool flags = 3; }
}
"""
)
ROW = EVERYTHING.message((0,))
MESSAGE: Any = GetMessageClass(ROW)

_INT32 = st.integers(-(2**31), 2**31 - 1)
_INT64 = st.integers(-(2**63), 2**63 - 1)
_TEXT = st.text(st.characters(codec="utf-8"), max_size=6)
_INNER = st.fixed_dictionaries(
    {"id": _INT32, "name": _TEXT, "flags": st.lists(st.booleans(), max_size=3)}
)
_ROWS = st.fixed_dictionaries(
    {},
    optional={
        "a_double": st.floats(),
        "a_float": st.floats(width=32),
        "an_int32": _INT32,
        "an_int64": _INT64,
        "a_uint32": st.integers(0, 2**32 - 1),
        "a_uint64": st.integers(0, 2**63 - 1),
        "a_sint32": _INT32,
        "a_sint64": _INT64,
        "a_fixed32": st.integers(0, 2**32 - 1),
        "a_fixed64": st.integers(0, 2**63 - 1),
        "a_sfixed32": _INT32,
        "a_sfixed64": _INT64,
        "a_bool": st.booleans(),
        "a_string": _TEXT,
        "some_bytes": st.binary(max_size=5),
        "colour": st.sampled_from(["RED", "GREEN", "BLUE"]),
        "inner": _INNER,
        "maybe": _INT32,
        "perhaps": _TEXT,
        "numbers": st.lists(_INT64, max_size=4),
        "folded": st.lists(_INT32, max_size=4),
        "texts": st.lists(_TEXT, max_size=3),
        "inners": st.lists(_INNER, max_size=3),
        "counts": st.dictionaries(_TEXT, _INT32, max_size=3),
        "by_number": st.dictionaries(_INT32, _INNER, max_size=2),
        "doubles": st.lists(st.floats(allow_nan=False), max_size=3),
    },
)  # fmt: skip


def columns_of(raw: list[bytes], message: Any, schema: Schema) -> Any:
    wire = Wire(pa.array(raw, pa.binary()))
    return decode_messages(wire, wire.records, message, schema)


def bytes_of(field: pa.Field, values: Any, message: Any, **more: Any) -> list[bytes | None]:
    settings: dict[str, Any] = {"before": b"", "strict": True, "conventions": PLAIN} | more
    found: list[bytes | None] = encode_messages(field, values, message, **settings).to_pylist()
    return found


def made(row: Mapping[str, Any]) -> Any:
    """A message of Protobuf's library."""
    message = MESSAGE()
    for name, value in row.items():
        if name == "inner":
            message.inner.CopyFrom(inner(value))
        elif name == "inners":
            message.inners.extend(inner(each) for each in value)
        elif name == "by_number":
            for key, each in value.items():
                message.by_number[key].CopyFrom(inner(each))
        elif name == "counts":
            message.counts.update(value)
        elif name == "colour":
            message.colour = ROW.enum_types_by_name["Colour"].values_by_name[value].number
        elif isinstance(value, list):
            getattr(message, name).extend(value)
        else:
            setattr(message, name, value)
    return message


def inner(value: Mapping[str, Any]) -> Any:
    return GetMessageClass(ROW.nested_types_by_name["Inner"])(**value)


def expected(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row that the columns have: a missing field has its type's default."""
    found: dict[str, Any] = {"choice_0": None}
    for field in ROW.fields:
        if field.name in ("left", "right", "neither"):
            continue
        value = row.get(field.name)
        if field.name in ("counts", "by_number"):
            value = list((value or {}).items())
        elif field.is_repeated:
            value = value or []
        elif value is None and not field.has_presence:
            value = "RED" if field.name == "colour" else field.default_value
        found[field.name] = value
    return found


def shown(row: dict[str, Any]) -> str:
    """A text that is the same for equal rows, also with NaN and for any order of map entries."""
    maps = {name: sorted(row[name], key=repr) for name in ("counts", "by_number")}
    return repr(in_order(row | maps))


def in_order(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: in_order(value[name]) for name in sorted(value)}
    return [in_order(each) for each in value] if isinstance(value, (list, tuple)) else value


@given(st.lists(_ROWS, min_size=1, max_size=6))
@settings(max_examples=60)
def test_columns_are_what_the_library_reads_and_writes(rows: list[dict[str, Any]]) -> None:
    raw = [made(row).SerializeToString(deterministic=True) for row in rows]
    schema = connect_schema(ROW, PLAIN)
    found = columns_of(raw, ROW, schema)
    assert found.type == arrow_type(schema)
    assert [shown(each) for each in found.to_pylist()] == [shown(expected(row)) for row in rows]
    again = bytes_of(arrow_field("value", schema), found, ROW)
    for before, after in zip(raw, again, strict=True):
        assert after is not None
        # map entries have no order
        assert MESSAGE.FromString(after).SerializeToString(deterministic=True) == before
        assert len(after) == len(before)


def test_the_last_field_of_a_oneof_counts() -> None:
    schema = connect_schema(ROW, PLAIN)
    raw = [
        MESSAGE(left="a").SerializeToString(),
        MESSAGE(right=5).SerializeToString() + MESSAGE(left="b").SerializeToString(),
        MESSAGE(neither=inner({"id": 1})).SerializeToString(),
        b"",
        MESSAGE(right=0).SerializeToString(),
    ]
    found = columns_of(raw, ROW, schema)
    none = {"left": None, "right": None, "neither": None}
    third = {"id": 1, "name": "", "flags": []}
    assert found.field("choice_0").to_pylist() == [
        none | {"left": "a"}, none | {"left": "b"}, none | {"neither": third}, None,
        none | {"right": 0},
    ]  # fmt: skip
    again = bytes_of(arrow_field("value", schema), found, ROW)
    assert again == [raw[0], MESSAGE(left="b").SerializeToString(), *raw[2:]]


def test_what_is_there_twice_is_merged_and_what_is_unknown_skipped() -> None:
    first = MESSAGE(an_int32=1, numbers=[1], inner=inner({"id": 1, "flags": [True]}))
    second = MESSAGE(an_int32=2, numbers=[2, 3], inner=inner({"name": "n", "flags": [False]}))
    unknown = b"\xc0\x3e\x05" + b"\xc2\x3e\x02ab" + b"\xc5\x3e1234" + b"\xc1\x3e12345678"
    unpacked = b"\xa0\x01\x09"  # an element of ``numbers`` that is not packed
    raw = second.SerializeToString() + unknown + unpacked
    found = columns_of([b"", first.SerializeToString() + raw], ROW, connect_schema(ROW, PLAIN))
    row = found.to_pylist()[1]
    assert row["an_int32"] == 2
    assert row["numbers"] == [1, 2, 3, 9]
    assert row["inner"] == {"id": 1, "name": "n", "flags": [True, False]}
    assert found.to_pylist()[0]["inner"] is None


def test_symbols_that_the_schema_does_not_have_keep_their_numbers() -> None:
    schema = connect_schema(ROW, PLAIN)
    raw = [MESSAGE(colour=5).SerializeToString(), MESSAGE(colour=7).SerializeToString()]
    found = columns_of(raw, ROW, schema)
    assert found.field("colour").to_pylist() == ["UNKNOWN_ENUM_VALUE_Colour_5", "BLUE"]
    assert bytes_of(arrow_field("value", schema), found, ROW) == raw
    numbers = Conventions(int_enums=True)
    assert columns_of(raw, ROW, connect_schema(ROW, numbers)).field("colour").to_pylist() == [5, 7]


@pytest.mark.parametrize(
    ("raw", "fault"),
    [
        (b"\x08", "ends too early"),
        (b"\x72\x05ab", "ends too early"),
        (b"\x72\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "ends too early"),
        (b"\x20" + b"\xff" * 12, "without an end"),
        (b"\x72\x01\xff", "none"),
        (b"\x00\x01", "without a number"),
        (b"\x1b\x1c", "kind 3"),
        (b"\xa2\x01\x02\x01\x80", "piece of a number"),
        (b"\x82\x7d\x07" + b"\0" * 7, "piece of a number"),
        (b"\x8a\x01\x03\x08\x01\x12", "ends too early"),
    ],
)
def test_bytes_that_are_none_are_errors_of_their_rows(raw: bytes, fault: str) -> None:
    good = MESSAGE(an_int32=1).SerializeToString()
    with pytest.raises(RowsError, match=fault) as raised:
        columns_of([good, raw, good], ROW, connect_schema(ROW, PLAIN))
    assert list(raised.value.rows) == [1]


@given(st.lists(_ROWS, max_size=6), st.lists(st.binary(max_size=30), max_size=3))
@settings(max_examples=60)
def test_fields_found_one_by_one_are_those_of_steps_across_messages(
    rows: list[dict[str, Any]], noise: list[bytes]
) -> None:
    whole = [made(row).SerializeToString() for row in rows]
    # repeated fields of all kinds, and lists that are packed and not packed
    raw = [*whole, b"".join(whole), b"\xa0\x01\x09".join(whole), *noise]
    schema = connect_schema(ROW, PLAIN)
    outcomes: list[Any] = []
    refused: set[int] = set()
    for step_fields in (0, 2, 10**9):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(wire, "_STEP_FIELDS", step_fields)
            try:
                outcomes.append(repr(columns_of(raw, ROW, schema).to_pylist()))
            except RowsError as error:
                refused |= error.rows.keys()
                outcomes.append(None)
    assert outcomes[0] == outcomes[1] == outcomes[2]
    assert all(each >= len(raw) - len(noise) for each in refused)


@pytest.mark.parametrize(
    "field",
    [
        b"\xa0\x01\x09",  # an element of ``numbers`` that is not packed
        b"\x20\x05",  # one number again and again
        b"\xc0\x3e\x05\xc8\x3e\x05",  # alternating unknown fields
    ],
)
def test_a_message_with_many_fields_is_read_in_few_steps(
    field: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[Any] = []
    step = Wire._value

    def counted(*arguments: Any) -> Any:
        steps.append(arguments)
        return step(*arguments)

    monkeypatch.setattr(Wire, "_value", counted)
    found = columns_of([field * 10_000], ROW, connect_schema(ROW, PLAIN)).to_pylist()
    assert found[0]["numbers"] == ([9] * 10_000 if field[0] == 0xA0 else [])
    assert len(steps) < 20


_STRUCT = pa.struct(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("tiny", pa.int8()),
        pa.field("price", pa.decimal128(9, 2)),
        pa.field("day", pa.date32()),
        pa.field("clock", pa.time32("ms")),
        pa.field("at", pa.timestamp("ms", tz="UTC")),
        pa.field("score", pa.float64()),
        pa.field("place", pa.struct([pa.field("city", pa.string()), pa.field("zip", pa.int32())])),
        pa.field("tags", pa.list_(pa.field("item", pa.string(), nullable=False))),
        pa.field("counts", pa.map_(pa.string(), pa.int64())),
    ]
)
_FIELD = pa.field("value", _STRUCT, nullable=False)
_VALUES = [
    {
        "id": 1, "tiny": -5, "price": Decimal("-12.30"), "day": datetime.date(1969, 2, 28),
        "clock": datetime.time(23, 59, 58, 1000), "score": 1.5, "tags": ["a", ""],
        "at": datetime.datetime(1960, 1, 1, 0, 0, 0, 5000, datetime.UTC),
        "place": {"city": "oslo", "zip": 150}, "counts": [("x", 1), ("y", 0)],
    },
    {
        "id": 0, "tiny": 0, "price": Decimal("0.00"), "day": datetime.date(2000, 2, 29),
        "clock": datetime.time(0), "score": 0.0, "tags": [], "at": datetime.datetime(
            1970, 1, 1, tzinfo=datetime.UTC), "place": {"city": "", "zip": 0}, "counts": [],
    },
]  # fmt: skip


@pytest.mark.parametrize(
    "conventions",
    [PLAIN, Conventions(optional_nulls=True), Conventions(wrapped_nulls=True)],
    ids=["plain", "optional", "wrapped"],
)
def test_rows_of_kafka_connects_types_come_back(conventions: Conventions) -> None:
    schema = schema_of(_FIELD)
    assert schema is not None
    text = proto_text(schema, conventions)
    _, message = parse_proto(text).first(None)
    values = pa.array(_VALUES, _STRUCT)
    raw = bytes_of(_FIELD, values, message, conventions=conventions)
    back = connect_schema(message, conventions)
    assert columns_of([each or b"" for each in raw], message, back).to_pylist() == _VALUES
    # Protobuf's library parses the messages
    kind = GetMessageClass(message)
    assert [kind.FromString(each or b"").SerializeToString(deterministic=True) for each in raw]

    nulls = pa.array([{"id": 7}], _STRUCT)
    (found,) = columns_of(
        [bytes_of(_FIELD, nulls, message, conventions=conventions)[0] or b""], message, back
    ).to_pylist()
    is_kept = conventions != PLAIN
    assert found["score"] == (None if is_kept else 0.0)
    assert found["tiny"] == (None if is_kept else 0)
    assert (found["day"], found["place"], found["price"]) == (None, None, None)
    assert found["tags"] == []


def test_a_schema_is_the_same_after_a_round_trip() -> None:
    schema = connect_schema(ROW, PLAIN)
    text = proto_text(schema, PLAIN)
    _, message = parse_proto(text).first(None)
    assert connect_schema(message, PLAIN) == schema


@pytest.mark.parametrize(
    ("kind", "fault"),
    [
        (pa.struct([("a", pa.list_(pa.list_(pa.int32())))]), "no other array"),
        (pa.struct([("a b", pa.int32())]), "no name in Protobuf"),
        (pa.list_(pa.int32()), "HoistField"),
        (pa.timestamp("ms", tz="UTC"), "HoistField"),
    ],
)
def test_schemas_that_protobuf_has_not_are_told(kind: pa.DataType, fault: str) -> None:
    schema = schema_of(pa.field("value", kind))
    assert schema is not None
    with pytest.raises(SchemaError, match=fault):
        proto_text(schema, PLAIN)


def test_names_are_scrubbed_where_that_is_wanted() -> None:
    field = pa.field("value", pa.struct([("a b", pa.int32()), ("1", pa.int32())]))
    schema = schema_of(field)
    assert schema is not None
    scrubbed = Conventions(scrubbed_names=True)
    _, message = parse_proto(proto_text(schema, scrubbed)).first(None)
    assert [each.name for each in message.fields] == ["a_b", "x1"]
    values = pa.array([{"a b": 1, "1": 2}], field.type)
    assert bytes_of(field, values, message, conventions=scrubbed) == [b"\x08\x01\x10\x02"]


@pytest.mark.parametrize(
    ("name", "value", "fault"),
    [
        ("an_int32", 2**40, "an_int32 of type int64"),
        ("a_uint32", -1, "a_uint32 of type int64"),
        ("a_string", 5, "the types differ"),
        ("colour", "PINK", "'PINK' is none of its symbols"),
        ("numbers", [1, None], "an item that is null"),
        ("inner", 5, "is no message shop.Row.Inner"),
        ("at", 5, "it is no timestamp"),
        ("no_such", 5, "has the field 'no_such'"),
    ],
)
def test_values_that_the_message_cannot_have_are_told(name: str, value: Any, fault: str) -> None:
    values = pa.array([{name: value}])
    with pytest.raises(RecordError, match=fault):
        bytes_of(pa.field("value", values.type), values, ROW)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("syntax = 'proto3'; message A { B b = 1; }", '"B" is not defined'),
        ("message", "no schema of Protobuf"),
        ("syntax = 'proto3'; import 'other.proto'; message A {}", "other.proto"),
    ],
)
def test_texts_that_are_none_are_told(text: str, fault: str) -> None:
    with pytest.raises(SchemaError, match=fault):
        parse_proto(text)


def test_messages_that_no_column_can_hold_are_told() -> None:
    tree = parse_proto('syntax = "proto3"; message Tree { repeated Tree below = 1; }')
    with pytest.raises(SchemaError, match="contains itself"):
        connect_schema(tree.message((0,)), PLAIN)
    with pytest.raises(SchemaError, match="no message at"):
        tree.message((0, 1))
    empty = parse_proto('syntax = "proto3"; enum A { B = 0; }')
    with pytest.raises(SchemaError, match="has no message"):
        empty.first(None)


def test_fields_of_proto2_have_nulls_and_required_ones_none() -> None:
    parsed = parse_proto(
        'syntax = "proto2"; message A { required int32 a = 1; optional int32 b = 2 [default = 5]; }'
    )
    message = parsed.message((0,))
    schema = connect_schema(message, PLAIN)
    found = columns_of([b"\x08\x01", b"\x08\x02\x10\x03"], message, schema)
    assert found.to_pylist() == [{"a": 1, "b": None}, {"a": 2, "b": 3}]
    field = arrow_field("value", schema)
    assert bytes_of(field, found, message) == [b"\x08\x01", b"\x08\x02\x10\x03"]
    with pytest.raises(RecordError, match="required in the registry"):
        bytes_of(field, pa.array([{"a": None, "b": 1}], found.type), message)
