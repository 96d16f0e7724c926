"""Which records FieldMatches chooses."""

import datetime
import decimal
from typing import Any

import pyarrow as pa
import pytest

from drover.record import Schema, Type, make_batch
from drover.record import schema as schemas
from drover.record.schema import arrow_field, with_identity
from drover.transform.field_matches import FieldMatches
from tests.support.records import (
    AT,
    only,
    optional,
    run,
    schemaless,
    struct,
    transform,
    with_schema,
)

DECIMAL = optional(Type.BYTES, name=schemas.DECIMAL, parameters={"scale": "2"})
DATE = optional(Type.INT32, name=schemas.DATE)
TIMESTAMP = optional(Type.INT64, name=schemas.TIMESTAMP)
TIME = optional(Type.INT32, name=schemas.TIME)
BIG = 2**63 - 1
NOON = AT.replace(hour=12, minute=0, second=0, microsecond=0)

#: The field's schema, its values, the conditions, and the indices of the matching values.
CASES: list[tuple[Schema, list[Any], dict[str, str], list[int]]] = [
    (optional(Type.INT32), [1, None, 10, 9], {"equals": "10"}, [2]),
    (optional(Type.INT32), [1, None, 10, 9], {"equals": "10.0"}, [2]),
    (optional(Type.INT32), [1, None, 10, 9], {"min": "9"}, [2, 3]),
    (optional(Type.INT32), [1, 2], {"min": "1.5"}, [1]),
    (optional(Type.INT32), [1, 2], {"max": "1.5"}, [0]),
    (optional(Type.INT32), [1, 2], {"equals": "1.5"}, []),
    (optional(Type.INT32), [1, 2], {"equals": "one"}, []),
    (optional(Type.INT32), [1, 2], {"min": "one"}, []),
    (optional(Type.INT32), [1, 2], {"in": "2,7,x"}, [1]),
    (optional(Type.INT32), [1, 2], {"in": "1,2", "min": "2"}, [1]),
    (optional(Type.INT32), [1, 2], {"pattern": "1"}, []),
    (optional(Type.INT64), [BIG, -BIG - 1], {"equals": str(BIG)}, [0]),
    (optional(Type.INT64), [BIG, -BIG - 1], {"equals": str(-BIG - 1)}, [1]),
    (optional(Type.INT64), [BIG, -BIG - 1], {"min": "1e30"}, []),
    (optional(Type.INT64), [BIG, -BIG - 1], {"max": "1e30"}, [0, 1]),
    (optional(Type.INT64), [BIG, -BIG - 1], {"min": "-1e30"}, [0, 1]),
    (optional(Type.INT64), [BIG, -BIG - 1], {"max": "-1e30"}, []),
    (optional(Type.INT64), [BIG, 0], {"equals": "407127e212797209"}, []),
    (optional(Type.INT64), [BIG, 0], {"max": "1e1000000"}, [0, 1]),
    (optional(Type.INT64), [BIG, 0], {"min": "-1E1000000000"}, [0, 1]),
    (optional(Type.INT64), [BIG, 0], {"min": "1e-1000000000"}, [0]),
    (optional(Type.INT64), [BIG, 0], {"max": "1e99999999999999999999"}, [0, 1]),
    (optional(Type.INT64), [BIG, 0], {"min": "1e-99999999999999999999"}, [0]),
    (optional(Type.INT64), [BIG, 0], {"equals": "0e99999999999999999999"}, [1]),
    (optional(Type.FLOAT64), [1e308, 0.0], {"max": "1e1000000"}, [0, 1]),
    (DECIMAL, [decimal.Decimal("1.25")], {"max": "407127e212797209"}, [0]),
    (optional(Type.FLOAT32), [0.1, 0.5, float("nan"), None], {"equals": "0.1"}, [0]),
    (optional(Type.FLOAT64), [0.1, 0.5, float("nan"), None], {"max": "0.4"}, [0]),
    (DECIMAL, [decimal.Decimal("1.25"), decimal.Decimal("1.30"), None], {"equals": "1.3"}, [1]),
    (DECIMAL, [decimal.Decimal("1.25"), decimal.Decimal("1.30")], {"min": "1.251"}, [1]),
    (DECIMAL, [decimal.Decimal("1.25"), decimal.Decimal("1.30")], {"max": "1.299"}, [0]),
    (DECIMAL, [decimal.Decimal("1.25")], {"max": "1e99"}, [0]),
    (DECIMAL, [decimal.Decimal("1.25")], {"equals": "1.255"}, []),
    (optional(Type.STRING), ["oslo", "rome", None], {"equals": "oslo"}, [0]),
    (optional(Type.STRING), ["oslo", "rome", None], {"in": "rome,oslo"}, [0, 1]),
    (optional(Type.STRING), ["oslo", "rome", None], {"pattern": "o.*|r"}, [0]),
    (optional(Type.STRING), ["10", "9"], {"min": "9"}, [1]),
    (optional(Type.STRING), ["10", "9"], {"equals": "9.0"}, []),
    (optional(Type.BOOLEAN), [True, False, None], {"equals": "true"}, [0]),
    (optional(Type.BOOLEAN), [True, False, None], {"min": "0"}, []),
    (optional(Type.BYTES), [b"a"], {"equals": "a"}, []),
    (DATE, [AT.date(), datetime.date(2024, 1, 1)], {"min": "2024-02-01"}, [0]),
    (DATE, [AT.date()], {"min": "soon"}, []),
    (TIMESTAMP, [AT, AT + datetime.timedelta(days=1)], {"max": "2024-02-29T12:00:00"}, [0]),
    (TIMESTAMP, [AT, AT + datetime.timedelta(days=1)], {"max": "2024-02-29T12:00:00+02:00"}, [0]),
    (TIMESTAMP, [AT, AT + datetime.timedelta(days=1)], {"min": "2024-03-01"}, [1]),
    (TIMESTAMP, [NOON], {"equals": "2024-02-29T14:00:00+02:00"}, [0]),
    (TIMESTAMP, [NOON], {"equals": "2024-02-29 07:00-0500"}, [0]),
    (TIMESTAMP, [NOON], {"max": "2024-02-29T12:00:00.000000001Z"}, [0]),
    (TIMESTAMP, [NOON], {"min": "2024-02-29T12:00:00.000000001Z"}, []),
    (TIMESTAMP, [NOON], {"equals": "2024-02-30"}, []),
    (TIMESTAMP, [NOON], {"equals": "1709208000000"}, []),
    (DATE, [AT.date()], {"equals": "2024-02-29T00:00:00Z"}, [0]),
    (DATE, [AT.date()], {"min": "2024-02-28T12:00:00"}, [0]),
    (DATE, [AT.date()], {"max": "2024-02-28T12:00:00"}, []),
    (TIME, [datetime.time(10, 0), datetime.time(11, 30)], {"min": "10:00:00.001"}, [1]),
    (TIME, [datetime.time(10, 0), datetime.time(11, 30)], {"equals": "10:00"}, [0]),
    (TIME, [datetime.time(10, 0)], {"equals": "2024-02-29"}, []),
]

