"""The rights that a sink needs at its database, and the statements that grant them."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drover.connectors.jdbc.database import reason_of, run_verbatim
from drover.connectors.jdbc.grants import LOCK_WAIT_S, is_denied, mysql_grant
from drover.connectors.jdbc.write_settings import split_name

if TYPE_CHECKING:
    import sqlalchemy as sa

#: The bits of PostgreSQL's pg_relation_is_updatable.
_EVENTS = {"UPDATE": 1 << 2, "INSERT": 1 << 3, "DELETE": 1 << 4}
_BY_EFFECTIVE_ID = os.access in os.supports_effective_ids
#: MySQL's errors for a column that is named twice, a table that exists, and a missing database.
_TWICE, _IS_THERE, _NO_DATABASE = 1060, 1050, 1049
_READ_ONLY = 1290


class Rights:
    """The user's rights. A text about a missing right has the statement that grants it."""

    def __init__(self, connection: "sa.Connection") -> None:
        self._connection = connection
        self._preparer = connection.dialect.identifier_preparer

    def is_there(self, inspector: "sa.Inspector", table: str) -> bool | None:
        """Whether a table or view exists; None if the user may not see it."""
        import sqlalchemy as sa

        schema, own = split_name(table)
        try:
            return inspector.has_table(own, schema) or own in inspector.get_view_names(schema)
        except sa.exc.DBAPIError as error:
            if not is_denied(error):
                raise
            return None

    def missing_schema(self, table: str) -> str | None:
        """The schema of a table, if it does not exist."""
        del table
        return None

    def lacking(self, table: str, needed: Sequence[str], *, is_there: bool = True) -> Iterator[str]:
        """The missing rights on a table, which is there or will be created."""
        del table, needed, is_there
        return iter(())

    def partly(self, table: str, needed: Sequence[str]) -> list[str]:
        """Rights that the user has on some columns only."""
        del table, needed
        return []

    def lacking_to_create(self, table: str) -> Iterator[str]:
        """The missing rights to create a table."""
        del table
        return iter(())

    def refused_by_view(self, table: str, needed: Sequence[str], keys: Sequence[str]) -> str | None:
        """Why a view does not take the changes, with rows of these keys if it is upserted."""
        del table, needed, keys
        return "a view of SQLite cannot be written: name its table"

    def lacking_at_all(self) -> Iterator[str]:
        """The missing rights that do not depend on a table."""
        return iter(())

    def lacking_to_alter(self, table: str) -> str | None:
        """Why the user may not add columns."""
        del table
        return None

    def read_only(self) -> str | None:
        """Why nothing can be written to the database."""
        return None

    def sql_name(self, table: str) -> str:
        """The quoted name."""
        schema, own = split_name(table)
        return ".".join(self._quoted(each) for each in (schema, own) if each)

    def _quoted(self, name: str) -> str:
        return self._preparer.quote(name).replace("%%", "%")

    def _first(self, query: str, **values: Any) -> Any:
        import sqlalchemy as sa

        return self._connection.execute(sa.text(query), values).first()


