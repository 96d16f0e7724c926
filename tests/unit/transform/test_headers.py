"""Transforms of headers, and the predicate on them."""

import base64
import json
from typing import Any

import pyarrow as pa
import pytest

from drover.record import HEADERS_TYPE, Type
from drover.record import schema as schemas
from drover.record.batch import with_column
from tests.support.records import only, optional, run, schemaless, struct, transform, with_schema

RAW: list[tuple[str, bytes | None, str | None]] = [
    ("a", b"1", None),
    ("b", None, None),
    ("a", b"2", None),
]


def with_headers(*rows: list[tuple[str, bytes | None, str | None]] | None) -> pa.RecordBatch:
    entries = [
        None
        if row is None
        else [{"key": key, "value": value, "type": kind} for key, value, kind in row]
        for row in rows
    ]
    batch = schemaless(*({"row": row} for row in range(len(rows))))
    return with_column(batch, batch.schema.field("headers"), pa.array(entries, HEADERS_TYPE))


def headers_of(batches: list[pa.RecordBatch]) -> list[Any]:
    return [
        None if row is None else [(each["key"], each["value"], each["type"]) for each in row]
        for batch in batches
        for row in batch.column("headers").to_pylist()
    ]


def test_all_headers_of_a_key_are_dropped() -> None:
    batch = with_headers([("x", b"", None)], RAW, None, [], RAW[::-1]).slice(1)
    found = headers_of(run(transform("DropHeaders", headers="a,c"), batch))
    assert found == [[RAW[1]], None, [], [RAW[1]]]


def test_a_header_comes_last() -> None:
    batch = with_headers([("x", b"", None)], RAW, None, []).slice(1)
    config = transform("InsertHeader", header="a", value__literal="12")
    added = ("a", b"12", '{"type":"int8","optional":false}')
    assert headers_of(run(config, batch)) == [[*RAW, added], [added], [added]]


@pytest.mark.parametrize(
    ("literal", "kind", "value"),
    [
        (" x ", {"type": "string"}, "x"),
        ("2024-1-1", {"type": "string"}, "2024-1-1"),
        ("[1,null]", {"type": "string"}, "[1,null]"),
        ("-128", {"type": "int8"}, -128),
        ("1e3", {"type": "int16"}, 1000),
        ("3.4028236E38", {"type": "double"}, 3.4028236e38),
        (
            "1e999999999",
            {
                "type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "version": 1,
                "parameters": {"scale": "-999999999"},
            },
            "AQ==",
        ),
        ("[1,300]", {"type": "array", "items": {"type": "int16", "optional": False}}, [1, 300]),
    ],
)  # fmt: skip
def test_a_literal_says_its_type(literal: str, kind: dict[str, Any], value: Any) -> None:
    config = transform("InsertHeader", header="h", value__literal=literal)
    ((_, found, found_kind),) = headers_of(run(config, schemaless({})))[0]
    assert json.loads(found_kind) == kind | {"optional": False}
    assert json.loads(found) == value


@pytest.mark.parametrize("negate", [False, True])
def test_records_with_a_header_key_are_chosen(negate: bool) -> None:
    batch = with_headers(RAW, None, [("c", b"", None)], [RAW[1]])
    config = transform("Filter") | only("HasHeaderKey", name="b", negate=negate)
    left = [row for each in run(config, batch) for row in each.column("value").to_pylist()]
    rows = [1, 2] if not negate else [0, 3]
    assert left == [f'{{"row":{row}}}' for row in rows]


def test_moments_beyond_pythons_calendar_become_headers() -> None:
    at = pa.array([10**15], pa.timestamp("ms", tz="UTC"))
    values = pa.StructArray.from_arrays([at], fields=[pa.field("at", at.type)])
    batch = with_column(schemaless({}), pa.field("value", values.type), values)
    config = transform("HeaderFrom$Value", fields="at", headers="h", operation="move")
    assert headers_of(run(config, batch))[0][0][1] == b"1000000000000000"


def test_long_decimals_keep_their_digits() -> None:
    unscaled = 12345678901234567890123456789012345678
    default = base64.b64encode(unscaled.to_bytes(16, "big")).decode()
    schema = optional(
        Type.BYTES, name=schemas.DECIMAL, parameters={"scale": "4"}, default=json.dumps(default)
    )
    config = transform("HeaderFrom$Value", fields="it", headers="h", operation="copy")
    (row,) = headers_of(run(config, with_schema(struct(it=schema), {"it": None})))
    assert int.from_bytes(base64.b64decode(json.loads(row[0][1])), "big") == unscaled
