"""Values in the form for their column: exact, or refused if the column would round or cut them."""

import math
import re
import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from decimal import Context, Decimal
from functools import partial
from typing import Any

import numpy as np
import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql

from drover.connector.records import PLAIN_FOR_DATABASES, value_text

MYSQL = ("mysql", "mariadb")
SQLITE = "sqlite"
_DIGITS = Context(prec=2_000)
_LONGS = range(-(2**63), 2**63)
#: Years that MySQL takes as years of this or the last century.
_SHORT_YEARS = range(1, 100)
#: The sizes of MySQL's text types, from which it cuts trailing blanks in any mode.
_TEXT_BYTES = ((mysql.TINYTEXT, 2**8 - 1), (mysql.MEDIUMTEXT, 2**24 - 1), (mysql.TEXT, 2**16 - 1))
#: As PostgreSQL writes them.
_NOT_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
_NANOSECONDS = re.compile(r"\.\d{6}\d*[1-9]")

#: Texts of booleans, as PostgreSQL takes them.
_TRUTHS = dict.fromkeys(("true", "t", "yes", "y", "on", "1"), True) | dict.fromkeys(
    ("false", "f", "no", "n", "off", "0"), False
)

#: Converts a value for a column.
Change = Callable[[Any], Any]


class LossError(ValueError):
    """A column would round or cut a value."""


def change_for(kind: "sa.types.TypeEngine[Any]", dialect: str, *, finds: bool) -> Change | None:
    """The function that converts values for a column of a type: texts of schemaless values are
    parsed. It raises LossError for a value that the column would change, and another ValueError, a
    TypeError or an ArithmeticError for one of another type.

    None if no conversion is needed. ``finds`` is for values to compare the column with.
    """
    while isinstance(kind, postgresql.DOMAIN):
        kind = kind.data_type
    match kind:
        case sa.JSON():
            return json_text
        case sa.Uuid():
            return partial(_read, uuid.UUID)
        case sa.DateTime():
            return partial(_moment, kind, _second_digits(kind, dialect))
        case sa.Date():
            return _day
        case sa.Time():
            return partial(_time_of_day, _second_digits(kind, dialect))
        case sa.Float():
            return partial(_floating, kind, dialect)
        case sa.Numeric() if dialect == SQLITE:
            return partial(_floating, kind, dialect)
        case sa.Numeric():
            return partial(_decimal, kind.scale, dialect)
        case sa.Integer() | postgresql.OID():
            return partial(_whole, dialect, finds)
        case mysql.YEAR():
            return _year
        case sa.Boolean():
            return _truth
        case sa.String():
            return partial(_text, kind, dialect)
        case mysql.BINARY() | sa.BINARY() if dialect in MYSQL and kind.length:
            return partial(_padded, kind.length)
        case sa.ARRAY():
            return partial(_list, change_for(kind.item_type, dialect, finds=finds) or _same)
        case _:
            return None


def json_text(value: Any) -> str:
    """The value for a JSON column; a text is already JSON."""
    return value if isinstance(value, str) else compact_json(value)


def compact_json(value: Any) -> str:
    """A struct, list or map as JSON for a text column."""
    return value_text(value, PLAIN_FOR_DATABASES)


def _read(of_text: Callable[[str], Any], value: Any) -> Any:
    return of_text(value) if isinstance(value, str) else value


def _same(value: Any) -> Any:
    return value


def _list(change: Change, value: Any) -> Any:
    if not isinstance(value, list):  # a text would become a list of its characters
        raise TypeError(f"{type(value).__name__} is not a list")
    return _each(change, value)


def _each(change: Change, value: Any) -> Any:
    if isinstance(value, list):
        return [_each(change, each) for each in value]
    return None if value is None else change(value)


def _number(value: Any) -> Decimal:
    """The exact value of a number or of its text; a floating point number is its shortest text."""
    match value:
        case Decimal():
            return value
        case bool() | int():
            return Decimal(int(value))
        case float():
            return Decimal(repr(value))
        case str():
            return Decimal(value)
        case _:
            raise TypeError(f"{type(value).__name__} is not a number")


def _whole(dialect: str, finds: bool, value: Any) -> Any:
    if isinstance(value, str):
        if finds:  # for MySQL the text '5 apples' is equal to 5
            return int(value)
        try:
            number = _number(value)
        except ArithmeticError:
            return value  # the server refuses it; SQLite stores it as it is
        if not number.is_finite():
            return value
    elif isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return value
    else:
        number = _number(value)
    if number.is_finite() and number == number.to_integral_value(context=_DIGITS):
        if dialect == SQLITE and int(number) not in _LONGS:
            raise LossError
        return int(number)
    if dialect == SQLITE:  # a column of integers may hold floating point
        return _floating(sa.Double(), dialect, value)
    raise LossError


