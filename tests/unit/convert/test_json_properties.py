"""JSON round trips of generated schemas and values."""

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from drover.convert.registry import build_converter, converter_config_def
from drover.record import Schema, arrow_field, schema_of
from drover.record.json.encode import json_texts
from drover.record.json.form import CONNECT
from tests.support.json_records import columns


def json_converter(**config: str) -> Any:
    raw = {"value.converter": "Json"} | {
        f"value.converter.{name.replace('_', '.')}": text for name, text in config.items()
    }
    values = converter_config_def("value.converter", raw).parse(raw).require_valid()
    return build_converter("value.converter", values, is_key=False)


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
    """The schema and value of each row."""
    found: dict[int, tuple[Any, Any]] = {}
    for each in converter.decode(pa.array(texts, pa.binary()), None):
        rows = range(len(texts)) if each.rows is None else each.rows.to_pylist()
        schema = schema_of(each.field)
        values = each.values if schema is None else json_texts(each.field, each.values, CONNECT)
        found |= {row: (schema, value) for row, value in zip(rows, values.to_pylist(), strict=True)}
    return [found[row] for row in range(len(texts))]
