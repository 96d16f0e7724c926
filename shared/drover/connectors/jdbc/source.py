"""JdbcSource: the rows of tables, new ones and changed ones."""

import json
import logging
import re
import threading
import time
import zoneinfo
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar

from drover.connector import (
    REPLAYED,
    ArrowRows,
    Check,
    ConfigDef,
    ConfigKey,
    ConfigType,
    ConnectorContext,
    Importance,
    InRange,
    NonEmpty,
    OffsetChange,
    OffsetForm,
    OneOf,
    SourceBatch,
    SourceConnector,
    SourceTask,
    SourceTaskContext,
    Violation,
)
from drover.connectors.jdbc.database import (
    CONNECTION_SETTINGS,
    URL,
    LookFailedError,
    address_of,
    looking_at,
    telling,
)
from drover.connectors.offset_changes import refuse_misshapen
from drover.connectors.stand_ins import JDBC_SOURCE

if TYPE_CHECKING:
    import sqlalchemy as sa

    from drover.connectors.jdbc.columns import Column
    from drover.connectors.jdbc.table_plan import RowsBetween, TablePlanner, TableSource

MODE = "mode"
INCREMENTING_COLUMN = "incrementing.column.name"
TIMESTAMP_COLUMN = "timestamp.column.name"
TIMESTAMP_DELAY_MS = "timestamp.delay.interval.ms"
TIMESTAMP_INITIAL = "timestamp.initial"
TABLE_WHITELIST = "table.whitelist"
TABLE_BLACKLIST = "table.blacklist"
TABLE_PATTERN = "table.pattern"
SCHEMA_PATTERN = "schema.pattern"
QUERY = "query"
TOPIC_PREFIX = "topic.prefix"
POLL_INTERVAL_MS = "poll.interval.ms"
TABLE_POLL_INTERVAL_MS = "table.poll.interval.ms"
BATCH_MAX_ROWS = "batch.max.rows"
NUMERIC_MAPPING = "numeric.mapping"
VALIDATE_NON_NULL = "validate.non.null"
DB_TIMEZONE = "db.timezone"
KEY = "key"
#: Which tables a task has, as a JSON list of (schema or null, name).
TASK_TABLES = "task.tables"

BULK, INCREMENTING, TIMESTAMP, BOTH = "bulk", "incrementing", "timestamp", "timestamp+incrementing"
NUMERIC_MAPPINGS = ("none", "precision_only", "best_fit", "best_fit_eager_double")
_WATCH_FAILURES_LOGGED = 1

TableName = tuple[str | None, str]

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PartReader:
    """Reads parts of a plan; for ArrowRows."""

    parts: "tuple[RowsBetween, ...]"

    def __call__(self, number: int) -> Iterator[Any]:
        """The rows of one part, in order."""
        return self.parts[number].read()


