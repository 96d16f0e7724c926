"""Columns as JSON, in each form."""

import datetime
import decimal
import json
import math
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import assume, given, reject
from hypothesis import strategies as st

from drover.record import Field, RecordError, Schema, SchemaError, Type, arrow, arrow_field
from drover.record import schema as schemas
from drover.record.json.encode import checked_texts, json_texts
from drover.record.json.form import (
    CONNECT,
    CONNECT_NUMERIC,
    PLAIN,
    PLAIN_FOR_DATABASES,
    JsonForm,
)
from drover.record.json.schemaless import dumps, value_text
from tests.support.json_records import columns

UTC = datetime.UTC
AT = datetime.datetime(2024, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
PRICE = decimal.Decimal("1.50")


def texts(values: pa.Array, form: JsonForm = PLAIN) -> list[str | None]:
    found: list[str | None] = json_texts(pa.field("value", values.type), values, form).to_pylist()
    return found


def written(value: Any, kind: pa.DataType, form: JsonForm = PLAIN) -> str | None:
    found, null = texts(pa.array([value, None], kind), form)
    assert null is None
    return found


@pytest.mark.parametrize(
    ("kind", "value", "connect", "plain"),
    [
        (pa.bool_(), True, "true", None),
        (pa.int8(), -3, "-3", None),
        (pa.uint64(), 2**64 - 1, "18446744073709551615", None),
        (pa.float32(), 1.5, "1.5", None),
        (pa.float64(), 3.0, "3.0", None),
        (pa.float64(), math.nan, '"NaN"', "null"),
        (pa.float64(), math.inf, '"Infinity"', "null"),
        (pa.float64(), -math.inf, '"-Infinity"', "null"),
        (pa.string(), 'ü "x"\\\n\x01', r'"ü \"x\"\\\n\u0001"', None),
        (pa.large_string(), 'a"', r'"a\""', None),
        (pa.string_view(), "a", '"a"', None),
        (pa.dictionary(pa.int32(), pa.string()), "a", '"a"', None),
        (pa.dictionary(pa.int32(), pa.int64()), 7, "7", None),
        (pa.binary(), b"\x00\xff", '"AP8="', None),
        (pa.large_binary(), b"\x00\xff", '"AP8="', None),
        (pa.binary(2), b"\x00\xff", '"AP8="', None),
        (pa.binary_view(), b"\x00\xff", '"AP8="', None),
        (pa.decimal128(9, 2), PRICE, '"AJY="', "1.50"),
        (pa.decimal256(50, 2), PRICE, '"AJY="', "1.50"),
        (pa.date32(), AT.date(), "19724", '"2024-01-02"'),
        (pa.date64(), AT.date(), "19724", '"2024-01-02"'),
        (pa.time32("ms"), datetime.time(3, 4, 5), "11045000", '"03:04:05.000"'),
        (pa.time64("us"), datetime.time(3, 4, 5), "11045000", '"03:04:05.000000"'),
        (pa.timestamp("ms", "UTC"), AT, "1704164645678", '"2024-01-02T03:04:05.678Z"'),
        (pa.timestamp("us"), AT.replace(tzinfo=None), "1704164645678",
         '"2024-01-02T03:04:05.678000"'),
        (pa.timestamp("s", "Europe/Zurich"), AT.replace(microsecond=0), "1704164645000",
         '"2024-01-02T03:04:05Z"'),
        (pa.list_(pa.int32()), [], "[]", None),
        (pa.list_(pa.int32()), [1, None], "[1,null]", None),
        (pa.large_list(pa.string()), ["a"], '["a"]', None),
        (pa.list_(pa.int32(), 2), [1, 2], "[1,2]", None),
        (pa.struct([]), {}, "{}", None),
        (pa.struct([("a", pa.int32()), ("b", pa.string())]), {"a": 1, "b": None},
         '{"a":1,"b":null}', None),
        (pa.struct([('"', pa.list_(pa.date32()))]), {'"': [AT.date()]}, r'{"\"":[19724]}',
         r'{"\"":["2024-01-02"]}'),
        (pa.map_(pa.string(), pa.int32()), [("x", 1), ("y", None)], '{"x":1,"y":null}', None),
        (pa.map_(pa.dictionary(pa.int8(), pa.string()), pa.int32()), [("x", 1)], '{"x":1}', None),
        (pa.map_(pa.int32(), pa.string()), [(7, "x")], '[[7,"x"]]', '{"7":"x"}'),
        (pa.map_(pa.date32(), pa.int32()), [(AT.date(), 1)], "[[19724,1]]", '{"2024-01-02":1}'),
        (pa.map_(pa.list_(pa.string()), pa.int32()), [(["a"], 1)], '[[["a"],1]]',
         r'{"[\"a\"]":1}'),
    ],
    ids=str,
)  # fmt: skip
def test_a_value_of_a_type_is_written_in_each_form(
    kind: pa.DataType, value: Any, connect: str, plain: str | None
) -> None:
    assert written(value, kind, CONNECT) == connect
    assert written(value, kind, PLAIN) == (connect if plain is None else plain)
    json.loads(connect)


def test_decimals_are_digits_numbers_or_texts() -> None:
    kind = pa.struct([("d", pa.decimal128(9, 2))])
    found = [written({"d": PRICE}, kind, form) for form in (CONNECT, CONNECT_NUMERIC)]
    assert found == ['{"d":"AJY="}', '{"d":1.50}']
    assert written({"d": PRICE}, kind, PLAIN_FOR_DATABASES) == '{"d":"1.50"}'


def test_durations_are_plain_numbers_and_have_no_schema() -> None:
    kind = pa.duration("s")
    assert written(datetime.timedelta(seconds=5), kind) == '"5"'
    with pytest.raises(SchemaError, match="no schema"):
        written(datetime.timedelta(seconds=5), kind, CONNECT)


def test_a_slice_is_written_without_its_neighbours() -> None:
    kind = pa.struct(
        [("a", pa.list_(pa.string())), ("b", pa.map_(pa.string(), pa.int8())), ("c", pa.string())]
    )
    rows = [{"a": [str(n), None], "b": [("k", n)], "c": f'"{n}'} for n in range(9)]
    values = pa.array([*rows[:4], None, *rows[5:]], kind).slice(3, 3)
    assert texts(values) == [
        '{"a":["3",null],"b":{"k":3},"c":"\\"3"}',
        None,
        '{"a":["5",null],"b":{"k":5},"c":"\\"5"}',
    ]


def test_values_without_a_schema_stay_as_they_were_written() -> None:
    values = pa.array(['{"a": 1.50}', None, dumps({"at": AT, "b": b"\xff"})])
    found = [json_texts(arrow_field("value", None), values, form) for form in (PLAIN, CONNECT)]
    assert found[0].to_pylist() == [
        '{"a": 1.50}', None, '{"at":"2024-01-02T03:04:05.678000Z","b":"/w=="}',
    ]  # fmt: skip
    assert found[1].to_pylist()[2] == '{"at":1704164645678,"b":"/w=="}'


@given(columns())
def test_whole_columns_are_written_as_single_values_are(found: tuple[Schema, Any]) -> None:
    _, values = found
    assume(not _has_own_digits(values.type))
    try:
        single = values.to_pylist(maps_as_pydicts="strict")
    except (KeyError, TypeError):
        reject()  # keys that Python has only once, or cannot hash
    for value, text in zip(single, texts(values), strict=True):
        assert text == (None if value is None else value_text(value))


def _has_own_digits(kind: pa.DataType) -> bool:
    """Whether Arrow prints numbers or times with other digits than Python."""
    return bool(
        pa.types.is_temporal(kind)
        or pa.types.is_floating(kind)
        or any(_has_own_digits(kind.field(index).type) for index in range(kind.num_fields))
    )


INNER = Schema(Type.STRUCT, True, fields=(Field("n", Schema(Type.INT32)),))


def checked(schema: Schema, *values: Any, **options: Any) -> list[str]:
    field = arrow_field("value", schema)
    found: list[str] = checked_texts(
        field, pa.array(list(values), field.type), options.pop("form", CONNECT), **options
    ).to_pylist()
    return found


def test_null_is_the_default_or_null() -> None:
    schema = Schema(Type.INT32, True, default="7")
    assert checked(schema, 1, None) == ["1", "7"]
    assert checked(schema, 1, None, defaults=False) == ["1", "null"]
    assert checked(Schema(Type.INT32, True), None) == ["null"]


def test_a_default_is_of_the_form_of_its_values() -> None:
    schema = Schema(
        Type.BYTES, True, schemas.DECIMAL, 1, parameters={"scale": "2"}, default='"AJY="'
    )
    assert checked(schema, None) == ['"AJY="']
    assert checked(schema, None, form=CONNECT_NUMERIC) == ["1.50"]


def test_a_required_value_that_is_null_is_an_error_that_names_its_field() -> None:
    outer = Schema(Type.STRUCT, fields=(Field("in", INNER),))
    assert checked(outer, {"in": None}, {"in": {"n": 1}}) == ['{"in":null}', '{"in":{"n":1}}']
    with pytest.raises(RecordError, match="field in: field n: null for a required value of type"):
        checked(outer, {"in": {"n": None}})
    field = arrow_field("value", outer)
    unchecked = json_texts(field, pa.array([{"in": {"n": None}}], field.type), CONNECT)
    assert unchecked.to_pylist() == ['{"in":{"n":null}}']


def test_a_number_that_no_schema_has_a_type_for_is_an_error() -> None:
    field = pa.field("value", pa.uint64())
    with pytest.raises(pa.ArrowInvalid):
        checked_texts(field, pa.array([2**63], pa.uint64()), CONNECT)


@given(columns(), st.integers(1, 40))
def test_equal_values_are_written_as_different_ones_are(
    found: tuple[Schema, Any], count: int
) -> None:
    schema, values = found
    field = arrow_field("value", schema)
    with mock.patch.object(arrow, "_EQUAL_ROWS_MIN", 1 << 30):
        expected = checked_texts(field, values, CONNECT).to_pylist()
    for number, text in enumerate(expected):
        rows = values.take(pa.array([number] * count))
        with mock.patch.object(arrow, "_EQUAL_ROWS_MIN", 2):
            assert checked_texts(field, rows, CONNECT).to_pylist() == [text] * count
    with mock.patch.object(arrow, "_EQUAL_ROWS_MIN", 2):
        assert checked_texts(field, values, CONNECT).to_pylist() == expected


def test_nested_objects_and_constants_are_joined_once() -> None:
    source = {"name": 'p"', "schema": "public", "at": 5, "flag": True, "nothing": None}
    rows = [
        {"before": None, "after": {"id": n, "name": f"n{n}"}, "source": source, "op": "c"}
        for n in range(40)
    ]
    values = pa.array(rows)
    assert [json.loads(each) for each in texts(values) if each is not None] == rows
    with mock.patch.object(pc, "binary_join_element_wise", wraps=pc.binary_join_element_wise) as j:
        texts(values)
    of_rows = [call.args for call in j.call_args_list if len(rows) in map(_length, call.args)]
    # id, name, and the texts between them
    assert [len(args) for args in of_rows] == [6]


def _length(part: Any) -> int:
    return len(part) if isinstance(part, pa.Array) else 0


@pytest.mark.parametrize(
    ("values", "equal"),
    [
        (pa.array(["ab"] * 20), True),
        (pa.array([""] * 20), True),
        (pa.array([*["ab"] * 10, "ba", *["ab"] * 9]), False),
        (pa.array([*["ab"] * 10, "a", "abb", *["ab"] * 8]), False),
        (pa.array(["x", *["ab"] * 20, "y"]).slice(1, 20), True),
        (pa.array([b"ab"] * 20), True),
        (pa.array([7] * 20), True),
        (pa.array([*[7] * 10, 8, *[7] * 9]), False),
        (pa.array([8, *[7] * 20]).slice(1), True),
        (pa.array([math.nan] * 20), True),
        (pa.array([*[0.0] * 10, -0.0, *[0.0] * 9]), False),
        (pa.array([PRICE] * 20), True),
        (pa.array([*[PRICE] * 10, -PRICE, *[PRICE] * 9], pa.decimal256(50, 2)), False),
        (pa.array([True] * 20), True),
        (pa.array([*[True] * 19, False]), False),
        (pa.array([AT] * 20), True),
        (pa.array([[1]] * 20), False),  # lists are not compared
        (pa.array([7] * 3), False),  # too few
        (pa.array([7] * 20, pa.int8()), True),
    ],
    ids=str,
)
def test_columns_of_equal_values_are_found(values: pa.Array, equal: bool) -> None:
    assert arrow.are_equal(values) is equal
