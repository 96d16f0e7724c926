"""IcebergSink: writes topics to tables of Apache Iceberg."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal

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
    Password,
    PredictedWrite,
    SinkBatch,
    SinkConnector,
    SinkTask,
    SinkTaskContext,
    TopicPartition,
    Violation,
)
from drover.connectors.aliases import ICEBERG_SINK
from drover.connectors.lakehouse.fitted_rows import TableError
from drover.connectors.lakehouse.rows import (
    EXTRA,
    RECORD_KEY,
    RECORD_VALUE,
    RowSettings,
    converter_faults,
    predictions,
)
from drover.connectors.offset_changes import refuse_renamed, renaming_transform
from drover.connectors.output_ids import output_ids_of
from drover.connectors.refused_records import write_batch
from drover.connectors.unavailable import PLACEHOLDER_KEY, SETTING
from drover.policy.client_setting_lists import Library
from drover.policy.client_settings import client_setting_faults
from drover.policy.egress import url_fault
from drover.policy.files import local_path, root_fault

CATALOG = "iceberg.catalog"
TYPE, URI = "iceberg.catalog.type", "iceberg.catalog.uri"
USER, PASSWORD = "iceberg.catalog.user", "iceberg.catalog.password"
WAREHOUSE = "iceberg.catalog.warehouse"
TABLES = "iceberg.tables"
CREATE, EVOLVE = "iceberg.tables.auto-create-enabled", "iceberg.tables.evolve-schema-enabled"
UPSERT = "iceberg.tables.upsert-mode-enabled"
ID_COLUMNS = "iceberg.tables.default-id-columns"
PARTITION_BY = "iceberg.tables.default-partition-by"
PK_MODE = "pk.mode"
DELETE_ENABLED = "delete.enabled"
EXPIRE_HOURS = "expire.snapshots.hours"
INTERVAL_MS = "iceberg.control.commit.interval-ms"
BATCH_WAIT_MS = "batch.wait.ms"

_SECRETS = (
    *("credential", "token", "s3.secret-access-key", "s3.session-token", "gcs.oauth2.token"),
    *("adls.account-key", "adls.sas-token", "adls.connection-string", "adls.client-secret"),
)
#: Settings that the library does not receive under these names; Java's io-impl has no effect.
_OWN = (TYPE, URI, USER, PASSWORD, "iceberg.catalog.io-impl")
_REST, _SQL = "rest", "sql"


class IcebergSinkTask(SinkTask):
    """Writes each batch in one commit per table."""

    writes_ahead: ClassVar[bool] = True

    def start(self, context: SinkTaskContext) -> None:
        """Read the settings; each batch loads its tables."""
        from drover.connectors.lakehouse.iceberg_table import IcebergWriter

        config = context.config
        self._context = context
        self._writer = IcebergWriter(
            context.task.connector, settings_of(config), tolerates=config[TOLERANCE] == "all"
        )

    def write(self, batch: SinkBatch) -> str:
        """Write the batch and its offsets; reject the records that cannot be rows."""
        output_ids = output_ids_of(batch, self._context)
        write_batch(batch, replace(self._writer, output_ids=output_ids))
        return ""


class IcebergSink(SinkConnector):
    """Writes topics into tables of Apache Iceberg, through a REST catalogue or a catalogue in a
    database: a record is a row. The settings have the names of Iceberg's own sink for Kafka
    Connect.

    Rows are appended, or replace the row with their key; tables can be created and extended.

    Each record is written once: a commit contains the offsets of its records.
    """

    version = "0.1.0"
    aliases = (
        "IcebergSink",
        "org.apache.iceberg.connect.IcebergSinkConnector",
        "io.tabular.iceberg.connect.IcebergSinkConnector",
    )
    other_settings = ICEBERG_SINK
    guarantees = ONCE
    structured: ClassVar[bool] = True
    task_class = IcebergSinkTask

    def __init__(self) -> None:
        self._config: Mapping[str, Any] = {}

    @classmethod
    def config_def(cls) -> ConfigDef:
        """See the documentation of each key."""
        return _SETTINGS

    @classmethod
    def validate(cls, config: Mapping[str, Any]) -> Sequence[Violation]:
        """The settings must not contradict each other; the library's settings must be allowed."""
        faults = [*_contradictions(config), *converter_faults(config)]
        known = {each.field for each in faults}
        return [*faults, *(each for each in _property_faults(config) if each.field not in known)]

    @classmethod
    def check_systems(cls, config: Mapping[str, Any]) -> Sequence[Violation]:
        """The settings must fit catalogue and tables."""
        from drover.connectors.lakehouse.iceberg_checks import catalog_faults

        try:
            settings = settings_of(config)
        except (ValueError, TableError) as error:
            return [Violation(URI, str(error))]
        return list(catalog_faults(settings, config))

    @classmethod
    def overwrite_keys(cls, config: Mapping[str, Any]) -> Sequence[OverwriteKey]:
        """Upserts replace the row with the key, in each table."""
        if not config[UPSERT]:
            return ()
        part: Literal["key", "value"] = "value" if config[PK_MODE] == RECORD_VALUE else "key"
        return [
            OverwriteKey(
                part,
                _listed(config, each, "id-columns", ID_COLUMNS),
                per_topic="${topic}" in each,
            )
            for each in config[TABLES]
        ]

    @classmethod
    def alter_offsets(cls, config: Mapping[str, Any], changes: Sequence[OffsetChange]) -> bool:
        """Change the tables' offsets as well, so that records are written again."""
        refuse_renamed(config, config[TABLES])
        from drover.connectors.lakehouse.iceberg_table import set_back

        settings, connector = settings_of(config), config["name"]
        if not changes:  # a reset without committed offsets
            for topic in config.get("topics") or ():
                set_back(settings, connector, topic, None)
        wanted: dict[str, dict[int, int]] = {}
        for place, offset in changes:
            position = int(str(offset["kafka_offset"])) if offset else 0
            partition = int(str(place["kafka_partition"]))
            wanted.setdefault(str(place["kafka_topic"]), {})[partition] = position
        for topic, offsets in wanted.items():
            set_back(settings, connector, topic, offsets)
        return True

    @classmethod
    def traced_offsets(
        cls, connector: str, config: Mapping[str, Any], partitions: Mapping[TopicPartition, str]
    ) -> Mapping[TopicPartition, int]:
        """The offsets that all tables have; tables of renamed topics are unknown."""
        if renaming_transform(config, config[TABLES]):
            return {}
        from drover.connectors.lakehouse.iceberg_table import traced_offsets

        return traced_offsets(settings_of(config), connector, partitions)

    @classmethod
    def predicted_writes(
        cls, config: Mapping[str, Any], batches: Sequence[Any]
    ) -> Sequence[PredictedWrite]:
        """The tables, and the records that cannot be rows."""
        from drover.connectors.lakehouse.iceberg_table import IcebergWriter

        writer = IcebergWriter(config["name"], settings_of(config), tolerates=True)
        return predictions(batches, writer.predicted(batches))

    def start(self, context: Any, config: Mapping[str, Any]) -> None:
        """The connector object does no work."""
        del context
        self._config = config

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        """All tasks have the same config, with the commit interval as the wait of batches."""
        config = self._config
        wait_ms = config[BATCH_WAIT_MS]
        wait = str(config[INTERVAL_MS] if wait_ms is None else wait_ms)
        return [{BATCH_WAIT_MS: wait} for _ in range(max_tasks)]


