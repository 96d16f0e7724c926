"""Finds the tables for the settings of a source, and how to read them."""

import json
import zoneinfo
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from drover.connector import Caution, Violation, compiled_pattern
from drover.connectors.jdbc.columns import Column, ColumnSettings
from drover.connectors.jdbc.database import (
    USER,
    DatabaseError,
    address_of,
)
from drover.connectors.jdbc.reading import TableSource
from drover.connectors.jdbc.reflection import (
    MYSQL,
    columns_of,
    described_columns,
    primary_key_of,
    query_columns,
    reflected,
)
from drover.connectors.jdbc.source_rights import lacking_to_describe, lacking_to_read, query_names
from drover.connectors.jdbc.source_settings import (
    BOTH,
    DB_TIMEZONE,
    INCREMENTING,
    INCREMENTING_COLUMN,
    KEY,
    MODE,
    NUMERIC_MAPPING,
    PARTITIONED_TABLE,
    QUERY,
    SCHEMA_PATTERN,
    TABLE,
    TABLE_BLACKLIST,
    TABLE_PATTERN,
    TABLE_TYPES,
    TABLE_WHITELIST,
    TASK_TABLES,
    TIMESTAMP,
    TIMESTAMP_COLUMN,
    TINYINT1_MAPPING,
    TOPIC_PREFIX,
    VALIDATE_NON_NULL,
    VIEW,
    TableName,
)
from drover.connectors.jdbc.table_topics import topic_faults

# partitions are read with their parent table
_PARTITIONS = """
SELECT relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE relispartition AND nspname = coalesce(%(schema)s, current_schema())
"""
_PARTITIONED = """
SELECT relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE relkind = 'p' AND nspname = coalesce(%(schema)s, current_schema())
"""
# such a table has no rows that could become records
_WITHOUT_COLUMNS = """
SELECT relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE relkind IN ('r', 'p', 'v', 'm', 'f') AND nspname = coalesce(%(schema)s, current_schema())
  AND NOT EXISTS (SELECT FROM pg_attribute
      WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped)
"""
# average size of a stored row including out-of-line values, as of the last ANALYZE
_ROW_BYTES = {
    "postgresql": """
SELECT (sum(pg_table_size(oid)) / sum(reltuples))::bigint FROM pg_class
WHERE reltuples > 0 AND relkind <> 'p' AND oid IN (
    SELECT to_regclass(%(table)s) UNION SELECT relid FROM pg_partition_tree(to_regclass(%(table)s)))
""",
    "mysql": """
SELECT avg_row_length FROM information_schema.tables
WHERE table_schema = coalesce(%(schema)s, database()) AND table_name = %(name)s
""",
}
# as of the last ANALYZE
_ROW_COUNTS = {
    "postgresql": """
SELECT CASE WHEN min(reltuples) >= 0 THEN sum(reltuples)::bigint END FROM pg_class
WHERE relkind <> 'p' AND oid IN (
    SELECT to_regclass(%(table)s) UNION SELECT relid FROM pg_partition_tree(to_regclass(%(table)s)))
""",
    "mysql": """
SELECT table_rows FROM information_schema.tables
WHERE table_schema = coalesce(%(schema)s, database()) AND table_name = %(name)s
""",
}


__all__ = ["estimated_rows", "reflected", "server_faults", "sources_of", "wanted_tables"]


def wanted_tables(connection: "sa.Connection", config: Mapping[str, Any]) -> list[TableName]:
    """The existing tables that the settings select, in order."""
    inspector = sa.inspect(connection)
    whitelist = config.get(TABLE_WHITELIST)
    blacklist = set(config.get(TABLE_BLACKLIST) or ())
    pattern = config.get(TABLE_PATTERN)
    default = inspector.default_schema_name
    found: dict[TableName, TableName] = {}
    for schema in _schemas(config, set(inspector.get_schema_names())):
        partitions = _names_by(connection, _PARTITIONS, schema)
        without_columns = _names_by(connection, _WITHOUT_COLUMNS, schema)
        named = _named(connection, inspector, schema, _types(config))
        for name in sorted(named - without_columns):
            names = {name, f"{schema or default}.{name}"}
            listed = name not in partitions
            if whitelist is not None:
                listed = bool({name, f"{schema}.{name}" if schema else name} & set(whitelist))
            matched = pattern is None or any(
                compiled_pattern(pattern).matches(each) for each in names
            )
            if listed and matched and not names & blacklist:
                # a table may be named with the user's schema and without
                found.setdefault((schema or default, name), (schema, name))
    return list(found.values())


