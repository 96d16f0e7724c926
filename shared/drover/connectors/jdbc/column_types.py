"""Column types of a sink: types for new columns, and conversion of values for existing ones."""

import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import partial
from typing import Any

import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql

from drover.connector.records import PLAIN_FOR_DATABASES, is_binary, value_text

Row = dict[str, Any]
#: MySQL needs a length for a text column in a primary key.
_KEY_CHARS = 255
_KEY_BYTES = 255


class UnwritableRecordError(Exception):
    """A record that cannot be written; the message has the reason, without values."""


def sql_type(kind: pa.DataType, *, key: bool) -> "sa.types.TypeEngine[Any]":
    """The column type for an Arrow type, in a new table."""
    types = pa.types
    if types.is_boolean(kind):
        return sa.Boolean()
    if types.is_integer(kind):
        if kind.bit_width <= 16:
            return sa.SmallInteger()
        return sa.Integer() if kind.bit_width == 32 else sa.BigInteger()
    if types.is_floating(kind):
        return sa.REAL() if kind.bit_width == 32 else sa.Double()
    if types.is_decimal(kind):
        return sa.Numeric(kind.precision, kind.scale)
    if types.is_date(kind):
        return sa.Date()
    if types.is_time(kind):
        return sa.Time().with_variant(mysql.TIME(fsp=6), "mysql", "mariadb")
    if types.is_timestamp(kind):
        precise = mysql.DATETIME(fsp=6)
        zoned = sa.DateTime(timezone=kind.tz is not None)
        return zoned.with_variant(precise, "mysql", "mariadb")
    if is_binary(kind):
        own = mysql.VARBINARY(_KEY_BYTES) if key else mysql.LONGBLOB()
        return sa.LargeBinary().with_variant(own, "mysql", "mariadb")
    if types.is_nested(kind):
        return sa.JSON().with_variant(postgresql.JSONB(), "postgresql")
    if key:
        return sa.String(_KEY_CHARS)
    return sa.Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb")


def bound(table: "sa.Table", rows: Sequence[Row], prefix: str) -> list[Row]:
    """The parameters of a statement for rows with the same fields; with a ``prefix`` to find rows.

    Raises:
        UnwritableRecordError: A text does not fit its column.
    """
    names = list(rows[0]) if rows else []
    if not names:
        return [{} for _ in rows]
    finds = bool(prefix)
    columns = [_stored(table, name, [row[name] for row in rows], finds=finds) for name in names]
    keys = [f"{prefix}{name}" for name in names]
    return [dict(zip(keys, values, strict=True)) for values in zip(*columns, strict=True)]


def parameter(table: "sa.Table", name: str, key: str) -> "sa.ColumnElement[Any]":
    """The parameter ``key`` for a column; JSON is sent as text."""
    kind = table.c[name].type
    if not isinstance(kind, sa.JSON):
        return sa.bindparam(key, type_=kind)
    text = sa.bindparam(key, type_=sa.Text())
    return sa.cast(text, kind) if isinstance(kind, postgresql.JSON) else text


def json_text(value: Any) -> str:
    """The value for a JSON column; a text is already JSON."""
    return value if isinstance(value, str) else compact_json(value)


def compact_json(value: Any) -> str:
    """A struct, list or map as JSON for a text column."""
    return value_text(value, PLAIN_FOR_DATABASES)


def _stored(table: "sa.Table", name: str, values: list[Any], *, finds: bool) -> list[Any]:
    """Values of a field in the form for their column; ``finds`` for values to compare it with."""
    kind = table.c[name].type
    # for MySQL the text '5 apples' is equal to 5
    is_number = finds and isinstance(kind, sa.Integer)
    change = partial(_read, int) if is_number else _change_for(kind)
    if change is None:
        return values
    try:
        return [None if each is None else change(each) for each in values]
    except (ValueError, TypeError, ArithmeticError):
        told = f"its field {name!r} fits no column of type {type(kind).__name__}"
        raise UnwritableRecordError(told) from None


def _change_for(kind: "sa.types.TypeEngine[Any]") -> Callable[[Any], Any] | None:
    """The function that converts values for a column: texts of schemaless values are parsed.

    None if no conversion is needed.
    """
    match kind:
        case sa.JSON():
            return json_text
        case sa.Uuid():
            return partial(_read, uuid.UUID)
        case sa.DateTime():
            return partial(_moment, kind)
        case sa.Date():
            return partial(_read, date.fromisoformat)
        case sa.Time():
            return partial(_read, time.fromisoformat)
        case sa.Numeric():
            return partial(_read, Decimal)
        case sa.String():
            return _text
        case _:
            return None


def _read(of_text: Callable[[str], Any], value: Any) -> Any:
    return of_text(value) if isinstance(value, str) else value


def _text(value: Any) -> Any:
    match value:
        case dict() | list():
            return compact_json(value)
        case bool():
            return value
        case int() | Decimal():  # MySQL would compare texts with it as numbers: '5 apples' = 5
            return format(value, "f") if isinstance(value, Decimal) else str(value)
        case _:
            return value


def _moment(kind: "sa.DateTime", value: Any) -> Any:
    """The moment in UTC, without a zone if the column has none."""
    value = _read(datetime.fromisoformat, value)
    if not isinstance(value, datetime) or value.tzinfo is None or kind.timezone:
        return value
    return value.astimezone(UTC).replace(tzinfo=None)