def _decimal(scale: int | None, dialect: str, value: Any) -> Decimal:
    number = _number(value)
    if not number.is_finite():
        if dialect in MYSQL:
            raise LossError
        return number
    if scale is not None:
        unit = Decimal(1).scaleb(-scale)
        if number.quantize(unit, context=_DIGITS) != number:
            raise LossError
    return number


def _floating(kind: "sa.types.TypeEngine[Any]", dialect: str, value: Any) -> float:
    """A floating point number: exact, or with the same shortest text as a decimal."""
    number = float(value)
    is_refused = dialect in MYSQL or (dialect == SQLITE and math.isnan(number))
    if not math.isfinite(number):
        if is_refused or (not isinstance(value, float | str) and Decimal(value).is_finite()):
            raise LossError
        return number
    is_single = isinstance(kind, sa.REAL | mysql.FLOAT) and dialect != SQLITE
    with np.errstate(over="ignore"):
        single = np.float32(number)
    if isinstance(value, float):
        is_exact = not is_single or float(single) == number
    else:
        stored = float(single) if is_single else number
        shown = Decimal(str(single) if is_single else repr(number))
        is_exact = _number(value) in (shown, Decimal(stored))
    if is_exact and dialect in MYSQL and isinstance(kind, mysql.FLOAT | mysql.DOUBLE):
        scale = kind.scale
        shown = Decimal(str(single)) if is_single else Decimal(repr(number))
        is_exact = scale is None or round(shown, scale) == shown
    if not is_exact:
        raise LossError
    return number


def _year(value: Any) -> Any:
    number = int(value)
    if number != value if not isinstance(value, str) else len(value) < len("1999"):
        raise LossError
    if number in _SHORT_YEARS:
        raise LossError
    return value


def _truth(value: Any) -> Any:
    if isinstance(value, str):
        return _TRUTHS[value.strip().lower()]
    if value not in (0, 1):
        raise LossError
    return bool(value)


def _text(kind: "sa.String", dialect: str, value: Any) -> Any:
    match value:
        case dict() | list():
            text: Any = compact_json(value)
        case bool() | bytes():
            return value
        case int():  # MySQL would compare texts with it as numbers: '5 apples' = 5
            text = str(value)
        case Decimal():
            text = format(value, "f")
        case float() if dialect != "postgresql":  # SQLite would write fewer digits
            text = repr(value) if math.isfinite(value) else _NOT_FINITE[repr(value)]
        case _:
            text = value
    if isinstance(text, str) and text.endswith(" ") and _is_cut(kind, dialect, text):
        raise LossError
    return text


def _is_cut(kind: "sa.String", dialect: str, text: str) -> bool:
    """Whether the server cuts trailing blanks; other characters that exceed the length are an
    error.
    """
    if dialect == SQLITE or isinstance(kind, sa.CHAR):
        return False
    if dialect in MYSQL:
        size = next((size for each, size in _TEXT_BYTES if isinstance(kind, each)), None)
        if size is not None:
            return len(text.encode()) > size
    return kind.length is not None and len(text) > kind.length


def _padded(length: int, value: Any) -> Any:
    """Bytes for a column that fills shorter ones with zeros."""
    if isinstance(value, bytes) and len(value) < length:
        raise LossError
    return value


def _second_digits(kind: Any, dialect: str) -> int:
    """The number of digits after a second's point that a column has."""
    if dialect == SQLITE:
        return 6
    found = getattr(kind, "fsp", None) if dialect in MYSQL else getattr(kind, "precision", None)
    if found is None:
        return 0 if dialect in MYSQL else 6
    return int(found)


def _require_digits(microsecond: int, digits: int) -> None:
    if microsecond % 10 ** (6 - digits):
        raise LossError


def _iso(parse: Callable[[str], Any], text: str) -> Any:
    if _NANOSECONDS.search(text):
        raise LossError
    return parse(text)


def _moment(kind: "sa.DateTime", digits: int, value: Any) -> Any:
    """The moment in UTC, without a zone if the column has none."""
    value = _read(partial(_iso, datetime.fromisoformat), value)
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime.combine(value, time())
    if not isinstance(value, datetime):
        return value
    _require_digits(value.microsecond, digits)
    if value.tzinfo is None or kind.timezone:
        return value
    return value.astimezone(UTC).replace(tzinfo=None)


def _day(value: Any) -> Any:
    value = _read(date.fromisoformat, value)
    if not isinstance(value, datetime):
        return value
    moment = value if value.tzinfo is None else value.astimezone(UTC)
    if moment.time() != time():
        raise LossError
    return moment.date()


def _time_of_day(digits: int, value: Any) -> Any:
    value = _read(partial(_iso, time.fromisoformat), value)
    if isinstance(value, datetime):
        raise LossError
    if isinstance(value, time):
        _require_digits(value.microsecond, digits)
    return value
