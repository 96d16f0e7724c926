"""The settings of PostgresCdcSource: Debezium's names where it has them."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from drover.connector import (
    Check,
    ConfigDef,
    ConfigKey,
    ConfigType,
    Importance,
    InRange,
    Matches,
    NonEmpty,
    OneOf,
)
from drover.connectors.patterns import patterns_fault
from drover.connectors.postgres.server import ServerAddress, Table

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
FILTERED, DISABLED = "filtered", "disabled"
ENVELOPE, FLAT = "envelope", "flat"
LAYOUTS = (ENVELOPE, FLAT)
#: How numeric columns are read.
PRECISE, DOUBLE, STRING = "precise", "double", "string"
DECIMAL_MODES = (PRECISE, DOUBLE, STRING)
#: How times are told: by Kafka Connect's types, or by Debezium's own, as exact as the column is.
CONNECT, ADAPTIVE, ADAPTIVE_TIME = "connect", "adaptive", "adaptive_time_microseconds"
TIME_MODES = (CONNECT, ADAPTIVE, ADAPTIVE_TIME)


def _text(name: str, documentation: str, group: str) -> ConfigKey:
    return ConfigKey(
        name,
        ConfigType.STRING,
        importance=Importance.HIGH,
        group=group,
        documentation=documentation,
        validator=NonEmpty(),
    )


def key_rules(text: str | None) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """What message.key.columns says: regular expressions for tables, and columns.

    Raises:
        ValueError: it is something else.
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


def _operations_fault(operations: Sequence[str]) -> str | None:
    unknown = [each for each in operations if each not in ("c", "u", "d", "t", "none")]
    return f"{unknown[0]!r} is none of c, u, d, t, none" if unknown else None


