"""JdbcSink: writes topics to tables."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from drover.connector import (
    ONCE,
    TOLERANCE,
    All,
    Check,
    ConfigDef,
    ConfigKey,
    ConfigType,
    Importance,
    InRange,
    NonEmpty,
    OffsetChange,
    OneOf,
    OverwriteKey,
    PredictedWrite,
    Recommender,
    SinkBatch,
    SinkConnector,
    SinkTask,
    SinkTaskContext,
    SkippedCheck,
    TopicPartition,
    Violation,
    routed_topics,
    visible_when,
)
from drover.connector.records import TOPIC
from drover.connectors.aliases import JDBC_SINK
from drover.connectors.jdbc.database import (
    CONNECTION_SETTINGS,
    URL,
    LookFailedError,
    address_of,
    checked_connection,
    translated_errors,
)
from drover.connectors.jdbc.sink_checks import server_faults
from drover.connectors.jdbc.table_names import format_fault
from drover.connectors.jdbc.write_settings import (
    INSERT,
    KAFKA,
    LOCK_TIMEOUT_MS,
    NONE,
    RECORD_KEY,
    RECORD_VALUE,
    UPDATE,
    UPSERT,
    WriteSettings,
)
from drover.connectors.output_ids import output_ids_of
from drover.connectors.refused_records import reject_refused
from drover.connectors.unavailable import PLACEHOLDER, PLACEHOLDER_KEY, SETTING

INSERT_MODE = "insert.mode"
PK_MODE = "pk.mode"
PK_FIELDS = "pk.fields"
TABLE_FORMAT = "table.name.format"
AUTO_CREATE = "auto.create"
AUTO_EVOLVE = "auto.evolve"
DELETE_ENABLED = "delete.enabled"
FIELDS_WHITELIST = "fields.whitelist"
OFFSETS_TABLE = "offsets.table"
LOCK_TIMEOUT = "lock.timeout.ms"
_UNKNOWN_TOPICS = (
    "the tables and the rights on them: topics.regex selects topics while the connector runs; "
    "topics names them for this check"
)
#: The most refused records of a batch before it is written again without them.
_REFUSED_MAX = 10_000


class JdbcSinkTask(SinkTask):
    """Writes each batch in one transaction."""

    writes_ahead: ClassVar[bool] = True

    def start(self, context: SinkTaskContext) -> None:
        """Create the table of offsets if it is missing."""
        from drover.connectors.jdbc.ledger import make_ledger
        from drover.connectors.jdbc.table_writer import TableWriter

        config = context.config
        self._context = context
        address = address_of(config)
        settings = _write_settings(config)
        if settings.ledger:
            with (
                translated_errors(address, "creating the table of offsets"),
                address.connected() as connection,
            ):
                make_ledger(connection, settings.ledger)
        self._writer = TableWriter(
            address,
            context.task.connector,
            context.claim,
            settings,
            refused_max=_REFUSED_MAX if config[TOLERANCE] == "all" else 1,
        )

    def write(self, batch: SinkBatch) -> str:
        """Write the batch and its offsets. When the database refuses records, reject them and write
        the batch again without them.
        """
        writer = replace(self._writer, output_ids=output_ids_of(batch, self._context))
        while True:
            rows = batch.run_in_arrow(writer, at_once=True)
            refused = reject_refused(batch, rows)
            if not refused:
                return ""
            left_out = writer.left_out | {each.place for each in refused}
            writer = replace(writer, left_out=left_out)


class JdbcSink(SinkConnector):
    """Writes topics into tables of PostgreSQL, MySQL, MariaDB or SQLite: a record is a row.

    ``insert.mode`` is insert, upsert or update; ``pk.mode`` selects the source of the primary key.
    The connector can create and extend tables (``auto.create``, ``auto.evolve``) and delete rows
    for tombstones (``delete.enabled``). The settings have the names of Confluent's JDBC sink.

    Each record is written once: the position of each topic partition is stored in
    ``offsets.table``, in the transaction that writes the rows. Without that table, and on
    non-transactional MySQL tables, records may be written twice after a crash.
    """

    version = "0.1.0"
    aliases = (
        "JdbcSink",
        "io.confluent.connect.jdbc.JdbcSinkConnector",
        "io.debezium.connector.jdbc.JdbcSinkConnector",
    )
    other_settings = JDBC_SINK
    guarantees = ONCE
    structured: ClassVar[bool] = True
    task_class = JdbcSinkTask

    def __init__(self) -> None:
        self._config: Mapping[str, Any] = {}

    @classmethod
    def config_def(cls) -> ConfigDef:
        """See the documentation of each key."""
        return CONNECTION_SETTINGS | ConfigDef(
            ConfigKey(
                INSERT_MODE,
                ConfigType.STRING,
                default=INSERT,
                importance=Importance.HIGH,
                group="Writing",
                documentation="Whether a record is a new row (insert), a new or changed row "
                "(upsert), or only a changed row (update).",
                validator=OneOf(INSERT, UPSERT, UPDATE),
            ),
            ConfigKey(
                PK_MODE,
                ConfigType.STRING,
                default=NONE,
                importance=Importance.HIGH,
                group="Keys",
                documentation="The primary key: none, the record's topic, partition and offset "
                "(kafka), or fields of its key or value.",
                validator=OneOf(*_PK_MODES),
                recommender=Recommender(
                    depends_on=(INSERT_MODE, DELETE_ENABLED), values=_fitting_pk_modes
                ),
            ),
            ConfigKey(
                PK_FIELDS,
                ConfigType.LIST,
                default=None,
                importance=Importance.MEDIUM,
                group="Keys",
                documentation="The columns of the primary key; by default all fields of the key "
                "or value. A key that is not a struct needs exactly one column name.",
                recommender=visible_when(PK_MODE, KAFKA, RECORD_KEY, RECORD_VALUE),
            ),
            ConfigKey(
                DELETE_ENABLED,
                ConfigType.BOOLEAN,
                default=False,
                importance=Importance.MEDIUM,
                group="Writing",
                documentation="Delete the row of the key when a record's value is null; otherwise "
                "such records are skipped.",
            ),
            ConfigKey(
                TABLE_FORMAT,
                ConfigType.STRING,
                default="${topic}",
                importance=Importance.MEDIUM,
                group="Tables",
                documentation="The table for a topic, optionally with a schema: app.${topic}. The "
                'last dot ends the schema; "${topic}" in quotes is a single name.',
                validator=All(NonEmpty(), Check(format_fault)),
            ),
            ConfigKey(
                AUTO_CREATE,
                ConfigType.BOOLEAN,
                default=False,
                importance=Importance.MEDIUM,
                group="Tables",
                documentation="Create missing tables, with the schema of the first records.",
            ),
            ConfigKey(
                AUTO_EVOLVE,
                ConfigType.BOOLEAN,
                default=False,
                importance=Importance.MEDIUM,
                group="Tables",
                documentation="Add columns for fields that the table does not have.",
            ),
            ConfigKey(
                FIELDS_WHITELIST,
                ConfigType.LIST,
                default=None,
                importance=Importance.MEDIUM,
                group="Tables",
                documentation="The fields of values to write; by default all.",
            ),
            ConfigKey(
                OFFSETS_TABLE,
                ConfigType.STRING,
                default="drover_offsets",
                importance=Importance.LOW,
                group="Tables",
                documentation="The table for the position of each topic partition, which prevents "
                "duplicates; created if missing. Empty for none.",
                validator=Check(_ledger_fault),
            ),
            ConfigKey(
                LOCK_TIMEOUT,
                ConfigType.INT,
                default=LOCK_TIMEOUT_MS,
                importance=Importance.LOW,
                group="Writing",
                documentation="How long a statement waits for rows and tables locked by others "
                "before it fails with a retriable error; whole seconds on MySQL.",
                validator=InRange(1),
            ),
            PLACEHOLDER_KEY,
        )

    @classmethod
    def validate(cls, config: Mapping[str, Any]) -> Sequence[Violation]:
        """The settings must not contradict each other."""
        return list(_contradictions(config))

    @classmethod
    def check_systems(cls, config: Mapping[str, Any]) -> Sequence[Violation]:
        """The server must accept the settings."""
        faults: list[Violation] = []
        suppressed = contextlib.suppress(LookFailedError)
        with suppressed, checked_connection(address_of(config), faults) as connection:
            settings, topics = _write_settings(config), routed_topics(config)
            path = Path(address_of(config).name or "")
            faults += server_faults(connection, settings, topics, path)
            if not topics:
                faults.append(SkippedCheck(TABLE_FORMAT, _UNKNOWN_TOPICS))
        return faults

    @classmethod
    def alter_offsets(cls, config: Mapping[str, Any], changes: Sequence[OffsetChange]) -> bool:
        """Change the table of offsets as well, so that records are written again."""
        if not config[OFFSETS_TABLE]:
            return True
        from drover.connectors.jdbc.ledger import ledger_table, make_ledger, of_topic

        table = ledger_table(config[OFFSETS_TABLE])
        address = address_of(config)
        with translated_errors(address, "setting offsets back"), address.connected() as connection:
            make_ledger(connection, config[OFFSETS_TABLE])
            own = table.update().where(table.c.connector == config["name"])
            if not changes:  # a reset without committed offsets
                connection.execute(own.values(next_offset=0))
            for partition, offset in changes:
                place = own.where(
                    of_topic(table, str(partition["kafka_topic"])),
                    table.c.partition == int(str(partition["kafka_partition"])),
                )
                position = int(str(offset["kafka_offset"])) if offset else 0
                connection.execute(place.values(next_offset=position))
            connection.commit()
        return True

    @classmethod
    def traced_offsets(
        cls, connector: str, config: Mapping[str, Any], partitions: Mapping[TopicPartition, str]
    ) -> Mapping[TopicPartition, int]:
        """The positions in the table of offsets."""
        if not config[OFFSETS_TABLE]:
            return {}
        from drover.connectors.jdbc.ledger import stored_offsets

        address = address_of(config)
        if address.kind == "sqlite" and not Path(address.name or "").exists():
            return {}  # a connection would create it
        with translated_errors(address, "reading offsets"), address.connected() as connection:
            return stored_offsets(connection, config[OFFSETS_TABLE], connector, partitions)

    @classmethod
    def predicted_writes(
        cls, config: Mapping[str, Any], batches: Sequence[Any]
    ) -> Sequence[PredictedWrite]:
        """The tables, and the records that they refuse: the records are written in a transaction
        that is rolled back. Records that were written before are not tried.
        """
        from drover.connectors.jdbc.changes import places_of
        from drover.connectors.jdbc.write_trial import refusals

        address, settings = address_of(config), _write_settings(config)
        records = [batch.slice(row, 1) for batch in batches for row in range(batch.num_rows)]
        if not records or (address.kind == "sqlite" and not Path(address.name or "").exists()):
            return ()  # a connection would create the file
        places = [places_of(each)[0] for each in records]
        ids = {TopicPartition(topic, partition): "" for topic, partition, _ in places}
        written = cls.traced_offsets(config["name"], config, ids)
        new = [
            number
            for number, (topic, partition, offset) in enumerate(places)
            if offset >= written.get(TopicPartition(topic, partition), 0)
        ]
        with translated_errors(address, "trying to write"):
            found = refusals(address, settings, [records[number] for number in new])
        reasons = dict(zip(new, found, strict=True))
        return [
            PredictedWrite(
                *place,
                settings.table_of(record.column(TOPIC)[0].as_py()),
                reasons.get(number) or "",
            )
            for number, (record, place) in enumerate(zip(records, places, strict=True))
        ]

    @classmethod
    def overwrite_keys(cls, config: Mapping[str, Any]) -> Sequence[OverwriteKey]:
        """Upserts, updates and deletions select rows by the primary key."""
        settings = _write_settings(config)
        if settings.insert_mode == INSERT and not settings.deletes:
            return ()
        if settings.pk_mode not in (RECORD_KEY, RECORD_VALUE):
            return ()  # the key is the record's own place
        is_value = settings.pk_mode == RECORD_VALUE
        return (
            OverwriteKey(
                "value" if is_value else "key",
                settings.pk_fields,
                per_topic="${topic}" in settings.table_format,
                # collations of MySQL and MariaDB ignore case by default
                ignores_case=str(config[URL]).startswith(_MYSQL_URLS),
            ),
        )

    def start(self, context: Any, config: Mapping[str, Any]) -> None:
        """The connector object does no work."""
        del context
        self._config = config

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        """The highest number of tasks; each has some of the topic partitions."""
        return [{}] * max_tasks


def _ledger_fault(name: str) -> str | None:
    return format_fault(name) if name else None


def _write_settings(config: Mapping[str, Any]) -> WriteSettings:
    """The write settings of a config, in which invalid settings may be missing."""
    fields = config.get(FIELDS_WHITELIST)
    return WriteSettings(
        table_format=config[TABLE_FORMAT],
        insert_mode=config.get(INSERT_MODE, INSERT),
        pk_mode=config.get(PK_MODE, NONE),
        pk_fields=tuple(config.get(PK_FIELDS) or ()),
        deletes=config.get(DELETE_ENABLED, False),
        creates=config.get(AUTO_CREATE, False),
        evolves=config.get(AUTO_EVOLVE, False),
        fields=tuple(fields) if fields else None,
        ledger=config.get(OFFSETS_TABLE) or None,
        lock_timeout_ms=config.get(LOCK_TIMEOUT, LOCK_TIMEOUT_MS),
        placeholder=config.get(SETTING, PLACEHOLDER),
    )


_MYSQL_URLS = ("jdbc:mysql:", "jdbc:mariadb:", "mysql", "mariadb")
_PK_MODES = (NONE, KAFKA, RECORD_KEY, RECORD_VALUE)


def _fitting_pk_modes(config: Mapping[str, Any]) -> Sequence[str]:
    """The pk.mode values that fit insert.mode and delete.enabled."""
    if config.get(DELETE_ENABLED):
        return (RECORD_KEY,)
    if config.get(INSERT_MODE) in (UPSERT, UPDATE):
        return tuple(mode for mode in _PK_MODES if mode != NONE)
    return _PK_MODES


def _contradictions(config: Mapping[str, Any]) -> Iterator[Violation]:
    mode, keys = config.get(INSERT_MODE), config.get(PK_MODE)
    fields = config.get(PK_FIELDS) or ()
    if mode in (UPSERT, UPDATE) and keys == NONE:
        yield Violation(PK_MODE, f"must select a primary key with {INSERT_MODE}={mode}")
    if config.get(DELETE_ENABLED) and keys != RECORD_KEY:
        yield Violation(DELETE_ENABLED, f"needs {PK_MODE}={RECORD_KEY}: the key selects the row")
    if keys == KAFKA and len(fields) not in (0, 3):
        yield Violation(PK_FIELDS, "must name three columns, of topic, partition and offset")
    if keys == NONE and fields:
        yield Violation(PK_FIELDS, f"must not be set with {PK_MODE}={NONE}")
