"""Numbers of JSON with all their digits."""

import decimal

#: Digits of a decimal number that floating point (64 bits) always keeps.
_DOUBLE_DIGITS = 15


def exact_number(text: str) -> decimal.Decimal:
    """A number of JSON as a decimal; for ``parse_float`` of ``json.loads``.

    Raises:
        ValueError: The exponent has more than 18 digits.
    """
    try:
        return decimal.Decimal(text)
    except decimal.InvalidOperation:
        raise ValueError(f"the exponent of the number {text[:80]} is too large") from None


class Fraction(decimal.Decimal):
    """A number with a fraction or an exponent that floating point would change; ``text`` is its
    form in JSON.
    """

    text: str

    def __new__(cls, text: str) -> "Fraction":
        """From its form in JSON.

        Raises:
            ValueError: The exponent has more than 18 digits, as of ``exact_number``.
        """
        found = super().__new__(cls, exact_number(text))
        found.text = text
        return found

    def __reduce__(self) -> tuple[type["Fraction"], tuple[str]]:
        """For pickle, which would lose the text."""
        return Fraction, (self.text,)


def is_double(number: int | decimal.Decimal) -> bool:
    """Whether floating point (64 bits) keeps a number: it converts back to the same digits."""
    if isinstance(number, int):
        return abs(number) <= 2**53 or (number.bit_length() < 1024 and int(float(number)) == number)
    found = float(number)
    digits = max(len(number.as_tuple().digits), _DOUBLE_DIGITS)
    return number in (decimal.Decimal(repr(found)), decimal.Decimal(format(found, f".{digits}g")))


def fraction_of(text: str) -> float | Fraction:
    """A number with a fraction or an exponent; for ``parse_float`` of ``json.loads``."""
    if len(text) <= _DOUBLE_DIGITS and "e" not in text and "E" not in text:
        return float(text)
    exact = Fraction(text)
    return float(text) if is_double(exact) else exact
