"""Numbers as Java parses, formats and narrows them.

Floating-point numbers are formatted with the fewest digits that parse back to the same number, as
in Java 19 and later; older versions write one more digit for some.
"""

import math
import re
from decimal import Decimal

import numpy as np

_INTEGER = re.compile(r"[+-]?\d+")
_DECIMAL_FORM = r"(?P<decimal>[0-9]+\.?[0-9]*|\.[0-9]+)(?P<exponent>[eE][+-]?[0-9]+)?"
_HEX_FORM = r"(?P<hex>0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)"
_REAL = re.compile(
    rf"(?P<sign>[+-]?)(?:(?P<word>NaN|Infinity)|(?:{_HEX_FORM}|{_DECIMAL_FORM})[fFdD]?)"
)
#: The characters that String.trim() removes.
_WHITE_SPACE = "".join(map(chr, range(33)))
_LONG_BITS, _INT_BITS = 64, 32
#: Numbers in this range are formatted without an exponent.
_PLAIN_FROM, _PLAIN_TO = 1e-3, 1e7


def parse_integer(text: str, bits: int) -> int:
    """Parse a text like Byte.parseByte to Long.parseLong.

    Raises:
        ValueError: The text is no whole number, or does not fit into ``bits`` bits.
    """
    if not _INTEGER.fullmatch(text):
        raise ValueError(f"{text!r} is no whole number")
    number = int(text)
    if wrap(number, bits) != number:
        raise ValueError(f"{text} does not fit into {bits} bits")
    return number


def parse_double(text: str) -> float:
    """Parse a text like Double.parseDouble.

    Raises:
        ValueError: The text is no number.
    """
    found = _REAL.fullmatch(text.strip(_WHITE_SPACE))
    if found is None:
        raise ValueError(f"{text!r} is no number")
    if found["word"]:
        return float(found["sign"] + found["word"])
    if found["hex"]:
        try:
            return float.fromhex(found["sign"] + found["hex"])
        except OverflowError:
            return float(found["sign"] + "inf")
    return float(found["sign"] + found["decimal"] + (found["exponent"] or ""))


def parse_float(text: str) -> float:
    """Parse a text like Float.parseFloat, to the nearest 32-bit number.

    Raises:
        ValueError: The text is no number.
    """
    double = parse_double(text)
    single = to_float32(double)
    found = _REAL.fullmatch(text.strip(_WHITE_SPACE))
    assert found is not None
    if not found["decimal"] or not math.isfinite(single) or abs(double) < 1e-300:
        return single
    # double rounding (text to 64, then to 32 bits) can choose the wrong neighbour: compare exactly
    exact = Decimal(found["sign"] + found["decimal"] + (found["exponent"] or ""))
    towards = math.copysign(math.inf, exact - Decimal(single)) if exact != Decimal(single) else 0.0
    if not towards:
        return single
    with np.errstate(over="ignore"):
        other = float(np.nextafter(np.float32(single), np.float32(towards)))
    if not math.isfinite(other):
        return single
    closer = abs(Decimal(other) - exact) < abs(Decimal(single) - exact)
    return other if closer else single


def to_float32(number: float) -> float:
    """The nearest 32-bit number, or infinity."""
    with np.errstate(over="ignore"):
        return float(np.float32(number))


def wrap(number: int, bits: int) -> int:
    """The lowest ``bits`` bits of a whole number, as a signed number."""
    half = 1 << (bits - 1)
    return (number + half) % (2 * half) - half


def narrow(number: float, bits: int) -> int:
    """Convert a floating-point number to ``bits`` bits like Java's casts.

    NaN becomes 0, and a number out of range the nearest limit. For fewer than 32 bits, the result
    is the lowest bits of the 32-bit number.
    """
    if math.isnan(number):
        return 0
    wide = max(bits, _INT_BITS)
    bound = 1 << (wide - 1)
    whole = bound if number >= bound else -bound if number <= -bound else int(number)
    return wrap(min(whole, bound - 1), bits)


def narrow_decimal(number: Decimal, bits: int) -> int:
    """The lowest ``bits`` bits of a decimal without its fraction."""
    return wrap(int(number), bits)


def double_text(number: float) -> str:
    """Format a 64-bit number like Double.toString."""
    return _text(number, repr(number))


def float_text(number: float) -> str:
    """Format a 32-bit number like Float.toString."""
    return _text(number, str(np.float32(number)), single=True)


def _text(number: float, shortest: str, *, single: bool = False) -> str:
    if math.isnan(number):
        return "NaN"
    sign = "-" if math.copysign(1.0, number) < 0 else ""
    if math.isinf(number):
        return f"{sign}Infinity"
    if number == 0:
        return f"{sign}0.0"
    digits, point = _digits(shortest)
    if len(digits) == 1:
        digits, point = _two_digits(number, digits, point, single=single)
    if _PLAIN_FROM <= abs(number) < _PLAIN_TO:
        if point <= 0:
            return f"{sign}0.{'0' * -point}{digits}"
        whole = digits[:point].ljust(point, "0")
        return f"{sign}{whole}.{digits[point:] or '0'}"
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{point - 1}"


def _digits(text: str) -> tuple[str, int]:
    """The digits of a number and the position of its point: "123" and -1 for 0.0123."""
    mantissa, _, exponent = text.lstrip("-").lower().partition("e")
    whole, _, fraction = mantissa.partition(".")
    point = len(whole) + int(exponent or 0)
    digits = (whole + fraction).lstrip("0")
    return digits.rstrip("0") or "0", point - (len(whole + fraction) - len(digits))


def _two_digits(number: float, digits: str, point: int, *, single: bool) -> tuple[str, int]:
    """The nearest two digits if they parse back to the number: Java writes at least two."""
    two = f"{number:.1e}"
    if (to_float32(float(two)) if single else float(two)) == number:
        return _digits(two)
    return digits, point
