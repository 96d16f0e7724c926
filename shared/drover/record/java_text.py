"""Formats numbers and dates as Java does, for values that Kafka Connect writes as text."""

import decimal
import math
from datetime import UTC, datetime, timedelta

import numpy as np

from drover.record.errors import RecordError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def double_text(value: float) -> str:
    """A 64-bit float as Double.toString prints it: ``1.0``, ``1.0E7``, ``NaN``."""
    return _layout(value, repr(value))


def float_text(value: float) -> str:
    """A 32-bit float as Float.toString prints it."""
    return _layout(value, str(np.format_float_scientific(np.float32(value), unique=True)))


def decimal_text(value: decimal.Decimal) -> str:
    """A decimal as BigDecimal.toString prints it."""
    return str(value)


def date_text(timestamp_ms: int) -> str:
    """A time in milliseconds since 1970 as java.util.Date prints it in UTC.

    Raises:
        RecordError: it is outside of the years 1 to 9999.
    """
    at = utc(timestamp_ms)
    day, month = _DAYS[at.weekday()], _MONTHS[at.month - 1]
    return f"{day} {month} {at.day:02d} {at:%H:%M:%S} UTC {at.year:04d}"


def utc(timestamp_ms: int) -> datetime:
    """A time in milliseconds since 1970.

    Raises:
        RecordError: it is outside of the years 1 to 9999.
    """
    try:
        return _EPOCH + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        raise RecordError(
            f"the timestamp {timestamp_ms} is outside of the years 1 to 9999"
        ) from None


def _layout(value: float, text: str) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    sign, digits, exponent = decimal.Decimal(text).as_tuple()
    assert isinstance(exponent, int)
    shown = "".join(map(str, digits))
    minus = "-" if sign else ""
    point = len(shown) + exponent  # digits before the point
    shown = shown.rstrip("0") or "0"
    if shown == "0":
        return f"{minus}0.0"
    if point > 7 or point < -2:
        return f"{minus}{shown[0]}.{shown[1:] or '0'}E{point - 1}"
    if point <= 0:
        return f"{minus}0.{'0' * -point}{shown}"
    whole, fraction = shown[:point].ljust(point, "0"), shown[point:]
    return f"{minus}{whole}.{fraction or '0'}"
