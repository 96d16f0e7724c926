"""Infers the type and value of a text, by Kafka Connect's rules for headers and literals.

``null``, ``true``, ``false``, numbers by their range, dates and times in ISO 8601, ``[…]`` and
``{…}`` of these; anything else is a string.
"""

import datetime
import decimal
import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from drover.record import schema as schemas
from drover.record.schema import (
    DECIMAL128_DIGITS,
    DECIMAL256_DIGITS,
    PRECISION,
    SCALE,
    Schema,
    Type,
)

STRING = Schema(Type.STRING)
BOOLEAN = Schema(Type.BOOLEAN)

_MAX_DEPTH = 100
_DELIMITERS = ':,{}[]"'
_INTEGERS = ((Type.INT8, 8), (Type.INT16, 16), (Type.INT32, 32), (Type.INT64, 64))
#: Number types; each can be widened to the types after it.
_WIDENING = (
    Type.INT8, Type.INT16, Type.INT32, Type.INT64, Type.FLOAT32, Type.FLOAT64
)  # fmt: skip
_NUMBER = re.compile(r"([+-]?[0-9]+\.?[0-9]*|[+-]\.[0-9]+)([eE][+-]?[0-9]{1,9})?")
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_TIME = re.compile(r"\d\d:\d\d:\d\d\.\d{3}Z", re.ASCII)
_TIMESTAMP = re.compile(rf"({_DATE.pattern})T({_TIME.pattern})", re.ASCII)
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MILLISECOND = datetime.timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Parsed:
    """A value for pyarrow. Its schema is None for null, and for values that no schema describes."""

    schema: Schema | None
    value: Any


class _MalformedError(Exception):
    """The text is not a literal: ``parse_literal`` then treats it as a string."""


def parse_literal(text: str, *, any_decimal: bool = False) -> Parsed:
    """Parses a text as a literal. It never fails: a text that is no literal is a string.

    ``any_decimal``: a number that no Arrow column can hold is a decimal, not a string.
    """
    if not text:
        return Parsed(STRING, text)
    try:
        if any_decimal and _NUMBER.fullmatch(text.strip()):
            return _number(text.strip(), any_decimal=True)
        tokens = _Tokens(text)
        found = _parse(tokens, 0)
        if tokens.rest().strip():
            raise _MalformedError
        return found
    except _MalformedError:
        return Parsed(STRING, text)


