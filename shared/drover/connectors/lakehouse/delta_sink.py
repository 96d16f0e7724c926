"""DeltaSink: writes topics to tables of Delta Lake."""

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal

from drover.connector import (
    ONCE,
    TOLERANCE,
    All,
    Caution,
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
    RetriableError,
    SinkBatch,
    SinkConnector,
    SinkTask,
    SinkTaskContext,
    SkippedCheck,
    TopicPartition,
    Violation,
    routed_topics,
)
from drover.connectors.files.storage.object_store import (
    STORE_SETTINGS,
    ObjectPlace,
    ObjectStoreError,
    check_place,
    is_object_url,
    place_of,
    url_fault,
)
from drover.connectors.files.storage.object_store import translated_errors as store_errors
from drover.connectors.files.storage.write_access import directory_write_fault
from drover.connectors.lakehouse.fitted_rows import TableError
from drover.connectors.lakehouse.rows import (
    RECORD_KEY,
    RECORD_VALUE,
    RowSettings,
    converter_faults,
    predictions,
)
from drover.connectors.offset_changes import refuse_renamed, renaming_transform
from drover.connectors.output_ids import of_topic, output_ids_of
from drover.connectors.refused_records import write_batch
from drover.connectors.unavailable import PLACEHOLDER_KEY, SETTING
from drover.policy.files import check_root, directory_fault

URI = "table.uri"
INSERT_MODE = "insert.mode"
PK_MODE, PK_FIELDS = "pk.mode", "pk.fields"
DELETE_ENABLED = "delete.enabled"
PARTITION_BY = "partition.by"
AUTO_CREATE, AUTO_EVOLVE = "auto.create", "auto.evolve"
COMPACT_EVERY = "compact.every.commits"
RETAIN_HOURS = "retain.hours"
BATCH_WAIT_MS = "batch.wait.ms"

APPEND, UPSERT = "append", "upsert"
#: How many partitions are checked for offsets when the topic's partition count is unknown.
_PARTITIONS_MAX = 1_000


class DeltaSinkTask(SinkTask):
    """Writes each batch in one commit per table."""

    writes_ahead: ClassVar[bool] = True

    def start(self, context: SinkTaskContext) -> None:
        """Read the settings; each batch opens its tables."""
        from drover.connectors.lakehouse.delta_table import DeltaWriter

        config = context.config
        self._context = context
        self._writer = DeltaWriter(
            context.task.connector, settings_of(config), tolerates=config[TOLERANCE] == "all"
        )

    def write(self, batch: SinkBatch) -> str:
        """Write the batch and its offsets; reject the records that cannot be rows."""
        output_ids = output_ids_of(batch, self._context)
        write_batch(batch, replace(self._writer, output_ids=output_ids))
        return ""


