"""The tables of a sink: reflected, created, extended, and written row by row."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql, sqlite

from drover.connector.records import KEY, TOPIC, VALUE, is_schemaless
from drover.connectors.jdbc.changes import REMEDY, Change
from drover.connectors.jdbc.column_types import (
    Row,
    UnwritableRecordError,
    bound,
    parameter,
    sql_type,
)
from drover.connectors.jdbc.database import DatabaseError, is_duplicate_key, lacks_schema, savepoint
from drover.connectors.jdbc.exact_values import MYSQL
from drover.connectors.jdbc.new_rows import NEW_ROWS
from drover.connectors.jdbc.reflection import column_types
from drover.connectors.jdbc.table_names import format_fault, name_fault, no_schema
from drover.connectors.jdbc.write_settings import (
    INSERT,
    KAFKA,
    KAFKA_FIELDS,
    RECORD_KEY,
    RECORD_VALUE,
    UPDATE,
    UPSERT,
    WriteSettings,
    split_name,
)

#: For fewer rows a plain INSERT is not tried.
_TRIED_ROWS = 100
#: A part of a column (sub_part) or an expression (column_name is null) identifies no row.
_MYSQL_UNIQUE_KEYS = """
SELECT index_name, CASE WHEN sub_part IS NULL THEN column_name END
FROM information_schema.statistics
WHERE table_schema = coalesce(:schema, database()) AND table_name = :name AND non_unique = 0
"""


class Tables:
    """The tables of a batch, by their configured names."""

    def __init__(self, connection: "sa.Connection", settings: WriteSettings) -> None:
        self._connection = connection
        self._settings = settings
        self._known: dict[str, sa.Table] = {}

    def prepare(self, batch: pa.RecordBatch) -> None:
        """Create or extend the tables that a batch needs; commits."""
        key_fields, fields = _fields_of(batch, self._settings)
        for topic in batch.column(TOPIC).unique().to_pylist():
            name = self._settings.table_of(topic)
            table = self._table(name)
            if table is None:
                try:
                    self._create(name, fields, key_fields)
                except sa.exc.DBAPIError as error:
                    schema = split_name(name)[0]
                    if schema is None or not lacks_schema(error):
                        raise
                    raise DatabaseError(no_schema(topic, name, schema)) from None
            elif self._settings.evolves:
                self._extend(name, table, fields)

    @property
    def may_change(self) -> bool:
        """Whether the settings allow creating or extending tables."""
        return self._settings.creates or self._settings.evolves

    def lack(self, batch: pa.RecordBatch) -> bool:
        """Whether ``prepare`` would change a table for the batch."""
        if not self.may_change:
            return False
        _, fields = _fields_of(batch, self._settings)
        names = map(self._settings.table_of, batch.column(TOPIC).unique().to_pylist())
        return any(self._lacks(name, fields) for name in names)

    def _lacks(self, name: str, fields: Collection[str]) -> bool:
        table = self._table(name)
        if table is None:
            return self._settings.creates and bool(fields)
        return self._settings.evolves and any(each not in table.c for each in fields)

    def has(self, name: str) -> bool:
        """Whether the table exists."""
        return self._table(name) is not None

    def table(self, name: str) -> "sa.Table":
        """A table with its columns.

        Raises:
            DatabaseError: The table does not exist.
        """
        found = self._table(name)
        if found is None:
            raise DatabaseError(f"table {name!r} does not exist: create it, or set auto.create")
        return found

    def _table(self, name: str) -> "sa.Table | None":
        found = self._known.get(name)
        if found is None:
            require_name(self._connection, name)
            schema, own = split_name(name)
            try:
                types = column_types(self._connection, own, schema)
            except sa.exc.NoSuchTableError:
                return None
            except sa.exc.DBAPIError as error:  # of SQLite
                if not lacks_schema(error):
                    raise
                return None
            named = [sa.Column(each, kind) for each, kind in types.items()]
            found = sa.Table(own, sa.MetaData(), *named, schema=schema)
            self._known[name] = found
        return found

    def _create(self, name: str, fields: Mapping[str, pa.Field], keys: Collection[str]) -> None:
        if not self._settings.creates or not fields:
            return
        schema, own = split_name(name)
        self._require_fields(fields)
        columns = [
            sa.Column(
                each,
                sql_type(field.type, key=each in keys),
                primary_key=each in keys,
                autoincrement=False,
                nullable=each not in keys,
            )
            for each, field in fields.items()
        ]
        table = sa.Table(own, sa.MetaData(), *columns, schema=schema)
        self._change(name, sa.schema.CreateTable(table), fields)

    def _extend(self, name: str, table: "sa.Table", fields: Mapping[str, pa.Field]) -> None:
        missing = [each for each in fields if each not in table.c]
        if not missing:
            return
        self._require_fields(missing)
        preparer = self._connection.dialect.identifier_preparer
        for each in missing:
            kind = sql_type(fields[each].type, key=False).compile(self._connection.dialect)
            added = f"{preparer.quote(each)} {kind}"
            statement = f"ALTER TABLE {preparer.format_table(table)} ADD COLUMN {added}"
            self._change(name, sa.text(statement.replace(":", "\\:")), [each])

    def _require_fields(self, names: Iterable[str]) -> None:
        for each in names:
            fault = name_fault(each, self._connection.dialect.name)
            if fault is not None:
                raise DatabaseError(f"the field {each!r} cannot be a column: it {fault}")

    def _change(self, name: str, statement: "sa.Executable", columns: Collection[str]) -> None:
        """Change a table to have some columns; tolerates a concurrent change."""
        self._known.pop(name, None)
        try:
            self._connection.execute(statement)
            self._connection.commit()
        except sa.exc.DBAPIError:
            self._connection.rollback()
            table = self._table(name)
            if table is None or any(each not in table.c for each in columns):
                raise


def require_name(connection: "sa.Connection", table: str) -> None:
    """Check that a database takes the name of a table.

    Raises:
        DatabaseError: It does not.
    """
    fault = format_fault(table) or name_fault(split_name(table)[1], connection.dialect.name)
    if fault is not None:
        raise DatabaseError(f"the table {table!r} {fault}")


def has_unique_key(inspector: "sa.Inspector", name: str, columns: Collection[str]) -> bool:
    """Whether the table has a unique key on exactly these columns."""
    schema, own = split_name(name)
    primary = inspector.get_pk_constraint(own, schema)
    found: list[set[Any]] = [set(primary.get("constrained_columns") or ())]
    found += [set(each["column_names"]) for each in inspector.get_unique_constraints(own, schema)]
    indexes = [each for each in inspector.get_indexes(own, schema) if each.get("unique")]
    partial = {each["name"] for each in indexes if _is_partial(each)}
    found += [set(each["column_names"]) for each in indexes if each["name"] not in partial]
    return set(columns) in found


def _is_partial(index: Mapping[str, Any]) -> bool:
    """Whether a unique index allows equal values: it has some of the rows, or of the characters."""
    options = index.get("dialect_options") or {}
    return any(options.get(each) for each in ("postgresql_where", "sqlite_where", "mysql_length"))


def is_only_mysql_key(
    connection: "sa.Connection", table: "sa.Table", columns: Collection[str]
) -> bool:
    """Whether a unique key on these columns is the only unique key of a table of MySQL.

    The table's definition cannot change from here to the end of the transaction.

    Raises:
        DatabaseError: There is no such key.
    """
    # the first statement on a table locks its definition
    connection.execute(sa.select(sa.literal(1)).select_from(table).where(sa.false()))
    rows = connection.execute(
        sa.text(_MYSQL_UNIQUE_KEYS), {"schema": table.schema, "name": table.name}
    )
    keys: dict[str, set[str | None]] = {}
    for name, column in rows:
        keys.setdefault(name, set()).add(column)
    if set(columns) not in keys.values():
        raise no_unique_key(table.name, columns)
    return len(keys) == 1


def no_unique_key(name: str, columns: Collection[str]) -> DatabaseError:
    """The error for a table without a unique key."""
    return DatabaseError(
        f"table {name!r} has no primary key or unique constraint on {', '.join(columns)}: "
        "add it, or set insert.mode=insert"
    )


def require_columns(table: "sa.Table", names: Collection[str]) -> None:
    """Check that rows fit a table.

    Raises:
        DatabaseError: The table lacks a column.
    """
    unknown = [name for name in names if name not in table.c]
    if unknown:
        raise DatabaseError(
            f"table {table.name!r} has no column {unknown[0]!r}: add it, set auto.evolve, or "
            "name the fields to write in fields.whitelist"
        )


def write_rows(
    connection: "sa.Connection",
    table: "sa.Table",
    settings: WriteSettings,
    changes: Sequence[Change],
    *,
    is_only_key: bool = True,
) -> None:
    """Write changes to their table, in order; consecutive changes of the same form share a
    statement.

    ``is_only_key`` is as from ``is_only_mysql_key``. With further unique keys MySQL's upsert would
    change whichever row has an equal value in any of them.

    Raises:
        DatabaseError: The table lacks a column.
        RecordError: A value does not fit its column.
    """
    dialect = connection.dialect.name
    for (shape, keys, lacks), run in groupby(changes, key=_shape):
        rows = list(run)
        require_columns(table, shape if shape is not None else keys)
        if lacks and settings.insert_mode != UPDATE:
            for each in rows:
                _write_partly(connection, table, each)
        elif shape is None:
            of_key = _found_by(table, keys)
            values = bound(table, [each.key for each in rows], "key_", dialect)
            connection.execute(table.delete().where(*of_key), values)
        elif settings.insert_mode == UPSERT and (not is_only_key or _is_miswritten(dialect, shape)):
            _upsert_by_key(connection, table, shape, keys, rows)
        elif settings.insert_mode != UPDATE:
            statement = _insert(dialect, table, settings, shape, keys)
            values = bound(table, [each.row or {} for each in rows], "", dialect)
            connection.execute(statement, values)
        elif len(shape) > len(keys):
            values = _found_rows(table, shape, keys, rows, dialect)
            connection.execute(_update(table, shape, keys), values)


def _is_miswritten(dialect: str, names: Sequence[str]) -> bool:
    """Whether MySQL's driver would double a percent sign of a name after ON DUPLICATE KEY."""
    return dialect in MYSQL and any("%" in name for name in names)