#: JSON texts of numbers, the conditions, and the indices of the matching ones.
NUMBERS: list[tuple[list[str], dict[str, str], list[int]]] = [
    (["0.1", "0.10000000000000000001"], {"equals": "0.1"}, [0]),
    (["0.1", "0.10000000000000000001"], {"equals": "0.10000000000000000001"}, [1]),
    (["0.1", "0.10000000000000000001"], {"min": "0.100000000000000000005"}, [1]),
    (["9007199254740993", "9007199254740992"], {"equals": "9007199254740993"}, [0]),
    ([f"{10**40}", f"{10**40 + 1}", "7"], {"min": f"{10**40 + 1}"}, [1]),
    ([f"{10**150}", "7"], {"equals": f"{10**150}"}, [0]),
    (["1e400", "1"], {"min": "1e399"}, [0]),
    (["1e400", "1"], {"max": "1e999999999"}, [0, 1]),
    (["7", "7.0", '"7"', "true"], {"equals": "7"}, [0, 1, 2]),
    (['"07"', "7"], {"equals": "07"}, [0, 1]),
    (["1000"], {"equals": "1_000"}, []),
]


NO_CONDITIONS = dict.fromkeys(("equals", "in", "pattern", "min", "max"))


def parsed(conditions: dict[str, str]) -> dict[str, Any]:
    return {name: text.split(",") if name == "in" else text for name, text in conditions.items()}


def chosen(values: list[Any], config: dict[str, str], batch: Any) -> list[int]:
    left = {origin for each in run(config, batch) for origin in each.column("origin").to_pylist()}
    return [row for row in range(len(values)) if f"row {row}" not in left]


@pytest.mark.parametrize(("schema", "values", "conditions", "expected"), CASES)
def test_fields_of_structs(
    schema: Schema, values: list[Any], conditions: dict[str, str], expected: list[int]
) -> None:
    whole = struct(a=struct(**{"b.c": schema}))
    batch = with_schema(whole, *({"a": {"b.c": value}} for value in values))
    config = transform("Filter") | only("FieldMatches", conditions, field="a.`b.c`")
    assert chosen(values, config, batch) == expected


@pytest.mark.parametrize(
    ("schema", "values", "conditions", "expected"),
    # without a schema numbers are doubles, and None has no type
    [case for case in CASES if case[0].type not in (Type.FLOAT64, Type.FLOAT32)],
)
def test_fields_of_maps(
    schema: Schema, values: list[Any], conditions: dict[str, str], expected: list[int]
) -> None:
    batch = schemaless(*({"a": {"b.c": value}} for value in values), side="key")
    config = transform("Filter") | only("FieldMatches$Key", conditions, field="a.`b.c`")
    assert chosen(values, config, batch) == expected


