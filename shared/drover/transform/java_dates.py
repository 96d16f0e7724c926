"""Java's SimpleDateFormat for UTC and English.

It is lenient, as by default in Java: fields out of range roll over, text after the date is ignored.
"""

import datetime
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from drover.model.times import DAY_MS
from drover.transform import java_calendar as calendar
from drover.transform.java_numbers import wrap

_LETTERS = "GyMLdkHmsSEDFwWahKzZYuX"
_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
)  # fmt: skip
_DAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_ERAS, _HALVES = ("BC", "AD"), ("AM", "PM")
_SHORT = 3
_NUMBER = re.compile(r"-?\d+")
_LONG_MAX, _INT_MAX = 2**63 - 1, 2**31 - 1
_CENTURY_BEGINS_YEARS_AGO = 80
_HOUR_MS, _MINUTE_MS = 3_600_000, 60_000
#: Hours from UTC of common zone names; Java has some hundred more.
_ZONES: Mapping[str, float] = {
    "UTC": 0, "UT": 0, "Coordinated Universal Time": 0, "Greenwich Mean Time": 0,
    "WET": 0, "WEST": 1, "CET": 1, "CEST": 2, "EET": 2, "EEST": 3, "MSK": 3, "JST": 9, "HST": -10,
    "AKST": -9, "AKDT": -8, "PST": -8, "PDT": -7, "MST": -7, "MDT": -6, "CST": -6, "CDT": -5,
    "EST": -5, "EDT": -4,
}  # fmt: skip
_ZONES_BY_LENGTH = sorted(_ZONES, key=len, reverse=True)