class PostgresRights(Rights):
    """Rights by the catalogue: inherited roles and superusers have them as well."""

    def missing_schema(self, table: str) -> str | None:
        """See Rights."""
        schema = split_name(table)[0]
        if schema is None:
            return None
        found = self._first("SELECT 1 FROM pg_namespace WHERE nspname = :schema", schema=schema)
        return schema if found is None else None

    def lacking(self, table: str, needed: Sequence[str], *, is_there: bool = True) -> Iterator[str]:
        """See Rights."""
        schema = self._schema_of(table)
        if schema is not None and not self._may_use(schema):
            yield self._usage(schema)
            return
        if not is_there:
            return  # the user will own it
        lacking = [each for each in dict.fromkeys(needed) if not self._may_any(table, each)]
        if lacking:
            listed = ", ".join(lacking)
            yield (
                f"has no right to {listed} at table {table!r}: "
                f"GRANT {listed} ON {self.sql_name(table)} TO {self._user}"
            )

    def partly(self, table: str, needed: Sequence[str]) -> list[str]:
        """See Rights."""
        return [
            each
            for each in dict.fromkeys(needed)
            if self._may_any(table, each) and not self._asked("has_table_privilege", table, each)
        ]

    def lacking_to_create(self, table: str) -> Iterator[str]:
        """See Rights."""
        schema = self._schema_of(table)
        if schema is None:
            yield (
                f"has no schema to create table {table!r} in: GRANT USAGE, CREATE ON SCHEMA public "
                f"TO {self._user}, or name the schema in the table's name"
            )
        elif not self._may_use(schema):
            yield self._usage(schema)
        elif not self._asked_schema(schema, "CREATE"):
            yield (
                f"has no right to CREATE tables in schema {schema!r}: "
                f"GRANT CREATE ON SCHEMA {self._quoted(schema)} TO {self._user}"
            )

    def lacking_at_all(self) -> Iterator[str]:
        """See Rights."""
        found = self._first(
            "SELECT has_database_privilege(current_database(), 'TEMPORARY'), current_database()"
        )
        if not found[0]:
            yield (
                "has no right to TEMPORARY tables in this database: "
                f"GRANT TEMPORARY ON DATABASE {self._quoted(found[1])} TO {self._user}"
            )

    def refused_by_view(self, table: str, needed: Sequence[str], keys: Sequence[str]) -> str | None:
        """See Rights."""
        import sqlalchemy as sa

        found = self._first(
            "SELECT pg_relation_is_updatable(to_regclass(:name), true)", name=self.sql_name(table)
        )
        refused = [each for each, bit in _EVENTS.items() if each in needed and not found[0] & bit]
        if refused:
            return f"a view that PostgreSQL cannot {' and '.join(refused)}: name its table"
        if not keys:
            return None
        columns = ", ".join(map(self._quoted, keys))
        statement = (
            f"EXPLAIN INSERT INTO {self.sql_name(table)} ({columns})"
            f" VALUES ({', '.join(['NULL'] * len(keys))}) ON CONFLICT ({columns}) DO NOTHING"
        )
        try:
            with self._connection.begin_nested():
                run_verbatim(self._connection, statement)
        except sa.exc.DBAPIError as error:
            return f"a view that cannot be upserted by {columns} ({reason_of(error)})"
        return None

    def lacking_to_alter(self, table: str) -> str | None:
        """See Rights."""
        found = self._first(
            "SELECT pg_has_role(relowner, 'USAGE'), pg_get_userbyid(relowner) FROM pg_class"
            " WHERE oid = to_regclass(:name)",
            name=self.sql_name(table),
        )
        if found is None or found[0]:
            return None
        return (
            f"table {table!r} can be extended only by its owner {found[1]!r}: "
            f"ALTER TABLE {self.sql_name(table)} OWNER TO {self._user}, or "
            f"GRANT {self._quoted(found[1])} TO {self._user}"
        )

    def read_only(self) -> str | None:
        """See Rights."""
        found = self._first("SELECT pg_is_in_recovery(), current_setting('transaction_read_only')")
        if found[0]:
            return "the server is a standby, which cannot be written: name its primary"
        if found[1] == "on":
            return (
                "transactions of this user are read-only: ALTER ROLE "
                f"{self._user} SET default_transaction_read_only = off"
            )
        return None

    def unusable_sequences(self, table: str) -> list[str]:
        """The sequences of column defaults that the user may not use."""
        import sqlalchemy as sa

        query = sa.text(
            "SELECT DISTINCT s.oid::regclass::text FROM pg_attrdef d"
            " JOIN pg_depend p ON p.classid = 'pg_attrdef'::regclass AND p.objid = d.oid"
            " JOIN pg_class s ON s.oid = p.refobjid WHERE d.adrelid = to_regclass(:name)"
            " AND CASE WHEN s.relkind = 'S' THEN NOT has_sequence_privilege(s.oid, 'USAGE') END"
        )
        rows = self._connection.execute(query, {"name": self.sql_name(table)})
        return sorted(rows.scalars())

    def has_row_security(self, table: str) -> bool:
        """Whether policies of the table decide which rows the user may write."""
        found = self._first(
            "SELECT row_security_active(oid) FROM pg_class WHERE oid = to_regclass(:name)",
            name=self.sql_name(table),
        )
        return found is not None and bool(found[0])

    @property
    def _user(self) -> str:
        return self._quoted(self._first("SELECT current_user")[0])

    def _usage(self, schema: str) -> str:
        return (
            f"has no right to USAGE of schema {schema!r}: "
            f"GRANT USAGE ON SCHEMA {self._quoted(schema)} TO {self._user}"
        )

    def _schema_of(self, table: str) -> str | None:
        """The schema of a table's name; else the first of the search path that has the table, or
        is there; schemas without USAGE are not in the path.
        """
        schema, own = split_name(table)
        if schema is not None:
            return schema
        found = self._first(
            "SELECT n.nspname FROM unnest(string_to_array(current_setting('search_path'), ','))"
            " WITH ORDINALITY AS path (part, place)"
            " JOIN pg_namespace n ON n.nspname = CASE trim(part, ' \"')"
            " WHEN '$user' THEN current_user::text ELSE trim(part, ' \"') END"
            " LEFT JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = :own"
            " ORDER BY c.oid IS NULL, NOT has_schema_privilege(n.oid, 'USAGE'), place LIMIT 1",
            own=own,
        )
        return None if found is None else str(found[0])

    def _may_use(self, schema: str) -> bool:
        return self._asked_schema(schema, "USAGE")

    def _asked_schema(self, schema: str, right: str) -> bool:
        found = self._first(
            "SELECT has_schema_privilege(oid, :right) FROM pg_namespace WHERE nspname = :schema",
            schema=schema,
            right=right,
        )
        return found is None or bool(found[0])

    def _may_any(self, table: str, right: str) -> bool:
        # rights may be granted per column, except DELETE
        asks = "has_table_privilege" if right == "DELETE" else "has_any_column_privilege"
        return self._asked(asks, table, right)

    def _asked(self, asks: str, table: str, right: str) -> bool:
        found = self._first(
            f"SELECT {asks}(to_regclass(:name)::oid, :right)",
            name=self.sql_name(table),
            right=right,
        )
        return found is None or found[0] is not False


