"""FilesSink: writes topics to files of rows."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Protocol

from drover.connector import (
    ONCE,
    TOLERANCE,
    All,
    Caution,
    Check,
    ConfigDef,
    ConfigKey,
    ConfigType,
    ConnectorContext,
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
    Term,
    TopicPartition,
    Violation,
    fieldless_converter,
    is_schemaless_json,
)
from drover.connectors.files.partition_levels import PartitionBy
from drover.connectors.files.row_files import (
    BZ2,
    CSV,
    GZIP,
    JSON,
    PARQUET,
    ZSTD,
    FileLayout,
    RowFileWriter,
    Staging,
    extension_of,
    predicted_files,
)
from drover.connectors.files.storage.object_directory import ObjectDirectory
from drover.connectors.files.storage.object_store import (
    STORE_SETTINGS,
    ObjectStoreError,
    is_object_url,
    place_fault,
    place_of,
)
from drover.connectors.files.storage.output_directory import (
    OutputDirectory,
    StagedFile,
    written_offsets,
)
from drover.connectors.files.storage.write_access import directory_write_fault
from drover.connectors.refused_records import RefusedRecordError, reject_refused

PATH = "path"
FORMAT = "format"
COMPRESSION = "compression"
PARTITION_BY = "partition.by"
FLUSH_SIZE = "flush.size"
ROLL_BYTES = "roll.bytes"

_NONE = "none"
#: The length that the fixed parts of a file's name leave for the topic.
_TOPIC_MAX_CHARS = 180

_log = logging.getLogger(__name__)


class Directory(Protocol):
    """Files that are named by the offsets of their records; see OutputDirectory."""

    def staged(self) -> Staging:
        """The staging area for executors."""

    def take_over(
        self,
        topic: str,
        partition: int,
        start_offset: int,
        *,
        output_id: str = "",
        is_committed: bool = True,
    ) -> int:
        """Become the owner of a topic partition; returns the offset up to which files exist."""

    def check_owner(self, topic: str, partition: int) -> None:
        """Raise if another task has taken over the topic partition."""

    def publish(self, files: Iterable[StagedFile]) -> None:
        """Move staged files to their final places."""

    def close(self) -> None:
        """Remove temporary files."""


class FilesSinkTask(SinkTask):
    """Writes each batch as files that are named by their offsets.

    Before a task writes a topic partition, its uncommitted files are removed, or their records are
    skipped, so every record is in exactly one file regardless of batch boundaries.
    """

    writes_ahead: ClassVar[bool] = True

    def start(self, context: SinkTaskContext) -> None:
        """Open the directory; a topic partition is taken over with its first records."""
        self._directory: Directory | None = self.directory(context)
        self._layout = self.layout(context.config)
        self._context = context
        self._outputs: dict[TopicPartition, str] = {}
        self._tolerates = context.config[TOLERANCE] == "all"
        self._next: dict[TopicPartition, int] = {}
        self._written: dict[TopicPartition, int] = {}

    def directory(self, context: SinkTaskContext) -> "Directory":
        """The output directory."""
        config = context.config
        if is_object_url(config[PATH]):
            return _object_directory(config, context.task.connector, context.claim)
        return OutputDirectory(
            config[PATH], task=context.task, term=context.claim, extension=_extension(config)
        )

    def layout(self, config: Mapping[str, Any]) -> FileLayout:
        """The layout of files, from the settings."""
        levels = [PartitionBy.parse(each) for each in config[PARTITION_BY] or []]
        return FileLayout(
            config[FORMAT],
            tuple(levels),
            left_out=frozenset(each.field for each in levels if each.field and not each.unit),
            rows_max=config[FLUSH_SIZE] or 0,
            bytes_max=config[ROLL_BYTES] or 0,
            codec=_codec(config),
        )

    def write(self, batch: SinkBatch) -> str:
        """Write the batch and publish its files; reject the records that cannot be written."""
        directory = self._directory
        assert directory is not None
        for each in batch.ranges:
            key = TopicPartition(each.topic, each.partition)
            expected, output_id = self._next.get(key), self._context.output_ids.get(key, "")
            is_other = self._outputs.get(key, output_id) != output_id
            if expected is None or each.start_offset < expected or is_other:
                # reading starts at the committed offset
                self._outputs[key] = output_id
                self._written[key] = directory.take_over(
                    each.topic,
                    each.partition,
                    each.start_offset,
                    output_id=output_id,
                    is_committed=key in self._context.committed,
                )
            else:
                directory.check_owner(each.topic, each.partition)
        try:
            self._write(batch, directory)
        except Exception:
            for each in batch.ranges:
                # some files may be published: the next attempt checks
                self._next.pop(TopicPartition(each.topic, each.partition), None)
            raise
        for each in batch.ranges:
            self._next[TopicPartition(each.topic, each.partition)] = each.end_offset
        return ""

    def _write(self, batch: SinkBatch, directory: Directory) -> None:
        writer = RowFileWriter(
            directory.staged(), self._layout, self._written_of(batch), tolerates=self._tolerates
        )
        try:
            rows = batch.run_in_arrow(writer)
        except RefusedRecordError as error:
            batch.reject(*error.record.place, error.record.reason)
            raise
        except Exception:
            for each in batch.ranges:  # if a take-over caused the error, report that
                directory.check_owner(each.topic, each.partition)
            raise
        reject_refused(batch, rows)
        directory.publish(
            StagedFile(
                row["staged"],
                row["directory"],
                row["topic"],
                row["partition"],
                row["start_offset"],
                row["end_offset"],
            )
            for row in rows
            if row["reason"] is None
        )

    def _written_of(self, batch: SinkBatch) -> tuple[tuple[str, int, int], ...]:
        """The offsets up to which files exist, for the topic partitions that are read again."""
        found = (
            (each.topic, each.partition, self._written[TopicPartition(each.topic, each.partition)])
            for each in batch.ranges
        )
        starts = {(each.topic, each.partition): each.start_offset for each in batch.ranges}
        return tuple(each for each in found if each[2] > starts[each[:2]])

    def stop(self) -> None:
        """Remove temporary files."""
        if getattr(self, "_directory", None) is not None:
            assert self._directory is not None
            self._directory.close()


class FilesSink(SinkConnector):
    """Writes topics to a directory, as Parquet, JSON lines or csv: a record is a row.

    Each batch becomes one file per topic partition, or one per directory of ``partition.by``;
    records with different schemas go to different files. Files are named by their offsets and
    appear when they are complete. Each record is written once: uncommitted files of a killed task
    are removed before its successor writes (in an object store they stay, and their records are not
    written again).

    Records with a null value (tombstones) are skipped. The directory is on a disk that driver and
    executors share, or in S3, Google Cloud Storage or Azure.
    """

    version = "0.1.0"
    aliases = ("FilesSink",)
    guarantees = ONCE
    structured: ClassVar[bool] = True
    task_class = FilesSinkTask

    @classmethod
    def config_def(cls) -> ConfigDef:
        """See the documentation of each key."""
        own = ConfigDef(
            ConfigKey(
                PATH,
                ConfigType.STRING,
                importance=Importance.HIGH,
                group="Files",
                documentation="The directory to write to: an absolute path, which is created, or "
                "s3://bucket/directory, gs://bucket/directory, az://container/directory.",
                validator=All(NonEmpty(), Check(place_fault)),
            ),
            ConfigKey(
                FORMAT,
                ConfigType.STRING,
                default=PARQUET,
                importance=Importance.HIGH,
                group="Files",
                documentation="The file format: parquet, json (an object per line) or csv.",
                validator=OneOf(PARQUET, JSON, CSV),
            ),
            ConfigKey(
                COMPRESSION,
                ConfigType.STRING,
                default=None,
                group="Files",
                documentation="The compression: json and csv files are compressed as a whole "
                "(with extensions such as .json.gz and .csv.zst), by default not; parquet files "
                "internally, by default with zstd.",
                validator=OneOf(_NONE, GZIP, ZSTD, BZ2),
            ),
            ConfigKey(
                PARTITION_BY,
                ConfigType.LIST,
                default=None,
                group="Files",
                documentation="Directory levels, from the top: a field's value (city makes "
                "city=Oslo, and the file has no such field), or the year, month, day or hour of a "
                "time (month(at) makes month=2024-01); month alone uses the record's timestamp.",
                validator=All(NonEmpty(), Check(_partition_by_fault)),
            ),
            ConfigKey(
                FLUSH_SIZE,
                ConfigType.INT,
                default=None,
                importance=Importance.LOW,
                group="Files",
                documentation="The most records per file; a larger batch becomes several files.",
                validator=InRange(1),
            ),
            ConfigKey(
                ROLL_BYTES,
                ConfigType.LONG,
                default=None,
                importance=Importance.LOW,
                group="Files",
                documentation="A file that reaches about this size is closed, and the batch "
                "continues in the next file.",
                validator=InRange(1024),
            ),
        )
        return own | STORE_SETTINGS

    @classmethod
    def validate(cls, config: Mapping[str, Any]) -> Sequence[Violation]:
        """Topic names must fit into file names."""
        faults = long_topics(config)
        if config.get(FORMAT) == PARQUET and config.get(COMPRESSION) == BZ2:
            faults.append(Violation(COMPRESSION, "must be gzip, zstd or none with parquet"))
        levels = [PartitionBy.parse(each) for each in config.get(PARTITION_BY) or ()]
        fields = [each.field for each in levels if each.field]
        kind = config.get(FORMAT)
        return [
            *faults,
            *form_faults(config, PARTITION_BY, fields),
            *text_cautions(config, FORMAT, is_text=kind in (PARQUET, CSV)),
        ]

    @classmethod
    def check_systems(cls, config: Mapping[str, Any]) -> Sequence[Violation]:
        """The directory or the object store must be writable."""
        if is_object_url(config[PATH]):
            return store_faults(config, PATH, config[PATH])
        fault = directory_write_fault(config[PATH])
        return [] if fault is None else [Violation(PATH, fault)]

    @classmethod
    def alter_offsets(cls, config: Mapping[str, Any], changes: Sequence[OffsetChange]) -> bool:
        """In an object store, discard files after the new offsets; a reset leaves all files."""
        if is_object_url(config[PATH]):
            set_back(_object_directory(config, config["name"], Term(0, 0)), changes)
        return True

    @classmethod
    def traced_offsets(
        cls, connector: str, config: Mapping[str, Any], partitions: Mapping[TopicPartition, str]
    ) -> Mapping[TopicPartition, int]:
        """The ends of the files, from their names or the log of an object store."""
        if is_object_url(config[PATH]):
            directory = _object_directory(config, connector, Term(0, 0))
            return directory.written_offsets(partitions)
        return written_offsets(config[PATH], connector, partitions)

    @classmethod
    def predicted_writes(
        cls, config: Mapping[str, Any], batches: Sequence[Any]
    ) -> Iterable[PredictedWrite]:
        """The directories, and the records that cannot be written."""
        return predicted_files(FilesSinkTask().layout(config), config[PATH], batches)

    def start(self, context: ConnectorContext, config: Mapping[str, Any]) -> None:
        """The connector object does no work."""

    @classmethod
    def overwrite_keys(cls, config: Mapping[str, Any]) -> Sequence[OverwriteKey]:
        """Files are only added."""
        del config
        return ()

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        """All tasks have the same config; they differ in their topic partitions."""
        return [{} for _ in range(max_tasks)]


def _object_directory(config: Mapping[str, Any], connector: str, claim: Term) -> ObjectDirectory:
    return ObjectDirectory(
        place_of(config[PATH], config),
        connector=connector,
        claim=claim,
        extension=_extension(config),
    )


def _codec(config: Mapping[str, Any]) -> str | None:
    given = config[COMPRESSION] or (ZSTD if config[FORMAT] == PARQUET else _NONE)
    return None if given == _NONE else str(given)


def _extension(config: Mapping[str, Any]) -> str:
    return extension_of(config[FORMAT], _codec(config))


def long_topics(config: Mapping[str, Any]) -> list[Violation]:
    """Topics with names that are too long for file names."""
    return [
        Violation(
            "topics",
            f"has {topic[:40]!r}…, which is too long for the names of files: "
            f"use at most {_TOPIC_MAX_CHARS} characters",
        )
        for topic in config.get("topics") or []
        if len(topic) > _TOPIC_MAX_CHARS
    ]


def form_faults(
    config: Mapping[str, Any], setting: str, fields: Sequence[str]
) -> Iterable[Violation]:
    """The error of a setting that names fields, if no value has any."""
    converter = fieldless_converter(config)
    if converter is not None and fields:
        yield Violation(
            setting,
            f"names the field {fields[0]!r}, and {converter} gives values without fields: set a "
            "value.converter such as JsonConverter, or add the transform HoistField$Value",
        )


def text_cautions(config: Mapping[str, Any], setting: str, *, is_text: bool) -> Iterable[Violation]:
    """The warning of a format with columns, if values are JSON without schemas."""
    if is_text and is_schemaless_json(config):
        yield Caution(
            setting,
            "writes JSON without schemas as one column, value, with the text of each value: for "
            "columns set value.converter.schemas.enable=true, AvroConverter or ProtobufConverter",
        )


def store_faults(config: Mapping[str, Any], setting: str, url: str) -> list[Violation]:
    """The object store's errors when a file is written and removed there."""
    if not is_object_url(url):
        return []
    directory = ObjectDirectory(
        place_of(url, config), connector="validation", claim=Term(0, 0), extension=""
    )
    try:
        directory.probe()
    except (ObjectStoreError, RetriableError) as error:
        return [Violation(setting, f"cannot be written: {error}")]
    return []


def set_back(directory: ObjectDirectory, changes: Sequence[OffsetChange]) -> None:
    """Discard files from the new offsets on. After a reset another output begins, and the files
    stay.
    """
    for partition, offset in changes:
        if offset is not None:
            directory.set_back(
                str(partition["kafka_topic"]),
                int(str(partition["kafka_partition"])),
                int(str(offset["kafka_offset"])),
            )


def _partition_by_fault(items: list[str]) -> str | None:
    try:
        names = [PartitionBy.parse(each).name for each in items]
    except ValueError as error:
        return str(error)
    doubled = sorted({name for name in names if names.count(name) > 1})
    return f"names {doubled[0]!r} twice" if doubled else None
