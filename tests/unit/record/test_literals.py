"""Texts without a type: a text that is no literal is a string, and none fails."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from drover.record.literals import Parsed, parse_literal
from drover.record.schema import Type

_PARTS = st.sampled_from(
    [*'0123456789+-.eE,:[]{}"\\ ', "999999999", "null", "true", "1970-01-01", "00:00:00.000Z", "T"]
)


@given(st.one_of(st.text(), st.lists(_PARTS).map("".join)), st.booleans())
@example("1e999999999", False)
@example("1e999999999", True)
@example("[-1E999999999, 1]", False)
@example('{"a": 1e400000000}', False)
@example("1" * 5_000, True)
def test_no_text_fails(text: str, any_decimal: bool) -> None:
    assert isinstance(parse_literal(text, any_decimal=any_decimal), Parsed)


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("1e999999999", Type.STRING, "1e999999999"),  # no column can hold it
        ("-1E99999999", Type.STRING, "-1E99999999"),
        ("[1e999999999]", Type.STRING, "[1e999999999]"),
        ("1e-999999999", Type.FLOAT64, 0.0),
        ("0e999999999", Type.INT8, 0),
        ("0e-999999999", Type.INT8, 0),
        ("-1e300", Type.FLOAT64, -1e300),
    ],
)
def test_numbers_of_any_exponent(text: str, kind: Type, value: object) -> None:
    parsed = parse_literal(text)
    assert parsed.schema is not None
    assert (parsed.schema.type, parsed.value) == (kind, value)


@pytest.mark.parametrize(
    "text",
    [
        "407127e212797209",
        "1e1000000",
        "-1E1000000000",
        "1e-1000000000",
        "1e99999999999999999999",
        "-9e999999999999999999",
    ],
)
@pytest.mark.parametrize("padding", ["", " "])
def test_a_text_like_a_number_with_a_huge_exponent_stays_text(text: str, padding: str) -> None:
    found = parse_literal(padding + text)
    assert found.schema is not None
    assert (found.schema.type, found.value) == (Type.STRING, padding + text)
