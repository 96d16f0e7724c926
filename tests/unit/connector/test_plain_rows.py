"""Rows in memory become a table with all their fields, or an error names the faulty row."""

from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drover.connector.plain_rows import PlainRowsError, table_of

DAY, NOON = date(2026, 1, 2), datetime(2026, 1, 2, 12)


def test_fields_that_the_first_row_lacks_are_columns() -> None:
    table = table_of([{"id": 1}, {"id": 2, "name": "b"}, {"more": {"x": 1}}])
    assert table.column_names == ["id", "name", "more"]
    assert table.to_pylist() == [
        {"id": 1, "name": None, "more": None},
        {"id": 2, "name": "b", "more": None},
        {"id": None, "name": None, "more": {"x": 1}},
    ]


def test_integers_beside_floats_are_floats() -> None:
    assert table_of([{"n": 1}, {"n": 2.5}]).column("n").to_pylist() == [1.0, 2.5]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([{"n": None}, {"n": 1}, {"n": "x"}], "field 'n' of row 2 is str, and int in rows before"),
        ([{"n": 1}, {"n": [1]}], "field 'n' of row 1 is list, and int in rows before it"),
        ([{"n": 1}, {"n": 1 << 70}], "field 'n' of row 1 is int, and int in rows before it"),
        ([{"n": object()}], "field 'n' of row 0 is object: "),
        ([{"at": DAY}, {"at": NOON}], "field 'at' of row 1 is datetime, and date in rows before"),
        ([{"at": NOON}, {"at": NOON.replace(tzinfo=UTC)}], "field 'at' of row 1 is datetime"),
        ([{"n": 1}, [1]], "row 1 is list: it must be a dict of fields"),
        ([{1: 2}], "row 0 has a field named 1: names must be strings"),
        ([{}, {}], "none of the rows has a field"),
    ],
)
def test_rows_that_are_no_table_are_refused_by_row_and_field(rows: Any, words: str) -> None:
    with pytest.raises(PlainRowsError) as caught:
        table_of(rows)
    assert words in str(caught.value)


def test_no_rows_are_a_table_without_columns() -> None:
    assert table_of([]).equals(pa.table({}))


@given(st.lists(st.dictionaries(st.sampled_from("abcd"), st.integers(-9, 9), min_size=1)))
def test_nothing_that_a_row_has_is_left_out(rows: list[dict[str, int]]) -> None:
    found = [
        {name: value for name, value in row.items() if value is not None}
        for row in table_of(rows).to_pylist()
    ]
    assert found == rows
