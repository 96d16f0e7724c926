"""Numbers as Java reads, writes and narrows them.

Texts of floating-point numbers are the shortest that read back the same, as Java has them since 19;
older versions write some with a digit more.
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
#: What String.trim() takes away.
_WHITE_SPACE = "".join(map(chr, range(33)))
_LONG_BITS, _INT_BITS = 64, 32
#: Numbers from here to there are written without an exponent.
_PLAIN_FROM, _PLAIN_TO = 1e-3, 1e7


def parse_integer(text: str, bits: int) -> int:
    """The number of a text, as Byte.parseByte to Long.parseLong read it.

    Raises:
        ValueError: it is none, or does not fit into ``bits`` bits.
    """
    if not _INTEGER.fullmatch(text):
        raise ValueError(f"{text!r} is no whole number")
    number = int(text)
    if wrap(number, bits) != number:
        raise ValueError(f"{text} does not fit into {bits} bits")
    return number


def parse_double(text: str) -> float:
    """The number of a text, as Double.parseDouble reads it.

    Raises:
        ValueError: it is none.
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
    """The number of a text, as Float.parseFloat reads it: the nearest of 32 bits.

    Raises:
        ValueError: it is none.
    """
    double = parse_double(text)
    single = to_float32(double)
    found = _REAL.fullmatch(text.strip(_WHITE_SPACE))
    assert found is not None
    if not found["decimal"] or not math.isfinite(single) or abs(double) < 1e-300:
        return single
    # the text was rounded to 64 bits first: half way between two of 32 bits that may mislead
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
    """The nearest number of 32 bits, or infinite."""
    with np.errstate(over="ignore"):
        return float(np.float32(number))


def wrap(number: int, bits: int) -> int:
    """The lowest ``bits`` bits of a whole number, with their sign."""
    half = 1 << (bits - 1)
    return (number + half) % (2 * half) - half


def narrow(number: float, bits: int) -> int:
    """A floating-point number cut to ``bits`` bits: NaN is 0, what is too large the last number; of
    fewer than 32 bits are those of the number of 32.
    """
    if math.isnan(number):
        return 0
    wide = max(bits, _INT_BITS)
    bound = 1 << (wide - 1)
    whole = bound if number >= bound else -bound if number <= -bound else int(number)
    return wrap(min(whole, bound - 1), bits)


def narrow_decimal(number: Decimal, bits: int) -> int:
    """A decimal without its fraction, cut to ``bits`` bits."""
    return wrap(int(number), bits)


def double_text(number: float) -> str:
    """A number of 64 bits, as Double.toString writes it."""
    return _text(number, repr(number))


def float_text(number: float) -> str:
    """A number of 32 bits, as Float.toString writes it."""
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
    """The digits of a number, and where the point is: 0.0123 is 123 and -1."""
    mantissa, _, exponent = text.lstrip("-").lower().partition("e")
    whole, _, fraction = mantissa.partition(".")
    point = len(whole) + int(exponent or 0)
    digits = (whole + fraction).lstrip("0")
    return digits.rstrip("0") or "0", point - (len(whole + fraction) - len(digits))


def _two_digits(number: float, digits: str, point: int, *, single: bool) -> tuple[str, int]:
    """The best two digits if they read back the same: Java writes no fewer."""
    two = f"{number:.1e}"
    if (to_float32(float(two)) if single else float(two)) == number:
        return _digits(two)
    return digits, point
