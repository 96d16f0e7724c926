"""Which records FieldMatches chooses."""

import datetime
import decimal
from typing import Any

import pytest

from drover.record import Schema, Type
from drover.record import schema as schemas
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
BIG = 2**63 - 1

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
]


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