def _types(config: Mapping[str, Any]) -> set[str]:
    return {each.strip().upper() for each in config.get(TABLE_TYPES) or (TABLE,)}


def _named(
    connection: "sa.Connection",
    inspector: "sa.Inspector",
    schema: str | None,
    types: Collection[str],
) -> set[str]:
    """The tables and views of a schema."""
    found = set(inspector.get_table_names(schema)) if TABLE in types else set()
    if PARTITIONED_TABLE in types:
        found |= _names_by(connection, _PARTITIONED, schema)
    if VIEW in types:
        found |= set(inspector.get_view_names(schema))
        if inspector.dialect.name == "postgresql":
            found |= set(inspector.get_materialized_view_names(schema))
    return found


def _schemas(config: Mapping[str, Any], known: Collection[str]) -> list[str | None]:
    """The schemas to look in; None for the user's. Names of both may contain dots."""
    named = {
        each[:at]
        for each in config.get(TABLE_WHITELIST) or ()
        for at, character in enumerate(each)
        if character == "." and each[:at] in known
    }
    return sorted({config.get(SCHEMA_PATTERN) or None, *named}, key=lambda each: each or "")


def _names_by(connection: "sa.Connection", query: str, schema: str | None) -> set[str]:
    """The names from a query of PostgreSQL's catalogue; none in other databases."""
    if connection.dialect.name != "postgresql":
        return set()
    return set(connection.exec_driver_sql(query, {"schema": schema}).scalars())


def sources_of(connection: "sa.Connection", config: Mapping[str, Any]) -> list[TableSource]:
    """The tables of a task.

    Raises:
        DatabaseError: A table is missing, or lacks columns that the settings need.
        sa.exc.SQLAlchemyError: The database refused a statement.
    """
    if config[QUERY]:
        return [_query_source(connection, config)]
    return [
        _table_source(connection, config, name, schema)
        for schema, name in json.loads(config[TASK_TABLES])
    ]


def _table_source(
    connection: "sa.Connection", config: Mapping[str, Any], name: str, schema: str | None
) -> TableSource:
    shown = f"{schema}.{name}" if schema else name
    try:
        found = described_columns(connection, name, schema)
    except sa.exc.NoSuchTableError:
        raise DatabaseError(
            f"table {shown!r} does not exist any longer: the connector continues without it "
            "after its next check for tables"
        ) from None
    if not found:
        raise DatabaseError(
            f"table {shown!r} has no columns any longer: the connector continues without it after "
            "its next check for tables"
        )
    faults = [
        f"{each.field}: {each.description}"
        for each in _column_faults(name, {each["name"]: each for each in found}, config)
    ]
    if faults:
        raise DatabaseError("; ".join(faults))
    columns = columns_of(connection, found, _column_settings(config), name, schema)
    keys = primary_key_of(connection, name, schema)
    types = {each.name: each.arrow_type for each in columns}
    primary = None
    if len(keys) == 1 and pa.types.is_integer(types[keys[0]]):
        primary = keys[0]
    source = _source(config, name, schema, columns, keys=keys, primary_number=primary)
    return replace(source, row_bytes=_row_bytes(connection, source))


def estimated_rows(connection: "sa.Connection", source: TableSource) -> int | None:
    """The database's estimate of the number of a table's rows; None if it has none."""
    return None if source.query else _statistic(connection, source, _ROW_COUNTS)


def _row_bytes(connection: "sa.Connection", source: TableSource) -> int:
    return _statistic(connection, source, _ROW_BYTES) or 0


