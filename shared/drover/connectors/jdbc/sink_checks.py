"""Checks a JdbcSink config on the server: missing tables, keys and rights."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from drover.connector import Violation
from drover.connectors.jdbc.database import USER, reason_of
from drover.connectors.jdbc.write_settings import (
    INSERT,
    KAFKA,
    KAFKA_FIELDS,
    UPDATE,
    UPSERT,
    WriteSettings,
    split_name,
)

if TYPE_CHECKING:
    import sqlalchemy as sa

#: Settings to report faults for, as defined in sink.py.
_CREATE, _EVOLVE, _FIELDS = "auto.create", "auto.evolve", "pk.fields"


def server_faults(
    connection: "sa.Connection", settings: WriteSettings, topics: Sequence[str]
) -> Iterator[Violation]:
    """Obstacles to writing rows of these topics."""
    import sqlalchemy as sa

    inspector = sa.inspect(connection)
    rights = _rights_of(connection)
    lacking: list[str] = []
    for name, topic in {settings.table_of(topic): topic for topic in topics}.items():
        there = rights.is_there(inspector, name)
        if there is None:
            lacking.append(f"see table {name!r}")
        elif there:
            yield from _table_faults(inspector, settings, name)
            lacking += rights.lacking(name, _needed(settings))
            if settings.evolves and not rights.may_alter(name):
                yield Violation(_EVOLVE, f"table {name!r} can be extended only by its owner")
        elif settings.creates:
            lacking += rights.lacking_to_create(name)
        else:
            text = (
                f"table {name!r} for topic {topic!r} does not exist: create it, or set this to true"
            )
            yield Violation(_CREATE, text)
    if settings.ledger:
        there = rights.is_there(inspector, settings.ledger)
        if there is None:
            lacking.append(f"access or CREATE table {settings.ledger!r}")
        elif there:
            lacking += rights.lacking(settings.ledger, ("SELECT", "INSERT", "UPDATE"))
        else:
            lacking += rights.lacking_to_create(settings.ledger)
    lacking += rights.lacking_at_all()
    for each in dict.fromkeys(lacking):
        yield Violation(USER, f"has no right to {each}: grant it")


def _needed(settings: WriteSettings) -> Sequence[str]:
    by_mode: Mapping[str, Sequence[str]] = {
        INSERT: ("INSERT",),
        UPSERT: ("INSERT", "UPDATE", "SELECT"),
        UPDATE: ("UPDATE", "SELECT"),
    }
    return (*by_mode[settings.insert_mode], *(("DELETE", "SELECT") if settings.deletes else ()))


def _table_faults(inspector: Any, settings: WriteSettings, name: str) -> Iterator[Violation]:
    from drover.connectors.jdbc.tables import has_unique_key  # its library may be missing

    schema, own = split_name(name)
    fields = set(settings.pk_fields)
    if settings.pk_mode == KAFKA:
        fields = fields or set(KAFKA_FIELDS)
    missing = sorted(fields - {each["name"] for each in inspector.get_columns(own, schema)})
    if missing and (settings.pk_fields or not settings.evolves):
        yield Violation(_FIELDS, f"table {name!r} has no column {missing[0]!r}")
    elif fields and settings.insert_mode == UPSERT and not has_unique_key(inspector, name, fields):
        listed = ", ".join(sorted(fields))
        text = f"table {name!r} has no primary key or unique constraint on {listed}"
        yield Violation(_FIELDS, text)


class _Rights:
    """The user's rights, for databases where they cannot be checked."""

    def __init__(self, connection: "sa.Connection") -> None:
        self._connection = connection
        preparer = connection.dialect.identifier_preparer
        self._quote = preparer.quote

    def is_there(self, inspector: "sa.Inspector", table: str) -> bool | None:
        """Whether a table exists; None if the user may not see it."""
        import sqlalchemy as sa

        schema, own = split_name(table)
        try:
            return inspector.has_table(own, schema)
        except sa.exc.DBAPIError as error:
            if not _is_denied(error):
                raise
            return None

    def lacking(self, table: str, needed: Sequence[str]) -> list[str]:
        """The missing rights on a table."""
        del table, needed
        return []

    def lacking_to_create(self, table: str) -> list[str]:
        """The missing rights to create a table."""
        del table
        return []

    def lacking_at_all(self) -> list[str]:
        """The missing rights that do not depend on a table."""
        return []

    def may_alter(self, table: str) -> bool:
        """Whether the user may add columns."""
        del table
        return True

    def _name(self, table: str) -> str:
        schema, own = split_name(table)
        return ".".join(self._quote(each) for each in (schema, own) if each)


class _PostgresRights(_Rights):
    def lacking(self, table: str, needed: Sequence[str]) -> list[str]:
        name = self._name(table).replace("%%", "%")
        return [f"{each} at table {table!r}" for each in needed if not self._may(name, each)]

    def lacking_to_create(self, table: str) -> list[str]:
        schema = split_name(table)[0]
        found = self._ask(
            "SELECT nspname, has_schema_privilege(oid, 'CREATE') FROM pg_namespace"
            " WHERE nspname = coalesce(:schema, current_schema())",
            schema=schema,
        )
        if found is None:
            return [f"CREATE tables: schema {schema!r} does not exist"]
        return [] if found[1] else [f"CREATE tables in schema {found[0]!r}"]

    def lacking_at_all(self) -> list[str]:
        found = self._ask("SELECT has_database_privilege(current_database(), 'TEMPORARY')")
        return [] if found is None or found[0] else ["TEMPORARY tables in this database"]

    def may_alter(self, table: str) -> bool:
        found = self._ask(
            "SELECT pg_has_role(relowner, 'USAGE') FROM pg_class"
            " WHERE oid = CAST(:name AS regclass)",
            name=self._name(table).replace("%%", "%"),
        )
        return found is None or bool(found[0])

    def _may(self, name: str, right: str) -> bool:
        # rights may be granted per column, except DELETE
        asks = "has_table_privilege" if right == "DELETE" else "has_any_column_privilege"
        found = self._ask(f"SELECT {asks}(:name, :right)", name=name, right=right)
        return found is None or bool(found[0])

    def _ask(self, query: str, **values: Any) -> Any:
        import sqlalchemy as sa

        return self._connection.execute(sa.text(query), values).first()


class _MysqlRights(_Rights):
    """Checks rights by explaining a statement, which needs them: grants have many sources."""

    def lacking(self, table: str, needed: Sequence[str]) -> list[str]:
        import sqlalchemy as sa

        name = self._name(table)
        statements = {
            "INSERT": f"INSERT INTO {name} VALUES ()",
            "DELETE": f"DELETE FROM {name}",
            "SELECT": f"SELECT * FROM {name}",
        }
        found = []
        for right in needed:
            statement = statements.get(right) or self._update(table)
            try:
                self._connection.exec_driver_sql(f"EXPLAIN {statement}")
            except sa.exc.DBAPIError as error:
                if _is_denied(error):
                    found.append(f"{right} at table {table!r}")
        return found

    def _update(self, table: str) -> str:
        import sqlalchemy as sa

        schema, own = split_name(table)
        column = self._quote(sa.inspect(self._connection).get_columns(own, schema)[0]["name"])
        return f"UPDATE {self._name(table)} SET {column} = DEFAULT"


def _is_denied(error: "sa.exc.DBAPIError") -> bool:
    return " denied " in reason_of(error)


def _rights_of(connection: "sa.Connection") -> _Rights:
    kinds = {"postgresql": _PostgresRights, "mysql": _MysqlRights, "mariadb": _MysqlRights}
    return kinds.get(connection.dialect.name, _Rights)(connection)
