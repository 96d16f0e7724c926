"""Times that select the directory of a record."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

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
