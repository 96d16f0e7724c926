"""Columns of dates: vectorised for patterns of fixed width, row by row for all others."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from drover.model.times import DAY_MS, TIME_MAX_MS
from drover.record.arrow import Array, Texts
from drover.transform.java_calendar import CUTOVER_DAY
from drover.transform.java_dates import DateFormat

#: The pattern letters with fixed width, and their number of digits.
_WIDTHS = {"y": 4, "M": 2, "d": 2, "H": 2, "m": 2, "s": 2, "S": 3}
#: The text of UTC by pattern letter; texts with other zones are parsed row by row.
_UTC = {"X": "Z", "Z": "+0000"}
_UNIT_MS = {"H": 3_600_000, "m": 60_000, "s": 1000, "S": 1}
_ZERO = ord("0")


class DateColumns:
    """Parses and formats columns of dates by a pattern; ``dates`` does so for single texts."""

    def __init__(self, pattern: str) -> None:
        """Compile a pattern.

        Raises:
            ValueError: The pattern is invalid.
        """
        self.dates = DateFormat(pattern)
        self._places: dict[str, int] = {}
        self._literals: list[tuple[int, int]] = []
        self._width = 0
        self._is_fixed = self._lay_out()

    def parse(self, texts: Texts) -> Array:
        """Parse a column of texts to milliseconds (int64); null for null.

        Raises:
            ValueError: A text is no date; the message names it.
        """
        if not self._is_fixed:
            return self._parse_rows(texts)
        clean = pc.fill_null(pc.equal(pc.binary_length(texts), self._width), False)
        parsed, is_date = self._parse_fixed(texts if _all(clean) else texts.filter(clean))
        if len(parsed) == len(texts) and is_date.all():
            return pa.array(parsed)
        # rows of the right width, then of these the ones that are dates
        done = clean.to_numpy(zero_copy_only=False).copy()
        numbers = np.zeros(len(texts), np.int64)
        numbers[done] = parsed
        done[done] = is_date
        rest = pa.array(~done)
        return pc.replace_with_mask(pa.array(numbers), rest, self._parse_rows(texts.filter(rest)))

    def format(self, ms: Array) -> Texts:
        """Format a column of milliseconds (int64) as texts; null for null."""
        if not self._is_fixed or not len(ms):
            return self._format_rows(ms)
        numbers = pc.fill_null(ms, 0).to_numpy(zero_copy_only=False)
        inside = (numbers >= CUTOVER_DAY * DAY_MS) & (numbers <= TIME_MAX_MS)
        texts = self._format_fixed(numbers if inside.all() else np.where(inside, numbers, 0))
        if not inside.all():
            rest = pa.array(~inside)
            texts = pc.replace_with_mask(texts, rest, self._format_rows(ms.filter(rest)))
        return pc.if_else(pc.is_valid(ms), texts, None) if ms.null_count else texts

    def _lay_out(self) -> bool:
        """Compute the positions of digits and literals; False if they depend on the text."""
        previous = ""
        for part in self.dates.parts:
            zone = _UTC.get(part.letter, "")
            if part.letter and not zone:
                if _WIDTHS.get(part.letter) != part.count or part.letter in self._places:
                    return False
                self._places[part.letter] = self._width
                self._width += part.count
            else:
                text = part.text or zone
                if not text.isascii() or (previous and text[0].isdigit()):
                    return False
                self._literals += [(self._width + at, ord(char)) for at, char in enumerate(text)]
                self._width += len(text)
            previous = part.letter
        return bool(self._places)

    def _parse_fixed(self, texts: Texts) -> tuple[Any, Any]:
        """Milliseconds of texts of the right width, and whether each matches the pattern."""
        characters = _matrix(texts, self._width)
        is_date = np.ones(len(texts), bool)
        for at, char in self._literals:
            is_date &= characters[:, at] == char
        numbers: dict[str, Any] = {}
        for letter, start in self._places.items():
            total = np.zeros(len(texts), np.int64)
            for at in range(start, start + _WIDTHS[letter]):
                digit = characters[:, at] - np.uint8(_ZERO)
                is_date &= digit < 10
                total = total * 10 + digit
            numbers[letter] = total
        days = _day_numbers(
            numbers.get("y", np.int64(1970)), numbers.get("M", np.int64(1)), numbers.get("d", 1)
        )
        is_date &= days >= CUTOVER_DAY
        ms = days * DAY_MS
        for letter, unit_ms in _UNIT_MS.items():
            if letter in numbers:
                ms = ms + numbers[letter] * unit_ms
        return np.broadcast_to(ms, (len(texts),)), is_date

    def _format_fixed(self, ms: Array) -> Texts:
        characters = np.empty((len(ms), self._width), np.uint8)
        for at, char in self._literals:
            characters[:, at] = char
        days, of_day = np.divmod(ms, DAY_MS)
        dates = days.astype("datetime64[D]")
        months = dates.astype("datetime64[M]")
        numbers = {
            "y": months.astype("datetime64[Y]").astype(np.int64) + 1970,
            "M": months.astype(np.int64) % 12 + 1,
            "d": days - months.astype("datetime64[D]").astype(np.int64) + 1,
            "H": of_day // 3_600_000,
            "m": of_day // 60_000 % 60,
            "s": of_day // 1000 % 60,
            "S": of_day % 1000,
        }
        for letter, start in self._places.items():
            rest = numbers[letter].astype(np.int32)
            for at in reversed(range(start, start + _WIDTHS[letter])):
                rest, digit = np.divmod(rest, np.int32(10))
                characters[:, at] = digit + _ZERO
        offsets = np.arange(0, (len(ms) + 1) * self._width, self._width, dtype=np.int32)
        return pa.StringArray.from_buffers(
            len(ms), pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(characters))
        )

    def _parse_rows(self, texts: Texts) -> Array:
        found = []
        for text in texts.to_pylist():
            try:
                found.append(None if text is None else self.dates.parse(text))
            except ValueError as error:
                raise ValueError(
                    f"{text[:80]!r} does not match the pattern {self.dates.pattern!r}: {error}"
                ) from error
        return pa.array(found, pa.int64())

    def _format_rows(self, ms: Array) -> Texts:
        texts = [None if each is None else self.dates.format(each) for each in ms.to_pylist()]
        return pa.array(texts, pa.string())


def _all(mask: Any) -> bool:
    return bool(pc.all(mask).as_py())


def _matrix(texts: Texts, width: int) -> Any:
    """The bytes of texts with this width, as a matrix with one row per text."""
    _, offsets, data = texts.buffers()
    if data is None or not len(texts):
        return np.zeros((0, width), np.uint8)
    # no text is null, so they are contiguous
    first = int(np.frombuffer(offsets, np.int32)[texts.offset])
    return np.frombuffer(data, np.uint8, len(texts) * width, first).reshape(len(texts), width)


def _day_numbers(years: Any, months: Any, days: Any) -> Any:
    """Gregorian days since 1970-01-01; months and days may be out of range."""
    whole = years * 12 + months - 1
    firsts = (whole - 1970 * 12).astype("datetime64[M]").astype("datetime64[D]")
    return firsts.astype(np.int64) + days - 1
