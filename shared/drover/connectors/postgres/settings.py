"""The settings of PostgresCdcSource, with Debezium's names where they exist."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from drover.connector import (
    All,
    Check,
    ConfigDef,
    ConfigKey,
    ConfigType,
    Importance,
    InRange,
    Matches,
    NonEmpty,
    OneOf,
    any_matches,
    compiled_pattern,
    patterns_fault,
)
from drover.connectors import unavailable
from drover.connectors.postgres.remedies import identifier
from drover.connectors.postgres.server import ServerAddress, Table
from drover.policy.client_setting_lists import Library
from drover.policy.client_settings import client_setting_fault

if TYPE_CHECKING:
    import psycopg

VERSION = "0.1.0"
HOST, PORT = "database.hostname", "database.port"
USER, PASSWORD, DATABASE = "database.user", "database.password", "database.dbname"
SSL = {f"database.{each}": each for each in ("sslmode", "sslrootcert", "sslcert", "sslkey")}
TOPIC_PREFIX = "topic.prefix"
PLUGIN = "plugin.name"
SLOT = "slot.name"
PUBLICATION = "publication.name"
AUTOCREATE = "publication.autocreate.mode"
TABLE_INCLUDE, TABLE_EXCLUDE = "table.include.list", "table.exclude.list"
SCHEMA_INCLUDE, SCHEMA_EXCLUDE = "schema.include.list", "schema.exclude.list"
SNAPSHOT_MODE = "snapshot.mode"
LAYOUT = "record.layout"
TOMBSTONES = "tombstones.on.delete"
SKIPPED = "skipped.operations"
DECIMALS = "decimal.handling.mode"
TIMES = "time.precision.mode"
INTERVALS, HSTORES = "interval.handling.mode", "hstore.handling.mode"
PLACEHOLDER = "unavailable.value.placeholder"
COLUMN_INCLUDE, COLUMN_EXCLUDE = "column.include.list", "column.exclude.list"
KEY_COLUMNS = "message.key.columns"
HEARTBEAT_MS = "heartbeat.interval.ms"
HEARTBEAT_PREFIX = "topic.heartbeat.prefix"
HEARTBEAT_QUERY = "heartbeat.action.query"

INITIAL, INITIAL_ONLY, NO_DATA, NEVER, WHEN_NEEDED = (
    "initial",
    "initial_only",
    "no_data",
    "never",
    "when_needed",
)
FILTERED, ALL_TABLES, DISABLED = "filtered", "all_tables", "disabled"
ENVELOPE, FLAT = "envelope", "flat"
LAYOUTS = (ENVELOPE, FLAT)
#: Representations of NUMERIC columns.
PRECISE, DOUBLE, STRING = "precise", "double", "string"
DECIMAL_MODES = (PRECISE, DOUBLE, STRING)
#: Representations of times: Kafka Connect's types, or Debezium's, with the column's precision.
CONNECT, ADAPTIVE, ADAPTIVE_TIME = "connect", "adaptive", "adaptive_time_microseconds"
#: Representations of INTERVAL and hstore columns: the database's text, or Debezium's.
TEXT, NUMERIC, JSON, MAP = "text", "numeric", "json", "map"
INTERVAL_MODES, HSTORE_MODES = (TEXT, NUMERIC, STRING), (TEXT, JSON, MAP)
TIME_MODES = (CONNECT, ADAPTIVE, ADAPTIVE_TIME)


def _text(name: str, documentation: str, group: str, *checks: Check) -> ConfigKey:
    return ConfigKey(
        name,
        ConfigType.STRING,
        importance=Importance.HIGH,
        group=group,
        documentation=documentation,
        validator=All(NonEmpty(), *checks),
    )


def key_rules(text: str | None) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Parse message.key.columns: regular expressions for tables, with columns.

    Raises:
        ValueError: The text has another form.
    """
    rules = []
    for rule in filter(None, (each.strip() for each in (text or "").split(";"))):
        pattern, _, listed = rule.rpartition(":")
        columns = tuple(each.strip() for each in listed.split(","))
        if not pattern or not all(columns):
            raise ValueError(f"{rule!r} is not schema.table:column,column")
        rules.append((pattern, columns))
    return tuple(rules)


def _key_rules_fault(text: str) -> str | None:
    try:
        return patterns_fault([pattern for pattern, _ in key_rules(text)])
    except ValueError as error:
        return str(error)


