"""Table columns as Arrow types and back: exact, or according to numeric.mapping."""

import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql

from drover.connectors.postgres.copied import from_text, parse_array

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

#: How TINYINT(1) of MySQL is read: as a number, or as a boolean if it is 0 or 1.
NUMBER, BOOLEAN = "number", "boolean"
TINYINT1_MAPPINGS = (NUMBER, BOOLEAN)
#: How MySQL's date 0000-00-00 is read: values of zeroDateTimeBehavior of its JDBC driver.
EXCEPTION, TO_NULL, ROUND = "EXCEPTION", "CONVERT_TO_NULL", "ROUND"

#: Converts a value of the driver; raises an error of _MISFITS for a value that does not fit.
Convert = Callable[[Any], Any]
#: Receives the number of a row with a bad value, and the reason.
Fault = Callable[[int, str], object]
_MISFITS = (pa.ArrowException, ValueError, TypeError, ArithmeticError)
_SHOWN_CHARS = 80


class ColumnError(ValueError):
    """A column no longer has the type that it had at the start; the message names the column."""


@dataclass(frozen=True, slots=True)
class ColumnSettings:
    """How values are read; ``zero_dates`` is a value of zeroDateTimeBehavior."""

    numeric_mapping: str = NONE
    tinyint1: str = NUMBER
    zero_dates: str = EXCEPTION


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
        settings: ColumnSettings = ColumnSettings(),
        nullable: bool = True,
    ) -> "Column":
        """The column for an SQL type."""
        nullable = nullable or settings.zero_dates == TO_NULL
        return cls(name, sql_type, *_reading(sql_type, settings), nullable)

    def array(self, values: Sequence[Any], fault: Fault) -> pa.Array:
        """An array of the driver's values; one that does not fit is reported, and becomes null."""
        return self._fitting(values, 0, self._converted, fault)

    def array_of_texts(self, texts: pa.Array, fault: Fault) -> pa.Array:
        """As ``array``, for the texts of PostgreSQL's COPY."""
        return self._fitting(texts, 0, self._parsed, fault)

    def selected(self, column: "sa.ColumnElement[Any]") -> "sa.ColumnElement[Any]":
        """The expression to select: values of the driver, because SQLAlchemy's own conversions do
        not show which row fails.
        """
        if isinstance(self.sql_type, mysql.FLOAT):  # the server sends six digits of these
            column = sa.type_coerce(column, sa.Double()) * sa.literal_column("1e0")
        return sa.type_coerce(column, sa.types.NULLTYPE).label(self.name)

    def _converted(self, values: Sequence[Any]) -> pa.Array:
        if (convert := self.convert) is not None:
            values = [None if value is None else convert(value) for value in values]
        return pa.array(values, self.arrow_type)

    def _parsed(self, texts: pa.Array) -> pa.Array:
        return from_text(texts, self.arrow_type)

    def _fitting(
        self, values: Any, first: int, convert: Callable[[Any], pa.Array], fault: Fault
    ) -> pa.Array:
        """The converted values; bad ones are found by halving. ``first`` is the number of the first
        row.
        """
        try:
            return convert(values)
        except _MISFITS:
            pass
        if len(values) == 1:
            fault(first, self._misfit(values[0]))
            return pa.nulls(1, self.arrow_type)
        middle = len(values) // 2
        parts = ((values[:middle], first), (values[middle:], first + middle))
        return pa.concat_arrays([self._fitting(*part, convert, fault) for part in parts])

    def _misfit(self, value: Any) -> str:
        shown = value.as_py() if isinstance(value, pa.Scalar) else value
        text = shown if isinstance(shown, str) or not isinstance(shown, _OF_TIME) else str(shown)
        return (
            f"column {self.name!r} has {f'{text!r}':.{_SHOWN_CHARS}}, which {self.arrow_type} "
            "cannot hold"
        )


_OF_TIME = (date, time, timedelta, Decimal)


