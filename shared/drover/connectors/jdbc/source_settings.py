"""The settings of JdbcSource, with the names of Confluent's JDBC source."""

import zoneinfo
from collections.abc import Iterator, Mapping
from typing import Any

from drover.connector import (
    TOPIC_NAME,
    Check,
    ConfigDef,
    ConfigKey,
    ConfigType,
    Importance,
    InRange,
    OneOf,
    Violation,
    pattern_fault,
    visible_when,
)
from drover.connectors.jdbc.database import CONNECTION_SETTINGS

MODE = "mode"
INCREMENTING_COLUMN = "incrementing.column.name"
INCREMENTING_DELAY_MS = "incrementing.delay.interval.ms"
TIMESTAMP_COLUMN = "timestamp.column.name"
TIMESTAMP_DELAY_MS = "timestamp.delay.interval.ms"
TIMESTAMP_INITIAL = "timestamp.initial"
TABLE_WHITELIST = "table.whitelist"
TABLE_BLACKLIST = "table.blacklist"
TABLE_PATTERN = "table.pattern"
TABLE_TYPES = "table.types"
SCHEMA_PATTERN = "schema.pattern"
QUERY = "query"
TOPIC_PREFIX = "topic.prefix"
POLL_INTERVAL_MS = "poll.interval.ms"
TABLE_POLL_INTERVAL_MS = "table.poll.interval.ms"
BATCH_MAX_ROWS = "batch.max.rows"
NUMERIC_MAPPING = "numeric.mapping"
TINYINT1_MAPPING = "tinyint1.mapping"
VALIDATE_NON_NULL = "validate.non.null"
DB_TIMEZONE = "db.timezone"
KEY = "key"
QUALIFY_TOPICS = "topic.names.qualify"
#: The tables of a task, as a JSON list of (schema or null, name).
TASK_TABLES = "task.tables"
TableName = tuple[str | None, str]

#: Values of table.types; tables include partitioned ones, views include materialized ones.
TABLE, PARTITIONED_TABLE, VIEW = "TABLE", "PARTITIONED TABLE", "VIEW"
BULK, INCREMENTING, TIMESTAMP, BOTH = "bulk", "incrementing", "timestamp", "timestamp+incrementing"
TINYINT1_MAPPINGS = ("number", "boolean")
NUMERIC_MAPPINGS = ("none", "precision_only", "best_fit", "best_fit_eager_double")


def contradictions(config: Mapping[str, Any]) -> Iterator[Violation]:
    """Settings that contradict each other."""
    mode = config.get(MODE)
    if mode in (INCREMENTING, BOTH) and not config.get(INCREMENTING_COLUMN):
        yield Violation(INCREMENTING_COLUMN, f"is required with {MODE}={mode}")
    if mode in (TIMESTAMP, BOTH) and not config.get(TIMESTAMP_COLUMN):
        yield Violation(TIMESTAMP_COLUMN, f"is required with {MODE}={mode}")
    if config.get(QUERY):
        for each in (TABLE_WHITELIST, TABLE_BLACKLIST, TABLE_PATTERN):
            if config.get(each):
                yield Violation(each, f"must not be set together with {QUERY}")


def _zone_fault(name: str) -> str | None:
    try:
        zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return "must be a time zone, such as UTC or Europe/Berlin"
    return None


def _types_fault(names: list[str]) -> str | None:
    known = (TABLE, PARTITIONED_TABLE, VIEW)
    unknown = [each for each in names if each.strip().upper() not in known]
    if unknown or not names:
        told = f", not {unknown[0]}" if unknown else ""
        return f"must be one or more of {', '.join(known)}{told}"
    return None


