"""Checks a config on the server before the connector starts."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from drover.connector import Violation, compiled_pattern
from drover.connectors.postgres.server import EXTRA, ServerError, Table
from drover.connectors.postgres.settings import (
    AUTOCREATE,
    COLUMN_EXCLUDE,
    COLUMN_INCLUDE,
    DATABASE,
    DISABLED,
    HOST,
    INITIAL_ONLY,
    KEY_COLUMNS,
    PASSWORD,
    PORT,
    PUBLICATION,
    SLOT,
    SNAPSHOT_MODE,
    TABLE_EXCLUDE,
    TABLE_INCLUDE,
    USER,
    address_of,
    key_columns,
    key_rules,
    publication_name,
    slot_name,
    wanted_tables,
)
from drover.policy.egress import AllowedHosts

if TYPE_CHECKING:
    import psycopg


def contradictions(config: Mapping[str, Any]) -> list[Violation]:
    """Contradicting settings."""
    if config.get(COLUMN_INCLUDE) and config.get(COLUMN_EXCLUDE):
        return [Violation(COLUMN_EXCLUDE, f"must not be set together with {COLUMN_INCLUDE}")]
    if HOST in config and PORT in config:
        fault = AllowedHosts.of_worker().fault(config[HOST], config[PORT])
        if fault is not None:
            return [Violation(HOST, fault)]
    return []


def server_faults(config: Mapping[str, Any]) -> list[Violation]:
    """Faults that the server reports."""
    try:
        import psycopg
    except ImportError:
        return [Violation("connector.class", EXTRA)]
    from drover.connectors.postgres.server import first_line

    address = address_of(config)
    try:
        with address.connected() as connection:
            return list(_faults_at(connection, config))
    except ServerError as error:
        return [Violation(TABLE_INCLUDE, str(error))]
    except psycopg.Error as error:
        text = first_line(error)
        blamed = PASSWORD if "password" in text else DATABASE if "database" in text else HOST
        return [Violation(blamed, f"{address}: {text}")]


def _faults_at(
    connection: "psycopg.Connection[tuple[Any, ...]]", config: Mapping[str, Any]
) -> Iterator[Violation]:
    from drover.connectors.postgres.server import published, slot_of

    row = connection.execute(
        "SELECT current_setting('wal_level'), (SELECT rolreplication OR rolsuper FROM pg_roles"
        " WHERE rolname = current_user)"
    ).fetchone()
    assert row is not None
    streams = config.get(SNAPSHOT_MODE) != INITIAL_ONLY
    if streams and row[0] != "logical":
        yield Violation(
            HOST, f"the server's wal_level is {row[0]}: set it to logical, and restart the server"
        )
    if streams and not row[1]:
        yield Violation(USER, f"has no right to replicate: ALTER ROLE {config[USER]} REPLICATION")
    slot = slot_of(connection, slot_name(config))
    if slot is not None and (slot.plugin, slot.database) != ("pgoutput", config[DATABASE]):
        yield Violation(
            SLOT,
            f"{slot_name(config)!r} is a slot of plugin {slot.plugin} in database {slot.database}",
        )
    tables = wanted_tables(connection, config)
    if config.get(AUTOCREATE) == DISABLED and streams:
        known = published(connection, publication_name(config))
        if not known:
            yield Violation(
                PUBLICATION, f"{publication_name(config)!r} does not exist, or has no tables"
            )
        tables = [each for each in tables if each.id in known]
    for pattern in config.get(TABLE_INCLUDE) or ():
        if not any(compiled_pattern(pattern).matches(each.id) for each in tables):
            yield Violation(TABLE_INCLUDE, f"no table matches {pattern!r}")
    yield from _key_faults(connection, tables, config)
    yield from _table_faults(connection, tables, streams=streams)


def _key_faults(
    connection: "psycopg.Connection[tuple[Any, ...]]",
    tables: Sequence[Table],
    config: Mapping[str, Any],
) -> Iterator[Violation]:
    from drover.connectors.postgres.server import key_of, relation_of

    for each in tables:
        asked_for = key_columns(config, each.id)
        if asked_for is not None:
            try:
                key_of(connection, relation_of(connection, each), asked_for)
            except ServerError as error:
                yield Violation(KEY_COLUMNS, str(error))
    for pattern, _ in key_rules(config.get(KEY_COLUMNS)) if KEY_COLUMNS in config else ():
        if not any(compiled_pattern(pattern).matches(each.id) for each in tables):
            yield Violation(KEY_COLUMNS, f"no table matches {pattern!r}")


def _table_faults(
    connection: "psycopg.Connection[tuple[Any, ...]]", tables: Sequence[Table], *, streams: bool
) -> Iterator[Violation]:
    for each in tables:
        if streams and not each.identifies_rows:
            yield Violation(
                TABLE_INCLUDE,
                f"table {each.id} has no primary key: when published, the server refuses "
                "its updates and deletes: ALTER TABLE … REPLICA IDENTITY FULL, or exclude "
                f"it with {TABLE_EXCLUDE}",
            )
        row = connection.execute("SELECT has_table_privilege(%s, 'SELECT')", (each.oid,)).fetchone()
        if row != (True,):
            yield Violation(USER, f"may not read {each.id}: GRANT SELECT")
