"""Numbers are parsed, printed and narrowed like on the JVM; tests/golden has its results."""

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import pytest

from drover.transform import java_numbers as java
from tests.support.each import by, check_each
from tests.support.transform_corpus.harness import JavaAnswer, java_answers

#: Numbers that a JVM before 19 prints with more digits than needed.
_LONGER_BEFORE_19 = {("Float.toString", "1.1e10")}
_PORTS: Mapping[str, Callable[[str], Any]] = {
    "Double.toString": lambda text: java.double_text(java.parse_double(text)),
    "Float.toString": lambda text: java.float_text(java.parse_float(text)),
    "Double.parseDouble": lambda text: java.double_text(java.parse_double(text)),
    "Float.parseFloat": lambda text: java.float_text(java.parse_float(text)),
    "Byte.parseByte": lambda text: java.parse_integer(text, 8),
    "Short.parseShort": lambda text: java.parse_integer(text, 16),
    "Integer.parseInt": lambda text: java.parse_integer(text, 32),
    "Long.parseLong": lambda text: java.parse_integer(text, 64),
    "Double.byteValue": lambda text: java.narrow(java.parse_double(text), 8),
    "Double.shortValue": lambda text: java.narrow(java.parse_double(text), 16),
    "Double.intValue": lambda text: java.narrow(java.parse_double(text), 32),
    "Double.longValue": lambda text: java.narrow(java.parse_double(text), 64),
    # Python prints decimals by the same rule, and cast_values relies on it
    "BigDecimal.toString": lambda text: str(Decimal(text)),
}
_ANSWERS = by(java_answers(), lambda each: each.function)


@pytest.mark.parametrize("function", _PORTS)
def test_the_jvm_says_the_same(function: str) -> None:
    assert _ANSWERS[function]
    check_each(_ANSWERS[function], _check, lambda each: each.id)


def _check(asked: JavaAnswer) -> None:
    text = asked.arguments[0]
    if (asked.function, text) in _LONGER_BEFORE_19:
        assert len(_PORTS[asked.function](text)) < len(asked.answer)
    elif asked.fails:
        with pytest.raises(ValueError):
            _PORTS[asked.function](text)
    else:
        assert _PORTS[asked.function](text) == asked.answer


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # half way between two numbers of 32 bits once it is rounded to 64, but not before
        ("1.00000017881393432617187499", "1.0000001"),
        ("1.00000017881393432617187500", "1.0000002"),
        ("1.00000017881393432617187501", "1.0000002"),
    ],
)
def test_a_text_is_rounded_once(text: str, expected: str) -> None:
    assert java.float_text(java.parse_float(text)) == expected


def test_the_best_two_digits_are_written() -> None:
    assert java.double_text(5e-324) == "4.9E-324"
    assert java.float_text(java.to_float32(1.4e-45)) == "1.4E-45"
    assert java.double_text(2e23) == "2.0E23"