class DeltaSink(SinkConnector):
    """Writes topics into tables of Delta Lake, on a disk or in an object store: a record is a row.

    Rows are appended, or replace the row with their key (``insert.mode=upsert``); tables are
    created (``auto.create``) and extended (``auto.evolve``); small files are compacted
    (``compact.every.commits``).

    Each record is written once: a commit contains the offsets of its records.
    """

    version = "0.1.0"
    aliases = ("DeltaSink",)
    guarantees = ONCE
    structured: ClassVar[bool] = True
    task_class = DeltaSinkTask

    @classmethod
    def config_def(cls) -> ConfigDef:
        """See the documentation of each key."""
        return _SETTINGS | STORE_SETTINGS

    @classmethod
    def validate(cls, config: Mapping[str, Any]) -> Sequence[Violation]:
        """The settings must not contradict each other."""
        return [*_contradictions(config), *converter_faults(config)]

    @classmethod
    def check_systems(cls, config: Mapping[str, Any]) -> Sequence[Violation]:
        """The settings must fit the tables."""
        return list(_system_faults(config))

    @classmethod
    def overwrite_keys(cls, config: Mapping[str, Any]) -> Sequence[OverwriteKey]:
        """Upserts replace the row with the key."""
        if config[INSERT_MODE] != UPSERT:
            return ()
        part: Literal["key", "value"] = "value" if config[PK_MODE] == RECORD_VALUE else "key"
        fields = tuple(config[PK_FIELDS] or ())
        return (OverwriteKey(part, fields, per_topic="${topic}" in config[URI]),)

    @classmethod
    def alter_offsets(cls, config: Mapping[str, Any], changes: Sequence[OffsetChange]) -> bool:
        """Change the tables' offsets as well, so that records are written again."""
        refuse_renamed(config, [config[URI]])
        from drover.connectors.lakehouse.delta_table import (
            opened,
            present_outputs,
            set_back,
            written_offsets,
        )

        settings, connector = settings_of(config), config["name"]
        wanted: dict[str, dict[int, int]] = {}
        for place, offset in changes:
            position = int(str(offset["kafka_offset"])) if offset else 0
            partition = int(str(place["kafka_partition"]))
            wanted.setdefault(str(place["kafka_topic"]), {})[partition] = position
        for topic in config.get("topics") or () if not changes else ():
            table = opened(settings, topic)  # a reset without committed offsets
            if table is not None:
                ids = present_outputs(table, connector, topic, range(_PARTITIONS_MAX))
                found = written_offsets(table, connector, topic, ids)
                wanted[topic] = dict.fromkeys(found, 0)
        for topic, offsets in wanted.items():
            if offsets:
                set_back(settings, connector, topic, offsets)
        return True

    @classmethod
    def traced_offsets(
        cls, connector: str, config: Mapping[str, Any], partitions: Mapping[TopicPartition, str]
    ) -> Mapping[TopicPartition, int]:
        """The offsets in the tables; tables of renamed topics are unknown."""
        if renaming_transform(config, [config[URI]]):
            return {}
        from drover.connectors.lakehouse.delta_table import opened, written_offsets

        settings, traced = settings_of(config), dict[TopicPartition, int]()
        for topic in sorted({key.topic for key in partitions}):
            table = opened(settings, topic)
            if table is not None:
                ids = of_topic(partitions, topic)
                found = written_offsets(table, connector, topic, ids)
                traced |= {TopicPartition(topic, n): at for n, at in found.items() if at > 0}
        return traced

    @classmethod
    def predicted_writes(
        cls, config: Mapping[str, Any], batches: Sequence[Any]
    ) -> Sequence[PredictedWrite]:
        """The tables, and the records that cannot be rows."""
        from drover.connectors.lakehouse.delta_table import DeltaWriter

        writer = DeltaWriter(config["name"], settings_of(config), tolerates=True)
        return predictions(batches, writer.predicted(batches))

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        """All tasks have the same config; they differ in their topic partitions."""
        return [{} for _ in range(max_tasks)]


def settings_of(config: Mapping[str, Any]) -> Any:
    """The DeltaSettings of a parsed config."""
    from drover.connectors.lakehouse.delta_table import DeltaSettings

    uri = config[URI]
    options: tuple[tuple[str, str], ...] = ()
    if is_object_url(uri):
        options = (*place_of(uri, config).options, ("conditional_put", "etag"))
        addresses = (each for name, each in options if name in ("endpoint", "base_url"))
        if any(each.startswith("http://") for each in addresses):
            options = (*options, ("allow_http", "true"))
    else:
        check_root(str(Path(uri.replace("${topic}", "topic"))))
    return DeltaSettings(
        uri,
        row_settings(config),
        partition_by=tuple(config[PARTITION_BY] or ()),
        creates=config[AUTO_CREATE],
        evolves=config[AUTO_EVOLVE],
        compact_every=config[COMPACT_EVERY],
        retain_hours=config[RETAIN_HOURS],
        storage_options=options,
    )