SOURCE_SETTINGS = CONNECTION_SETTINGS | ConfigDef(
    ConfigKey(
        MODE,
        ConfigType.STRING,
        importance=Importance.HIGH,
        group="Mode",
        documentation="How new rows are found.",
        validator=OneOf(BULK, INCREMENTING, TIMESTAMP, BOTH),
    ),
    ConfigKey(
        INCREMENTING_COLUMN,
        ConfigType.STRING,
        default=None,
        importance=Importance.MEDIUM,
        group="Mode",
        documentation="The column that only increases: a new row has a higher number.",
        recommender=visible_when(MODE, INCREMENTING, BOTH),
    ),
    ConfigKey(
        INCREMENTING_DELAY_MS,
        ConfigType.LONG,
        default=None,
        importance=Importance.MEDIUM,
        group="Mode",
        documentation="How long to wait for a row that may fill a gap in the numbers because it "
        "is committed late, in addition to the transactions that write the table, which a "
        "PostgreSQL primary shows; by default 5000 with MySQL, MariaDB and standbys, else 0.",
        validator=InRange(0),
        recommender=visible_when(MODE, INCREMENTING, BOTH),
    ),
    ConfigKey(
        TIMESTAMP_COLUMN,
        ConfigType.LIST,
        default=None,
        importance=Importance.MEDIUM,
        group="Mode",
        documentation="The column with the time of a row's last change; if several, the first "
        "that is not null.",
        recommender=visible_when(MODE, TIMESTAMP, BOTH),
    ),
    ConfigKey(
        TIMESTAMP_DELAY_MS,
        ConfigType.LONG,
        default=0,
        importance=Importance.HIGH,
        group="Mode",
        documentation="The minimum age of a row, so that rows of transactions that commit late "
        "are not missed: set it above the longest transaction.",
        validator=InRange(0),
        recommender=visible_when(MODE, TIMESTAMP, BOTH),
    ),
    ConfigKey(
        TIMESTAMP_INITIAL,
        ConfigType.LONG,
        default=None,
        importance=Importance.LOW,
        group="Mode",
        documentation="Where to start, in milliseconds since 1970; -1 for now.",
        validator=InRange(-1),
        recommender=visible_when(MODE, TIMESTAMP, BOTH),
    ),
    ConfigKey(
        VALIDATE_NON_NULL,
        ConfigType.BOOLEAN,
        default=True,
        importance=Importance.LOW,
        group="Mode",
        documentation="Reject tables with a nullable incrementing or timestamp column; rows with "
        "null in it are never read.",
        recommender=visible_when(MODE, INCREMENTING, TIMESTAMP, BOTH),
    ),
    ConfigKey(
        TABLE_WHITELIST,
        ConfigType.LIST,
        default=None,
        importance=Importance.MEDIUM,
        group="Tables",
        documentation="The tables, as name or schema.name; by default all.",
    ),
    ConfigKey(
        TABLE_BLACKLIST,
        ConfigType.LIST,
        default=None,
        importance=Importance.MEDIUM,
        group="Tables",
        documentation="Tables to exclude, as name or schema.name.",
    ),
    ConfigKey(
        TABLE_PATTERN,
        ConfigType.STRING,
        default=None,
        importance=Importance.MEDIUM,
        group="Tables",
        documentation="A regular expression (Java syntax) that must match the whole name or "
        "schema.name of a table.",
        validator=Check(pattern_fault),
    ),
    ConfigKey(
        TABLE_TYPES,
        ConfigType.LIST,
        default=[TABLE],
        importance=Importance.LOW,
        group="Tables",
        documentation="What is read: tables (TABLE, with partitioned ones), only partitioned ones "
        "(PARTITIONED TABLE), views (VIEW, also materialized ones), or several of these.",
        validator=Check(_types_fault),
    ),
    ConfigKey(
        SCHEMA_PATTERN,
        ConfigType.STRING,
        default=None,
        importance=Importance.LOW,
        group="Tables",
        documentation="The schema for names without one; by default the user's.",
    ),
    ConfigKey(
        TABLE_POLL_INTERVAL_MS,
        ConfigType.LONG,
        default=60_000,
        importance=Importance.LOW,
        group="Tables",
        documentation="How often to check for new tables, which are assigned to tasks "
        "automatically.",
        validator=InRange(100),
    ),
    ConfigKey(
        QUERY,
        ConfigType.STRING,
        default=None,
        importance=Importance.MEDIUM,
        group="Tables",
        documentation="A SELECT instead of tables, not on a standby; topic.prefix is the topic "
        "for its rows.",
    ),
    ConfigKey(
        TOPIC_PREFIX,
        ConfigType.STRING,
        importance=Importance.HIGH,
        group="Topics",
        documentation="The prefix of topic names; the table's name follows, with _ for each "
        "character that topics cannot have.",
        validator=TOPIC_NAME,
    ),
    ConfigKey(
        QUALIFY_TOPICS,
        ConfigType.BOOLEAN,
        default=False,
        importance=Importance.LOW,
        group="Topics",
        documentation="Whether the topics of tables that are named with a schema have the schema "
        "as well: PREFIXschema.table.",
    ),
    ConfigKey(
        KEY,
        ConfigType.LIST,
        default=None,
        importance=Importance.MEDIUM,
        group="Topics",
        documentation="The columns of a record's key: a single one is the key itself, several "
        "become a struct.",
    ),
    ConfigKey(
        POLL_INTERVAL_MS,
        ConfigType.INT,
        default=5_000,
        importance=Importance.HIGH,
        group="Reading",
        documentation="How long to wait after finding no new rows in a table, and between two "
        "reads in bulk mode.",
        validator=InRange(1),
    ),
    ConfigKey(
        BATCH_MAX_ROWS,
        ConfigType.INT,
        default=None,
        importance=Importance.LOW,
        group="Reading",
        documentation="The most rows per batch; by default batch.max.records. Fewer if rows are "
        "large (batch.max.bytes).",
        validator=InRange(1),
    ),
    ConfigKey(
        NUMERIC_MAPPING,
        ConfigType.STRING,
        default="none",
        importance=Importance.LOW,
        group="Reading",
        documentation="NUMERIC columns as exact decimals (none), as integers if the scale is 0 "
        "(precision_only), or also as floating point (best_fit, best_fit_eager_double). Columns "
        "without a precision become text.",
        validator=OneOf(*NUMERIC_MAPPINGS),
    ),
    ConfigKey(
        TINYINT1_MAPPING,
        ConfigType.STRING,
        default="number",
        importance=Importance.LOW,
        group="Reading",
        documentation="TINYINT(1) columns of MySQL and MariaDB, which are also their BOOLEAN, as "
        "numbers, or as booleans: then another value than 0 and 1 is an error of its record.",
        validator=OneOf(*TINYINT1_MAPPINGS),
    ),
    ConfigKey(
        DB_TIMEZONE,
        ConfigType.STRING,
        default="UTC",
        importance=Importance.MEDIUM,
        group="Reading",
        documentation="The time zone of timestamp columns without one. Of an hour that it repeats, "
        "mode=timestamp reads the rows twice.",
        validator=Check(_zone_fault),
    ),
)