def settings_of(config: Mapping[str, Any]) -> Any:
    """The IcebergSettings of a parsed config."""
    from drover.connectors.lakehouse.iceberg_table import IcebergSettings, IcebergTable

    tables = tuple(
        IcebergTable(
            each,
            RowSettings(
                placeholder=config[SETTING],
                keyed=config[UPSERT],
                key_source=config[PK_MODE],
                key_fields=_listed(config, each, "id-columns", ID_COLUMNS),
                deletes=config[DELETE_ENABLED],
            ),
            _partition_fields(_listed(config, each, "partition-by", PARTITION_BY)),
        )
        for each in config[TABLES]
    )
    return IcebergSettings(
        config[CATALOG],
        tuple(sorted(catalog_properties(config).items())),
        tables,
        creates=config[CREATE],
        evolves=config[EVOLVE],
        expire_hours=config[EXPIRE_HOURS],
    )


def catalog_properties(config: Mapping[str, Any]) -> dict[str, str]:
    """The properties of the catalogue: all settings that start with ``iceberg.catalog.``.

    Raises:
        ValueError: Connectors must not set one of them, or the URI is wrong.
    """
    for fault in _property_faults(config):
        raise ValueError(f"{fault.field} {fault.description}")
    kind = _SQL if config[TYPE] == "jdbc" else config[TYPE]
    uri = _uri(config) if kind == _SQL else config[URI]
    return {**_passed_on(config), "type": kind, "uri": uri}


