"""Values without a schema: in batches, and as text."""

import datetime
import decimal
import json
import math
from typing import Any

import pyarrow as pa
import pytest

from drover.record import RecordError
from drover.record.json.form import CONNECT, CONNECT_NUMERIC, PLAIN, PLAIN_FOR_DATABASES, JsonForm
from drover.record.json.schemaless import TAG, dumps, loads, plain_texts, value_text

AT = datetime.datetime(1970, 1, 1, 0, 0, 2, 500000, tzinfo=datetime.UTC)
EVERY: dict[str, Any] = {
    "b": b"\x00\xff",
    "d": decimal.Decimal("1.50"),
    "day": datetime.date(1970, 1, 3),
    "t": datetime.time(0, 0, 1),
    "at": AT,
    "list": [1, 2.5, None, True, 'a "b"'],
}
LIST = '[1,2.5,null,true,"a \\"b\\""]'


def test_they_may_hold_what_json_cannot() -> None:
    value: Any = {
        "bytes": b"\x00\xff",
        "list": [decimal.Decimal("1.20"), datetime.date(2024, 2, 29), datetime.time(1, 2, 3)],
        "at": datetime.datetime(2024, 2, 29, 1, 2, 3, 4000, tzinfo=datetime.UTC),
    }
    assert loads(dumps(value)) == value
    assert loads('{"a": [1, 2.5, null]}') == {"a": [1, 2.5, None]}


def test_a_user_may_not_smuggle_a_tag_of_unknown_kind() -> None:
    assert loads(dumps({TAG: ["other", "x"]})) == {TAG: ["other", "x"]}


def test_other_classes_are_refused() -> None:
    with pytest.raises(TypeError, match="a set cannot be part"):
        dumps({"a": set()})


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        (CONNECT, f'{{"b":"AP8=","d":"AJY=","day":2,"t":1000,"at":2500,"list":{LIST}}}'),
        (CONNECT_NUMERIC, f'{{"b":"AP8=","d":1.50,"day":2,"t":1000,"at":2500,"list":{LIST}}}'),
        (PLAIN, '{"b":"AP8=","d":1.50,"day":"1970-01-03","t":"00:00:01",'
         f'"at":"1970-01-01T00:00:02.500000Z","list":{LIST}}}'),
        (PLAIN_FOR_DATABASES, '{"b":"AP8=","d":"1.50","day":"1970-01-03","t":"00:00:01",'
         f'"at":"1970-01-01T00:00:02.500000Z","list":{LIST}}}'),
    ],
)  # fmt: skip
def test_they_are_written_without_tags_in_each_form(form: JsonForm, expected: str) -> None:
    found = plain_texts(pa.array([dumps(EVERY), '{"as": 1.50}', None]), form)
    assert found.to_pylist() == [expected, '{"as": 1.50}', None]
    assert value_text(EVERY, form) == expected


def test_a_tag_in_what_is_no_json_is_an_error() -> None:
    with pytest.raises(RecordError, match="is no JSON"):
        plain_texts(pa.array([dumps(b"x"), json.dumps(TAG) + "{"]), PLAIN)


@pytest.mark.parametrize(
    ("value", "connect", "plain"),
    [
        (math.nan, '"NaN"', "null"),
        (-math.inf, '"-Infinity"', "null"),
        (decimal.Decimal("1E+3"), '"AQ=="', "1E+3"),
        ({1: "a", (2, "b"): None}, '{"1":"a","[2,\\"b\\"]":null}', None),
        (AT.astimezone(datetime.timezone(datetime.timedelta(hours=2))), "2500",
         '"1970-01-01T00:00:02.500000Z"'),
        (range(2), '"range(0, 2)"', None),
    ],
    ids=str,
)  # fmt: skip
def test_a_single_value_is_written_in_each_form(
    value: Any, connect: str, plain: str | None
) -> None:
    assert value_text(value, CONNECT) == connect
    assert value_text(value, PLAIN) == (plain or connect)


def test_a_time_without_a_zone_says_none() -> None:
    assert value_text(AT.replace(tzinfo=None)) == '"1970-01-01T00:00:02.500000"'