def _found_rows(
    table: "sa.Table",
    shape: Sequence[str],
    keys: Sequence[str],
    rows: Sequence[Change],
    dialect: str,
) -> list[Row]:
    """The parameters of an UPDATE of the rows of these keys."""
    values = bound(table, [each.key for each in rows], "key_", dialect)
    # parameters named like columns would be set, including key columns
    names = [name for name in shape if name not in keys]
    others = [{name: (each.row or {})[name] for name in names} for each in rows]
    for value, other in zip(values, bound(table, others, "", dialect), strict=True):
        value.update(other)
    return values


def _upsert_by_key(
    connection: "sa.Connection",
    table: "sa.Table",
    shape: Sequence[str],
    keys: Sequence[str],
    rows: Sequence[Change],
) -> None:
    """Update the row of each key, or insert it: an equal value in another unique key is an error
    then.
    """
    dialect = connection.dialect.name
    insert = table.insert().values({name: parameter(table, name, name) for name in shape})
    values = bound(table, [each.row or {} for each in rows], "", dialect)
    known_as = (str(connection.engine.url), table.fullname)
    if len(rows) >= _TRIED_ROWS and NEW_ROWS.may_be(known_as):
        try:
            with savepoint(connection):
                connection.execute(insert, values)
        except sa.exc.DBAPIError as error:
            if not is_duplicate_key(error):
                raise
            NEW_ROWS.were_there(known_as)
        else:
            return
    update = _update(table, shape, keys)
    keyed = _found_rows(table, shape, keys, rows, dialect)
    for found, value in zip(keyed, values, strict=True):
        # an unchanged row counts as well
        if not connection.execute(update, found).rowcount:
            connection.execute(insert, value)