def _passed_on(config: Mapping[str, Any]) -> dict[str, str]:
    """The settings of the catalogue that the library receives unchanged."""
    return {
        name.removeprefix(f"{CATALOG}."): each.value if isinstance(each, Password) else str(each)
        for name, each in config.items()
        if name.startswith(f"{CATALOG}.") and name not in _OWN and each is not None
    }


def _property_faults(config: Mapping[str, Any]) -> list[Violation]:
    """The settings of the catalogue that connectors must not set."""
    given = {**_passed_on(config), "uri": config.get(URI) or ""}
    return [
        Violation(f"{CATALOG}.{name}", fault)
        for name, fault in client_setting_faults(Library.PYICEBERG, given)
        if given[name]  # an empty value has no effect
    ]


def _uri(config: Mapping[str, Any]) -> str:
    """The SQLAlchemy URL of a database, from a JDBC or SQLAlchemy URL, with user and password."""
    from drover.connectors.jdbc.database import parse_address

    password = config[PASSWORD]
    address = parse_address(config[URI], config[USER], password.value if password else None)
    try:
        return address.url().render_as_string(hide_password=False)
    except ModuleNotFoundError as error:
        raise TableError(EXTRA) from error


def _listed(config: Mapping[str, Any], table: str, own: str, common: str) -> tuple[str, ...]:
    """The list for one table, or the common one."""
    text = config.get(f"iceberg.table.{table}.{own}")
    if text is None:
        return tuple(config[common] or ())
    return tuple(each.strip() for each in str(text).split(",") if each.strip())


def _partition_fields(texts: Sequence[str]) -> Any:
    from drover.connectors.lakehouse.iceberg_table import PartitionField

    return tuple(PartitionField.parse(each) for each in _rejoined(texts))


def _rejoined(items: Sequence[str]) -> list[str]:
    """Rejoin list items that contain commas within parentheses: ``bucket(id, 16)``."""
    found: list[str] = []
    for each in items:
        if found and found[-1].count("(") > found[-1].count(")"):
            found[-1] = f"{found[-1]},{each}"
        else:
            found.append(each)
    return found


def _contradictions(config: Mapping[str, Any]) -> list[Violation]:
    faults = []
    if config.get(TYPE) == _REST and not re.match("https?://[^/]", config.get(URI) or "http://x"):
        text = "must be the address of the REST catalogue, such as https://catalogue:8181"
        faults.append(Violation(URI, text))
    elif config.get(TYPE) == _REST and config.get(URI):
        fault = url_fault(config[URI])
        faults += [] if fault is None else [Violation(URI, fault)]
    elif config.get(URI) and config.get(TYPE) in (_SQL, "jdbc"):
        from drover.connectors.jdbc.database import address_fault

        fault = address_fault(config[URI])
        faults += [] if fault is None else [Violation(URI, fault)]
    warehouse = str(config.get(WAREHOUSE) or "")
    path = local_path(warehouse or "x:")
    # a REST catalogue has names of warehouses
    is_name = path == warehouse and not path.startswith("/") and config.get(TYPE) == _REST
    if path is not None and not is_name:
        fault = root_fault(path)
        faults += [] if fault is None else [Violation(WAREHOUSE, fault)]
    keyed, mode = config.get(UPSERT), config.get(PK_MODE)
    for each in config.get(TABLES) or () if keyed and ID_COLUMNS in config else ():
        columns = _listed(config, each, "id-columns", ID_COLUMNS)
        if not columns and mode == RECORD_VALUE:
            text = f"must name the fields of the value that are the key of {each!r}"
            faults.append(Violation(ID_COLUMNS, text))
        faults += [
            Violation(ID_COLUMNS, f"must not contain {name!r}: nested fields cannot be key columns")
            for name in columns
            if "." in name
        ]
    if config.get(DELETE_ENABLED) and (not keyed or mode != RECORD_KEY):
        text = f"needs {UPSERT}=true and {PK_MODE}={RECORD_KEY}: the key selects the row"
        faults.append(Violation(DELETE_ENABLED, text))
    return faults


def _tables_fault(names: Sequence[str]) -> str | None:
    bad = [each for each in names if "." not in each.strip(".")]
    return f"must have a namespace before a dot, such as app.{bad[0]}" if bad else None


