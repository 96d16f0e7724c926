"""Dates are parsed and formatted like Java's SimpleDateFormat; tests/golden has its results."""

from typing import Any

import pytest

from drover.transform import java_calendar
from drover.transform.java_dates import DateFormat
from tests.support.each import by, check_each
from tests.support.transform_corpus.harness import JavaAnswer, java_answers

_ANSWERS = by(java_answers(), lambda each: each.function)


@pytest.mark.parametrize("function", ["format", "parse"])
def test_the_jvm_says_the_same(function: str) -> None:
    asked = _ANSWERS[f"SimpleDateFormat.{function}"]
    assert asked
    check_each(asked, _check, lambda each: each.id)


def _check(asked: JavaAnswer) -> None:
    if asked.fails:
        with pytest.raises(ValueError):
            _port(asked)
    else:
        assert _port(asked) == asked.answer


def _port(asked: JavaAnswer) -> Any:
    pattern, what = asked.arguments
    dates = DateFormat(pattern)
    return dates.format(what) if asked.function.endswith("format") else dates.parse(what)


def test_every_day_has_one_date() -> None:
    days = [*range(-800_000, 800_000, 97), *range(-141_800, -141_000), *range(-400, 400)]
    for day in days:
        assert java_calendar.day_number(*java_calendar.date_of(day)) == day