class JdbcSourceTask(SourceTask):
    """Reads its tables in turn, each batch from one of them."""

    def start(self, context: SourceTaskContext) -> None:
        """Look at the tables, and take up each where its committed offset says."""
        config = context.config
        self._context = context
        self._address = address_of(config)
        self._interval_s = config[POLL_INTERVAL_MS] / 1000
        looking = telling(self._address, "looking at the tables")
        with looking, self._address.connected() as connection:
            sources = _sources(connection, config)
            self._planners = [self._planner(each) for each in sources]
        #: When each table is looked at again.
        self._due_s = [0.0] * len(self._planners)
        self._next = 0

    def poll(self) -> SourceBatch | None:
        """The next rows of the first table that has some."""
        now_s = time.monotonic()
        count = len(self._planners)
        turns = [(self._next + each) % count for each in range(count)]
        due = [each for each in turns if self._due_s[each] <= now_s]
        if not due:
            return None
        rows_max = self._context.config[BATCH_MAX_ROWS] or self._context.config["batch.max.records"]
        spark = self._context.spark
        looking = telling(self._address, "looking for new rows")
        with looking, self._address.connected() as connection:
            for index in due:
                planner = self._planners[index]
                plan = planner.plan(connection, rows_max, spark.sparkContext.defaultParallelism)
                if plan is None or not plan.offset:
                    self._due_s[index] = now_s + self._interval_s
                if plan is not None:
                    break
            else:
                return None
        self._next = index + 1
        planner.advance(plan.offset)
        source = planner.source
        config = self._context.config
        return SourceBatch.table(
            ArrowRows(spark, PartReader(plan.parts), len(plan.parts), None),
            [(_partition_of(source), plan.offset)] if plan.offset else [],
            topic=config[TOPIC_PREFIX] + ("" if source.query else source.name),
            key=_key_of(config[KEY]),
        )

    def _planner(self, source: "TableSource") -> "TablePlanner":
        from drover.connectors.jdbc.table_plan import TablePlanner

        config = self._context.config
        initial = config[TIMESTAMP_INITIAL]
        moment = None
        if initial is not None:
            moment = datetime.now(UTC) if initial == -1 else _from_ms(initial)
        return TablePlanner(
            self._address,
            source,
            config[MODE],
            self._context.offset(_partition_of(source)) or {},
            delay_ms=config[TIMESTAMP_DELAY_MS],
            initial=moment,
        )


