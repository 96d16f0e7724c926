"""Values that people entered, in the form in which they are shown."""

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from drover.record import schema as schemas
from drover.record.json.decode import parse_payloads
from drover.record.json.encode import json_texts
from drover.record.json.form import SHOWN
from drover.record.json.schemaless import value_text
from drover.record.schema import Field, Schema, Type, arrow_field
from drover_worker.engine.topics.shown_values import FAULTS_MAX, connect_value

DEBEZIUM = "io.debezium.time."


def optional(kind: Type, name: str | None = None, **parameters: str) -> Schema:
    return Schema(kind, optional=True, name=name, parameters=parameters)


EVERYTHING = Schema(
    Type.STRUCT,
    fields=tuple(
        Field(name, schema)
        for name, schema in {
            "small": optional(Type.INT8),
            "big": optional(Type.INT64),
            "float": optional(Type.FLOAT64),
            "flag": optional(Type.BOOLEAN),
            "text": optional(Type.STRING),
            "data": optional(Type.BYTES),
            "price": optional(Type.BYTES, schemas.DECIMAL, scale="2"),
            "day": optional(Type.INT32, schemas.DATE),
            "clock": optional(Type.INT32, schemas.TIME),
            "at": optional(Type.INT64, schemas.TIMESTAMP),
            "their_day": optional(Type.INT32, f"{DEBEZIUM}Date"),
            "their_at": optional(Type.INT64, f"{DEBEZIUM}MicroTimestamp"),
            "their_clock": optional(Type.INT64, f"{DEBEZIUM}NanoTime"),
            "list": Schema(Type.ARRAY, optional=True, value_schema=optional(Type.INT32)),
            "map": Schema(
                Type.MAP,
                optional=True,
                key_schema=Schema(Type.STRING),
                value_schema=optional(Type.INT32),
            ),
            "numbers": Schema(
                Type.MAP,
                optional=True,
                key_schema=Schema(Type.INT32),
                value_schema=optional(Type.STRING),
            ),
            "inner": Schema(Type.STRUCT, optional=True, fields=(Field("a", Schema(Type.INT32)),)),
        }.items()
    ),
)
VALUES: dict[str, Any] = {
    "small": -7,
    "big": 2**62 + 1,
    "float": 1.5,
    "flag": True,
    "text": "a\u00e9\n",
    "data": {"bytes": "AP8="},
    "price": 12.25,
    "day": "2026-01-31",
    "clock": "12:00:00.500",
    "at": "2026-01-31T12:00:00.001Z",
    "their_day": "1969-12-31",
    "their_at": "2026-01-31T12:00:00.000001",
    "their_clock": "12:00:00.000000001",
    "list": [1, None, 3],
    "map": {"a": 1, "": None},
    "numbers": {"1": "x", "-2": None},
    "inner": {"a": 5},
}


def stored(text: str, schema: Schema) -> Any:
    value, faults = connect_value(text, schema)
    assert not faults
    return parse_payloads(pa.array([value_text(value)], pa.string()), schema)


def test_what_is_shown_can_be_entered_again() -> None:
    column = stored(json.dumps(VALUES), EVERYTHING)
    (shown,) = json_texts(arrow_field("value", EVERYTHING), column, SHOWN).to_pylist()
    assert json.loads(shown) == VALUES


def test_numbers_of_any_scale_are_entered_as_numbers() -> None:
    kind = Schema(
        Type.STRUCT,
        name="io.debezium.data.VariableScaleDecimal",
        fields=(Field("scale", Schema(Type.INT32)), Field("value", Schema(Type.BYTES))),
    )
    for text in ("0", "-1.250", "12345678901234567890123456789.5", "1e3", "127", "128", "-129"):
        column = stored(text, kind)
        (shown,) = json_texts(arrow_field("value", kind), column, SHOWN).to_pylist()
        assert Decimal(shown) == Decimal(text)


@pytest.mark.parametrize(
    ("value", "faults"),
    [
        ({"small": 128}, ["small: "]),
        ({"small": "1"}, ["small: "]),
        ({"small": 1.5}, ["small: "]),
        ({"flag": "true"}, ["flag: "]),
        ({"text": 1}, ["text: "]),
        ({"data": "not base64!"}, ["data: "]),
        ({"price": 1.255}, ["price: "]),
        ({"day": "2026-02-30"}, ["day: "]),
        ({"day": "2026-01-31T12:00:00"}, ["day: "]),
        ({"at": "2026-01-31T12:00:00.0001Z"}, ["at: "]),
        ({"clock": "24:30:00"}, ["clock: "]),
        ({"list": [1, "x", 2.5]}, ["list[1]: ", "list[2]: "]),
        ({"list": {"a": 1}}, ["list: "]),
        ({"map": {"a": "x"}}, ["map[a]: "]),
        ({"numbers": {"a": "x"}}, ["numbers[a]: "]),
        ({"inner": {}}, ["inner.a: "]),
        ({"inner": {"a": "x", "b": 1}}, ["inner.b: ", "inner.a: "]),
        ({"none": 1, "small": None, "big": 2**63}, ["none: ", "big: "]),
        ([], ["must be of type struct"]),
        (None, ["must be of type struct, not null"]),
    ],
)
def test_every_fault_has_its_field(value: Any, faults: list[str]) -> None:
    _, found = connect_value(json.dumps(value), EVERYTHING)
    assert len(found) == len(faults), found
    for text, start in zip(found, faults, strict=True):
        assert text.startswith(start), found


def test_faults_are_bounded() -> None:
    many = {f"field-{n}": 1 for n in range(1_000)}
    assert len(connect_value(json.dumps(many), EVERYTHING)[1]) == FAULTS_MAX
    assert connect_value("{", EVERYTHING)[1][0].startswith("is not JSON")
    assert connect_value("[" * 100_000, EVERYTHING)[1] == ["is not JSON: it is nested too deeply"]