def _write_partly(connection: "sa.Connection", table: "sa.Table", change: Change) -> None:
    """Change a row except for the columns that the source could not send.

    Raises:
        UnwritableRecordError: There is no such row.
    """
    dialect = connection.dialect.name
    names, keys = list(change.row or {}), list(change.key)
    (values,) = bound(table, [change.key], "key_", dialect)
    others = [name for name in names if name not in keys]
    if others:
        (row,) = bound(table, [{name: (change.row or {})[name] for name in others}], "", dialect)
        count = connection.execute(_update(table, names, keys), {**values, **row}).rowcount
    else:
        found = sa.select(sa.literal(1)).select_from(table).where(*_found_by(table, keys))
        count = len(connection.execute(found, values).all())
    if not count:
        listed = ", ".join(sorted(change.unavailable))
        raise UnwritableRecordError(
            f"table {table.name!r} has no row of its key, and the source could not send the large "
            f"values of {listed}: {REMEDY}"
        )


def _shape(change: Change) -> tuple[tuple[str, ...] | None, tuple[str, ...], bool]:
    """The fields of the row, or None for a deletion, and of the key, and whether it lacks columns;
    equal for changes that can share a statement.
    """
    fields = None if change.row is None else tuple(change.row)
    return fields, tuple(change.key), bool(change.unavailable)