def _host_fault(host: str) -> str | None:
    """A path would be a socket, where the server trusts the worker's user."""
    if re.fullmatch(r"[\w.:%-]+", host):
        return None
    return f"must be one host name or address, not {host[:80]!r}"


def _operations_fault(operations: Sequence[str]) -> str | None:
    unknown = [each for each in operations if each not in ("c", "u", "d", "t", "none")]
    return f"{unknown[0]!r} must be one of c, u, d, t, none" if unknown else None


DEFINITION = ConfigDef(
    ConfigKey(
        HOST,
        ConfigType.STRING,
        importance=Importance.HIGH,
        group="Database",
        documentation="The server's host name or address.",
        validator=All(NonEmpty(), Check(_host_fault)),
    ),
    ConfigKey(
        PORT,
        ConfigType.INT,
        default=5432,
        importance=Importance.HIGH,
        group="Database",
        documentation="Its port.",
        validator=InRange(1, 65535),
    ),
    _text(USER, "The user; needs the REPLICATION attribute and SELECT on the tables.", "Database"),
    ConfigKey(
        PASSWORD,
        ConfigType.PASSWORD,
        default=None,
        importance=Importance.HIGH,
        group="Database",
        documentation="The user's password.",
    ),
    _text(DATABASE, "The database.", "Database"),
    *(
        ConfigKey(
            key,
            ConfigType.STRING,
            default=None,
            importance=Importance.LOW,
            group="Database",
            documentation=f"libpq's {name}.",
            validator=Check(partial(client_setting_fault, Library.LIBPQ, name)),
        )
        for key, name in SSL.items()
    ),
    ConfigKey(
        TOPIC_PREFIX,
        ConfigType.STRING,
        importance=Importance.HIGH,
        group="Topics",
        documentation="The prefix of topics: prefix.schema.table.",
        validator=Matches(r"[A-Za-z0-9._-]+", "letters, digits, . _ and -"),
    ),
    ConfigKey(
        PLUGIN,
        ConfigType.STRING,
        default="pgoutput",
        importance=Importance.LOW,
        group="Log",
        documentation="The server's plugin that decodes its log; only pgoutput is supported.",
        validator=OneOf("pgoutput"),
    ),
    ConfigKey(
        SLOT,
        ConfigType.STRING,
        default=None,
        importance=Importance.MEDIUM,
        group="Log",
        documentation="The replication slot, created if missing; by default drover_ and the "
        "connector's name. The server retains its log until the slot is dropped.",
        validator=Matches(r"[a-z0-9_]{1,63}", "up to 63 lower-case letters, digits and _"),
    ),
    ConfigKey(
        PUBLICATION,
        ConfigType.STRING,
        default=None,
        importance=Importance.MEDIUM,
        group="Log",
        documentation="The publication of the tables; by default drover_ and the connector's name.",
        validator=NonEmpty(),
    ),
    ConfigKey(
        AUTOCREATE,
        ConfigType.STRING,
        default=FILTERED,
        importance=Importance.MEDIUM,
        group="Log",
        documentation="filtered: create the publication, and add each table that the lists "
        "select; all_tables: create it for all tables of the database, if it does not exist, which "
        "only a superuser may do; disabled: it must exist.",
        validator=OneOf(FILTERED, ALL_TABLES, DISABLED),
    ),
    *(
        ConfigKey(
            name,
            ConfigType.LIST,
            default=None,
            importance=Importance.MEDIUM,
            group="Tables",
            documentation=text,
            validator=Check(patterns_fault),
        )
        for name, text in (
            (TABLE_INCLUDE, "Regular expressions for schema.table; by default all."),
            (TABLE_EXCLUDE, "Regular expressions for schema.table to exclude."),
            (SCHEMA_INCLUDE, "Regular expressions for schemas; by default all."),
            (SCHEMA_EXCLUDE, "Regular expressions for schemas to exclude."),
            (
                COLUMN_INCLUDE,
                "Regular expressions for schema.table.column: the columns of values; by default "
                "all. Keys are not affected.",
            ),
            (
                COLUMN_EXCLUDE,
                "Regular expressions for schema.table.column to exclude; not together with "
                "column.include.list.",
            ),
        )
    ),
    ConfigKey(
        SNAPSHOT_MODE,
        ConfigType.STRING,
        default=INITIAL,
        importance=Importance.MEDIUM,
        group="Tables",
        documentation="initial: read tables completely once, then follow changes; initial_only: "
        "do not follow; no_data or never: only follow; when_needed: like initial, and again when "
        "the slot or the log is lost.",
        validator=OneOf(INITIAL, INITIAL_ONLY, NO_DATA, NEVER, WHEN_NEEDED),
    ),
    ConfigKey(
        KEY_COLUMNS,
        ConfigType.STRING,
        default=None,
        importance=Importance.LOW,
        group="Records",
        documentation="The columns of records' keys, instead of the primary key: "
        "schema.table:column,column;schema.table:column, with regular expressions for tables. "
        "Deletes must include these columns, as with REPLICA IDENTITY FULL.",
        validator=Check(_key_rules_fault),
    ),
    ConfigKey(
        LAYOUT,
        ConfigType.STRING,
        default=ENVELOPE,
        importance=Importance.MEDIUM,
        group="Records",
        documentation="envelope: before, after, source, op and ts_ms; flat: the row alone.",
        validator=OneOf(*LAYOUTS),
    ),
    ConfigKey(
        TOMBSTONES,
        ConfigType.BOOLEAN,
        default=True,
        importance=Importance.MEDIUM,
        group="Records",
        documentation="Whether a record without a value follows each delete; in the flat layout "
        "it represents the delete.",
    ),
    ConfigKey(
        SKIPPED,
        ConfigType.LIST,
        default="t",
        importance=Importance.LOW,
        group="Records",
        documentation="Operations to skip: c, u, d, t (TRUNCATE), or none.",
        validator=Check(_operations_fault),
    ),
    ConfigKey(
        DECIMALS,
        ConfigType.STRING,
        default=PRECISE,
        importance=Importance.MEDIUM,
        group="Records",
        documentation="NUMERIC as exact decimals (text if it has no precision), as double, or as "
        "string.",
        validator=OneOf(*DECIMAL_MODES),
    ),
    ConfigKey(
        TIMES,
        ConfigType.STRING,
        default=CONNECT,
        importance=Importance.MEDIUM,
        group="Records",
        documentation="connect: times as Kafka Connect's types; adaptive: as Debezium's types "
        "(its default), in milli- or microseconds according to the column; "
        "adaptive_time_microseconds: the same, but TIME always in microseconds.",
        validator=OneOf(*TIME_MODES),
    ),
    ConfigKey(
        INTERVALS,
        ConfigType.STRING,
        default=TEXT,
        importance=Importance.LOW,
        group="Records",
        documentation="INTERVAL as the database's text; or as Debezium's: numeric (its default), "
        "in microseconds with months of 30.4375 days, or string, such as P1Y2M3DT4H5M6S.",
        validator=OneOf(*INTERVAL_MODES),
    ),
    ConfigKey(
        HSTORES,
        ConfigType.STRING,
        default=TEXT,
        importance=Importance.LOW,
        group="Records",
        documentation="hstore as the database's text, as a JSON object (Debezium's default), or as "
        "a map.",
        validator=OneOf(*HSTORE_MODES),
    ),
    ConfigKey(
        PLACEHOLDER,
        ConfigType.STRING,
        default=unavailable.PLACEHOLDER,
        importance=Importance.LOW,
        group="Records",
        documentation="Replaces large values that the server did not send because they are "
        "unchanged; sinks that upsert leave such columns unchanged.",
    ),
    ConfigKey(
        HEARTBEAT_MS,
        ConfigType.INT,
        default=0,
        importance=Importance.MEDIUM,
        group="Heartbeats",
        documentation="The interval of heartbeat records; 0 for none.",
        validator=InRange(0, 86_400_000),
    ),
    ConfigKey(
        HEARTBEAT_PREFIX,
        ConfigType.STRING,
        default="__debezium-heartbeat",
        importance=Importance.LOW,
        group="Heartbeats",
        documentation="The prefix of the heartbeat topic, followed by . and topic.prefix.",
        validator=Matches(r"[A-Za-z0-9._-]+", "letters, digits, . _ and -"),
    ),
    ConfigKey(
        HEARTBEAT_QUERY,
        ConfigType.STRING,
        default=None,
        importance=Importance.LOW,
        group="Heartbeats",
        documentation="A statement to run with each heartbeat, in its own transaction, such as an "
        "UPDATE of a captured table.",
        validator=NonEmpty(),
    ),
)


