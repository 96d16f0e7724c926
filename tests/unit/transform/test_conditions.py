"""Conditions on records, written as text."""

import pyarrow as pa
import pytest

from drover.record import make_batch
from drover.record.batch import HEADERS_TYPE
from drover.record.json.form import SHOWN
from drover.record.schema import arrow_field
from drover.transform.conditions import Condition, split_path
from drover.transform.part_texts import part_texts
from tests.support.records import schemaless

VALUES = ['{"a":1,"b":"x","in":{"n":2.5}}', '{"a":2}', '"hi"', None]
BATCH = make_batch(
    4,
    topic=pa.array(["t"] * 4),
    partition=pa.array([0, 0, 1, 1], pa.int32()),
    offset=pa.array([7, 8, 7, 8]),
    timestamp=pa.array([0, 1_000, 2_000, None], pa.timestamp("ms", tz="UTC")),
    key=(pa.field("key", pa.string()), pa.array(["k", None, "z", "k"])),
    value=(arrow_field("value", None), pa.array(VALUES, pa.string())),
    headers=pa.array(
        [[{"key": "h", "value": b"0", "type": None}, {"key": "h", "value": b"1", "type": None}],
         None, [], None],
        HEADERS_TYPE,
    ),
)  # fmt: skip


@pytest.mark.parametrize(
    ("condition", "rows"),
    [
        ("a=1", [0]),
        (" a = 1 ", [0]),
        ("a>1", [1]),
        ("a>=1", [0, 1]),
        ("a<2", [0]),
        ("a<=2", [0, 1]),
        ("a!=1", [1, 2, 3]),
        ("b='x'", [0]),
        ("b=x", [0]),
        ("in.n=2.5", [0]),
        ("value.in.n>2", [0]),
        ("value=hi", [2]),
        ("value~h.", [2]),
        ("key=k", [0, 3]),
        ("partition=1", [2, 3]),
        ("offset>7", [1, 3]),
        ("timestamp>1970-01-01T00:00:01Z", [2]),
        ("headers.h=1", [0]),
        ("headers.h=0", []),
        ("none=1", []),
        ("a=x", []),
        ("a!='=x'", [0, 1, 2, 3]),
        ("b~=|x", [0]),
    ],
)
def test_a_condition_compares_a_part_of_a_record(condition: str, rows: list[int]) -> None:
    matched = Condition(condition).matches(BATCH).to_pylist()
    assert [row for row, each in enumerate(matched) if each] == rows


def test_a_column_name_is_a_field_behind_value() -> None:
    batch = schemaless({"offset": 3}, {"offset": 4})
    assert Condition("value.offset=4").matches(batch).to_pylist() == [False, True]


@pytest.mark.parametrize(
    ("condition", "rows"),
    [("value=hi", [0]), ("value~h.", [0]), ("value!=hi", [1, 2]), ("value>=0", [0])],
)
def test_a_whole_value_of_bytes_compares_as_text(condition: str, rows: list[int]) -> None:
    values = pa.array([b"hi", b"\xff", None], pa.binary())
    batch = make_batch(3, value=(pa.field("value", pa.binary()), values))
    matched = Condition(condition).matches(batch).to_pylist()
    assert [row for row, each in enumerate(matched) if each] == rows


def test_parts_are_written_as_people_read_them() -> None:
    kinds = pa.struct([("raw", pa.binary()), ("at", pa.timestamp("ns"))])
    values = pa.array([{"raw": b"\xff", "at": 1}, None], kinds)
    headers = [[{"key": "h", "value": b"\xff", "type": None}], []]
    batch = make_batch(
        2, value=(pa.field("value", kinds), values), headers=pa.array(headers, HEADERS_TYPE)
    )
    for path, texts in (
        ("raw", ['{"bytes":"/w=="}', "null"]),
        ("at", ['"1970-01-01T00:00:00.000000001"', "null"]),
        ("gone", ["null", "null"]),
        ("headers.h", ['"0xff"', "null"]),
    ):
        assert part_texts(batch, *split_path(path), SHOWN).to_pylist() == texts


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "must be <path>"),
        ("a", "must be <path>"),
        ("a=1 or b=2", ""),
        ("partition.x=1", "has no fields"),
        ("headers=1", "name a header"),
        ("a~(", "no regular expression"),
        ("a..b=1", "no path"),
        ("offset>=abc", "offset is a number"),
        ("partition~1", "partition is a number"),
        ("timestamp>yesterday", "timestamp is a time"),
        ("timestamp=1700000000000", "timestamp is a time"),
        ("timestamp>2026-01-01T00:00:00+19:00", "timestamp is a time"),
        ("a==1", "== is no operator"),
        ("a=>1", "=> is no operator"),
        ("a<>1", "<> is no operator"),
        (" =1", "no path"),
        ("a" + " " * 100_000, "must be <path>"),  # with re.match's attempts it would not end
        ("a" + "`" * 100_001, "must be <path>"),
    ],
    ids=lambda each: each[:20],
)
def test_what_is_no_condition_is_refused(text: str, said: str) -> None:
    if not said:  # everything after the operator is the operand
        assert Condition(text).path == ("a",)
        return
    with pytest.raises(ValueError, match=said):
        Condition(text)
