"""Checks a JdbcSink config on the server: names, missing tables, keys and rights."""

from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drover.connector import Caution, SkippedCheck, Violation
from drover.connectors.jdbc.database import URL, USER
from drover.connectors.jdbc.sink_rights import MysqlRights, PostgresRights, Rights, rights_of
from drover.connectors.jdbc.table_names import (
    format_fault,
    name_fault,
    no_schema,
    shared_tables,
)
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
_CREATE, _EVOLVE, _FIELDS, _FORMAT = "auto.create", "auto.evolve", "pk.fields", "table.name.format"
_WHITELIST, _LEDGER, _TOPICS = "fields.whitelist", "offsets.table", "topics"
_LEDGER_RIGHTS = ("SELECT", "INSERT", "UPDATE")
_LEDGER_COLUMNS = ("connector", "topic", "partition", "next_offset", "generation", "sequence")


def server_faults(
    connection: "sa.Connection",
    settings: WriteSettings,
    topics: Mapping[str, str | None],
    sqlite_path: Path,
) -> Iterator[Violation]:
    """Obstacles to writing rows of these topics, given with their names after the transforms."""
    rights = rights_of(connection, sqlite_path)
    read_only = rights.read_only()
    if read_only is not None:
        yield Violation(URL, read_only)
        return
    tables = yield from _tables(connection, rights, settings, topics)
    yield from _Checks(connection, rights, settings).faults(tables)


def _tables(
    connection: "sa.Connection",
    rights: Rights,
    settings: WriteSettings,
    topics: Mapping[str, str | None],
) -> Generator[Violation, None, dict[str, str]]:
    """The valid tables with the first topic of each; yields the faults of the names."""
    dialect = connection.dialect.name
    by_topic: dict[str, str] = {}
    for topic, routed in topics.items():
        if routed is None:
            yield SkippedCheck(
                _FORMAT, f"the table of topic {topic!r} depends on its records, by a transform"
            )
            continue
        table = settings.table_of(routed)
        fault = format_fault(table)
        own = "" if fault is not None else split_name(table)[1]
        fault = fault or name_fault(own, dialect)
        if fault is not None:
            yield Violation(_FORMAT, f"the table {table!r} of topic {topic!r} {fault}")
            continue
        schema = rights.missing_schema(table)
        if schema is not None:
            yield Violation(_FORMAT, no_schema(topic, table, schema))
            continue
        by_topic[topic] = table
    folds = dialect == "sqlite" or (isinstance(rights, MysqlRights) and rights.folds_names)
    if folds:
        for first, second, table in shared_tables(by_topic, str.casefold):
            yield Violation(
                _FORMAT,
                f"the topics {first!r} and {second!r} have one table {table!r}, because the "
                "database ignores the case of names: rename one with a RegexRouter",
            )
    return {table: topic for topic, table in by_topic.items()}