class MysqlRights(Rights):
    """Checks rights by statements that need them and do nothing, because grants have many sources:
    they are explained, or they name a column twice.
    """

    def __init__(self, connection: "sa.Connection") -> None:
        super().__init__(connection)
        connection.exec_driver_sql(f"SET SESSION lock_wait_timeout = {LOCK_WAIT_S}")

    def is_there(self, inspector: "sa.Inspector", table: str) -> bool | None:
        """See Rights."""
        found = super().is_there(inspector, table)
        if found is None:  # a table without any right of the user cannot be described
            return {_IS_THERE: True, _TWICE: False}.get(self._tried(self._creation(table)))
        return found

    def missing_schema(self, table: str) -> str | None:
        """See Rights."""
        schema = split_name(table)[0]
        if schema is None:
            return None
        listing = f"SHOW TABLES FROM {self._quoted(schema)}"
        return schema if self._tried(listing) == _NO_DATABASE else None

    def lacking(self, table: str, needed: Sequence[str], *, is_there: bool = True) -> Iterator[str]:
        """See Rights."""
        lacking = [each for each in dict.fromkeys(needed) if not self._may(table, each, is_there)]
        if lacking:
            listed = ", ".join(lacking)
            yield f"has no right to {listed} at table {table!r}: {self._grant(listed, table)}"

    def lacking_to_create(self, table: str) -> Iterator[str]:
        """See Rights."""
        if self._is_denied_to(self._creation(table)):
            yield f"has no right to CREATE table {table!r}: {self._grant('CREATE', table)}"

    def refused_by_view(self, table: str, needed: Sequence[str], keys: Sequence[str]) -> str | None:
        """See Rights."""
        del needed
        schema, own = split_name(table)
        found = self._first(
            "SELECT is_updatable FROM information_schema.views"
            " WHERE table_schema = coalesce(:schema, database()) AND table_name = :name",
            schema=schema,
            name=own,
        )
        if found is not None and found[0] != "YES":
            return "a view that the server cannot change: name its table"
        return "a view, which has no key to upsert by: name its table" if keys else None

    def lacking_to_alter(self, table: str) -> str | None:
        """See Rights."""
        name = self.sql_name(table)
        if not self._is_denied_to(f"ALTER TABLE {name} ADD COLUMN a INT, ADD COLUMN a INT"):
            return None
        return f"the user has no right to ALTER table {table!r}: {self._grant('ALTER', table)}"

    def read_only(self) -> str | None:
        """See Rights."""
        if self._tried(self._creation("drover_offsets")) == _READ_ONLY:
            return "the server is read-only for this user (read_only): name its primary"
        return None

    @property
    def folds_names(self) -> bool:
        """Whether names of tables that differ in case are equal."""
        return bool(self._connection.exec_driver_sql("SELECT @@lower_case_table_names").scalar())

    def _creation(self, table: str) -> str:
        return f"CREATE TABLE {self.sql_name(table)} (a INT, a INT)"

    def _may(self, table: str, right: str, is_there: bool) -> bool:
        name = self.sql_name(table)
        whole = {
            "INSERT": f"INSERT INTO {name} VALUES ()",
            "DELETE": f"DELETE FROM {name}",
            "SELECT": f"SELECT * FROM {name}",
            "UPDATE": f"UPDATE {name} SET a = 1",
        }
        statements = [whole[right]]
        if is_there and right != "DELETE":  # rights may be granted per column
            statements = self._of_columns(table, right) or statements
        return any(not self._is_denied_to(_explained(each)) for each in statements)

    def partly(self, table: str, needed: Sequence[str]) -> list[str]:
        """See Rights."""
        found = []
        for right in dict.fromkeys(needed):
            if right == "DELETE":
                continue
            denied = {self._is_denied_to(_explained(s)) for s in self._of_columns(table, right)}
            if denied == {True, False}:
                found.append(right)
        return found

    def _of_columns(self, table: str, right: str) -> list[str]:
        import sqlalchemy as sa

        schema, own = split_name(table)
        name = self.sql_name(table)
        try:
            columns = sa.inspect(self._connection).get_columns(own, schema)
        except sa.exc.DBAPIError:
            return []
        settable = [each for each in columns if not each.get("computed")] or columns
        return [
            {
                "INSERT": f"INSERT INTO {name} ({column}) VALUES (DEFAULT)",
                "UPDATE": f"UPDATE {name} SET {column} = DEFAULT",
                "SELECT": f"SELECT {column} FROM {name}",
            }[right]
            for column in (self._quoted(each["name"]) for each in settable)
        ]

    def _grant(self, listed: str, table: str) -> str:
        is_qualified = split_name(table)[0] is not None
        name = self.sql_name(table)
        return mysql_grant(self._connection, listed, name, is_qualified=is_qualified)

    def _is_denied_to(self, statement: str) -> bool:
        return self._tried(statement) is True

    def _tried(self, statement: str) -> int | bool:
        """True if the server denies the statement, else its error; 0 for none."""
        import sqlalchemy as sa

        try:
            run_verbatim(self._connection, statement)
        except sa.exc.DBAPIError as error:
            number = getattr(error.orig, "args", (0,))[0]
            return is_denied(error) or (number if isinstance(number, int) else 0)
        return 0


