"""Columns from JSON: all texts at once, or one by one."""

import math
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drover.record import Field, RecordError, Schema, Type, arrow_field
from drover.record.json.decode import NotFastError, parse_each, parse_fast
from drover.record.json.encode import checked_texts
from drover.record.json.form import CONNECT
from tests.support.json_records import columns

_PIECES = st.sampled_from(
    ["", " ", "\n", "0", "1", "-", ".5", "e5", '"', "\\", "\\u12", "{", "}", "[", "]", ",", ":",
     "null", "true", "NaN", "Infinity", '"a":1', "9" * 20, "}{", '}\n{"payload":']
)  # fmt: skip


@given(columns(), st.data())
@settings(max_examples=150)
def test_reading_at_once_gives_what_reading_one_by_one_gives(
    found: tuple[Schema, Any], data: st.DataObject
) -> None:
    """Some texts are damaged: they are no JSON, or of another type.

    Arrow must read undamaged texts if ``_is_read_at_once`` is true.
    """
    schema, values = found
    written = checked_texts(arrow_field("value", schema), values, CONNECT).to_pylist()
    texts = [_damaged(text, data) for text in written]
    lines = _lines(texts)
    try:
        at_once = _outcome(parse_fast, lines, schema)
    except (NotFastError, pa.ArrowInvalid, pa.ArrowNotImplementedError):
        assert texts != written or not _is_read_at_once(schema, values), (schema, texts)
    else:
        _assert_same(at_once, _outcome(parse_each, lines, schema))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (' { "a" : 1 ,\t"b" : [ ] } ', {"a": 1, "b": []}),
        ('{"b":[true,false],"a":-7}', {"a": -7, "b": [True, False]}),
        ('{"a":null,"b":[]}', {"a": None, "b": []}),
        ('{"b":[]}', {"a": None, "b": []}),
    ],
)
def test_texts_of_other_writers_are_read_at_once(text: str, value: Any) -> None:
    number = Schema(Type.INT32, optional=True)
    flags = Schema(Type.ARRAY, value_schema=Schema(Type.BOOLEAN))
    schema = Schema(Type.STRUCT, fields=(Field("a", number), Field("b", flags)))
    lines = _lines([text])
    found = _outcome(parse_fast, lines, schema)
    assert found.to_pylist() == [value]
    _assert_same(found, _outcome(parse_each, lines, schema))


def _damaged(text: str, data: st.DataObject) -> str:
    if data.draw(st.integers(0, 2)):
        return text
    begin = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(begin, min(begin + 2, len(text))))
    return text[:begin] + data.draw(_PIECES) + text[end:]


def _lines(texts: list[str]) -> Any:
    return pa.array([f'\n{{"payload":{text}}}' for text in texts], pa.string())


def _is_read_at_once(schema: Schema, values: Any) -> bool:
    """Whether Arrow has to read the texts of these values.

    It does not read maps, objects without fields, and numbers that are not finite, which are
    written as strings. It cannot fill in the default of a struct or an array.
    """
    match schema.type:
        case Type.MAP:
            return False
        case Type.STRUCT:
            fields = values.flatten()
            parts = [(f.schema, column) for f, column in zip(schema.fields, fields, strict=True)]
        case Type.ARRAY:
            assert schema.value_schema is not None
            parts = [(schema.value_schema, values.flatten())]
        case Type.FLOAT32 | Type.FLOAT64:
            # the reader would round longer whole numbers, which other writers may send
            limit = 2**53 if schema.type is Type.FLOAT64 else math.inf
            return all(value is None or abs(value) < limit for value in values.to_pylist())
        case _:
            return True
    if schema.default is not None and values.null_count:
        return False
    return bool(parts) and all(_is_read_at_once(part, column) for part, column in parts)


def _outcome(parse: Callable[[Any, Schema, bool], Any], lines: Any, schema: Schema) -> Any:
    """The column, or None where a payload is not of the schema."""
    try:
        return parse(lines, schema, True)
    except RecordError:
        return None


def _assert_same(at_once: Any, expected: Any) -> None:
    assert (at_once is None) == (expected is None), (at_once, expected)
    assert at_once is None or at_once.equals(expected), (at_once, expected)