def row_settings(config: Mapping[str, Any]) -> RowSettings:
    """The RowSettings of a parsed config."""
    return RowSettings(
        placeholder=config[SETTING],
        keyed=config[INSERT_MODE] == UPSERT,
        key_source=config[PK_MODE],
        key_fields=tuple(config[PK_FIELDS] or ()),
        deletes=config[DELETE_ENABLED],
    )


def _contradictions(config: Mapping[str, Any]) -> list[Violation]:
    faults = []
    mode, keys = config.get(INSERT_MODE), config.get(PK_MODE)
    if mode == UPSERT and keys == RECORD_VALUE and not config.get(PK_FIELDS, ("?",)):
        faults.append(Violation(PK_FIELDS, "must name the fields of the value that are the key"))
    if mode == APPEND and config.get(PK_FIELDS):
        faults.append(Violation(PK_FIELDS, f"must not be set with {INSERT_MODE}={APPEND}"))
    if config.get(DELETE_ENABLED) and (mode != UPSERT or keys != RECORD_KEY):
        text = f"needs {INSERT_MODE}={UPSERT} and {PK_MODE}={RECORD_KEY}: the key selects the row"
        faults.append(Violation(DELETE_ENABLED, text))
    return faults


def _system_faults(config: Mapping[str, Any]) -> Iterator[Violation]:
    is_named_by_topic = "${topic}" in config[URI]
    topics = routed_topics(config) if is_named_by_topic else {"": ""}
    if not topics:
        yield SkippedCheck(URI, f"the tables of {config[URI]}: no topic is named")
    is_usable = True
    for topic, routed in topics.items():
        if routed is None:
            text = f"the table of topic {topic!r}: a transform names its topic by the records"
            yield SkippedCheck(URI, text)
        else:
            found = _table_faults(config, routed)
            yield from found
            is_usable = is_usable and all(each.field != URI for each in found)
    uris = [config[URI].replace("${topic}", each) for each in topics.values() if each is not None]
    if is_usable and uris and is_object_url(uris[0]):
        yield from _store_faults(place_of(uris[0], config))


def _store_faults(place: ObjectPlace) -> Iterator[Violation]:
    """The rights that the store lacks, tried with an object that readers of a table ignore."""
    try:
        check_place(place)
        store, name = place.store(), f"_drover-probe-{uuid.uuid4().hex}"
        import obstore  # its absence is a fault of the line before

        with store_errors(place, "trying to create an object"):
            obstore.put(store, name, b"", mode="create")
        try:
            with store_errors(place, "trying to read an object"):
                obstore.get(store, name).bytes()
            with store_errors(place, "trying to list objects"):
                list(obstore.list(store, name))
        finally:
            try:
                with store_errors(place, "trying to delete an object"):
                    obstore.delete(store, name)
            except ObjectStoreError as error:
                text = f"{error}. Old files stay, as does the object {name} of this check"
                yield Caution(URI, text)
    except (ObjectStoreError, RetriableError) as error:
        yield Violation(URI, f"cannot be written: {error}")


def _table_faults(config: Mapping[str, Any], topic: str) -> list[Violation]:
    from drover.connectors.lakehouse.delta_limits import check_writable
    from drover.connectors.lakehouse.delta_table import opened, translated_errors

    try:
        settings = settings_of(config)
        with translated_errors(settings.uri_of(topic)):
            table = opened(settings, topic)
            if table is None:
                text = (
                    f"table {settings.uri_of(topic)} does not exist: create it, or set this to true"
                )
                if not settings.creates:
                    return [Violation(AUTO_CREATE, text)]
                return _directory_faults(settings.uri_of(topic))
            check_writable(table, keyed=settings.rows.keyed)
            names = {each.name for each in table.schema().fields}
            partitions = tuple(table.metadata().partition_columns)
    except (TableError, RetriableError, PermissionError) as error:
        return [Violation(URI, f"cannot be read: {error}")]
    faults = [
        Violation(PK_FIELDS, f"table {settings.uri_of(topic)} has no column {each!r}")
        for each in settings.rows.key_fields
        if each not in names and not settings.evolves
    ]
    if settings.partition_by and settings.partition_by != partitions:
        shown = ",".join(partitions) or "none"
        text = f"table {settings.uri_of(topic)} has other partition columns: {shown}"
        faults.append(Violation(PARTITION_BY, text))
    uri = settings.uri_of(topic)
    return [
        *faults,
        *(each for part in ("", "/_delta_log") for each in _directory_faults(uri + part)),
    ]