@pytest.mark.parametrize(("texts", "conditions", "expected"), NUMBERS)
def test_numbers_of_any_size_compare_by_their_digits(
    texts: list[str], conditions: dict[str, str], expected: list[int]
) -> None:
    values = pa.array([f'{{"a":{each}}}' for each in texts])
    batch = make_batch(len(texts), value=(arrow_field("value", None), values))
    matched = FieldMatches({"field": "a", **NO_CONDITIONS, **parsed(conditions)}).matches(batch)
    assert [row for row, each in enumerate(matched.to_pylist()) if each] == expected


@pytest.mark.parametrize(
    ("name", "kind", "values", "conditions", "expected"),
    [
        ("time.Date", pa.int32(), [19_000, 19_001, None], {"min": "2022-01-09"}, [1]),
        ("time.MicroTime", pa.int64(), [36_000_000_001], {"min": "10:00:00"}, [0]),
        ("time.Time", pa.int32(), [36_000_000], {"equals": "10:00:00.000"}, [0]),
        ("time.Timestamp", pa.int64(), [1_000, 999], {"min": "1970-01-01T00:00:01"}, [0]),
        ("time.MicroTimestamp", pa.int64(), [1_000], {"equals": "1970-01-01T00:00:00.001Z"}, [0]),
        ("time.MicroTimestamp", pa.int64(), [1_000], {"equals": "1000"}, [0]),
        ("time.MicroTimestamp", pa.int64(), [1_000], {"equals": "soon"}, []),
        ("time.NanoTimestamp", pa.int64(), [1], {"equals": "1970-01-01T00:00:00.000000001"}, [0]),
        ("time.ZonedTimestamp", pa.string(),
         ["2024-01-01T01:00:00+01:00", "2024-01-01T00:00:00.5Z", "soon", None],
         {"max": "2024-01-01T00:00:00Z"}, [0]),
        ("time.ZonedTimestamp", pa.string(), ["2024-01-01T00:00:00Z"], {"pattern": "2024.*"}, [0]),
        ("time.ZonedTime", pa.string(), ["11:00:00+01:00"], {"equals": "10:00:00Z"}, [0]),
    ],
)  # fmt: skip
def test_debeziums_times_compare_as_times(
    name: str, kind: pa.DataType, values: list[Any], conditions: dict[str, str], expected: list[int]
) -> None:
    field = with_identity(pa.field("a", kind), name=f"io.debezium.{name}")
    structs = pa.StructArray.from_arrays([pa.array(values, kind)], fields=[field])
    batch = make_batch(len(values), value=(pa.field("value", structs.type), structs))
    matched = FieldMatches({"field": "a", **NO_CONDITIONS, **parsed(conditions)}).matches(batch)
    assert [row for row, each in enumerate(matched.to_pylist()) if each] == expected


def test_decimals_of_any_scale_and_entries_of_maps_compare_by_value() -> None:
    decimals = pa.struct([("scale", pa.int32()), ("value", pa.binary())])
    name = "io.debezium.data.VariableScaleDecimal"
    field = with_identity(pa.field("a", decimals), name=name)
    values = [{"scale": 2, "value": b"\x7d"}, {"scale": 0, "value": b"\x02"}, None]
    structs = pa.StructArray.from_arrays([pa.array(values, decimals)], fields=[field])
    batch = make_batch(3, value=(pa.field("value", structs.type), structs))
    for conditions, expected in (({"min": "1.3"}, [1]), ({"equals": "1.250"}, [0])):
        matched = FieldMatches({"field": "a", **NO_CONDITIONS, **parsed(conditions)})
        found = matched.matches(batch).to_pylist()
        assert [row for row, each in enumerate(found) if each] == expected
    maps = pa.array([[("k", 1)], [("k", 2), ("l", 1)], None], pa.map_(pa.string(), pa.int64()))
    batch = make_batch(3, value=(pa.field("value", maps.type), maps))
    matched = FieldMatches({"field": "k", **NO_CONDITIONS, "min": "2"})
    assert matched.matches(batch).to_pylist() == [False, True, False]


def test_values_of_several_kinds() -> None:
    values = [1, 1.0, "1", True, None, 2**70, [1], {"x": 1}, decimal.Decimal("1.00")]
    config = transform("Filter") | only("FieldMatches", field="a", equals="1")
    assert chosen(values, config, schemaless(*({"a": each} for each in values))) == [0, 1, 2, 8]


def test_a_field_that_is_not_there_matches_nothing() -> None:
    config = transform("Filter") | only("FieldMatches", field="a.b", equals="1")
    for values in ([{"a": 1}, {"c": 1}, None, {"a": None}], ["text", 7]):
        assert chosen(values, config, schemaless(*values)) == []
    for schema, value in (
        (struct(a=Schema(Type.INT32)), {"a": 1}),
        (struct(c=Schema(Type.INT32)), {"c": 1}),
        (Schema(Type.STRING), "1"),
    ):
        assert chosen([value], config, with_schema(schema, value)) == []
