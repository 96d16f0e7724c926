"""Checks a config on the server before the connector starts."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from drover.connector import Caution, Violation, compiled_pattern
from drover.connectors.postgres.server import EXTRA, ServerError, Table
from drover.connectors.postgres.settings import (
    AUTOCREATE,
    COLUMN_EXCLUDE,
    COLUMN_INCLUDE,
    DATABASE,
    DISABLED,
    FILTERED,
    FLAT,
    GRANTS,
    HOST,
    INITIAL_ONLY,
    KEY_COLUMNS,
    LAYOUT,
    PASSWORD,
    PORT,
    PUBLICATION,
    SKIPPED,
    SLOT,
    SNAPSHOT_MODE,
    TABLE_INCLUDE,
    TOMBSTONES,
    USER,
    address_of,
    is_column_wanted,
    key_columns,
    key_rules,
    publication_name,
    slot_name,
    wanted_tables,
    why_left_out,
)
from drover.policy.egress import AllowedHosts

if TYPE_CHECKING:
    import psycopg


def contradictions(config: Mapping[str, Any]) -> list[Violation]:
    """Contradicting settings."""
    faults = []
    if config.get(COLUMN_INCLUDE) and config.get(COLUMN_EXCLUDE):
        text = f"must not be set together with {COLUMN_INCLUDE}"
        faults.append(Violation(COLUMN_EXCLUDE, text))
    if config.get(LAYOUT) == FLAT:
        skipped = config.get(SKIPPED, ("t", "d"))
        if "t" not in skipped:
            text = f"must contain t with {LAYOUT}={FLAT}, which cannot express TRUNCATE"
            faults.append(Violation(SKIPPED, text))
        if not config.get(TOMBSTONES, True) and "d" not in skipped:
            text = (
                f"must be true with {LAYOUT}={FLAT}, in which a deletion is a tombstone; to omit "
                f"deletions, add d to {SKIPPED}"
            )
            faults.append(Violation(TOMBSTONES, text))
    if HOST in config and PORT in config:
        fault = AllowedHosts.of_worker().fault(config[HOST], config[PORT])
        if fault is not None:
            faults.append(Violation(HOST, fault))
    return faults


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
    for each in tables:
        fault = why_left_out(each, config, read=False)
        if not each.readable:
            yield Violation(USER, f"may not read {each.id}: {GRANTS}")
        elif fault is not None:
            yield Violation(TABLE_INCLUDE, f"table {each.id} {fault}")
    if streams and config.get(AUTOCREATE) == FILTERED:
        yield from _publication_faults(connection, tables, config)
    if streams:
        yield from _large_values(connection, tables, config)


def _key_faults(
    connection: "psycopg.Connection[tuple[Any, ...]]",
    tables: Sequence[Table],
    config: Mapping[str, Any],
) -> Iterator[Violation]:
    from drover.connectors.postgres.server import key_of, published_generated, relation_of

    generated = published_generated(connection, publication_name(config))
    for each in tables:
        asked_for = key_columns(config, each.id)
        if asked_for is not None:
            try:
                key_of(connection, relation_of(connection, each, generated), asked_for)
            except ServerError as error:
                yield Violation(KEY_COLUMNS, str(error))
    for pattern, _ in key_rules(config.get(KEY_COLUMNS)) if KEY_COLUMNS in config else ():
        if not any(compiled_pattern(pattern).matches(each.id) for each in tables):
            yield Violation(KEY_COLUMNS, f"no table matches {pattern!r}")


def _publication_faults(
    connection: "psycopg.Connection[tuple[Any, ...]]",
    tables: Sequence[Table],
    config: Mapping[str, Any],
) -> Iterator[Violation]:
    """What the user may not publish."""
    from drover.connectors.postgres.server import NOT_OWNED, published

    name = publication_name(config)
    there = published(connection, name)
    missing = [each for each in tables if each.id not in there]
    for each in missing:
        if not each.owned:
            yield Violation(TABLE_INCLUDE, f"table {each.id} {NOT_OWNED}")
    row = connection.execute(
        "SELECT pg_has_role(pubowner, 'USAGE') OR puballtables FROM pg_publication"
        " WHERE pubname = %s",
        (name,),
    ).fetchone()
    creates = "SELECT has_database_privilege(current_database(), 'CREATE')"
    if row is None and connection.execute(creates).fetchone() != (True,):
        yield Violation(
            USER,
            f"may not create the publication {name}: GRANT CREATE ON DATABASE {config[DATABASE]} "
            f"TO {config[USER]}, or create it and set {AUTOCREATE}={DISABLED}",
        )
    if row == (False,) and missing:
        yield Violation(
            PUBLICATION,
            f"{name!r} belongs to another role and lacks {missing[0].id}: add the table, or set "
            f"{AUTOCREATE}={DISABLED}",
        )


#: How many tables a warning names.
_NAMED = 20


def _large_values(
    connection: "psycopg.Connection[tuple[Any, ...]]",
    tables: Sequence[Table],
    config: Mapping[str, Any],
) -> Iterator[Violation]:
    """A warning about columns that the log may lack."""
    from drover.connectors.postgres.server import large_columns, published_generated

    generated = published_generated(connection, publication_name(config))
    include, exclude = config.get(COLUMN_INCLUDE), config.get(COLUMN_EXCLUDE) or ()
    found = []
    for each in tables:
        columns = [
            name
            for name in large_columns(connection, each, generated)
            if is_column_wanted(f"{each.id}.{name}", include, exclude)
        ]
        if columns:
            found.append(f"{each.id} ({', '.join(columns)})")
    if found:
        more = f" and {len(found) - _NAMED} more tables" if len(found) > _NAMED else ""
        yield Caution(
            TABLE_INCLUDE,
            "an update that does not modify a large value (about 2 KB or more) does not contain "
            f"it: {'; '.join(found[:_NAMED])}{more}. Sinks that upsert leave the column unchanged; "
            "for the values, ALTER TABLE … REPLICA IDENTITY FULL",
        )
