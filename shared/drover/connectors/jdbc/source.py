"""JdbcSource: reads new and changed rows of tables."""

import json
import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar

from drover.connector import (
    REPLAYED,
    TOLERANCE,
    ArrowRows,
    ConfigDef,
    ConnectorContext,
    OffsetChange,
    OffsetForm,
    SnapshotProgress,
    SourceBatch,
    SourceConnector,
    SourceTask,
    SourceTaskContext,
    Violation,
    core_count,
)
from drover.connector.records import ERROR_COLUMN
from drover.connectors.aliases import JDBC_SOURCE
from drover.connectors.jdbc.database import (
    DatabaseAddress,
    LookFailedError,
    address_of,
    checked_connection,
    translated_errors,
)
from drover.connectors.jdbc.source_settings import (
    BATCH_MAX_ROWS,
    BOTH,
    BULK,
    INCREMENTING,
    INCREMENTING_DELAY_MS,
    KEY,
    MODE,
    POLL_INTERVAL_MS,
    QUERY,
    SOURCE_SETTINGS,
    TABLE_POLL_INTERVAL_MS,
    TASK_TABLES,
    TIMESTAMP,
    TIMESTAMP_DELAY_MS,
    TIMESTAMP_INITIAL,
    TableName,
    contradictions,
)
from drover.connectors.jdbc.table_topics import topic_faults, topic_of
from drover.connectors.offset_changes import refuse_misshapen

# import the database libraries only where they are used
if TYPE_CHECKING:
    import sqlalchemy as sa

    from drover.connectors.jdbc.reading import RowsBetween, TableSource
    from drover.connectors.jdbc.table_plan import Plan, TablePlanner

_WATCH_FAILURES_LOGGED = 1
#: The minimum size that a row counts, because a record is larger than its values.
_ROW_BYTES_MIN = 512

_log = logging.getLogger(__name__)


class TopicsError(Exception):
    """Tables cannot be written to topics; the message has the reasons."""


#: The last offset of each connector's table that was not yet committed, in this process.
_UNFINISHED: dict[tuple[str, str], Mapping[str, Any]] = {}


def _good_rows(plan: "Plan") -> int:
    """The number of rows before the first one with a bad value; 0 if all are good."""
    count = 0
    for part in plan.parts:
        for batch in part.read():
            if ERROR_COLUMN in batch.schema.names:
                faults = batch.column(ERROR_COLUMN).is_valid().to_pylist()
                return count + int(faults.index(True))
            count += batch.num_rows
    return 0


@dataclass(frozen=True)
class PartReader:
    """Reads parts of a plan; for ArrowRows."""

    parts: "tuple[RowsBetween, ...]"

    def __call__(self, number: int) -> Iterator[Any]:
        """The rows of one part, in order."""
        return self.parts[number].read()


