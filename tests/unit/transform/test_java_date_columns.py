"""Columns of dates are formatted and parsed like single dates."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drover.transform.java_date_columns import DateColumns
from drover.transform.java_dates import DateFormat

_PATTERNS = (
    "yyyy-MM-dd'T'HH:mm:ss", "yyyyMMdd", "yyyy-MM-dd HH:mm:ss.SSSX", "HH:mm", "dd.MM.yyyy Z",
    "yyyy-M-d", "EEE, dd MMM yyyy",
)  # fmt: skip
_COLUMNS = {pattern: DateColumns(pattern) for pattern in _PATTERNS}
#: Patterns in which the digits of each letter have fixed positions.
_FIXED = _PATTERNS[:5]
#: From the year -900 to 13000, including Julian years and years with five digits.
_MOMENTS = st.none() | st.integers(-90_000_000_000_000, 350_000_000_000_000)
_NOISE = st.sampled_from(["", "x", " ", "1", "-"])


@settings(deadline=None)
@given(pattern=st.sampled_from(_PATTERNS), moments=st.lists(_MOMENTS), skipped=st.integers(0, 3))
def test_a_column_is_written_as_its_moments(
    pattern: str, moments: list[int | None], skipped: int
) -> None:
    columns = _COLUMNS[pattern]
    found = columns.format(pa.array(moments, pa.int64())[skipped:])
    assert found.to_pylist() == [
        None if each is None else columns.dates.format(each) for each in moments[skipped:]
    ]


@settings(deadline=None)
@given(
    pattern=st.sampled_from(_PATTERNS),
    rows=st.lists(st.tuples(_MOMENTS, _NOISE, _NOISE)),
    digits=st.text("0123456789", min_size=14, max_size=14),
    skipped=st.integers(0, 3),
)
def test_a_column_is_read_as_its_texts(
    pattern: str, rows: list[tuple[int | None, str, str]], digits: str, skipped: int
) -> None:
    columns = _COLUMNS[pattern]
    texts: list[str | None] = [
        None if ms is None else before + columns.dates.format(ms) + behind
        for ms, before, behind in rows
    ]
    # months, days and hours that do not exist
    texts.append(f"{digits[:4]}-{digits[4:6]}-{digits[6:8]}T{digits[8:10]}:{digits[10:12]}:00")
    texts.append(digits[:8])
    readable = [each for each in texts if each is None or _can_be_read(columns, each)][skipped:]
    found = columns.parse(pa.array(["", *readable], pa.string())[1:])
    assert found.to_pylist() == [
        None if each is None else columns.dates.parse(each) for each in readable
    ]


class _NoSingleTexts(DateFormat):
    """Fails when a single text is parsed or formatted."""

    def format(self, ms: int) -> str:
        raise AssertionError(f"{ms} is written alone")

    def parse(self, text: str) -> int:
        raise AssertionError(f"{text!r} is read alone")


@settings(deadline=None)
@given(
    pattern=st.sampled_from(_FIXED),
    # from the first day of the Gregorian calendar to years of four digits
    moments=st.lists(st.none() | st.integers(-12_219_292_800_000, 253_402_300_799_999)),
)
def test_columns_of_fixed_patterns_are_written_and_read_at_once(
    pattern: str, moments: list[int | None]
) -> None:
    alone = DateFormat(pattern)
    columns = DateColumns(pattern)
    columns.dates = _NoSingleTexts(pattern)
    texts = [None if each is None else alone.format(each) for each in moments]
    assert columns.format(pa.array(moments, pa.int64())).to_pylist() == texts
    assert columns.parse(pa.array(texts, pa.string())).to_pylist() == [
        None if each is None else alone.parse(each) for each in texts
    ]


def test_a_text_that_is_no_date_is_named() -> None:
    column = pa.array(["2024-02-29T12:34:56", "2024-02-3xT12:34:56"])
    with pytest.raises(ValueError, match=r"'2024-02-3xT12:34:56' does not match the pattern"):
        _COLUMNS[_PATTERNS[0]].parse(column)


def _can_be_read(columns: DateColumns, text: str) -> bool:
    try:
        columns.dates.parse(text)
    except ValueError:
        return False
    return True
