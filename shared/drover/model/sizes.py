"""Sizes in bytes, as text in settings and for people."""

import re

_SIZE = re.compile(r"([0-9]{1,15})\s*([kmgt]?)b?", re.IGNORECASE)
_SHIFTS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")
_STEP = 1024


def size_bytes(text: str) -> int | None:
    """A size such as ``1536m`` or ``2g``, as Spark and Java write it; None if it is not one.

    Units are powers of 1024; without a unit it is a number of bytes.
    """
    match = _SIZE.fullmatch(text.strip())
    return int(match[1]) << _SHIFTS[match[2].lower()] if match else None


def size_text(size: int) -> str:
    """A number of bytes as text for people."""
    number, unit = float(size), 0
    while abs(number) >= _STEP and unit < len(_UNITS) - 1:
        number, unit = number / _STEP, unit + 1
    return f"{number:.3g} {_UNITS[unit]}" if unit else f"{size} bytes"
