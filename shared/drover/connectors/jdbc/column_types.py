"""Column types of a sink: types for new columns, and conversion of values for existing ones."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql

from drover.connector.records import is_binary
from drover.connectors.jdbc.exact_values import LossError, change_for

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


def bound(table: "sa.Table", rows: Sequence[Row], prefix: str, dialect: str) -> list[Row]:
    """The parameters of a statement for rows with the same fields; with a ``prefix`` to find rows.

    Raises:
        UnwritableRecordError: A value does not fit its column.
    """
    names = list(rows[0]) if rows else []
    if not names:
        return [{} for _ in rows]
    finds = bool(prefix)
    columns = [
        _stored(table, name, [row[name] for row in rows], dialect, finds=finds) for name in names
    ]
    keys = [f"{prefix}{name}" for name in names]
    return [dict(zip(keys, values, strict=True)) for values in zip(*columns, strict=True)]


def parameter(table: "sa.Table", name: str, key: str) -> "sa.ColumnElement[Any]":
    """The parameter ``key`` for a column; JSON is sent as text."""
    kind = table.c[name].type
    if not isinstance(kind, sa.JSON):
        return sa.bindparam(key, type_=kind)
    text = sa.bindparam(key, type_=sa.Text())
    return sa.cast(text, kind) if isinstance(kind, postgresql.JSON) else text


def _stored(
    table: "sa.Table", name: str, values: list[Any], dialect: str, *, finds: bool
) -> list[Any]:
    """Values of a field in the form for their column; ``finds`` for values to compare it with."""
    kind = table.c[name].type
    change = change_for(kind, dialect, finds=finds)
    if change is None:
        return values
    try:
        return [None if each is None else change(each) for each in values]
    except LossError:
        raise lossy(table.name, name, str(kind)) from None
    except (ValueError, TypeError, ArithmeticError, LookupError):
        told = (
            f"its field {name!r} fits no column of type {type(kind).__name__}: change the type of "
            f"column {name!r} of table {table.name!r}, or convert the field with a transform"
        )
        raise UnwritableRecordError(told) from None


def lossy(table: str, column: str, kind: str) -> UnwritableRecordError:
    """The error for a value that its column would round or cut."""
    return UnwritableRecordError(
        f"table {table!r} cannot hold the value of field {column!r}: its column has the type "
        f"{kind}, which would round or cut it; change the column's type (ALTER TABLE), or convert "
        "the field with a transform"
    )