def _explained(statement: str) -> str:
    return f"EXPLAIN {statement}"


class SqliteRights(Rights):
    """The permissions of the file and of its directory, in which SQLite keeps its journal."""

    def __init__(self, connection: "sa.Connection", path: Path) -> None:
        super().__init__(connection)
        self._path = path

    def missing_schema(self, table: str) -> str | None:
        """See Rights."""
        import sqlalchemy as sa

        schema = split_name(table)[0]
        known = (None, *sa.inspect(self._connection).get_schema_names())
        return None if schema in known else schema

    def read_only(self) -> str | None:
        """See Rights."""
        for path in (self._path.parent, self._path):
            if path.exists() and not os.access(path, os.W_OK, effective_ids=_BY_EFFECTIVE_ID):
                what = "directory" if path == self._path.parent else "file"
                return (
                    f"the {what} {path} is read-only for the worker: allow its user to write it "
                    f"(chmod u+w, chown)"
                )
        return None


def rights_of(connection: "sa.Connection", path: Path) -> Rights:
    """The rights of the connection's user; ``path`` is SQLite's file."""
    match connection.dialect.name:
        case "postgresql":
            return PostgresRights(connection)
        case "mysql" | "mariadb":
            return MysqlRights(connection)
        case _:
            return SqliteRights(connection, path)