def _statistic(
    connection: "sa.Connection", source: TableSource, queries: Mapping[str, str]
) -> int | None:
    dialect = connection.dialect.name
    query = queries.get("mysql" if dialect in MYSQL else dialect)
    if query is None:
        return None
    table = {
        "table": source.sql_name(connection),
        "schema": source.schema,
        "name": source.name,
    }
    found = connection.exec_driver_sql(query, table).scalar_one_or_none()
    return None if found is None else int(found)


def _query_source(connection: "sa.Connection", config: Mapping[str, Any]) -> TableSource:
    query = config[QUERY].strip().rstrip(";")
    columns = query_columns(connection, query, _column_settings(config))
    names = {each.name for each in columns}
    missing = [each for _, each in _wanted_columns(config) if each not in names]
    if missing:
        raise DatabaseError(f"the query has no column {missing[0]!r}")
    return _source(config, "query", None, columns, query=query)


def _column_settings(config: Mapping[str, Any]) -> ColumnSettings:
    zero_dates = address_of(config).zero_dates
    return ColumnSettings(config[NUMERIC_MAPPING], config[TINYINT1_MAPPING], zero_dates)


def _source(
    config: Mapping[str, Any],
    name: str,
    schema: str | None,
    columns: tuple[Column, ...],
    *,
    keys: tuple[str, ...] = (),
    primary_number: str | None = None,
    query: str | None = None,
) -> TableSource:
    mode = config[MODE]
    return TableSource(
        name,
        schema,
        columns,
        incrementing=config[INCREMENTING_COLUMN] if mode in (INCREMENTING, BOTH) else None,
        timestamps=tuple(config[TIMESTAMP_COLUMN]) if mode in (TIMESTAMP, BOTH) else (),
        primary_number=primary_number,
        keys=tuple(config[KEY] or ()) or keys,
        zone=zoneinfo.ZoneInfo(config[DB_TIMEZONE]),
        query=query,
        settings=_column_settings(config),
    )


def server_faults(connection: "sa.Connection", config: Mapping[str, Any]) -> Iterable[Violation]:
    """Faults of the tables in the settings."""
    if config.get(QUERY):
        names = query_names(connection, config[QUERY].strip().rstrip(";"))
        if isinstance(names, Violation):
            yield names
            return
        lacks = lacking_to_describe(connection)
        if lacks is not None:
            yield lacks
        for setting, name in _wanted_columns(config):
            if name not in names:
                yield Violation(setting, f"the query has no column {name!r}")
        return
    tables = wanted_tables(connection, config)
    own = sa.inspect(connection).default_schema_name
    present = {name for _, name in tables}
    present |= {f"{schema or own}.{name}" for schema, name in tables}
    for each in config.get(TABLE_WHITELIST) or ():
        if each not in present:
            yield Violation(TABLE_WHITELIST, _missing(connection, config, each))
    if not tables and not config.get(TABLE_WHITELIST):
        text = "no table is selected now: none exists, or the user may not use its schema"
        yield Caution(TABLE_WHITELIST, text)
    for topic_fault in topic_faults(config, tables):
        yield Violation(TOPIC_PREFIX, topic_fault)
    for schema, name in tables:
        lacking = lacking_to_read(connection, name, schema)
        if lacking is not None:
            yield Violation(USER, lacking)
            continue
        columns = {each["name"]: each for each in described_columns(connection, name, schema)}
        yield from _column_faults(name, columns, config)


def _missing(connection: "sa.Connection", config: Mapping[str, Any], wanted: str) -> str:
    """Why a table of the whitelist was not found."""
    inspector = sa.inspect(connection)
    types = _types(config)
    for schema in _schemas(config, set(inspector.get_schema_names())):
        without_columns = _names_by(connection, _WITHOUT_COLUMNS, schema)
        whole = f"{schema or inspector.default_schema_name}."
        for other, kind in ((VIEW, "view"), (TABLE, "table")):
            for name in _named(connection, inspector, schema, {other}):
                if wanted in (name, whole + name) and name in without_columns:
                    return f"table {wanted!r} has no columns: add some, or take it off the list"
                if wanted in (name, whole + name) and other in types:
                    return f"{kind} {wanted!r} is excluded by {TABLE_BLACKLIST} or {TABLE_PATTERN}"
                if wanted in (name, whole + name):
                    both = ",".join(sorted({*types, other}))
                    return f"{wanted!r} is a {kind}: set {TABLE_TYPES}={both}"
                if wanted.casefold() in (name.casefold(), (whole + name).casefold()):
                    named = f"{schema}.{name}" if schema else name
                    return f"table {wanted!r} does not exist, but {named!r} does"
    if "." in wanted:
        elsewhere = _elsewhere(inspector, wanted.rpartition(".")[2])
        schema = wanted.rpartition(".")[0]
        return (
            f"table {wanted!r} does not exist: there is no table of this name, and no schema "
            f"{schema!r} that has it{elsewhere}"
        )
    return f"table {wanted!r} does not exist{_elsewhere(inspector, wanted)}"