class _Checks:
    """The checks of the tables of a sink."""

    def __init__(
        self, connection: "sa.Connection", rights: Rights, settings: WriteSettings
    ) -> None:
        import sqlalchemy as sa

        self._inspector = sa.inspect(connection)
        self._rights = rights
        self._settings = settings

    def faults(self, tables: Mapping[str, str]) -> Iterator[Violation]:
        """Faults of the tables, which are given with their topics, and of the offsets table."""
        needed = _needed(self._settings)
        lacking: list[str] = []
        present: list[str] = []
        for name, topic in tables.items():
            there = self._rights.is_there(self._inspector, name)
            if there is False and not self._settings.creates:
                text = f"table {name!r} for topic {topic!r} does not exist: create it, or set this "
                yield Violation(_CREATE, f"{text}to true")
                continue
            missing = list(self._rights.lacking(name, needed, is_there=there is not False))
            if not there and not missing:
                missing += self._rights.lacking_to_create(name)
            if there and self._settings.evolves:
                to_alter = self._rights.lacking_to_alter(name)
                if to_alter is not None:
                    yield Violation(_EVOLVE, to_alter)
            lacking += missing
            if there and not missing:
                present.append(name)
                yield from self._of_table(name, needed)
        lacking += self._ledger_lacks()
        lacking += self._rights.lacking_at_all()
        for each in dict.fromkeys(lacking):
            yield Violation(USER, each)
        yield from self._of_ledger(tables)
        if present and self._settings.fields is None:
            listed = ", ".join(map(repr, present))
            yield SkippedCheck(
                _TOPICS,
                f"whether the fields of records fit the columns of {listed}: they are known when "
                "records are read; drover connector preview compares them",
            )

    def _ledger_lacks(self) -> Iterator[str]:
        name = self._settings.ledger
        if not name or format_fault(name) is not None:
            return
        there = self._rights.is_there(self._inspector, name)
        missing = list(self._rights.lacking(name, _LEDGER_RIGHTS, is_there=there is not False))
        yield from missing
        if not there:
            yield from (
                each for each in self._rights.lacking_to_create(name) if each not in missing
            )

    def _of_ledger(self, tables: Mapping[str, str]) -> Iterator[Violation]:
        name = self._settings.ledger
        if not name:
            return
        if name in tables:
            yield Violation(_LEDGER, f"must be another table than that of topic {tables[name]!r}")
            return
        if not self._rights.is_there(self._inspector, name):
            return
        missing = set(_LEDGER_COLUMNS) - self._columns(name).keys()
        if missing:
            yield Violation(
                _LEDGER,
                f"names the table {name!r}, which is no table of offsets: it has no column "
                f"{min(missing)!r}; name another table, which will be created",
            )

    def _of_table(self, name: str, needed: Sequence[str]) -> Iterator[Violation]:
        if self._is_view(name):
            keys = self._settings.pk_fields if self._settings.insert_mode == UPSERT else ()
            refused = self._rights.refused_by_view(name, needed, keys)
            if refused is not None:
                yield Violation(_FORMAT, f"{name!r} is {refused}")
                return
            if self._settings.evolves:
                yield Caution(_EVOLVE, f"does not extend {name!r}, which is a view")
        else:
            yield from self._key_faults(name)
        yield from self._unfilled(name)
        for right in self._rights.partly(name, needed):
            yield SkippedCheck(
                USER,
                f"has the right to {right} on some columns of table {name!r} only: whether records "
                "need others is known when they are read",
            )
        if isinstance(self._rights, PostgresRights):
            yield from self._of_postgres(self._rights, name)

    def _is_view(self, name: str) -> bool:
        schema, own = split_name(name)
        inspector = self._inspector
        views = inspector.get_view_names(schema)
        if inspector.dialect.name == "postgresql":
            views = [*views, *inspector.get_materialized_view_names(schema)]
        return own in views

    def _of_postgres(self, rights: PostgresRights, name: str) -> Iterator[Violation]:
        for each in rights.unusable_sequences(name):
            yield Caution(
                USER,
                f"may not use sequence {each}: a record without a field for its column of table "
                f"{name!r} fails; GRANT USAGE ON SEQUENCE {each}",
            )
        if rights.has_row_security(name):
            yield SkippedCheck(
                USER,
                f"the policies of table {name!r} (row level security) decide for each row whether "
                "the user may write it",
            )

    def _columns(self, name: str) -> dict[str, Any]:
        schema, own = split_name(name)
        return {each["name"]: each for each in self._inspector.get_columns(own, schema)}

    def _key_faults(self, name: str) -> Iterator[Violation]:
        from drover.connectors.jdbc.tables import has_unique_key  # its library may be missing

        settings = self._settings
        fields = set(settings.pk_fields)
        if settings.pk_mode == KAFKA:
            fields = fields or set(KAFKA_FIELDS)
        missing = sorted(fields - self._columns(name).keys())
        if missing and (settings.pk_fields or not settings.evolves):
            yield Violation(_FIELDS, f"table {name!r} has no column {missing[0]!r}")
        elif (
            fields
            and settings.insert_mode == UPSERT
            and not has_unique_key(self._inspector, name, fields)
        ):
            listed = ", ".join(sorted(fields))
            text = f"table {name!r} has no primary key or unique constraint on {listed}"
            yield Violation(_FIELDS, text)

    def _unfilled(self, name: str) -> Iterator[Violation]:
        """Columns that need a value and get none, where the fields are known."""
        settings = self._settings
        if settings.fields is None or settings.insert_mode == UPDATE:
            return
        keys = settings.pk_fields or (KAFKA_FIELDS if settings.pk_mode == KAFKA else ())
        columns = self._columns(name)
        if not settings.evolves:
            for each in settings.fields:
                if each not in columns:
                    yield Violation(
                        _WHITELIST,
                        f"table {name!r} has no column {each!r}: add it, or set auto.evolve",
                    )
        schema, own = split_name(name)
        primary = self._inspector.get_pk_constraint(own, schema)
        if settings.pk_mode != "none" and not keys:
            keys = tuple(primary.get("constrained_columns") or ())
        for each in columns.values():
            if each["name"] in (*settings.fields, *keys) or _fills_itself(each, primary):
                continue
            yield Violation(
                _WHITELIST,
                f"column {each['name']!r} of table {name!r} is NOT NULL without a default: name "
                "its field as well, or give it a default",
            )


def _fills_itself(column: Mapping[str, Any], primary: Mapping[str, Any]) -> bool:
    if column.get("nullable", True) or column.get("default") is not None:
        return True
    if column.get("identity") or column.get("computed") or column.get("autoincrement") is True:
        return True
    # a primary key of SQLite is a row number
    is_key = primary.get("constrained_columns") == [column["name"]]
    return is_key and str(column["type"]) == "INTEGER" and column.get("autoincrement") == "auto"


def _needed(settings: WriteSettings) -> Sequence[str]:
    by_mode: Mapping[str, Sequence[str]] = {
        INSERT: ("INSERT",),
        UPSERT: ("INSERT", "UPDATE", "SELECT"),
        UPDATE: ("UPDATE", "SELECT"),
    }
    return (*by_mode[settings.insert_mode], *(("DELETE", "SELECT") if settings.deletes else ()))