def _partition_fault(items: Sequence[str]) -> str | None:
    try:
        _partition_fields(items)
    except ValueError as error:
        return str(error)
    return None


def _key(
    name: str,
    documentation: str,
    kind: ConfigType = ConfigType.STRING,
    group: str = "Tables",
    **more: Any,
) -> ConfigKey:
    return ConfigKey(
        name,
        kind,
        group=group,
        documentation=documentation,
        **{"importance": Importance.MEDIUM, **more},
    )


_SETTINGS = ConfigDef(
    _key(
        CATALOG,
        "The catalogue's name; a database distinguishes several catalogues by it.",
        group="Catalogue",
        default="iceberg",
    ),
    _key(
        TYPE,
        "The kind of catalogue: rest, or sql (jdbc) for one in a database, compatible with "
        "Iceberg's JDBC catalogue.",
        group="Catalogue",
        default=_REST,
        importance=Importance.HIGH,
        validator=OneOf(_REST, _SQL, "jdbc"),
    ),
    _key(
        URI,
        "The address of the REST catalogue or the database: https://host, "
        "jdbc:postgresql://host/name, jdbc:sqlite:/path.",
        group="Catalogue",
        importance=Importance.HIGH,
        validator=NonEmpty(),
    ),
    _key(USER, "The user of the database.", group="Catalogue", default=None),
    _key(
        PASSWORD,
        "The password of that user.",
        ConfigType.PASSWORD,
        group="Catalogue",
        default=None,
    ),
    _key(
        WAREHOUSE,
        "The location of new tables, such as s3://lake/warehouse or file:///data/warehouse, or a "
        "name that the catalogue defines.",
        group="Catalogue",
        default=None,
    ),
    *(
        _key(
            f"{CATALOG}.{name}",
            "A secret property of the catalogue or its file store, with pyiceberg's name.",
            ConfigType.PASSWORD,
            group="Catalogue",
            default=None,
        )
        for name in _SECRETS
    ),
    _key(
        TABLES,
        "The tables, as namespace.name; every record is written to each. ${topic} is replaced by "
        "the name of the record's topic.",
        ConfigType.LIST,
        importance=Importance.HIGH,
        validator=All(NonEmpty(), Check(_tables_fault)),
    ),
    _key(
        CREATE,
        "Create missing tables and namespaces, with the schema of the first records.",
        ConfigType.BOOLEAN,
        default=False,
    ),
    _key(
        EVOLVE,
        "Add columns for fields that a table does not have, and promote types: int to long, float "
        "to double, decimals to more digits.",
        ConfigType.BOOLEAN,
        default=False,
    ),
    _key(
        UPSERT,
        "Whether a record replaces the row with its key, or is a new row.",
        ConfigType.BOOLEAN,
        group="Keys",
        default=False,
    ),
    _key(
        PK_MODE,
        "Whether the key fields are from the record's value or key.",
        group="Keys",
        default=RECORD_VALUE,
        validator=OneOf(RECORD_KEY, RECORD_VALUE),
    ),
    _key(
        ID_COLUMNS,
        "The key columns; by default all fields of the record's key. For a single table: "
        "iceberg.table.NAME.id-columns.",
        ConfigType.LIST,
        group="Keys",
        default=None,
    ),
    _key(
        DELETE_ENABLED,
        "Delete the row of the key when a record's value is null; otherwise such records are "
        "skipped.",
        ConfigType.BOOLEAN,
        group="Keys",
        default=False,
    ),
    _key(
        PARTITION_BY,
        "The partitioning of new tables: city, year(at), month(at), day(at), hour(at), bucket(id, "
        "16), truncate(name, 4). For a single table: iceberg.table.NAME.partition-by.",
        ConfigType.LIST,
        default=None,
        validator=Check(_partition_fault),
    ),
    _key(
        INTERVAL_MS,
        "How long a commit waits for more records.",
        ConfigType.INT,
        default=10_000,
        validator=InRange(0, 86_400_000),
    ),
    _key(
        BATCH_WAIT_MS,
        "Replaces iceberg.control.commit.interval-ms.",
        ConfigType.INT,
        default=None,
        importance=Importance.LOW,
        validator=InRange(0, 86_400_000),
    ),
    _key(
        EXPIRE_HOURS,
        "Expire snapshots older than this periodically; 0 for never.",
        ConfigType.INT,
        default=0,
        importance=Importance.LOW,
        validator=InRange(0),
    ),
    PLACEHOLDER_KEY,
)