DEFINITION = ConfigDef(
    _text(HOST, "The server's host name or address.", "Database"),
    ConfigKey(
        PORT,
        ConfigType.INT,
        default=5432,
        importance=Importance.HIGH,
        group="Database",
        documentation="Its port.",
        validator=InRange(1, 65535),
    ),
    _text(USER, "Who logs in; needs the right REPLICATION, and to read the tables.", "Database"),
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
        )
        for key, name in SSL.items()
    ),
    ConfigKey(
        TOPIC_PREFIX,
        ConfigType.STRING,
        importance=Importance.HIGH,
        group="Topics",
        documentation="What topics begin with: they are called prefix.schema.table.",
        validator=Matches(r"[A-Za-z0-9._-]+", "letters, digits, . _ and -"),
    ),
    ConfigKey(
        PLUGIN,
        ConfigType.STRING,
        default="pgoutput",
        importance=Importance.LOW,
        group="Log",
        documentation="The server's plugin that decodes its log; nothing but pgoutput is read.",
        validator=OneOf("pgoutput"),
    ),
    ConfigKey(
        SLOT,
        ConfigType.STRING,
        default=None,
        importance=Importance.MEDIUM,
        group="Log",
        documentation="The replication slot, made when it is not there; by default drover_ "
        "and the connector's name. It keeps the log until it is dropped.",
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
        documentation="filtered: the publication is made, and gets each table that the "
        "lists name; disabled: it is there.",
        validator=OneOf(FILTERED, DISABLED),
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
            (TABLE_EXCLUDE, "Regular expressions for schema.table to leave out."),
            (SCHEMA_INCLUDE, "Regular expressions for schemas; by default all."),
            (SCHEMA_EXCLUDE, "Regular expressions for schemas to leave out."),
            (
                COLUMN_INCLUDE,
                "Regular expressions for schema.table.column: which columns values have; by "
                "default all. Keys keep theirs.",
            ),
            (
                COLUMN_EXCLUDE,
                "Regular expressions for schema.table.column to leave out; not beside "
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
        documentation="initial: tables are read whole once, then followed; initial_only: "
        "not followed; no_data or never: only followed; when_needed: like initial, and "
        "again when the slot or the log is gone.",
        validator=OneOf(INITIAL, INITIAL_ONLY, NO_DATA, NEVER, WHEN_NEEDED),
    ),
    ConfigKey(
        KEY_COLUMNS,
        ConfigType.STRING,
        default=None,
        importance=Importance.LOW,
        group="Records",
        documentation="The columns of records' keys instead of the primary key's: "
        "schema.table:column,column;schema.table:column, the tables as regular expressions. They "
        "have to be columns that deletions tell, as with REPLICA IDENTITY FULL.",
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
        documentation="Whether a record without a value follows each deletion; with the flat "
        "layout it is the deletion.",
    ),
    ConfigKey(
        SKIPPED,
        ConfigType.LIST,
        default="t",
        importance=Importance.LOW,
        group="Records",
        documentation="Operations to leave out: c, u, d, t (TRUNCATE), or none.",
        validator=Check(_operations_fault),
    ),
    ConfigKey(
        DECIMALS,
        ConfigType.STRING,
        default=PRECISE,
        importance=Importance.MEDIUM,
        group="Records",
        documentation="NUMERIC as exact decimals (text where it has no precision), as "
        "double, or as string.",
        validator=OneOf(*DECIMAL_MODES),
    ),
    ConfigKey(
        TIMES,
        ConfigType.STRING,
        default=CONNECT,
        importance=Importance.MEDIUM,
        group="Records",
        documentation="connect: times as Kafka Connect's own types; adaptive: as Debezium's, in "
        "milli- or microseconds as the column has them (its default); "
        "adaptive_time_microseconds: the same, but TIME always in microseconds.",
        validator=OneOf(*TIME_MODES),
    ),
    ConfigKey(
        PLACEHOLDER,
        ConfigType.STRING,
        default="__debezium_unavailable_value",
        importance=Importance.LOW,
        group="Records",
        documentation="Stands for text and bytes that were not changed and not sent, as "
        "they are stored out of line.",
    ),
    ConfigKey(
        HEARTBEAT_MS,
        ConfigType.INT,
        default=0,
        importance=Importance.MEDIUM,
        group="Heartbeats",
        documentation="How often a record says that the log is read; 0 for never.",
        validator=InRange(0, 86_400_000),
    ),
    ConfigKey(
        HEARTBEAT_PREFIX,
        ConfigType.STRING,
        default="__debezium-heartbeat",
        importance=Importance.LOW,
        group="Heartbeats",
        documentation="What the topic of heartbeats begins with; . and topic.prefix follow.",
        validator=Matches(r"[A-Za-z0-9._-]+", "letters, digits, . _ and -"),
    ),
    ConfigKey(
        HEARTBEAT_QUERY,
        ConfigType.STRING,
        default=None,
        importance=Importance.LOW,
        group="Heartbeats",
        documentation="A statement that is run with each heartbeat, in its own transaction, such "
        "as an UPDATE of a table that is followed.",
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
    """The tables that there are and that the settings ask for.

    Raises:
        ServerError: two cannot be told apart by their names.
    """
    from drover.connectors.postgres.server import ServerError, tables_of

    wanted = [each for each in tables_of(connection) if is_wanted(each.schema, each.id, config)]
    for name, count in Counter(each.id for each in wanted).items():
        if count > 1:
            raise ServerError(
                f"{count} tables are called {name}, as names have dots in them: leave one out by "
                f"{SCHEMA_EXCLUDE}, or rename one"
            )
    return wanted


def is_column_wanted(column: str, include: Sequence[str] | None, exclude: Sequence[str]) -> bool:
    """Whether the lists take a column, which is named ``schema.table.column``."""
    if include and not any(re.fullmatch(each, column) for each in include):
        return False
    return not any(re.fullmatch(each, column) for each in exclude)


def key_columns(config: Mapping[str, Any], table: str) -> tuple[str, ...] | None:
    """The columns that message.key.columns names for a table; None where it names none."""
    for pattern, columns in key_rules(config.get(KEY_COLUMNS)):
        if re.fullmatch(pattern, table):
            return columns
    return None


def is_wanted(schema: str, table: str, config: Mapping[str, Any]) -> bool:
    """Whether the lists take a table, which is named ``schema.table``."""
    for include, exclude, name in (
        (SCHEMA_INCLUDE, SCHEMA_EXCLUDE, schema),
        (TABLE_INCLUDE, TABLE_EXCLUDE, table),
    ):
        included, excluded = config.get(include), config.get(exclude) or ()
        if included and not any(re.fullmatch(each, name) for each in included):
            return False
        if any(re.fullmatch(each, name) for each in excluded):
            return False
    return True