def _directory_faults(uri: str) -> list[Violation]:
    fault = None if is_object_url(uri) else directory_write_fault(uri)
    return [] if fault is None else [Violation(URI, fault)]


def _uri_fault(uri: str) -> str | None:
    plain = uri.replace("${topic}", "topic")
    return url_fault(plain) if is_object_url(plain) else directory_fault(plain)


def _key(name: str, kind: ConfigType, documentation: str, group: str, **more: Any) -> ConfigKey:
    return ConfigKey(
        name,
        kind,
        group=group,
        documentation=documentation,
        **{"importance": Importance.MEDIUM, **more},
    )


_SETTINGS = ConfigDef(
    _key(
        URI,
        ConfigType.STRING,
        "The table: an absolute path, or s3://bucket/table, gs://bucket/table, "
        "az://container/table. ${topic} is replaced by the name of the record's topic.",
        "Tables",
        importance=Importance.HIGH,
        validator=All(NonEmpty(), Check(_uri_fault)),
    ),
    _key(
        INSERT_MODE,
        ConfigType.STRING,
        "Whether a record is a new row, or replaces the row with its key.",
        "Writing",
        default=APPEND,
        importance=Importance.HIGH,
        validator=OneOf(APPEND, UPSERT),
    ),
    _key(
        PK_MODE,
        ConfigType.STRING,
        "Whether the key fields are from the record's key or value.",
        "Keys",
        default=RECORD_KEY,
        validator=OneOf(RECORD_KEY, RECORD_VALUE),
    ),
    _key(
        PK_FIELDS,
        ConfigType.LIST,
        "The key columns; by default all fields of the record's key. A key that is not a struct "
        "needs exactly one column name.",
        "Keys",
        default=None,
    ),
    _key(
        DELETE_ENABLED,
        ConfigType.BOOLEAN,
        "Delete the row of the key when a record's value is null; otherwise such records are "
        "skipped.",
        "Writing",
        default=False,
    ),
    _key(
        PARTITION_BY,
        ConfigType.LIST,
        "The partition columns of a new table.",
        "Tables",
        default=None,
    ),
    _key(
        AUTO_CREATE,
        ConfigType.BOOLEAN,
        "Create missing tables, with the schema of the first records.",
        "Tables",
        default=True,
    ),
    _key(
        AUTO_EVOLVE,
        ConfigType.BOOLEAN,
        "Add columns for fields that the table does not have.",
        "Tables",
        default=False,
    ),
    _key(
        COMPACT_EVERY,
        ConfigType.INT,
        "Compact small files every so many versions of the table; 0 for never.",
        "Tables",
        default=0,
        importance=Importance.LOW,
        validator=InRange(0),
    ),
    _key(
        RETAIN_HOURS,
        ConfigType.INT,
        "At a compaction, remove files that no version of the last so many hours uses.",
        "Tables",
        default=168,
        importance=Importance.LOW,
        validator=InRange(0),
    ),
    _key(
        BATCH_WAIT_MS,
        ConfigType.INT,
        "How long a batch waits for more records unless it is full (batch.max.*): longer waits "
        "give fewer and larger files, with more latency.",
        "Batches",
        default=10_000,
        validator=InRange(0, 86_400_000),
    ),
    PLACEHOLDER_KEY,
)
