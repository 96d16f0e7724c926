"""Table columns as Arrow types and back: exact, or according to numeric.mapping."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql

from drover.connectors.postgres.copied import from_text

NONE, PRECISION_ONLY, BEST_FIT, BEST_FIT_EAGER_DOUBLE = (
    "none",
    "precision_only",
    "best_fit",
    "best_fit_eager_double",
)
NUMERIC_MAPPINGS = (NONE, PRECISION_ONLY, BEST_FIT, BEST_FIT_EAGER_DOUBLE)
_DECIMAL_MAX_DIGITS = 38
_LONG_DIGITS = 18
_EXACT = Context(prec=2 * _DECIMAL_MAX_DIGITS)

Convert = Callable[[Any], Any]


class ColumnError(ValueError):
    """A value that its column's type cannot hold; the message names the column."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column to read: its SQL type, its Arrow type, and the conversion of values.

    ``convert`` is None if Arrow takes the values unchanged.
    """

    name: str
    sql_type: "sa.types.TypeEngine[Any]"
    arrow_type: pa.DataType
    convert: Convert | None = None
    nullable: bool = True

    @classmethod
    def of(
        cls,
        name: str,
        sql_type: "sa.types.TypeEngine[Any]",
        *,
        numeric_mapping: str = NONE,
        nullable: bool = True,
    ) -> "Column":
        """The column for an SQL type."""
        return cls(name, sql_type, *_reading(sql_type, numeric_mapping), nullable)

    def array(self, values: Sequence[Any]) -> pa.Array:
        """An array of column values.

        Raises:
            ColumnError: A value does not fit.
        """
        convert = self.convert
        try:
            if convert is not None:
                values = [None if value is None else convert(value) for value in values]
            return pa.array(values, self.arrow_type)
        except (pa.ArrowException, ValueError, TypeError, ArithmeticError) as error:
            raise self._misfit(error) from error

    def array_of_texts(self, texts: pa.Array) -> pa.Array:
        """An array of column values from the texts of PostgreSQL's COPY.

        Raises:
            ColumnError: A value does not fit.
        """
        try:
            return from_text(texts, self.arrow_type)
        except (pa.ArrowException, ValueError) as error:
            raise self._misfit(error) from error

    def selected(self, column: "sa.ColumnElement[Any]") -> "sa.ColumnElement[Any]":
        """The expression to select; columns that become text are cast by the database."""
        if isinstance(self.sql_type, mysql.TIME):  # SQLAlchemy would drop the days
            return sa.type_coerce(column, sa.types.NULLTYPE).label(self.name)
        plain = isinstance(self.sql_type, sa.String) and not isinstance(self.sql_type, mysql.SET)
        if plain or not pa.types.is_string(self.arrow_type):
            return column
        return sa.type_coerce(column, sa.Text()).label(self.name)

    def _misfit(self, error: Exception) -> ColumnError:
        return ColumnError(
            f"column {self.name!r} ({self.sql_type!r}) holds what {self.arrow_type} does not: "
            f"{error}"
        )


def arrow_schema(columns: Sequence[Column]) -> pa.Schema:
    """The Arrow schema of the columns."""
    return pa.schema([pa.field(c.name, c.arrow_type, c.nullable) for c in columns])


def _reading(kind: "sa.types.TypeEngine[Any]", mapping: str) -> tuple[pa.DataType, Convert | None]:
    match kind:
        case postgresql.DOMAIN():
            return _reading(kind.data_type, mapping)
        case sa.Boolean() | mysql.TINYINT(display_width=1) | mysql.BIT(length=1 | None):
            return pa.bool_(), bool
        case mysql.BIT():
            return pa.binary(), _Bits(-(-(kind.length or 1) // 8))
        case mysql.TIME():
            return pa.time64("us"), _time_of_day
        case sa.SmallInteger() | mysql.TINYINT():
            return (pa.int32() if getattr(kind, "unsigned", False) else pa.int16()), None
        case sa.BigInteger():
            return (pa.decimal128(20, 0) if getattr(kind, "unsigned", False) else pa.int64()), None
        case mysql.INTEGER() if kind.unsigned:
            return pa.int64(), None
        case sa.Integer() | mysql.YEAR():
            return pa.int32(), None
        case sa.Float():
            return (pa.float32() if isinstance(kind, sa.REAL) else pa.float64()), float
        case sa.Numeric():
            return _numeric(kind, mapping)
        case mysql.TIMESTAMP():
            return pa.timestamp("us", "UTC"), None  # sessions use UTC
        case sa.DateTime():
            return pa.timestamp("us", "UTC" if kind.timezone else None), None
        case sa.Date():
            return pa.date32(), None
        case sa.Time() if not kind.timezone:
            return pa.time64("us"), None
        case sa.LargeBinary() | sa.types._Binary() | postgresql.BYTEA():
            return pa.binary(), bytes
        case sa.ARRAY() if (kind.dimensions or 1) == 1:
            inner, convert = _reading(kind.item_type, mapping)
            return pa.list_(inner), _Each(convert) if convert else None
        case _:  # json, uuid, inet, interval, geometry…: the database's text form
            return pa.string(), _text


def _numeric(kind: "sa.Numeric[Any]", mapping: str) -> tuple[pa.DataType, Convert | None]:
    precision, scale = kind.precision, kind.scale or 0
    if precision is None:
        return pa.string(), _plain_number  # exact, with any number of digits
    precision, scale = max(precision, precision - scale, scale), max(scale, 0)
    if mapping != NONE and scale == 0 and precision <= _LONG_DIGITS:
        return (pa.int32() if precision <= 9 else pa.int64()), int
    eager = mapping == BEST_FIT_EAGER_DOUBLE
    if scale > 0 and (eager or (mapping == BEST_FIT and precision <= _LONG_DIGITS)):
        return pa.float64(), float
    if precision > _DECIMAL_MAX_DIGITS:
        return pa.string(), _plain_number
    return pa.decimal128(precision, scale), _Quantize(Decimal(1).scaleb(-scale))


@dataclass(frozen=True, slots=True)
class _Quantize:
    """Converts decimals to the scale of their column; refuses to lose digits."""

    unit: Decimal

    def __call__(self, value: Any) -> Decimal:
        number = value if isinstance(value, Decimal) else Decimal(str(value))
        scaled = number.quantize(self.unit, context=_EXACT)
        if scaled != number:
            raise ValueError(f"{number} has more digits than the column's type")
        return scaled


@dataclass(frozen=True, slots=True)
class _Bits:
    """Converts bits from SQLAlchemy's numbers to bytes."""

    length: int

    def __call__(self, value: int) -> bytes:
        return value.to_bytes(self.length, "big")


def _time_of_day(value: timedelta) -> time:
    if not timedelta() <= value < timedelta(days=1):
        raise ValueError(f"{value} is not a time of day")
    return (datetime.min + value).time()


def _plain_number(value: Any) -> str:
    return format(value, "f") if isinstance(value, Decimal) else str(value)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else str(value)


@dataclass(frozen=True, slots=True)
class _Each:
    """Converts the elements of a list."""

    convert: Convert

    def __call__(self, value: Any) -> Any:
        return [None if each is None else self.convert(each) for each in value]
