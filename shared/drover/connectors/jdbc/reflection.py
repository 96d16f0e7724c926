"""Finds the columns of tables and queries, with their types."""

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.engine.interfaces import ReflectedColumn

from drover.connectors.jdbc.columns import (
    EXCEPTION,
    NUMBER,
    Column,
    ColumnSettings,
    MysqlGeometry,
    SqliteInteger,
)
from drover.connectors.jdbc.database import run_verbatim

MYSQL = ("mysql", "mariadb")
#: The name of a query while its columns are reflected.
_QUERY_NAME = "drover_query"
_GEOMETRIES = frozenset(
    {
        *("geometry", "point", "linestring", "polygon", "multipoint", "multilinestring"),
        *("multipolygon", "geometrycollection", "geomcollection"),
    }
)
#: The types below domains and arrays, with their modifiers, and whether a comma separates them.
_BELOW_DOMAINS = """
WITH RECURSIVE below AS (
    SELECT attname, atttypid AS type, atttypmod AS modifier, false AS is_array
    FROM pg_attribute
    WHERE attrelid = to_regclass(%(table)s) AND attnum > 0 AND NOT attisdropped
    UNION ALL
    SELECT attname, CASE typtype WHEN 'd' THEN typbasetype ELSE typelem END,
        CASE WHEN typtype = 'd' AND typtypmod >= 0 THEN typtypmod ELSE modifier END,
        is_array OR typtype <> 'd'
    FROM below JOIN pg_type t ON t.oid = type
    WHERE typtype = 'd' OR typcategory = 'A' AND typelem <> 0)
SELECT attname, format_type(type, modifier), is_array,
    (SELECT typdelim FROM pg_type t WHERE t.oid = type) = ','
FROM below WHERE NOT EXISTS (
    SELECT FROM pg_type t
    WHERE t.oid = type AND (typtype = 'd' OR typcategory = 'A' AND typelem <> 0))
"""
_NUMERIC = re.compile(r"numeric\((\d+),(-?\d+)\)")
_TIME = re.compile(r"(timestamp|time)(?:\((\d)\))? with(out)? time zone")
_CHARACTERS = re.compile(r"character varying\((\d+)\)")


def reflected(
    connection: "sa.Connection",
    name: str,
    schema: str | None,
    numeric_mapping: str,
    *,
    tinyint1: str = NUMBER,
    zero_dates: str = EXCEPTION,
) -> tuple[Column, ...]:
    """A table's columns.

    Raises:
        sa.exc.NoSuchTableError: The table does not exist.
    """
    settings = ColumnSettings(numeric_mapping, tinyint1, zero_dates)
    found = described_columns(connection, name, schema)
    return columns_of(connection, found, settings, name, schema)


def described_columns(
    connection: "sa.Connection", name: str, schema: str | None
) -> list[ReflectedColumn]:
    """A table's columns as SQLAlchemy describes them.

    Raises:
        sa.exc.NoSuchTableError: The table does not exist.
    """
    with _unrecognized_types():
        return sa.inspect(connection).get_columns(name, schema)


def column_types(
    connection: "sa.Connection", name: str, schema: str | None
) -> "dict[str, sa.types.TypeEngine[Any]]":
    """The columns of a table with their types, of a domain the type below it.

    Raises:
        sa.exc.NoSuchTableError: The table does not exist.
    """
    types: dict[str, sa.types.TypeEngine[Any]] = {
        each["name"]: each["type"] for each in described_columns(connection, name, schema)
    }
    if connection.dialect.name == "postgresql" and any(map(_has_domain, types.values())):
        table = connection.dialect.identifier_preparer.format_table(sa.table(name, schema=schema))
        types |= dict(_below_domains(connection, types, table.replace("%%", "%")))
    return types


def primary_key_of(connection: "sa.Connection", name: str, schema: str | None) -> tuple[str, ...]:
    """The columns of a table's primary key; empty if it has none."""
    with _unrecognized_types():
        found = sa.inspect(connection).get_pk_constraint(name, schema)
    return tuple(found["constrained_columns"])


