"""JSON, whatever the schema and the values are."""

import contextlib
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from drover.convert.json_decode import NotFastError, parse_each, parse_fast
from drover.convert.registry import build_converter, converter_config_def
from drover.record import RecordError, Schema, arrow_field, schema_of
from drover.record.json.encode import json_texts
from drover.record.json.schema_parser import parse_schema, schema_text
from tests.support.json_records import columns

_PIECES = st.sampled_from(
    ["", " ", "\n", "0", "1", "-", ".5", "e5", '"', "\\", "\\u12", "{", "}", "[", "]", ",", ":",
     "null", "true", "NaN", "Infinity", '"a":1', "9" * 20, "}{", '}\n{"payload":']
)  # fmt: skip


def json_converter(**config: str) -> Any:
    raw = {"value.converter": "Json"} | {
        f"value.converter.{name.replace('_', '.')}": text for name, text in config.items()
    }
    values = converter_config_def("value.converter", raw).parse(raw).require_valid()
    return build_converter("value.converter", values, is_key=False)


@given(columns())
def test_a_schema_comes_back_from_its_text(found: tuple[Schema, Any]) -> None:
    schema, _ = found
    assert parse_schema(schema_text(schema)) == schema


@given(columns(), st.sampled_from(["BASE64", "NUMERIC"]))
def test_values_come_back_with_their_schema(found: tuple[Schema, Any], decimals: str) -> None:
    schema, values = found
    converter = json_converter(decimal_format=decimals)
    field = arrow_field("value", schema)
    (decoded,) = converter.decode(converter.encode(field, values, None), None)
    assert schema_of(decoded.field) == schema
    assert decoded.values.equals(values)


@given(columns(), columns(), st.data())
def test_any_cut_into_batches_gives_the_same(
    one: tuple[Schema, Any], other: tuple[Schema, Any], data: st.DataObject
) -> None:
    converter = json_converter()
    texts = [
        text
        for schema, values in (one, other)
        for text in converter.encode(arrow_field("value", schema), values, None).to_pylist()
    ]
    texts = data.draw(st.permutations([*texts, None]))
    cut = data.draw(st.integers(0, len(texts)))
    whole = _rows(converter, texts)
    assert _rows(converter, texts[:cut]) + _rows(converter, texts[cut:]) == whole


def _rows(converter: Any, texts: list[bytes | None]) -> list[tuple[Any, Any]]:
    """Each row's schema and value."""
    found: dict[int, tuple[Any, Any]] = {}
    for each in converter.decode(pa.array(texts, pa.binary()), None):
        rows = range(len(texts)) if each.rows is None else each.rows.to_pylist()
        schema = schema_of(each.field)
        values = each.values if schema is None else json_texts(each.values, schema)
        found |= {row: (schema, value) for row, value in zip(rows, values.to_pylist(), strict=True)}
    return [found[row] for row in range(len(texts))]


@given(columns(), st.data())
@settings(max_examples=300)
def test_reading_at_once_gives_what_reading_one_by_one_gives(
    found: tuple[Schema, Any], data: st.DataObject
) -> None:
    """Texts are damaged, so that some are no JSON and some of another type."""
    schema, values = found
    texts = json_texts(values, schema).to_pylist()
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
