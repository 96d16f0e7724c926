"""Columns from JSON: all texts at once, or one by one."""

import contextlib
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from drover.record import RecordError, Schema, arrow_field
from drover.record.json.decode import NotFastError, parse_each, parse_fast
from drover.record.json.encode import checked_texts
from drover.record.json.form import CONNECT
from tests.support.json_records import columns

_PIECES = st.sampled_from(
    ["", " ", "\n", "0", "1", "-", ".5", "e5", '"', "\\", "\\u12", "{", "}", "[", "]", ",", ":",
     "null", "true", "NaN", "Infinity", '"a":1', "9" * 20, "}{", '}\n{"payload":']
)  # fmt: skip


@given(columns(), st.data())
@settings(max_examples=300)
def test_reading_at_once_gives_what_reading_one_by_one_gives(
    found: tuple[Schema, Any], data: st.DataObject
) -> None:
    """Texts are damaged, so that some are no JSON and some of another type."""
    schema, values = found
    texts = checked_texts(arrow_field("value", schema), values, CONNECT).to_pylist()
    for index in range(len(texts)):
        if data.draw(st.integers(0, 2)) == 0:
            begin = data.draw(st.integers(0, len(texts[index])))
            end = data.draw(st.integers(begin, min(begin + 2, len(texts[index]))))
            texts[index] = texts[index][:begin] + data.draw(_PIECES) + texts[index][end:]
    lines = pa.array([f'\n{{"payload":{text}}}' for text in texts], pa.string())
    with contextlib.suppress(NotFastError, pa.ArrowInvalid, pa.ArrowNotImplementedError):
        _compare(lines, schema)


def _compare(lines: Any, schema: Schema) -> None:
    at_once: Any
    try:
        at_once = parse_fast(lines, schema, replace_null=True)
    except RecordError:
        at_once = None
    try:
        expected = parse_each(lines, schema, replace_null=True)
    except RecordError:
        expected = None
    assert (at_once is None) == (expected is None), (at_once, expected)
    assert at_once is None or at_once.equals(expected), (at_once, expected)
