"""Transforms of keys and values without schema."""

import datetime
import decimal
from typing import Any

import pytest

from drover.record import RecordError
from tests.support.records import AT, run, schemaless, side_of, transform

FULL = {"a": 1, "in": {"b": 2.5, "none": None, "empty": {}}, "list": [{"x": 1}], "s": "t"}
AT_MS = int(AT.timestamp() * 1000)
NESTED = {"field__syntax__version": "V2"}

CASES: list[tuple[str, dict[str, str], Any]] = [
    ("ExtractField$Value", {"field": "a"}, 1),
    ("ExtractField$Value", {"field": "in"}, FULL["in"]),
    ("ExtractField$Value", {"field": "no"}, None),
    ("ExtractField$Value", {"field": "in.b"}, None),
    ("ExtractField$Value", {"field": "in.b"} | NESTED, 2.5),
    ("ExtractField$Value", {"field": "in.none.x"} | NESTED, None),
    ("Flatten$Value", {}, {"a": 1, "in.b": 2.5, "in.none": None, "list": [{"x": 1}], "s": "t"}),
    ("HoistField$Value", {"field": " it "}, {"it": FULL}),
    ("MaskField$Value", {"fields": "a,list,in,no,s"}, {
        "a": 0, "in": {}, "list": [], "no": None, "s": "",
    }),
    ("MaskField$Value", {"fields": "a,s", "replacement": "12"}, FULL | {"a": 12, "s": "12"}),
    ("ReplaceField$Value", {"include": "a,s", "renames": "a:b"}, {"b": 1, "s": "t"}),
    ("ReplaceField$Value", {"exclude": "in,list", "renames": "a:s"}, {"s": "t"}),
    (
        "InsertField$Value",
        {
            "topic__field": "a!", "partition__field": "p", "offset__field": "o",
            "timestamp__field": "at", "static__field": "z", "static__value": "x",
        },
        FULL | {"a": "t", "p": 3, "o": 40, "at": AT_MS, "z": "x"},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "settings", "expected"), CASES)
@pytest.mark.parametrize("side", ["key", "value"])
def test_maps(kind: str, settings: dict[str, str], expected: Any, side: str) -> None:
    config = transform(kind.replace("Value", side.capitalize()), **settings)
    assert side_of(run(config, schemaless(FULL, side=side)), side) == [expected]


def test_a_key_of_fields_that_are_not_there_has_nulls() -> None:
    batches = run(transform("ValueToKey", fields="a,no"), schemaless(FULL))
    assert side_of(batches, "key") == [{"a": 1, "no": None}]
    assert side_of(batches) == [FULL]


@pytest.mark.parametrize(
    ("value", "masked"),
    [
        (True, False),
        (2.5, 0.0),
        (decimal.Decimal("1.5"), decimal.Decimal(0)),
        (AT, datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)),
        (AT.date(), datetime.date(1970, 1, 1)),
        (datetime.time(1), datetime.time(0)),
    ],
)
def test_masks_are_of_the_kind(value: Any, masked: Any) -> None:
    found = side_of(run(transform("MaskField$Value", fields="it"), schemaless({"it": value})))
    assert found == [{"it": masked}]
    assert type(found[0]["it"]) is type(masked)


def test_sources_know_no_partition_and_timestamp() -> None:
    config = transform("InsertField$Value", partition__field="p!", timestamp__field="at")
    assert side_of(run(config, schemaless({}, of_source=True))) == [{}]


@pytest.mark.parametrize(
    ("kind", "settings", "value", "fault"),
    [
        ("ExtractField$Value", {"field": "a"}, "text", "no map"),
        ("ExtractField$Value", {"field": "a.b"} | NESTED, FULL, "no map"),
        ("Flatten$Value", {}, "text", "flattening needs a map in the value, not text"),
        ("Flatten$Value", {}, {"at": AT}, "does not know a datetime: field 'at'"),
        ("ReplaceField$Value", {"include": "a"}, [1], "not a list"),
        ("MaskField$Value", {"fields": "a"}, None, "needs a value, not null"),
        ("MaskField$Value", {"fields": "a"}, {"a": b"x"}, "bytes cannot be masked"),
        ("MaskField$Value", {"fields": "a", "replacement": "1"}, {"a": True}, "a replacement"),
        ("MaskField$Value", {"fields": "a", "replacement": "x"}, {"a": 1}, "masked with 'x'"),
        ("SetSchemaMetadata$Value", {"schema__name": "x"}, FULL, "without schema"),
        ("ValueToKey", {"fields": "a"}, None, "not null"),
        ("HeaderFrom$Value", {"fields": "a", "headers": "h", "operation": "move"}, None, "null"),
    ],
)
def test_what_cannot_be_done_is_refused(
    kind: str, settings: dict[str, str], value: Any, fault: str
) -> None:
    with pytest.raises(RecordError, match=fault):
        run(transform(kind, **settings), schemaless(value))


@pytest.mark.parametrize(
    ("kind", "settings", "expected"),
    [
        ("Flatten$Value", {}, None),
        ("ReplaceField$Value", {"include": "a"}, None),
        ("InsertField$Value", {"topic__field": "x!"}, None),
        ("ExtractField$Value", {"field": "a"}, None),
        ("HoistField$Value", {"field": "it"}, {"it": None}),
    ],
)
def test_null_passes_or_is_wrapped(kind: str, settings: dict[str, str], expected: Any) -> None:
    assert side_of(run(transform(kind, **settings), schemaless({}, None)))[1] == expected
    assert side_of(run(transform(kind, **settings), schemaless(None))) == [expected]
