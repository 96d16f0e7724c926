"""Days and dates of Java's lenient GregorianCalendar, which is Julian before 1582-10-15.

Years are astronomical: 0 is 1 BC. Months count from 0. Weeks start on Sunday, and the first week of
a year contains its first day (the rule of the US locale, Kafka Connect's default).
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from drover.model.times import DAY_MS

#: The first Gregorian day.
CUTOVER_DAY: Final = -141_427
_SUNDAY: Final = 0
_MONTH_STARTS = (0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334)

#: Fields of a calendar, by names of java.util.Calendar.
ERA, YEAR, MONTH, DAY_OF_MONTH, DAY_OF_YEAR = "era", "year", "month", "day_of_month", "day_of_year"
DAY_OF_WEEK, DAY_OF_WEEK_IN_MONTH = "day_of_week", "day_of_week_in_month"
WEEK_OF_YEAR, WEEK_OF_MONTH, WEEK_YEAR = "week_of_year", "week_of_month", "week_year"
HOUR_OF_DAY, HOUR, AM_PM = "hour_of_day", "hour", "am_pm"
MINUTE, SECOND, MILLISECOND, ZONE_OFFSET = "minute", "second", "millisecond", "zone_offset"


def day_number(year: int, month: int, day: int) -> int:
    """Days from 1970-01-01 to a date; month and day may be out of range."""
    year, month = year + month // 12, month % 12
    gregorian = _first_day(year, month, gregorian=True) + day - 1
    if gregorian >= CUTOVER_DAY:
        return gregorian
    return _first_day(year, month, gregorian=False) + day - 1


@lru_cache(maxsize=4096)  # most batches have few distinct days
def date_of(day: int) -> tuple[int, int, int]:
    """Year, month and day of the month of a day since 1970-01-01."""
    gregorian = day >= CUTOVER_DAY
    year = (day + 719_528) * 400 // 146_097 if gregorian else (day + 719_530) * 4 // 1461
    # the estimate can be off by one near the new year
    while _first_day(year, 0, gregorian=gregorian) > day:
        year -= 1
    while _first_day(year + 1, 0, gregorian=gregorian) <= day:
        year += 1
    month = 11
    while _first_day(year, month, gregorian=gregorian) > day:
        month -= 1
    return year, month, day - _first_day(year, month, gregorian=gregorian) + 1


def weekday(day: int) -> int:
    """The day of the week of a day since 1970-01-01; Sunday is 0."""
    return (day + 4) % 7


def week_of_year(day: int) -> tuple[int, int]:
    """The week of the year, and the year to which the week belongs."""
    year = date_of(day)[0]
    following = _week_start(day_number(year + 1, 0, 1))
    if day >= following:
        return 1, year + 1
    return (day - _week_start(day_number(year, 0, 1))) // 7 + 1, year


def week_of_month(day: int) -> int:
    """The week of the month."""
    year, month, _ = date_of(day)
    return (day - _week_start(day_number(year, month, 1))) // 7 + 1


def resolve_ms(fields: Mapping[str, int]) -> int:
    """Milliseconds since 1970-01-01T00:00Z of calendar fields, in the order of their setting.

    If fields contradict each other, the last ones set take precedence, as in Java.
    """
    stamps = {name: at for at, name in enumerate(fields, 1)}
    ms = resolve_day(fields, stamps) * DAY_MS + _resolve_hour(fields, stamps) * 3_600_000
    ms += fields.get(MINUTE, 0) * 60_000 + fields.get(SECOND, 0) * 1000
    return ms + fields.get(MILLISECOND, 0) - fields.get(ZONE_OFFSET, 0)


def resolve_day(fields: Mapping[str, int], stamps: Mapping[str, int]) -> int:
    """The day number of a date, whose fields may overlap (month and week, for example)."""
    if WEEK_YEAR in fields and stamps[WEEK_YEAR] > stamps.get(YEAR, 0):
        first = _week_start(day_number(fields[WEEK_YEAR], 0, 1))
        days = fields.get(DAY_OF_WEEK, _SUNDAY)
        return first + 7 * (fields.get(WEEK_OF_YEAR, 1) - 1) + days
    year = fields.get(YEAR, 1970)
    if fields.get(ERA) == 0:
        year = 1 - year
    way = _way(stamps)
    if way == DAY_OF_YEAR:
        return day_number(year, 0, fields[DAY_OF_YEAR])
    first_of_year = day_number(year, 0, 1)
    if way == WEEK_OF_YEAR:
        start = _week_start(first_of_year) + fields.get(DAY_OF_WEEK, _SUNDAY) % 7
        return start + 7 * (fields[WEEK_OF_YEAR] - 1)
    month = fields.get(MONTH, 0)
    if way == DAY_OF_MONTH:
        return day_number(year, month, fields.get(DAY_OF_MONTH, 1))
    first = day_number(year, month, 1)
    day = fields.get(DAY_OF_WEEK, _SUNDAY)
    if way == WEEK_OF_MONTH:
        return _week_start(first) + day % 7 + 7 * (fields[WEEK_OF_MONTH] - 1)
    count = fields.get(DAY_OF_WEEK_IN_MONTH, 1)
    # the count-th such day of the month
    last = first + 7 * count - 1
    return last - (weekday(last) - day) % 7


def _way(stamps: Mapping[str, int]) -> str:
    """The field that determines the day: the one set last."""

    def both(name: str) -> int:
        with_day = name in stamps and DAY_OF_WEEK in stamps
        return max(stamps[name], stamps[DAY_OF_WEEK]) if with_day else 0

    ways = {
        DAY_OF_MONTH: stamps.get(DAY_OF_MONTH, 0),
        WEEK_OF_MONTH: both(WEEK_OF_MONTH),
        DAY_OF_WEEK_IN_MONTH: both(DAY_OF_WEEK_IN_MONTH),
        DAY_OF_YEAR: stamps.get(DAY_OF_YEAR, 0),
        WEEK_OF_YEAR: both(WEEK_OF_YEAR),
    }
    if not any(ways.values()):
        ways = {
            WEEK_OF_MONTH: stamps.get(WEEK_OF_MONTH, 0),
            DAY_OF_WEEK_IN_MONTH: max(
                stamps.get(DAY_OF_WEEK_IN_MONTH, 0), stamps.get(DAY_OF_WEEK, 0)
            ),
            WEEK_OF_YEAR: stamps.get(WEEK_OF_YEAR, 0),
        }
    if not any(ways.values()):
        return DAY_OF_MONTH
    # candidates may share the stamp of the day of the week: prefer the field set later
    return max(ways, key=lambda name: (ways[name], stamps.get(name, 0)))


def _resolve_hour(fields: Mapping[str, int], stamps: Mapping[str, int]) -> int:
    of_half = max(stamps[HOUR], stamps[AM_PM]) if HOUR in stamps and AM_PM in stamps else 0
    if stamps.get(HOUR_OF_DAY, 0) > of_half:
        return fields[HOUR_OF_DAY]
    return fields.get(HOUR, 0) + 12 * fields.get(AM_PM, 0)


def _week_start(day: int) -> int:
    """The Sunday on or before a day."""
    return day - weekday(day)


def _first_day(year: int, month: int, *, gregorian: bool) -> int:
    """The day number of the first of a month."""
    before = year - 1
    leaps = before // 4 - before // 100 + before // 400 if gregorian else before // 4
    is_leap = year % 4 == 0 and (not gregorian or year % 100 != 0 or year % 400 == 0)
    first = 365 * before + leaps - (719_162 if gregorian else 719_164)
    return first + _MONTH_STARTS[month] + (1 if is_leap and month > 1 else 0)