#: The calendar field of each pattern letter.
_FIELDS: Mapping[str, str] = {
    "G": calendar.ERA, "y": calendar.YEAR, "Y": calendar.WEEK_YEAR, "M": calendar.MONTH,
    "L": calendar.MONTH, "d": calendar.DAY_OF_MONTH, "D": calendar.DAY_OF_YEAR,
    "F": calendar.DAY_OF_WEEK_IN_MONTH, "w": calendar.WEEK_OF_YEAR, "W": calendar.WEEK_OF_MONTH,
    "E": calendar.DAY_OF_WEEK, "u": calendar.DAY_OF_WEEK, "a": calendar.AM_PM,
    "H": calendar.HOUR_OF_DAY, "k": calendar.HOUR_OF_DAY, "K": calendar.HOUR, "h": calendar.HOUR,
    "m": calendar.MINUTE, "s": calendar.SECOND, "S": calendar.MILLISECOND,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a pattern: a letter repeated ``count`` times, or literal text."""

    letter: str
    count: int = 0
    text: str = ""

    @property
    def is_number(self) -> bool:
        """Whether the part is a number."""
        if self.letter in ("M", "L"):
            return self.count < _SHORT
        return self.letter != "" and self.letter not in "GEazZX"


def parse_pattern(pattern: str) -> tuple[Part, ...]:
    """The parts of a pattern.

    Raises:
        ValueError: A letter is not a pattern letter, or a quote is not closed.
    """
    parts: list[Part] = []
    at = 0
    while at < len(pattern):
        char = pattern[at]
        end = at + 1
        if char == "'":
            text, end = _quoted(pattern, at)
            parts.append(Part("", text=text))
        elif char.isascii() and char.isalpha():
            if char not in _LETTERS:
                raise ValueError(f"the letter {char!r} has no meaning in a pattern: quote it")
            while pattern[end : end + 1] == char:
                end += 1
            if char == "X" and end - at > _SHORT:
                raise ValueError("the pattern has more than three X in a row")
            parts.append(Part(char, end - at))
        else:
            parts.append(Part("", text=char))
        at = end
    return tuple(parts)


class DateFormat:
    """Parses and formats dates by a pattern."""

    def __init__(self, pattern: str) -> None:
        """Compile a pattern.

        Raises:
            ValueError: The pattern is invalid.
        """
        self.pattern = pattern
        self.parts = parse_pattern(pattern)

    def parse(self, text: str) -> int:
        """Parse a date to milliseconds since 1970-01-01T00:00Z.

        Raises:
            ValueError: The text does not start with a date of this pattern.
        """
        reader = _Reader(text)
        for part, following in zip(self.parts, (*self.parts[1:], None), strict=True):
            reader.read(part, abuts=following is not None and following.is_number)
        if reader.at == 0:
            raise reader.fault()
        return reader.resolve_ms()

    def format(self, ms: int) -> str:
        """Format a time in milliseconds since 1970-01-01T00:00Z."""
        day, of_day = divmod(ms, DAY_MS)
        return "".join(part.text or _written(part, day, of_day) for part in self.parts)


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self.at = 0
        self._fields: dict[str, int] = {}
        self._century_may_be_wrong = False

    def fault(self) -> ValueError:
        return ValueError(f"no date at character {self.at + 1}")

    def resolve_ms(self) -> int:
        ms = calendar.resolve_ms(self._fields)
        if self._century_may_be_wrong and ms < _century_begins_ms():
            year = self._fields[calendar.YEAR] + 100
            ms = calendar.resolve_ms(self._fields | {calendar.YEAR: year})
        return wrap(ms, 64)

    def read(self, part: Part, *, abuts: bool) -> None:
        """Read a part; ``abuts``: a number follows directly, so its number of digits is fixed."""
        if not part.letter:
            if not self._text.startswith(part.text, self.at):
                raise self.fault()
            self.at += len(part.text)
            return
        start = self.at
        while self._text[self.at : self.at + 1] in (" ", "\t"):
            self.at += 1
        if self.at >= len(self._text):
            raise self.fault()
        if part.letter in "zZX":
            self._read_zone(part)
        elif part.is_number:
            self._read_number(part, start + part.count if abuts else len(self._text))
        else:
            self._read_name(part)

    def _set(self, name: str, value: int) -> None:
        # the order of the dictionary records which field was set last
        self._fields.pop(name, None)
        self._fields[name] = value

    def _read_number(self, part: Part, end: int) -> None:
        found = _NUMBER.match(self._text[:end], self.at) if end <= len(self._text) else None
        if found is None:
            raise self.fault()
        number = int(found[0])
        value = wrap(number, 32) if abs(number) <= _LONG_MAX else _INT_MAX
        match part.letter:
            case "y" | "Y" if part.count < _SHORT and len(found[0]) == 2 and number >= 0:
                begins = datetime.datetime.now(datetime.UTC).year - _CENTURY_BEGINS_YEARS_AGO
                self._century_may_be_wrong = value == begins % 100
                value += begins // 100 * 100 + (100 if value < begins % 100 else 0)
            case "M" | "L":
                value -= 1
            case "k" if value == 24:
                value = 0
            case "h" if value == 12:
                value = 0
            case "u":
                self._read_iso_day(value)
                self.at = found.end()
                return
        self._set(_FIELDS[part.letter], value)
        self.at = found.end()

    def _read_iso_day(self, value: int) -> None:
        """Set the day of the week, from Monday = 1 to Sunday = 7; other values change the week."""
        weeks, day = divmod(value - 1, 7)
        self._set(calendar.DAY_OF_WEEK, (day + 1) % 7)
        if weeks and calendar.WEEK_OF_YEAR in self._fields:
            self._fields[calendar.WEEK_OF_YEAR] += weeks

    def _read_name(self, part: Part) -> None:
        names: Mapping[str, Sequence[str]] = {
            "G": _ERAS, "a": _HALVES, "E": _DAYS, "M": _MONTHS, "L": _MONTHS,
        }  # fmt: skip
        rest = self._text[self.at :].lower()
        for short in (False, True):
            for index, name in enumerate(names[part.letter]):
                wanted = (name[:_SHORT] if short else name).lower()
                if rest.startswith(wanted):
                    self._set(_FIELDS[part.letter], index)
                    self.at += len(wanted)
                    return
        raise self.fault()

    def _read_zone(self, part: Part) -> None:
        rest = self._text[self.at :]
        if part.letter == "X":
            if rest.startswith("Z"):
                self._set(calendar.ZONE_OFFSET, 0)
                self.at += 1
                return None
            forms = (r"([+-])(\d\d)", r"([+-])(\d\d)(\d\d)", r"([+-])(\d\d):(\d\d)")
            return self._read_offset(forms[part.count - 1])
        if rest[:1] in ("+", "-"):
            return self._read_offset(r"([+-])(\d\d)(\d\d)")
        if rest[:3].upper() == "GMT":
            self.at += 3
            if rest[3:4] in ("+", "-"):
                return self._read_offset(r"([+-])(\d\d?):(\d\d)")
            return self._set(calendar.ZONE_OFFSET, 0)
        for name in _ZONES_BY_LENGTH:
            if rest.lower().startswith(name.lower()):
                self.at += len(name)
                return self._set(calendar.ZONE_OFFSET, int(_ZONES[name] * _HOUR_MS))
        raise self.fault()

    def _read_offset(self, form: str) -> None:
        found = re.compile(form, re.ASCII).match(self._text, self.at)
        if found is None:
            raise self.fault()
        sign, hours, minutes = (*found.groups(), "0")[:3]
        if int(hours) > 23 or int(minutes) > 59:
            raise self.fault()
        offset = int(hours) * _HOUR_MS + int(minutes) * _MINUTE_MS
        self._set(calendar.ZONE_OFFSET, -offset if sign == "-" else offset)
        self.at = found.end()


def _century_begins_ms() -> int:
    now = datetime.datetime.now(datetime.UTC)
    day = calendar.day_number(now.year - _CENTURY_BEGINS_YEARS_AGO, now.month - 1, now.day)
    return day * DAY_MS


def _written(part: Part, day: int, of_day: int) -> str:
    count = part.count
    year, month, of_month = calendar.date_of(day)
    hour = of_day // _HOUR_MS
    match part.letter:
        case "G":
            return _ERAS[1 if year > 0 else 0]
        case "y" | "Y":
            shown = (year if year > 0 else 1 - year) if part.letter == "y" else _week(day)[1]
            return f"{shown % 100:02}" if count == 2 else _padded(shown, count)
        case "M" | "L" if count >= _SHORT:
            return _MONTHS[month] if count > _SHORT else _MONTHS[month][:_SHORT]
        case "E":
            name = _DAYS[calendar.weekday(day)]
            return name if count > _SHORT else name[:_SHORT]
        case "a":
            return _HALVES[hour // 12]
        case "z":
            return "Coordinated Universal Time" if count > _SHORT else "UTC"
        case "Z":
            return "+0000"
        case "X":
            return "Z"
    numbers = {
        "M": lambda: month + 1,
        "L": lambda: month + 1,
        "d": lambda: of_month,
        "D": lambda: day - calendar.day_number(year, 0, 1) + 1,
        "F": lambda: (day - calendar.day_number(year, month, 1)) // 7 + 1,
        "w": lambda: _week(day)[0],
        "W": lambda: calendar.week_of_month(day),
        "u": lambda: (calendar.weekday(day) + 6) % 7 + 1,
        "H": lambda: hour,
        "k": lambda: hour or 24,
        "K": lambda: hour % 12,
        "h": lambda: hour % 12 or 12,
        "m": lambda: of_day // _MINUTE_MS % 60,
        "s": lambda: of_day // 1000 % 60,
        "S": lambda: of_day % 1000,
    }
    return _padded(numbers[part.letter](), count)


def _week(day: int) -> tuple[int, int]:
    return calendar.week_of_year(day)


def _padded(number: int, count: int) -> str:
    return f"{'-' if number < 0 else ''}{abs(number):0{count}}"


def _quoted(pattern: str, at: int) -> tuple[str, int]:
    """The quoted text at ``at`` and its end; two quotes stand for one."""
    if pattern.startswith("''", at):
        return "'", at + 2
    text, at = "", at + 1
    while at < len(pattern):
        if pattern.startswith("''", at):
            text, at = text + "'", at + 2
        elif pattern[at] == "'":
            return text, at + 1
        else:
            text, at = text + pattern[at], at + 1
    raise ValueError("a quote is not closed in the pattern")