def arrow_schema(columns: Sequence[Column]) -> pa.Schema:
    """The Arrow schema of the columns."""
    return pa.schema([pa.field(c.name, c.arrow_type, c.nullable) for c in columns])


def _reading(
    kind: "sa.types.TypeEngine[Any]", settings: ColumnSettings
) -> tuple[pa.DataType, Convert | None]:
    match kind:
        case mysql.TINYINT(display_width=1) if settings.tinyint1 == BOOLEAN:
            return pa.bool_(), _boolean
        case sa.Boolean() | mysql.BIT(length=1 | None):
            return pa.bool_(), _boolean
        case mysql.BIT():
            return pa.binary(), _bytes
        case mysql.TIME():
            return pa.time64("us"), _time_of_day
        case SqliteInteger():
            return pa.int64(), _whole
        case sa.SmallInteger() | mysql.TINYINT():
            return (pa.int32() if getattr(kind, "unsigned", False) else pa.int16()), None
        case sa.BigInteger():
            return (pa.decimal128(20, 0) if getattr(kind, "unsigned", False) else pa.int64()), None
        case mysql.INTEGER() if kind.unsigned:
            return pa.int64(), None
        case postgresql.OID():
            return pa.int64(), None
        case sa.Integer() | mysql.YEAR():
            return pa.int32(), None
        case sa.Float():
            single = isinstance(kind, sa.REAL | mysql.FLOAT)
            return (pa.float32() if single else pa.float64()), _float
        case sa.Numeric():
            return _numeric(kind, settings.numeric_mapping)
        case mysql.TIMESTAMP():  # sessions use UTC
            return pa.timestamp("us", "UTC"), _Moment(settings.zero_dates)
        case sa.DateTime():
            zone = "UTC" if kind.timezone else None
            return pa.timestamp("us", zone), _Moment(settings.zero_dates)
        case sa.Date():
            return pa.date32(), _Day(settings.zero_dates)
        case sa.Time() if not kind.timezone:
            return pa.time64("us"), _time_of_day
        case MysqlGeometry():
            return pa.binary(), ewkb_of_mysql
        case sa.LargeBinary() | sa.types._Binary() | postgresql.BYTEA():
            return pa.binary(), _bytes
        case sa.ARRAY() if (kind.dimensions or 1) == 1:
            inner, convert = _reading(kind.item_type, settings)
            return pa.list_(inner), _Each(convert) if convert else None
        case _:  # json, uuid, inet, interval…: the database's text form
            return pa.string(), _text


class SqliteInteger(sa.BigInteger):
    """An integer column of SQLite, which may hold values of any type."""


class MysqlGeometry(sa.types.UserDefinedType[bytes]):
    """A spatial column of MySQL: four bytes of the reference system's number, then WKB."""

    cache_ok = True


def _numeric(kind: "sa.Numeric[Any]", mapping: str) -> tuple[pa.DataType, Convert | None]:
    precision, scale = kind.precision, kind.scale or 0
    if precision is None:
        return pa.string(), _plain_number  # exact, with any number of digits
    precision, scale = max(precision, precision - scale, scale), max(scale, 0)
    if mapping != NONE and scale == 0 and precision <= _LONG_DIGITS:
        return (pa.int32() if precision <= 9 else pa.int64()), _integer
    eager = mapping == BEST_FIT_EAGER_DOUBLE
    if scale > 0 and (eager or (mapping == BEST_FIT and precision <= _LONG_DIGITS)):
        return pa.float64(), _float
    if precision > _DECIMAL_MAX_DIGITS:
        return pa.string(), _plain_number
    return pa.decimal128(precision, scale), _Quantize(Decimal(1).scaleb(-scale))


