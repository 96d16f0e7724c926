"""The values of texts in conditions: numbers of any size, and times in ISO 8601, exactly.

A time without a zone is in UTC. Times are counted in nanoseconds, since 1970 or since midnight.
"""

import datetime
import decimal
import math
import re

from drover.model.times import TIME_MAX_MS

_MILLISECOND_NS = 1_000_000
_SECOND_NS = 1_000_000_000
_MINUTE_NS = 60 * _SECOND_NS
#: As in Java's and PostgreSQL's zones.
_ZONE_HOURS_MAX = 18
#: Two spellings of a number have no meaning here: 1_000 and the digits of other alphabets.
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
#: Larger than the exponent of any column.
_EXPONENT_MAX = 10_000
_CLOCK = (
    r"(?P<hour>\d\d):(?P<minute>\d\d)(?::(?P<second>\d\d)(?:[.,](?P<fraction>\d+))?)?"
    r"[ ]?(?P<zone>[Zz]|[+-]\d\d(?::?\d\d)?)?"
)
_TIME = re.compile(_CLOCK, re.ASCII)
_MOMENT = re.compile(rf"(?P<date>\d{{4}}-\d\d-\d\d)(?:[Tt ]{_CLOCK})?", re.ASCII)


def number_of(text: str) -> decimal.Decimal | None:
    """The number of a text; None if it is none.

    Exponents that no column has are cut, since arithmetic with them would raise Overflow.
    """
    if _NUMBER.fullmatch(text.strip()) is None:
        return None
    try:
        number = decimal.Decimal(text.strip())
    except decimal.InvalidOperation:  # an exponent that decimals do not have
        digits, _, exponent = text.strip().lower().partition("e")
        sign = "-" if exponent.startswith("-") else ""
        number = decimal.Decimal(f"{digits}e{sign}{_EXPONENT_MAX + 1}")
    if not number:
        return decimal.Decimal(0)
    if abs(number.adjusted()) > _EXPONENT_MAX:
        exponent_max = _EXPONENT_MAX if number.adjusted() > 0 else -_EXPONENT_MAX
        return decimal.Decimal(f"1e{exponent_max}").copy_sign(number)
    return number


def moment_of(text: str) -> decimal.Decimal | None:
    """The nanoseconds since 1970 of a date or a timestamp; None if it is none."""
    found = _MOMENT.fullmatch(text.strip())
    if found is None:
        return None
    try:
        date = datetime.date.fromisoformat(found["date"])
    except ValueError:
        return None
    days = (date - datetime.date(1970, 1, 1)).days
    clock = _clock_of(found) if found["hour"] else decimal.Decimal(0)
    return None if clock is None else days * 24 * 60 * _MINUTE_NS + clock


def first_ms_of(text: str) -> int | None:
    """The first millisecond since 1970 that is not before the time of a text; None if it is no date
    or timestamp of the years 1970 to 9999.
    """
    moment_ns = moment_of(text)
    if moment_ns is None:
        return None
    first_ms = math.ceil(moment_ns / _MILLISECOND_NS)
    return first_ms if 0 <= first_ms <= TIME_MAX_MS else None


def time_of_day(text: str) -> decimal.Decimal | None:
    """The nanoseconds since midnight of a time; None if it is none."""
    found = _TIME.fullmatch(text.strip())
    return None if found is None else _clock_of(found)


def _clock_of(found: re.Match[str]) -> decimal.Decimal | None:
    hour, minute, second = (int(found[each] or 0) for each in ("hour", "minute", "second"))
    zone_minutes = _zone_minutes(found["zone"] or "Z")
    if hour > 24 or minute > 59 or second > 60 or zone_minutes is None:
        return None
    minutes = hour * 60 + minute - zone_minutes
    fraction = decimal.Decimal(f"0.{found['fraction'] or 0}")
    return minutes * _MINUTE_NS + (second + fraction) * _SECOND_NS


def _zone_minutes(zone: str) -> int | None:
    if zone in "Zz":
        return 0
    digits = zone[1:].replace(":", "")
    hours, minutes = int(digits[:2]), int(digits[2:] or 0)
    if hours > _ZONE_HOURS_MAX or minutes > 59:
        return None
    minutes += hours * 60
    return -minutes if zone[0] == "-" else minutes