class JdbcSource(SourceConnector):
    """Reads tables of PostgreSQL, MySQL, MariaDB or SQLite: each row a record.

    ``mode`` says how new rows are found: ``incrementing`` by a column that only grows,
    ``timestamp`` by one that says when a row was changed last, ``timestamp+incrementing`` by both,
    ``bulk`` reads everything each time. The settings have the names of Confluent's JDBC source.

    What these modes cannot see: rows that were deleted; and with ``incrementing`` rows whose number
    is lower than one that was committed before them (give numbers under a lock, or read by time
    with a delay). With ``timestamp`` alone rows of the same time as the last one read are lost if
    they are committed later: set ``timestamp.delay.interval.ms`` above the longest transaction.

    Each table is a source partition ``{"table": name}``; a query is ``{"query": text}``. Every row
    is read at least once, into embedded topics exactly once.
    """

    version = "0.1.0"
    aliases = ("JdbcSource", "io.confluent.connect.jdbc.JdbcSourceConnector")
    other_settings = JDBC_SOURCE
    guarantees = REPLAYED
    offset_forms = (OffsetForm({"table": str}), OffsetForm({"query": str}))
    structured: ClassVar[bool] = True
    task_class = JdbcSourceTask

    def __init__(self) -> None:
        self._config: Mapping[str, Any] = {}
        self._tables: list[TableName] = []
        self._stopping = threading.Event()

    @classmethod
    def config_def(cls) -> ConfigDef:
        """See the documentation of each key."""
        return CONNECTION_SETTINGS | ConfigDef(
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
                documentation="The column that grows with each row.",
            ),
            ConfigKey(
                TIMESTAMP_COLUMN,
                ConfigType.LIST,
                default=None,
                importance=Importance.MEDIUM,
                group="Mode",
                documentation="The column that says when a row was changed; of several the first "
                "that is not null.",
            ),
            ConfigKey(
                TIMESTAMP_DELAY_MS,
                ConfigType.LONG,
                default=0,
                importance=Importance.HIGH,
                group="Mode",
                documentation="How old a row has to be, so that rows of transactions which are "
                "committed late are not missed.",
                validator=InRange(0),
            ),
            ConfigKey(
                TIMESTAMP_INITIAL,
                ConfigType.LONG,
                default=None,
                importance=Importance.LOW,
                group="Mode",
                documentation="Where to begin, in milliseconds since 1970; -1 for now.",
                validator=InRange(-1),
            ),
            ConfigKey(
                VALIDATE_NON_NULL,
                ConfigType.BOOLEAN,
                default=True,
                importance=Importance.LOW,
                group="Mode",
                documentation="Refuse tables whose incrementing or timestamp column may be null; "
                "rows in which it is are never read.",
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
                documentation="Tables to leave out, as name or schema.name.",
            ),
            ConfigKey(
                TABLE_PATTERN,
                ConfigType.STRING,
                default=None,
                importance=Importance.MEDIUM,
                group="Tables",
                documentation="A regular expression for the whole name or schema.name of tables.",
                validator=Check(_pattern_fault),
            ),
            ConfigKey(
                SCHEMA_PATTERN,
                ConfigType.STRING,
                default=None,
                importance=Importance.LOW,
                group="Tables",
                documentation="The schema of the tables; by default the one that the user has.",
            ),
            ConfigKey(
                TABLE_POLL_INTERVAL_MS,
                ConfigType.LONG,
                default=60_000,
                importance=Importance.LOW,
                group="Tables",
                documentation="How often to look for new tables.",
                validator=InRange(100),
            ),
            ConfigKey(
                QUERY,
                ConfigType.STRING,
                default=None,
                importance=Importance.MEDIUM,
                group="Tables",
                documentation="A SELECT in place of tables; its rows go to the topic that "
                "topic.prefix names.",
            ),
            ConfigKey(
                TOPIC_PREFIX,
                ConfigType.STRING,
                importance=Importance.HIGH,
                group="Topics",
                documentation="What the topic of a table begins with; its name follows.",
                validator=NonEmpty(),
            ),
            ConfigKey(
                KEY,
                ConfigType.LIST,
                default=None,
                importance=Importance.MEDIUM,
                group="Topics",
                documentation="The columns that make a record's key: one is the key itself, "
                "several are its fields.",
            ),
            ConfigKey(
                POLL_INTERVAL_MS,
                ConfigType.INT,
                default=5_000,
                importance=Importance.HIGH,
                group="Reading",
                documentation="How long to wait before a table that had no new rows is looked at "
                "again, and between two reads of everything.",
                validator=InRange(1),
            ),
            ConfigKey(
                BATCH_MAX_ROWS,
                ConfigType.INT,
                default=None,
                importance=Importance.LOW,
                group="Reading",
                documentation="Rows of a batch; by default batch.max.records.",
                validator=InRange(1),
            ),
            ConfigKey(
                NUMERIC_MAPPING,
                ConfigType.STRING,
                default="none",
                importance=Importance.LOW,
                group="Reading",
                documentation="NUMERIC columns as exact decimals (none), as integers where they "
                "have no fraction (precision_only), or as floating point too (best_fit, "
                "best_fit_eager_double). Those without a precision are text.",
                validator=OneOf(*NUMERIC_MAPPINGS),
            ),
            ConfigKey(
                DB_TIMEZONE,
                ConfigType.STRING,
                default="UTC",
                importance=Importance.MEDIUM,
                group="Reading",
                documentation="The zone of timestamp columns that have none.",
                validator=Check(_zone_fault),
            ),
        )

    @classmethod
    def validate(cls, config: Mapping[str, Any]) -> Sequence[Violation]:
        """Whether the settings fit together, and what the server says of them."""
        faults = list(_contradictions(config))
        if not faults and all(each in config for each in (URL, MODE, TOPIC_PREFIX)):
            try:
                with looking_at(address_of(config), faults) as connection:
                    faults += _server_faults(connection, config)
            except LookFailedError:
                pass
        return faults

    @classmethod
    def alter_offsets(cls, config: Mapping[str, Any], changes: Sequence[OffsetChange]) -> bool:
        """Nothing is kept elsewhere."""
        counts = {
            BULK: (),
            INCREMENTING: ("incrementing",),
            TIMESTAMP: ("timestamp",),
            BOTH: ("timestamp", "incrementing"),
        }[config[MODE]]
        partition = {"query": str} if config[QUERY] else {"table": str}
        refuse_misshapen(changes, partition=partition, counts=counts)
        return True

    def start(self, context: ConnectorContext, config: Mapping[str, Any]) -> None:
        """Find the tables, and begin to look for new ones."""
        self._config = config
        if config[QUERY]:
            return
        self._tables = self._find()
        threading.Thread(
            target=self._watch, args=(context,), name="jdbc-tables", daemon=True
        ).start()

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        """The tables dealt out in turn; one task for a query."""
        if self._config[QUERY]:
            return [{}]
        count = min(max_tasks, len(self._tables))
        return [{TASK_TABLES: json.dumps(self._tables[each::count])} for each in range(count)]

    def stop(self) -> None:
        """Look for no more tables."""
        self._stopping.set()

    def _find(self) -> list[TableName]:
        address = address_of(self._config)
        with telling(address, "looking for tables"), address.connected() as connection:
            return wanted_tables(connection, self._config)

    def _watch(self, context: ConnectorContext) -> None:
        """Ask for new tasks when tables came or went; a server that is away is asked again."""
        failures = 0
        while not self._stopping.wait(self._config[TABLE_POLL_INTERVAL_MS] / 1000):
            try:
                found = self._find()
            except Exception as error:  # noqa: BLE001 - any of a driver: tasks tell of it as well
                failures += 1
                if failures == _WATCH_FAILURES_LOGGED:
                    _log.warning("new tables cannot be looked for: %s", type(error).__name__)
                continue
            failures = 0
            if found != self._tables:
                self._tables = found
                context.request_reconfiguration()


