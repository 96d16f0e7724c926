"""The rights that a source needs at its database, and the statements that grant them."""

from typing import Any

import sqlalchemy as sa

from drover.connector import Violation
from drover.connectors.jdbc.database import USER, reason_of, run_verbatim, sqlstate_of
from drover.connectors.jdbc.exact_values import MYSQL
from drover.connectors.jdbc.grants import LOCK_WAIT_S, is_denied, mysql_grant
from drover.connectors.jdbc.source_settings import QUERY

#: The columns without the right to SELECT, and whether the schema can be used.
_UNREADABLE = """
SELECT coalesce(string_agg(quote_ident(attname), ', ' ORDER BY attnum), ''),
    has_schema_privilege(relnamespace, 'USAGE'), quote_ident(nspname), quote_ident(current_user)
FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
LEFT JOIN pg_attribute a ON attrelid = c.oid AND attnum > 0 AND NOT attisdropped
    AND NOT has_column_privilege(attrelid, attnum, 'SELECT')
WHERE relname = %(name)s AND nspname = coalesce(%(schema)s, current_schema())
GROUP BY relnamespace, nspname
"""
_DENIED_STATE = "42501"


def lacking_to_read(connection: "sa.Connection", name: str, schema: str | None) -> str | None:
    """Why the user may not read a table, with the statement that grants it; does not wait for
    locks.
    """
    table = sa.table(name, schema=schema)
    preparer = connection.dialect.identifier_preparer
    shown = preparer.format_table(table).replace("%%", "%")
    match connection.dialect.name:
        case "postgresql":
            found: Any = connection.exec_driver_sql(
                _UNREADABLE, {"name": name, "schema": schema}
            ).first()
            if found is None:
                return None
            columns, may_use, in_schema, user = found
            if not may_use:
                return (
                    f"may not use schema {in_schema}: GRANT USAGE ON SCHEMA {in_schema} TO {user}"
                )
            if columns:
                return f"may not read table {name!r}: GRANT SELECT ON {shown} TO {user}"
        case each if each in MYSQL:
            run_verbatim(connection, f"SET SESSION lock_wait_timeout = {LOCK_WAIT_S}")
            for right, statement in (
                ("SELECT", f"SELECT * FROM {shown} WHERE false"),
                ("SELECT, SHOW VIEW", f"SHOW CREATE TABLE {shown}"),
            ):
                try:
                    run_verbatim(connection, statement)
                except sa.exc.DBAPIError as error:
                    if is_denied(error):
                        grant = mysql_grant(connection, right, shown, is_qualified=bool(schema))
                        return f"may not read table {name!r}: {grant}"
    return None


def query_names(connection: "sa.Connection", query: str) -> list[str] | Violation:
    """The columns of a query, which is not run; or why the database refuses it."""
    try:
        found = connection.execution_options(no_parameters=True).exec_driver_sql(
            f"SELECT * FROM ({query}\n) AS query WHERE 1 = 0"
        )
        return list(found.keys())
    except sa.exc.SQLAlchemyError as error:
        reason = reason_of(error)
        is_denied = isinstance(error, sa.exc.DBAPIError) and sqlstate_of(error) == _DENIED_STATE
        connection.rollback()
        if is_denied or "command denied" in reason:
            return Violation(USER, f"may not run the query: {reason}; GRANT SELECT on it")
        return Violation(QUERY, reason)


def lacking_to_describe(connection: "sa.Connection") -> Violation | None:
    """Why the user may not make the temporary view or table that shows the types of a query."""
    if connection.dialect.name in MYSQL:
        try:
            run_verbatim(connection, "CREATE TEMPORARY TABLE drover_query (a INT, a INT)")
        except sa.exc.DBAPIError as error:
            if not is_denied(error):
                return None  # the column that is named twice
        told = mysql_grant(connection, "CREATE TEMPORARY TABLES", "*", is_qualified=False)
        return Violation(USER, f"may not create the temporary table that shows its types: {told}")
    if connection.dialect.name != "postgresql":
        return None
    found: Any = connection.exec_driver_sql(
        "SELECT has_database_privilege(current_database(), 'TEMPORARY'), pg_is_in_recovery(),"
        " quote_ident(current_database()), quote_ident(current_user)"
    ).one()
    may_create, is_standby, database, user = found
    if is_standby:
        return Violation(
            QUERY,
            "needs a temporary view, which a standby does not have: name its primary, or read "
            "tables",
        )
    if may_create:
        return None
    told = f"GRANT TEMPORARY ON DATABASE {database} TO {user}"
    return Violation(USER, f"may not create the temporary view that shows its types: {told}")