def _found_by(table: "sa.Table", keys: Sequence[str]) -> "list[sa.ColumnElement[bool]]":
    return [table.c[name] == parameter(table, name, f"key_{name}") for name in keys]


def _update(table: "sa.Table", names: Sequence[str], keys: Sequence[str]) -> Any:
    of_key = _found_by(table, keys)
    values = {name: parameter(table, name, name) for name in names if name not in keys}
    statement = table.update().where(*of_key)
    # a row of key columns alone stays as it is
    return statement.values(values or {name: table.c[name] for name in keys})


def _insert(
    dialect: str,
    table: "sa.Table",
    settings: WriteSettings,
    names: Sequence[str],
    keys: Sequence[str],
) -> Any:
    values = {name: parameter(table, name, name) for name in names}
    if settings.insert_mode == INSERT:
        return table.insert().values(values)
    others = [name for name in names if name not in keys]
    if dialect in MYSQL:
        insert = mysql.insert(table).values(values)
        # if a row has only key columns, the update leaves them unchanged
        changed = others or keys
        return insert.on_duplicate_key_update({each: insert.inserted[each] for each in changed})
    make = postgresql.insert if dialect == "postgresql" else sqlite.insert
    statement: Any = make(table).values(values)
    if dialect == "sqlite":  # a constraint may say ON CONFLICT REPLACE
        statement = statement.prefix_with("OR ABORT")
    if not others:
        return statement.on_conflict_do_nothing(index_elements=list(keys))
    return statement.on_conflict_do_update(
        index_elements=list(keys), set_={each: statement.excluded[each] for each in others}
    )


def _fields_of(
    batch: pa.RecordBatch, settings: WriteSettings
) -> tuple[Collection[str], dict[str, pa.Field]]:
    """The key columns of a batch and all columns of its rows, with types; schemaless values have
    none.
    """
    value, key = batch.schema.field(VALUE), batch.schema.field(KEY)
    in_value = {}
    if pa.types.is_struct(value.type):
        in_value = {
            each.name: each
            for each in value.type
            if settings.fields is None or each.name in settings.fields
        }
    match settings.pk_mode:
        case mode if mode == KAFKA:
            kinds = (pa.string(), pa.int32(), pa.int64())
            names = settings.pk_fields or KAFKA_FIELDS
            keys = {n: pa.field(n, kind) for n, kind in zip(names, kinds, strict=True)}
        case mode if mode == RECORD_KEY and pa.types.is_struct(key.type):
            wanted = settings.pk_fields or [each.name for each in key.type]
            keys = {each.name: each for each in key.type if each.name in wanted}
        case mode if mode == RECORD_KEY and len(settings.pk_fields) == 1:
            name = settings.pk_fields[0]
            keys = {} if is_schemaless(key) else {name: pa.field(name, key.type)}
        case mode if mode == RECORD_VALUE and pa.types.is_struct(value.type):
            wanted = settings.pk_fields or [each.name for each in value.type]
            keys = {each.name: each for each in value.type if each.name in wanted}
        case _:
            keys = {}
    return keys.keys(), {**keys, **{n: f for n, f in in_value.items() if n not in keys}}