def wanted_tables(connection: "sa.Connection", config: Mapping[str, Any]) -> list[TableName]:
    """The tables that there are and that the settings ask for, in order."""
    import sqlalchemy as sa

    inspector = sa.inspect(connection)
    whitelist, blacklist = config.get(TABLE_WHITELIST), config.get(TABLE_BLACKLIST) or ()
    schemas: set[str | None] = {config.get(SCHEMA_PATTERN) or None}
    named = [each.rpartition(".")[0] for each in (*(whitelist or ()), *blacklist)]
    known = set(inspector.get_schema_names())
    schemas |= {each for each in named if each in known}
    pattern = config.get(TABLE_PATTERN)
    found: dict[str, TableName] = {}
    for schema in sorted(schemas, key=lambda each: each or ""):
        for name in sorted(inspector.get_table_names(schema)):
            names = {name, f"{schema}.{name}" if schema else name}
            listed = whitelist is None or names & set(whitelist)
            matched = pattern is None or any(re.fullmatch(pattern, each) for each in names)
            if listed and matched and not names & set(blacklist):
                found[f"{schema}.{name}"] = (schema, name)
    return list(found.values())


def _sources(connection: "sa.Connection", config: Mapping[str, Any]) -> "list[TableSource]":
    """What a task reads."""
    import sqlalchemy as sa

    from drover.connectors.jdbc.table_plan import TableSource, reflected

    mode = config[MODE]

    def source(
        name: str, schema: str | None, columns: "tuple[Column, ...]", query: str | None = None
    ) -> TableSource:
        return TableSource(
            name,
            schema,
            columns,
            incrementing=config[INCREMENTING_COLUMN] if mode in (INCREMENTING, BOTH) else None,
            timestamps=tuple(config[TIMESTAMP_COLUMN]) if mode in (TIMESTAMP, BOTH) else (),
            zone=zoneinfo.ZoneInfo(config[DB_TIMEZONE]),
            query=query,
        )

    mapping = config[NUMERIC_MAPPING]
    if config[QUERY]:
        query = config[QUERY].strip().rstrip(";")
        # a view of it has the types of its columns; it is gone with the connection
        connection.execute(sa.text(f"CREATE TEMPORARY VIEW drover_query AS {query}"))
        columns = reflected(connection, "drover_query", None, mapping)
        connection.rollback()
        return [source("query", None, columns, query)]
    return [
        source(name, schema, reflected(connection, name, schema, mapping))
        for schema, name in json.loads(config[TASK_TABLES])
    ]


