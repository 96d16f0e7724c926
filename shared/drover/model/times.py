"""Spans and bounds of time, in milliseconds."""

from typing import Final

DAY_MS: Final = 24 * 60 * 60 * 1000
#: The end of the year 9999: later times have years of five digits, and no Timestamp of protobuf.
TIME_MAX_MS: Final = 253_402_300_799_999