class _Tokens:
    """Splits a text at delimiters that are not escaped by a backslash."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0

    def rest(self) -> str:
        """The text after the consumed tokens."""
        return self._text[self._position :]

    def take(self) -> str:
        """Consumes the next token: a delimiter, or the text before it; empty at the end."""
        start = at = self._position
        escaped = False
        while at < len(self._text):
            char = self._text[at]
            if char in _DELIMITERS and not escaped:
                at = max(at, start + 1)
                break
            escaped = char == "\\" and not escaped
            at += 1
        self._position = at
        return self._text[start:at]

    def accept(self, *expected: str) -> str | None:
        """Consumes and returns the next token, stripped, if it is in ``expected``; else None."""
        before = self._position
        token = self.take().strip()
        while not token and self._position < len(self._text):
            token = self.take().strip()
        if token in expected:
            return token
        self._position = before
        return None

    def accept_pattern(self, *patterns: re.Pattern[str]) -> str | None:
        """Consumes and returns a match before a delimiter or the end of the text; else None."""
        stripped = self.rest().lstrip()
        for each in patterns:
            found = each.match(stripped)
            behind = stripped[found.end() :].lstrip()[:1] if found else ""
            if found and (not behind or behind in ",]}:"):
                self._position = len(self._text) - len(stripped) + found.end()
                return found[0]
        return None


def _parse(tokens: _Tokens, depth: int) -> Parsed:
    if depth > _MAX_DEPTH:
        raise _MalformedError
    if depth and tokens.accept('"'):
        return _quoted(tokens)
    literal = tokens.accept("null", "true", "false", "[", "{")
    match literal:
        case "null":
            return Parsed(None, None)
        case "true" | "false":
            return Parsed(BOOLEAN, literal == "true")
        case "[":
            return _array(tokens, depth)
        case "{":
            return _map(tokens, depth)
    at = tokens.accept_pattern(_TIMESTAMP, _TIME, _DATE)
    if at is not None and (temporal := _temporal(at)) is not None:
        return temporal
    token = tokens.take() if at is None else at
    if _NUMBER.fullmatch(token.strip()):
        return _number(token.strip())
    raise _MalformedError


def _quoted(tokens: _Tokens) -> Parsed:
    parts = []
    while (token := tokens.take()) != '"':
        if not token:
            raise _MalformedError
        parts.append(token)
    content = "".join(parts)
    return _temporal(content) or Parsed(STRING, content)


def _array(tokens: _Tokens, depth: int) -> Parsed:
    items: list[Parsed] = []
    if tokens.accept("]"):
        return Parsed(None, [])
    while True:
        items.append(_parse(tokens, depth + 1))
        delimiter = tokens.accept(",", "]")
        if delimiter is None:
            raise _MalformedError
        if delimiter == "]" or tokens.accept("]"):
            break
    schema = _common(items)
    if schema is None:
        return Parsed(None, [_plain(each) for each in items])
    aligned = [_aligned(each, schema) for each in items]
    return Parsed(Schema(Type.ARRAY, value_schema=schema), aligned)


def _map(tokens: _Tokens, depth: int) -> Parsed:
    keys: list[Parsed] = []
    values: list[Parsed] = []
    while not tokens.accept("}"):
        keys.append(_parse(tokens, depth + 1))
        if keys[-1].value is None or not tokens.accept(":"):
            raise _MalformedError
        values.append(_parse(tokens, depth + 1))
        tokens.accept(",")  # Kafka Connect does not require the comma
    key_schema, value_schema = _common(keys), _common(values)
    if key_schema is None or value_schema is None:
        if not all(each.schema == STRING for each in keys):
            raise _MalformedError  # JSON objects have text keys only
        pairs = zip(keys, values, strict=True)
        return Parsed(None, {key.value: _plain(each) for key, each in pairs})
    schema = Schema(Type.MAP, key_schema=key_schema, value_schema=value_schema)
    entries = {
        _hashable(_aligned(key, key_schema)): _aligned(value, value_schema)
        for key, value in zip(keys, values, strict=True)
    }
    return Parsed(schema, list(entries.items()))


def _hashable(key: Any) -> Any:
    if isinstance(key, list):
        raise _MalformedError
    return key


def _common(items: list[Parsed]) -> Schema | None:
    """The schema that all items have or can be widened to; None if there is none."""
    present = [each for each in items if each.value is not None]
    if not present or any(each.schema is None for each in present):
        return None
    common = present[0].schema
    for each in present[1:]:
        common = _wider(common, each.schema)
    if common is not None and len(present) < len(items):
        raise _MalformedError  # Kafka Connect reads such a mix of values and nulls as a string
    return common


def _wider(one: Schema | None, other: Schema | None) -> Schema | None:
    if one is None or other is None or one == other:
        return one if one == other else None
    plain = one.name is None and other.name is None
    if plain and one.type in _WIDENING and other.type in _WIDENING:
        return max(one, other, key=lambda schema: _WIDENING.index(schema.type))
    return None


def _aligned(item: Parsed, schema: Schema) -> Any:
    if item.value is not None and schema.type in (Type.FLOAT32, Type.FLOAT64):
        return float(item.value)
    return item.value


def _plain(item: Parsed) -> Any:
    """The schemaless form of the value (see ``record.json.schemaless``)."""
    if item.value is None or item.schema is None:
        return item.value
    match item.schema.name:
        case schemas.DATE:
            return (_EPOCH + datetime.timedelta(days=item.value)).date()
        case schemas.TIME:
            return (_EPOCH + item.value * _MILLISECOND).time()
        case schemas.TIMESTAMP:
            return _EPOCH + item.value * _MILLISECOND
    if item.schema.type is Type.MAP:
        assert item.schema.key_schema is not None
        if item.schema.key_schema.type is not Type.STRING:
            raise _MalformedError
        return dict(item.value)
    return item.value


#: Numbers with lower exponents are not whole: no text has so many zeros at its end.
_EXPONENT_MIN = -100_000


def _number(text: str, *, any_decimal: bool = False) -> Parsed:
    try:
        number = decimal.Decimal(text)
    except decimal.InvalidOperation:
        raise _MalformedError from None  # an exponent beyond 64 bits
    exponent = number.as_tuple().exponent
    assert isinstance(exponent, int)
    # comparisons and arithmetic raise Overflow for exponents that the context does not have
    if not number or (
        number.adjusted() < DECIMAL256_DIGITS
        and (exponent >= 0 or (exponent > _EXPONENT_MIN and number == number.to_integral_value()))
    ):
        whole = int(number) if number else 0  # int(0e999999999) would make all the zeros
        for kind, bits in _INTEGERS:
            if -(1 << (bits - 1)) <= whole < 1 << (bits - 1):
                return Parsed(Schema(kind), whole)
    if exponent:
        # Kafka Connect uses a 32-bit float whenever the number is in range, and so loses digits
        # not abs(): it raises Overflow for exponents that the context does not have
        in_range = number.copy_abs() < decimal.Decimal("3.4e38")
        narrow = np.float32(text) if in_range else np.float32("inf")
        if decimal.Decimal(str(narrow)) == number:
            return Parsed(Schema(Type.FLOAT32), float(narrow))
        if np.isfinite(np.float64(text)):
            return Parsed(Schema(Type.FLOAT64), float(text))
    digits = len(number.as_tuple().digits)
    if not any_decimal and (exponent != 0 or digits > DECIMAL256_DIGITS):
        raise _MalformedError  # no Arrow column can hold the number, so it remains text
    parameters = {SCALE: str(-exponent)}
    if digits > DECIMAL128_DIGITS:
        parameters[PRECISION] = str(DECIMAL256_DIGITS)
    return Parsed(Schema(Type.BYTES, False, schemas.DECIMAL, 1, parameters=parameters), number)


def _temporal(text: str) -> Parsed | None:
    try:
        if _DATE.fullmatch(text):
            days = (datetime.date.fromisoformat(text) - _EPOCH.date()).days
            return Parsed(Schema(Type.INT32, False, schemas.DATE, 1), days)
        if _TIME.fullmatch(text):
            at = datetime.datetime.fromisoformat(f"1970-01-01T{text}")
            return Parsed(Schema(Type.INT32, False, schemas.TIME, 1), (at - _EPOCH) // _MILLISECOND)
        if _TIMESTAMP.fullmatch(text):
            at = datetime.datetime.fromisoformat(text)
            schema = Schema(Type.INT64, False, schemas.TIMESTAMP, 1)
            return Parsed(schema, (at - _EPOCH) // _MILLISECOND)
    except ValueError:
        pass  # no such day or time: Kafka Connect would read month 13 as January
    return None