@dataclass(frozen=True, slots=True)
class _Quantize:
    """Converts decimals to the scale of their column; refuses to lose digits."""

    unit: Decimal

    def __call__(self, value: Any) -> Decimal:
        number = value if isinstance(value, Decimal) else Decimal(str(_plain(value)))
        scaled = number.quantize(self.unit, context=_EXACT)
        # SQLite stores decimals as floating point, of which 15 digits are significant
        same = isinstance(value, float) and f"{float(scaled):.15g}" == f"{value:.15g}"
        if scaled != number and not same:
            raise ValueError(f"{number} has more digits than the column's type")
        return scaled


@dataclass(frozen=True, slots=True)
class _Moment:
    """Reads times: the driver's, SQLite's texts, and MySQL's zero date, of which the driver returns
    the text.
    """

    zero_dates: str

    def __call__(self, value: Any) -> datetime | None:
        if isinstance(value, datetime):
            return value
        if _ZERO_DATE.match(str(value)) and self.zero_dates != EXCEPTION:
            return None if self.zero_dates == TO_NULL else datetime.min
        return datetime.fromisoformat(value)


@dataclass(frozen=True, slots=True)
class _Day:
    """As ``_Moment``, for dates."""

    zero_dates: str

    def __call__(self, value: Any) -> date | None:
        if isinstance(value, date) and not isinstance(value, datetime):
            return value
        if _ZERO_DATE.match(str(value)) and self.zero_dates != EXCEPTION:
            return None if self.zero_dates == TO_NULL else date.min
        return date.fromisoformat(value)


_ZERO_DATE = re.compile(r"0000-00-00( 00:00:00(\.0+)?)?$")


def _time_of_day(value: Any) -> time:
    if isinstance(value, timedelta):
        if not timedelta() <= value < timedelta(days=1):
            raise ValueError(f"{value} is not a time of day")
        return (datetime.min + value).time()
    if isinstance(value, time):
        return value
    if value.startswith("24"):  # later versions of Python take it for midnight
        raise ValueError(f"{value} is not a time of day")
    return time.fromisoformat(value)


def _boolean(value: Any) -> bool:
    found = int.from_bytes(value, "big") if isinstance(value, bytes) else value
    if found not in (0, 1):
        raise ValueError(f"{value} is neither true nor false")
    return bool(found)


def _whole(value: Any) -> int:
    if not isinstance(value, int):
        raise TypeError(f"{value!r} is not an integer")
    return value


def _integer(value: Any) -> int:
    if int(value) != value:
        raise ValueError(f"{value} is not an integer")
    return int(value)


def _float(value: Any) -> float:
    return float(_plain(value))


def _plain(value: Any) -> Any:
    if isinstance(value, bytes | str):
        raise TypeError(f"{value!r} is not a number")
    return value


def _bytes(value: Any) -> bytes:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise TypeError(f"{value!r} is not bytes")
    return bytes(value)


def _plain_number(value: Any) -> str:
    return format(value, "f") if isinstance(value, Decimal) else _text(value)


def _text(value: Any) -> str:
    if isinstance(value, bytes | bytearray | memoryview):
        raise TypeError("bytes are not a text")
    return value if isinstance(value, str) else str(value)


#: The flag of a type in EWKB whose geometry has the number of a reference system.
_EWKB_SRID = 0x20000000
_HEADER = struct.Struct("<IBI")


def ewkb_of_mysql(value: bytes) -> bytes:
    """PostGIS's form of a geometry of MySQL: WKB, with the number of its reference system unless
    that is 0.

    Raises:
        ValueError: The value has another form.
    """
    srid, is_little, kind = _HEADER.unpack_from(value)
    if is_little != 1:
        raise ValueError("a geometry with another byte order")
    if not srid:
        return value[4:]
    return struct.pack("<BII", 1, kind | _EWKB_SRID, srid) + value[_HEADER.size :]


@dataclass(frozen=True, slots=True)
class _Each:
    """Converts the elements of a list, or of PostgreSQL's text of an array."""

    convert: Convert

    def __call__(self, value: Any) -> Any:
        elements = parse_array(value) if isinstance(value, str) else value
        return [None if each is None else self.convert(each) for each in elements]
