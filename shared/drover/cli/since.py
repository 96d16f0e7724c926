"""Times in options of commands."""

import re
from typing import Annotated

import typer
from google.protobuf.timestamp_pb2 import Timestamp

from drover.clock import SystemClock
from drover.codec.common import encode_timestamp
from drover.transform.exact_texts import first_ms_of

_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_SPAN = re.compile(r"(\d{1,15})(ms|[smhdw])(?: ago)?", re.ASCII)

SinceOption = Annotated[
    str,
    typer.Option(
        "--since",
        metavar="TIME",
        help="Start at the first record of each partition at or after this time: ISO 8601 such as "
        "2026-01-31T12:00:00Z (without a time zone in UTC), or a duration before now such as 90s, "
        "15m, 2h or 7d.",
    ),
]


def start_time(text: str) -> Timestamp | None:
    """The time of the option; None if it is empty. Raises as ``time_ms_of``."""
    return encode_timestamp(time_ms_of(text, "--since")) if text else None


def time_ms_of(text: str, option: str) -> int:
    """A time, or a duration before now, in milliseconds since 1970.

    Raises:
        typer.BadParameter: It has another form; the message names the option.
    """
    span = _SPAN.fullmatch(text.strip())
    if span is not None:
        span_ms = int(span[1]) * _UNITS_MS[span[2]]
        return max(0, SystemClock().now_ms() - span_ms)
    found = first_ms_of(text)
    if found is None:
        raise typer.BadParameter(
            f"{option} must be a time from 1970 to 9999 in ISO 8601, such as 2026-01-31T12:00:00Z, "
            f"or a duration before now, such as 90s, 15m, 2h or 7d, not {text[:60]!r}"
        )
    return found
