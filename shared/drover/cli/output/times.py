"""Times and durations as text."""

from datetime import UTC, datetime


def span_text(span_ms: int) -> str:
    """A duration such as "40 s", "5 min" or "3 h"."""
    seconds = max(span_ms, 0) // 1000
    if seconds < 120:
        return f"{seconds} s"
    return f"{seconds // 60} min" if seconds < 7200 else f"{seconds // 3600} h"


def ago_text(span_ms: int) -> str:
    """``span_text`` before now."""
    return f"{span_text(span_ms)} ago"


def iso_time(time_ms: int) -> str:
    """A time in ISO 8601, in UTC."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="seconds")