def _own_name(config: Mapping[str, Any]) -> str:
    return "drover_" + re.sub(r"[^a-z0-9_]", "_", str(config.get("name", "")).lower())[:56]


def slot_name(config: Mapping[str, Any]) -> str:
    """The slot of a config."""
    return config.get(SLOT) or _own_name(config)


def publication_name(config: Mapping[str, Any]) -> str:
    """The publication of a config."""
    return config.get(PUBLICATION) or _own_name(config)


def address_of(config: Mapping[str, Any]) -> ServerAddress:
    """The server of a parsed config."""
    password = config[PASSWORD]
    return ServerAddress(
        config[HOST],
        config[PORT],
        config[USER],
        password.value if password else None,
        config[DATABASE],
        {name: config[key] for key, name in SSL.items() if config[key]},
    )


def wanted_tables(
    connection: "psycopg.Connection[tuple[Any, ...]]", config: Mapping[str, Any]
) -> list[Table]:
    """The existing tables that the settings select.

    Raises:
        ServerError: Two tables have the same qualified name.
    """
    from drover.connectors.postgres.publications import published_generated
    from drover.connectors.postgres.server import ServerError, tables_of

    generated = published_generated(connection, publication_name(config))
    tables = tables_of(connection, generated)
    wanted = [each for each in tables if is_wanted(each.schema, each.id, config)]
    for name, count in Counter(each.id for each in wanted).items():
        if count > 1:
            raise ServerError(
                f"{count} tables have the qualified name {name}, because names contain dots: "
                f"exclude one with {SCHEMA_EXCLUDE}, or rename one"
            )
    return wanted


