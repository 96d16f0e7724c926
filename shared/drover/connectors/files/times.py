"""Times that select the directory of a record."""

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_QUARTER_S = 900
_YEAR_1_MS, _YEAR_10000_MS = -62_135_596_800_000, 253_402_300_800_000
#: More digits than milliseconds have, in the fraction of a second.
_LONG_FRACTION = r"(\.\d{3})\d+"
#: A time with a zone at its end; a date alone may also end with a minus and two digits.
_ZONED = r"\d[T ]\d\d.*(Z|[+-]\d\d(:?\d\d)?)$"


def parsed_times(texts: Any) -> Any:
    """Texts in ISO 8601 as timestamps; digits below a millisecond are dropped, and texts without a
    zone are in UTC.

    Raises:
        ArrowInvalid: A text has another form.
    """
    short = pc.replace_substring_regex(texts, _LONG_FRACTION, r"\1")
    zoned = pc.match_substring_regex(short, _ZONED)
    nothing = pa.scalar(None, pa.string())
    with_zone = pc.if_else(zoned, short, nothing).cast(pa.timestamp("ms", "UTC"))
    without = pc.if_else(zoned, nothing, short).cast(pa.timestamp("ms"))
    return pc.coalesce(with_zone, pc.assume_timezone(without, "UTC"))


def local_ms(moments: Any, zone: str, *, rounded_to_ms: int = 0) -> Any:
    """Milliseconds since 1970 as the local time of a zone, rounded down to a multiple of
    ``rounded_to_ms`` (0: not rounded).

    A rounded time that the zone skips is moved to the time that its clocks then show, as by
    Confluent's TimeBasedPartitioner. Arrow's own functions have no daylight saving time after 2037.

    Raises:
        ValueError: A local time is not in the years 1 to 9999.
    """
    place, absent = ZoneInfo(zone), moments.is_null().to_numpy(False)
    numbers = moments.fill_null(0).to_numpy(zero_copy_only=False)
    try:
        local = numbers + _offsets_ms(numbers, place)
        if rounded_to_ms:
            starts, at = np.unique(local // rounded_to_ms * rounded_to_ms, return_inverse=True)
            shown = [_shown_ms(int(each), place) for each in starts]
            local = np.array(shown, np.int64)[at]
    except OverflowError as error:
        raise ValueError("its local time is not in the years 1 to 9999") from error
    return pa.array(local, pa.int64(), mask=absent)


def _offsets_ms(moments: "npt.NDArray[np.int64]", zone: ZoneInfo) -> "npt.NDArray[np.int64]":
    """The zone's offset from UTC at each moment, looked up once for each quarter of an hour."""
    seconds = moments // 1000
    quarters, at = np.unique(seconds // _QUARTER_S, return_inverse=True)
    first = np.array([_offset_s(int(each) * _QUARTER_S, zone) for each in quarters], np.int64)
    after = (int(each) * _QUARTER_S + _QUARTER_S - 1 for each in quarters)
    last = np.array([_offset_s(each, zone) for each in after], np.int64)
    found = first[at]
    for row in np.flatnonzero((first != last)[at]):
        found[row] = _offset_s(int(seconds[row]), zone)
    return found * 1000


def _offset_s(second: int, zone: ZoneInfo) -> int:
    offset = (_EPOCH + timedelta(seconds=second)).astimezone(zone).utcoffset()
    assert offset is not None
    return int(offset.total_seconds())


def _shown_ms(local: int, zone: ZoneInfo) -> int:
    """A local time, or if the zone skips it, the time that its clocks show instead."""
    naive = _EPOCH.replace(tzinfo=zone) + timedelta(milliseconds=local)
    moment = naive.astimezone(UTC).astimezone(zone).replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def check_years(times: Any, name: str) -> None:
    """Check that timestamps are in the years 1 to 9999, for which directories have names.

    Raises:
        ValueError: One is not; most often it is not in milliseconds.
    """
    seconds = floored_ms(times)
    ends = pc.min_max(seconds)
    for each in (ends["min"].as_py(), ends["max"].as_py()):
        if each is not None and not _YEAR_1_MS <= each < _YEAR_10000_MS:
            raise ValueError(
                f"{name!r} has the time {each} ms, which is not in the years 1 to 9999: a number "
                "must be in milliseconds"
            )


def floored_ms(times: Any) -> Any:
    """Timestamps as milliseconds since 1970, rounded down (a cast rounds towards 1970)."""
    values = times.cast(pa.int64())
    match times.type.unit:
        case "s":
            return pc.multiply_checked(values, 1000)
        case "ms":
            return values
        case "us":
            return floored(values, 1000)
        case _:
            return floored(values, 1_000_000)


def floored(values: Any, divisor: int) -> Any:
    """Quotients of integers, rounded down."""
    numbers = values.fill_null(0).to_numpy(zero_copy_only=False)
    return pa.array(numbers // divisor, pa.int64(), mask=values.is_null().to_numpy(False))