class JdbcSourceTask(SourceTask):
    """Reads its tables in rotation, one table per batch."""

    reads_ahead: ClassVar[bool] = True

    def start(self, context: SourceTaskContext) -> None:
        """Inspect the tables, and resume each at its committed offset."""
        from drover.connectors.jdbc.catalogue import sources_of
        from drover.connectors.jdbc.reading import KeptSession

        config = context.config
        self._context = context
        self._address = _address_of(config)
        self._session = KeptSession(self._address)
        self._interval_s = config[POLL_INTERVAL_MS] / 1000
        self._planners: list[TablePlanner] = []
        #: Tables whose last batch was not committed: the rows before a bad one are read first.
        self._failed_before: dict[str, bool] = {}
        looking = translated_errors(self._address, "inspecting the tables")
        with looking, self._address.connected() as connection:
            self._planners += map(self._planner, sources_of(connection, config))
        if config[TOLERANCE] == "none":
            names = [each.source.id for each in self._planners]
            connector = context.task.connector
            self._failed_before = {name: (connector, name) in _UNFINISHED for name in names}
        #: When each table is checked next.
        self._due_s = [0.0] * len(self._planners)
        self._next = 0
        #: The table that is being read completely.
        self._bulk = ""

    def poll(self) -> SourceBatch | None:
        """The next rows of the first table that has new ones."""
        for each in self._planners:
            each.batch_done()
        now_s = time.monotonic()
        count = len(self._planners)
        turns = [(self._next + each) % count for each in range(count)]
        due = [each for each in turns if self._due_s[each] <= now_s]
        if not due:
            self._end_bulk()
            self._session.close()
            return None
        spark = self._context.spark
        looking = translated_errors(self._address, "reading new rows")
        with looking, self._session.use() as connection:
            for index in due:
                planner = self._planners[index]
                rows_max = self._rows_max(planner.source)
                cores = core_count(spark.sparkContext)
                plan = planner.plan(connection, rows_max, cores)
                if plan is not None and self._failed_before.pop(planner.source.id, False):
                    count = _good_rows(plan)
                    plan = planner.plan(connection, count, cores) if count else plan
                if plan is None or not plan.more:
                    self._due_s[index] = now_s + self._interval_s
                if plan is not None:
                    self._report_bulk(connection, planner.source, len(due), more=plan.more)
                    break
        if plan is None:
            self._end_bulk()
            self._session.close()
            return None
        # read all of a table, as of one snapshot, before the next table
        self._next = index if plan.more and self._context.config[MODE] == BULK else index + 1
        planner.advance(plan.offset)
        source = planner.source
        if plan.offset:
            _UNFINISHED[self._context.task.connector, source.id] = plan.offset
        config = self._context.config
        return SourceBatch.table(
            ArrowRows(spark, PartReader(plan.parts), len(plan.parts), None),
            [(_partition_of(source), plan.offset)] if plan.offset else [],
            topic=topic_of(config, (source.schema, source.name)),
            key=_key_of(config[KEY]),
        )

    def committed(
        self, offsets: Sequence[tuple[Mapping[str, Any], Mapping[str, Any] | None]]
    ) -> None:
        """Note that these batches did not fail."""
        for partition, offset in offsets:
            for name in partition.values():
                of_table = (self._context.task.connector, "query" if "query" in partition else name)
                if _UNFINISHED.get(of_table) == offset:
                    del _UNFINISHED[of_table]

    def stop(self) -> None:
        """Release sessions and locks on tables."""
        if hasattr(self, "_session"):
            self._session.close()
        for each in getattr(self, "_planners", ()):
            each.close()

    def _report_bulk(
        self, connection: "sa.Connection", source: "TableSource", due_count: int, *, more: bool
    ) -> None:
        """Report the table that is being read completely."""
        from drover.connectors.jdbc.catalogue import estimated_rows

        if self._context.config[MODE] != BULK:
            return
        if self._bulk != source.id:
            self._end_bulk()
            count = estimated_rows(connection, source)
            self._context.report_snapshot(SnapshotProgress(source.id, count, due_count))
        self._bulk = source.id if more else ""

    def _end_bulk(self) -> None:
        self._bulk = ""
        self._context.report_snapshot(None)

    def _rows_max(self, source: "TableSource") -> int:
        config = self._context.config
        rows_max: int = config[BATCH_MAX_ROWS] or config["batch.max.records"]
        bytes_max: int = config["batch.max.bytes"]
        return min(rows_max, max(1, bytes_max // max(source.row_bytes, _ROW_BYTES_MIN)))

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
            gap_delay_ms=config[INCREMENTING_DELAY_MS],
        )


def _address_of(config: Mapping[str, Any]) -> DatabaseAddress:
    """The database to read: a file that is missing is not created, because it would be empty."""
    return replace(address_of(config), must_exist=True)


class JdbcSource(SourceConnector):
    """Reads tables of PostgreSQL, MySQL, MariaDB or SQLite: each row becomes a record.

    ``mode`` selects how new rows are found: ``incrementing`` by a column that only increases,
    ``timestamp`` by a column with the time of the last change, ``timestamp+incrementing`` by both,
    ``bulk`` reads all rows each time. The settings have the names of Confluent's JDBC source.

    These modes do not see deleted rows. With ``incrementing`` a row may be committed after one with
    a higher number; the connector waits for it: on PostgreSQL while a transaction runs that may
    write it, elsewhere for ``incrementing.delay.interval.ms``. With ``timestamp`` set
    ``timestamp.delay.interval.ms`` above the longest transaction.

    Each table is a source partition ``{"table": name}``; a query is ``{"query": text}``. Every row
    is read exactly once, except in the hour that ``db.timezone`` repeats when it puts its clock
    back: ``timestamp`` reads its rows twice, ``timestamp+incrementing`` only if the task restarts
    within the hour, or for more than 10,000 rows of a table.
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
        return SOURCE_SETTINGS

    @classmethod
    def validate(cls, config: Mapping[str, Any]) -> Sequence[Violation]:
        """The settings must not contradict each other."""
        return list(contradictions(config))

    @classmethod
    def check_systems(cls, config: Mapping[str, Any]) -> Sequence[Violation]:
        """The server must accept the settings."""
        faults: list[Violation] = []
        try:
            with checked_connection(_address_of(config), faults) as connection:
                from drover.connectors.jdbc.catalogue import server_faults

                faults += server_faults(connection, config)
        except LookFailedError:
            pass
        return faults

    @classmethod
    def alter_offsets(cls, config: Mapping[str, Any], changes: Sequence[OffsetChange]) -> bool:
        """No state exists outside the offsets."""
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
        """Find the tables, and start to watch for new ones."""
        self._config = config
        if config[QUERY]:
            return
        self._tables = self._find()
        threading.Thread(
            target=self._watch, args=(context,), name="jdbc-tables", daemon=True
        ).start()

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        """The tables, assigned round-robin; one task for a query."""
        if self._config[QUERY]:
            return [{}]
        count = min(max_tasks, len(self._tables))
        return [{TASK_TABLES: json.dumps(self._tables[each::count])} for each in range(count)]

    def stop(self) -> None:
        """Stop watching for tables."""
        self._stopping.set()

    def _find(self) -> list[TableName]:
        from drover.connectors.jdbc.catalogue import wanted_tables

        address = _address_of(self._config)
        with translated_errors(address, "looking for tables"), address.connected() as connection:
            found = wanted_tables(connection, self._config)
        faults = list(topic_faults(self._config, found))
        if faults:
            raise TopicsError("; ".join(faults))
        return found

    def _watch(self, context: ConnectorContext) -> None:
        """Request new task configs when tables were added or removed; retries while the server is
        away.
        """
        failures = 0
        while not self._stopping.wait(self._config[TABLE_POLL_INTERVAL_MS] / 1000):
            try:
                found = self._find()
            except TopicsError as error:
                context.fail(error)
                return
            except Exception as error:  # noqa: BLE001 - noqa: BLE001 - any driver error: tasks report it as well
                failures += 1
                if failures == _WATCH_FAILURES_LOGGED:
                    _log.warning("checking for new tables fails: %s", type(error).__name__)
                continue
            failures = 0
            if found != self._tables:
                self._tables = found
                context.request_reconfiguration()


def _partition_of(source: "TableSource") -> dict[str, str]:
    return {"query": source.query} if source.query else {"table": source.id}


def _from_ms(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def _key_of(names: Sequence[str] | None) -> str | list[str] | None:
    if not names:
        return None
    return names[0] if len(names) == 1 else list(names)