def why_left_out(table: Table, config: Mapping[str, Any], *, read: bool) -> str | None:
    """What keeps a table from being captured, as a predicate; None if it is captured.

    Args:
        table: The table.
        config: The parsed config.
        read: Whether its rows have been read, so that only its changes are needed.
    """
    from drover.connectors.postgres.server import generated_key_fault

    if table.grants and not read:
        return f"has rows that {config[USER]} may not read: {'; '.join(table.grants)}"
    if read:
        return None
    name = identifier(table.schema, table.name)
    key_is_set = key_columns(config, table.id) is not None
    if table.generated_keys and not key_is_set:
        return generated_key_fault(table.generated_keys)
    if config.get(SNAPSHOT_MODE) == INITIAL_ONLY:
        return None
    if not table.identifies_rows:
        return (
            "has no primary key: when published, the server refuses its updates and deletes: "
            f"ALTER TABLE {name} REPLICA IDENTITY FULL, or exclude it with {TABLE_EXCLUDE}"
        )
    if table.partitions_differ:
        return (
            "has partitions with another replica identity than its own: ALTER TABLE … REPLICA "
            "IDENTITY of each partition, as it is not inherited"
        )
    if table.unsent_identity:
        return (
            f"has the generated column {table.unsent_identity[0]!r} in its replica identity: when "
            "published without it, the server refuses its updates and deletes: "
            f"ALTER TABLE {name} REPLICA IDENTITY DEFAULT, or give publication "
            f"{identifier(publication_name(config))} publish_generated_columns = stored"
        )
    if config.get(LAYOUT) != FLAT or key_is_set or table.has_primary_key or not table.full_identity:
        return None
    if {"u", "d"} <= set(config.get(SKIPPED) or ()):
        return None
    return f"has no key, and {FLAT_WITHOUT_KEY}"


#: Why changes of a table without a key are errors in the flat layout.
FLAT_WITHOUT_KEY = (
    f"{LAYOUT}={FLAT} cannot express its updates and deletions: set {KEY_COLUMNS}, "
    f"{LAYOUT}={ENVELOPE}, or {SKIPPED}=u,d,t"
)


def is_column_wanted(column: str, include: Sequence[str] | None, exclude: Sequence[str]) -> bool:
    """Whether the lists select a column, named ``schema.table.column``."""
    if include and not any_matches(include, column):
        return False
    return not any_matches(exclude, column)


def key_columns(config: Mapping[str, Any], table: str) -> tuple[str, ...] | None:
    """The columns in message.key.columns for a table; None if it names none."""
    for pattern, columns in key_rules(config.get(KEY_COLUMNS)):
        if compiled_pattern(pattern).matches(table):
            return columns
    return None


def is_wanted(schema: str, table: str, config: Mapping[str, Any]) -> bool:
    """Whether the lists select a table, named ``schema.table``."""
    for include, exclude, name in (
        (SCHEMA_INCLUDE, SCHEMA_EXCLUDE, schema),
        (TABLE_INCLUDE, TABLE_EXCLUDE, table),
    ):
        included, excluded = config.get(include), config.get(exclude) or ()
        if included and not any_matches(included, name):
            return False
        if any_matches(excluded, name):
            return False
    return True
