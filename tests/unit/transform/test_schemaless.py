"""Transforms of keys and values without schema."""

import datetime
import decimal
from typing import Any

import pytest

from drover.record import RecordError
from drover.record.json.form import PLAIN
from drover.record.json.schemaless import loads, plain_texts
from tests.support.records import AT, run, schemaless, side_of, transform

FULL = {"a": 1, "in": {"b": 2.5, "none": None, "empty": {}}, "list": [{"x": 1}], "s": "t"}
NESTED = {"field__syntax__version": "V2"}


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
        ("Flatten$Value", {}, {"at": AT}, "does not support a datetime: field 'at'"),
        ("ReplaceField$Value", {"include": "a"}, [1], "not a list"),
        ("Flatten$Value", {}, {"a": {"b": 1}, "a.b": 2}, "more than one field called 'a.b'"),
        ("ReplaceField$Value", {"renames": "a:s"}, FULL, "more than one field called 's'"),
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


LONG = '{"it":0.12345678901234567890,"other":18446744073709551615.5,"n":18446744073709551615}'


@pytest.mark.parametrize(
    ("kind", "settings", "written"),
    [
        ("ReplaceField$Value", {"exclude": "x"}, LONG),
        ("Flatten$Value", {}, LONG),
        ("HoistField$Value", {"field": "in"}, f'{{"in":{LONG}}}'),
        ("ExtractField$Value", {"field": "it"}, "0.12345678901234567890"),
        (
            "Cast$Value",
            {"spec": "other:string"},
            LONG.replace("18446744073709551615.5", '"18446744073709551615.5"'),
        ),
        ("MaskField$Value", {"fields": "other"}, LONG.replace("18446744073709551615.5", "0.0")),
    ],
)
def test_numbers_keep_their_digits(kind: str, settings: dict[str, str], written: str) -> None:
    batch = schemaless(loads(LONG))
    (found,) = run(transform(kind, **settings), batch)
    assert plain_texts(found.column("value"), PLAIN).to_pylist() == [written]