def _partition_of(source: "TableSource") -> dict[str, str]:
    return {"query": source.query} if source.query else {"table": source.id}


def _contradictions(config: Mapping[str, Any]) -> Iterator[Violation]:
    mode = config.get(MODE)
    if mode in (INCREMENTING, BOTH) and not config.get(INCREMENTING_COLUMN):
        yield Violation(INCREMENTING_COLUMN, f"is required with {MODE}={mode}")
    if mode in (TIMESTAMP, BOTH) and not config.get(TIMESTAMP_COLUMN):
        yield Violation(TIMESTAMP_COLUMN, f"is required with {MODE}={mode}")
    if config.get(QUERY):
        for each in (TABLE_WHITELIST, TABLE_BLACKLIST, TABLE_PATTERN):
            if config.get(each):
                yield Violation(each, f"must not be set beside {QUERY}")


def _server_faults(connection: "sa.Connection", config: Mapping[str, Any]) -> Iterable[Violation]:
    """What the tables lack that the settings name."""
    import sqlalchemy as sa

    from drover.connectors.jdbc.database import reason_of

    if config.get(QUERY):
        text = config[QUERY].strip().rstrip(";")
        try:
            connection.execute(sa.text(f"SELECT * FROM ({text}) AS query WHERE 1 = 0"))
        except sa.exc.SQLAlchemyError as error:
            yield Violation(QUERY, reason_of(error))
        return
    tables = wanted_tables(connection, config)
    present = {name for _, name in tables} | {f"{schema}.{name}" for schema, name in tables}
    for each in config.get(TABLE_WHITELIST) or ():
        if each not in present:
            yield Violation(TABLE_WHITELIST, f"there is no table {each!r}")
    inspector = sa.inspect(connection)
    for schema, name in tables:
        columns = {each["name"]: each for each in inspector.get_columns(name, schema)}
        yield from _column_faults(name, columns, config)


def _column_faults(
    table: str, columns: Mapping[str, Any], config: Mapping[str, Any]
) -> Iterator[Violation]:
    mode = config[MODE]
    wanted: list[tuple[str, str]] = []
    if mode in (INCREMENTING, BOTH):
        wanted.append((INCREMENTING_COLUMN, config[INCREMENTING_COLUMN]))
    times = config.get(TIMESTAMP_COLUMN) or [] if mode in (TIMESTAMP, BOTH) else []
    wanted += [(TIMESTAMP_COLUMN, each) for each in times]
    wanted += [(KEY, each) for each in config.get(KEY) or ()]
    for setting, name in wanted:
        if name not in columns:
            yield Violation(setting, f"table {table!r} has no column {name!r}")
    if not config.get(VALIDATE_NON_NULL, True):
        return
    incrementing = str(config.get(INCREMENTING_COLUMN)) if mode in (INCREMENTING, BOTH) else ""
    if incrementing in columns and columns[incrementing].get("nullable", True):
        primary = columns[incrementing].get("primary_key")
        if not primary:
            yield _nullable(INCREMENTING_COLUMN, table, incrementing)
    known = [each for each in times if each in columns]
    if known and all(columns[each].get("nullable", True) for each in known):
        yield _nullable(TIMESTAMP_COLUMN, table, known[0])


def _nullable(setting: str, table: str, column: str | None) -> Violation:
    text = (
        f"column {column!r} of table {table!r} may be null, and such rows are never read: make it "
        f"NOT NULL, or set {VALIDATE_NON_NULL} to false"
    )
    return Violation(setting, text)


def _pattern_fault(pattern: str) -> str | None:
    try:
        re.compile(pattern)
    except re.error as error:
        return f"must be a regular expression: {error}"
    return None


def _zone_fault(name: str) -> str | None:
    try:
        zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return "must be a time zone, such as UTC or Europe/Berlin"
    return None


def _from_ms(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def _key_of(names: Sequence[str] | None) -> str | list[str] | None:
    if not names:
        return None
    return names[0] if len(names) == 1 else list(names)