def _elsewhere(inspector: "sa.Inspector", name: str) -> str:
    """Where else a table of a name is."""
    for schema in inspector.get_schema_names():
        if schema != "information_schema" and name in inspector.get_table_names(schema):
            return f"; schema {schema!r} has a table {name!r}: name it {schema}.{name}"
    return ""


def _wanted_columns(config: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The settings that name columns, and the columns."""
    mode = config[MODE]
    wanted: list[tuple[str, str]] = []
    if mode in (INCREMENTING, BOTH):
        wanted.append((INCREMENTING_COLUMN, config[INCREMENTING_COLUMN]))
    if mode in (TIMESTAMP, BOTH):
        wanted += [(TIMESTAMP_COLUMN, each) for each in config.get(TIMESTAMP_COLUMN) or ()]
    return wanted + [(KEY, each) for each in config.get(KEY) or ()]


def _column_faults(
    table: str, columns: Mapping[str, Any], config: Mapping[str, Any]
) -> Iterator[Violation]:
    mode = config[MODE]
    times = config.get(TIMESTAMP_COLUMN) or [] if mode in (TIMESTAMP, BOTH) else []
    for setting, name in _wanted_columns(config):
        if name not in columns:
            yield Violation(setting, f"table {table!r} has no column {name!r}")
        elif setting == INCREMENTING_COLUMN and not _counts(columns[name]["type"]):
            kind = type(columns[name]["type"]).__name__
            text = f"column {name!r} of table {table!r} is {kind}, it must have whole numbers"
            yield Violation(setting, text)
        elif setting == TIMESTAMP_COLUMN and not _tells_time(columns[name]["type"]):
            kind = type(columns[name]["type"]).__name__
            text = f"column {name!r} of table {table!r} is {kind}, it must have times"
            yield Violation(setting, text)
    if not config.get(VALIDATE_NON_NULL, True):
        return
    incrementing = str(config.get(INCREMENTING_COLUMN)) if mode in (INCREMENTING, BOTH) else ""
    if incrementing in columns and columns[incrementing].get("nullable", True):
        primary = columns[incrementing].get("primary_key")
        if not primary:
            yield _nullable(INCREMENTING_COLUMN, table, incrementing)
    known = [each for each in times if each in columns]
    if known and all(columns[each].get("nullable", True) for each in known):
        yield _nullable(TIMESTAMP_COLUMN, table, known[0])


def _counts(kind: "sa.types.TypeEngine[Any]") -> bool:
    """Whether a column of a type may have whole numbers only."""
    while isinstance(kind, postgresql.DOMAIN):
        kind = kind.data_type
    if isinstance(kind, sa.Numeric):
        return not isinstance(kind, sa.Float) and not kind.scale
    return isinstance(kind, sa.Integer | sa.types.NullType | postgresql.OID)


def _tells_time(kind: "sa.types.TypeEngine[Any]") -> bool:
    """Whether a column of a type may have times; SQLite has no types for times."""
    while isinstance(kind, postgresql.DOMAIN):
        kind = kind.data_type
    return isinstance(kind, sa.DateTime | sa.types.NullType)


def _nullable(setting: str, table: str, column: str | None) -> Violation:
    text = (
        f"column {column!r} of table {table!r} may be null, and such rows are never read: make it "
        f"NOT NULL (columns of views never are), or set {VALIDATE_NON_NULL} to false"
    )
    return Violation(setting, text)
