"""Dates are read and written as Java's SimpleDateFormat does; the JVM was asked (tests/golden)."""

from typing import Any

import pytest

from drover.transform import java_calendar
from drover.transform.java_dates import DateFormat
from tests.support.transform_corpus.harness import java_answers

_ANSWERS = [each for each in java_answers() if each.function.startswith("SimpleDateFormat.")]


@pytest.mark.parametrize("asked", _ANSWERS, ids=lambda each: each.id)
def test_the_jvm_says_the_same(asked: Any) -> None:
    if asked.fails:
        with pytest.raises(ValueError):
            _port(asked)
    else:
        assert _port(asked) == asked.answer


def _port(asked: Any) -> Any:
    pattern, what = asked.arguments
    dates = DateFormat(pattern)
    return dates.format(what) if asked.function.endswith("format") else dates.parse(what)


def test_every_day_has_one_date() -> None:
    days = [*range(-800_000, 800_000, 97), *range(-141_800, -141_000), *range(-400, 400)]
    for day in days:
        assert java_calendar.day_number(*java_calendar.date_of(day)) == day