@contextmanager
def _unrecognized_types() -> Iterator[None]:
    """Types that SQLAlchemy does not recognize are no reason for a warning."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Did not recognize type", sa.exc.SAWarning)
        yield


def columns_of(
    connection: "sa.Connection",
    found: Sequence[Any],
    settings: ColumnSettings,
    name: str,
    schema: str | None,
) -> tuple[Column, ...]:
    """The columns that were found in a table."""
    types = {each["name"]: each["type"] for each in found}
    table = connection.dialect.identifier_preparer.format_table(sa.table(name, schema=schema))
    match connection.dialect.name:
        case "postgresql" if any(map(_is_incomplete, types.values())):
            types |= _below_domains(connection, types, table.replace("%%", "%"))
        case "sqlite":
            types = {each: _sqlite_type(kind) for each, kind in types.items()}
        case each if each in MYSQL:
            types |= _unknown_types(connection, types, table.replace("%%", "%"))
    return tuple(
        Column.of(
            each["name"],
            types[each["name"]],
            settings=settings,
            nullable=bool(each.get("nullable", True)),
        )
        for each in found
    )


def query_columns(
    connection: "sa.Connection", query: str, settings: ColumnSettings
) -> tuple[Column, ...]:
    """The columns of a query's rows.

    Raises:
        sa.exc.SQLAlchemyError: The database refused the query.
    """
    # a temporary view has the types of the query's columns
    made = f"CREATE TEMPORARY VIEW {_QUERY_NAME} AS {query}"
    if connection.dialect.name in MYSQL:
        made = f"CREATE TEMPORARY TABLE {_QUERY_NAME} SELECT * FROM ({query}\n) AS query LIMIT 0"
    run_verbatim(connection, made)
    found = described_columns(connection, _QUERY_NAME, None)
    columns = columns_of(connection, found, settings, _QUERY_NAME, None)
    connection.rollback()
    return columns


def _sqlite_type(kind: "sa.types.TypeEngine[Any]") -> "sa.types.TypeEngine[Any]":
    """Integers and floating point of SQLite have eight bytes, whatever their declared type."""
    if isinstance(kind, sa.Integer):
        return SqliteInteger()
    return sa.Double() if isinstance(kind, sa.Float) else kind


def _is_incomplete(kind: "sa.types.TypeEngine[Any]") -> bool:
    return isinstance(kind, sa.types.NullType) or _has_domain(kind)


def _has_domain(kind: "sa.types.TypeEngine[Any]") -> bool:
    inner = getattr(kind, "item_type", kind)
    return isinstance(inner, postgresql.DOMAIN)


def _below_domains(
    connection: "sa.Connection", types: Mapping[str, Any], table: str
) -> Iterator[tuple[str, "sa.types.TypeEngine[Any]"]]:
    """The types below domains: the reflection loses their modifiers, and arrays below them; and
    arrays of types that SQLAlchemy does not recognize.
    """
    rows = connection.exec_driver_sql(_BELOW_DOMAINS, {"table": table})
    for name, text, is_array, has_commas in rows:
        kind = types.get(name)
        if isinstance(kind, sa.types.NullType) and is_array and has_commas:
            yield name, sa.ARRAY(kind)
        if kind is None or not _has_domain(kind):
            continue
        while isinstance(kind, postgresql.DOMAIN | sa.ARRAY):
            kind = kind.data_type if isinstance(kind, postgresql.DOMAIN) else kind.item_type
        if (modifiers := _NUMERIC.fullmatch(text)) is not None:
            kind = sa.Numeric(int(modifiers[1]), int(modifiers[2]))
        elif (parts := _TIME.fullmatch(text)) is not None:
            of_time = postgresql.TIMESTAMP if parts[1] == "timestamp" else postgresql.TIME
            digits = None if parts[2] is None else int(parts[2])
            kind = of_time(timezone=not parts[3], precision=digits)
        elif (length := _CHARACTERS.fullmatch(text)) is not None:
            kind = sa.VARCHAR(int(length[1]))
        yield name, sa.ARRAY(kind) if is_array else kind


def _unknown_types(
    connection: "sa.Connection", types: Mapping[str, Any], table: str
) -> Iterator[tuple[str, "sa.types.TypeEngine[Any]"]]:
    """The types of MySQL that SQLAlchemy does not recognize."""
    if not any(isinstance(kind, sa.types.NullType) for kind in types.values()):
        return
    statement = f"SHOW COLUMNS FROM {table}"
    rows = connection.execution_options(no_parameters=True).exec_driver_sql(statement)
    for name, kind, *_ in rows:
        if not isinstance(types.get(name), sa.types.NullType):
            continue
        if kind in _GEOMETRIES:
            yield name, MysqlGeometry()
        elif kind.startswith("vector"):
            yield name, sa.LargeBinary()
